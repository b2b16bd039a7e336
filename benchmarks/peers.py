"""Compare calipers with other libraries for prediction intervals.

Every method sees the same splits, those of Hernández-Lobato & Adams (2015): twenty per dataset,
five for protein, fewer where `SPLIT_LIMITS` says so. Targets are standardised by the whole dataset
before anything is fitted, so widths and scores of different datasets are comparable. Only methods
named "tuned" are tuned. The random state is the number of the split, and peers get two threads.

================== ===================================================== ====================
method             settings (library defaults otherwise)                 point
================== ===================================================== ====================
mapie_cqr_lgbm     MAPIE ``ConformalizedQuantileRegressor`` over         median
                   ``LGBMRegressor``, 20% of the rows to conformalise
mapie_cvplus_hgb   MAPIE ``CrossConformalRegressor`` (CV+, 5 folds) over mean of the folds
                   ``HistGradientBoostingRegressor``
catboost_mq        ``MultiQuantile`` for bounds and median, early stop   median
catboost_mq_cqr    the same, conformalised on 5 folds                    median
catboost_unc       ``RMSEWithUncertainty``, normal interval, early stop  mean
catboost_unc_cal   the same, widths conformalised on 5 folds             mean
ngboost_normal     ``NGBRegressor`` (normal), early stop                 mean
quantile_forest    ``RandomForestQuantileRegressor``                     mean
lgbm_quantile      three ``LGBMRegressor(objective="quantile")``         median
mlp_conformal      five ``MLPRegressor(max_iter=1000)`` on standardised  mean of the networks
                   inputs, residuals of such ensembles on 5 folds
treeffuser         ``Treeffuser``, 200 draws                             mean of the draws
diffgbm_oof        ``DiffGBM``, 200 draws, conformalised on 5 folds      mean of the draws
hessboost_oof      hessboost's ``DiffusionModel``, likewise              mean of the draws
realmlp_cqr        pytabkit's ``RealMLP_TD_Regressor`` for 41 quantiles, median
                   five of 4/5 of the rows, conformalised on the others
tabm_cqr           the same with ``TabM_D_Regressor``                    median
autogluon_best     AutoGluon, ``best_quality``, 100 s, ``calibrate``     median
catboost_tuned_cqr ``MultiQuantile``, best of 25 settings, as RealMLP    median
lgbm_tuned_cqr     three LightGBM models, likewise                       median
calipers           ``IntervalRegressor()``                               ``predict``
================== ===================================================== ====================

Early stop: one tenth of the training rows is held out, patience is 50 rounds and the best round
predicts; with folds, the held-out tenth lies within them. This departs from the libraries'
defaults: with all its rounds CatBoost covered 0.42 to 0.69 instead of 0.58 to 0.96 on the first
splits of yacht, boston and concrete; for NGBoost it helped on boston, not on the others.
Conformalised on folds: the last model sees all rows (except for the tenth of an early stop), the
correction comes from out-of-fold predictions.
The networks get 1000 epochs because 200 end in a warning that training has not converged.
Crossed bounds are counted, then sorted before anything is measured.

With ``--grouped`` rows with identical inputs stay on one side of the split, since repeated rows
reward memorising. No method is given the groups. ``--train-rows`` draws that many training rows.

Peers have a separate environment; this file runs in either, since a method imports only what it
needs::

    python -m venv .venv-peers
    .venv-peers/bin/python -m pip install -r benchmarks/peers_requirements.txt
    .venv-peers/bin/python -m pip install -r benchmarks/peers_strong_requirements.txt
    .venv/bin/python benchmarks/peers.py export build/peers-data
    CALIPERS_DATA=build/peers-data .venv-peers/bin/python benchmarks/peers.py run
    .venv/bin/python benchmarks/peers.py run --methods calipers
    .venv/bin/python benchmarks/peers.py table

``run`` appends to ``results/peers/rows.csv``, one row per dataset, method, split and coverage, and
skips stored rows. If calipers predicts mass on single values, coverage rates with ties shared out
(``calipers.metrics.shared_coverage``) go to ``ties.csv``. ``table`` writes the summary and the
numbers of the pages. Methods that give every coverage from one fit get rows for 0.5, 0.8, 0.9, 0.95
and 0.99; the others are fitted again for each of ``--coverages``. ``published`` runs calipers on
the folds of the DiffGBM repository. Seconds are for fitting, the point and one interval; CPU
seconds are of all threads.
"""

import argparse
import contextlib
import csv
import fcntl
import importlib
import importlib.metadata
import io
import logging
import os
import time
from pathlib import Path

# Spinning threads cost tens of times the work on shared cores and falsify the seconds. Libraries
# read this when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import _peers_published as published_folds
import numpy as np
from _peers_data import (
    DATASETS,
    canonical_splits,
    export,
    grouped_splits,
    interval_measures,
    load,
    make_task,
    split_count,
)
from _peers_methods import METHODS, PEERS, THREADS

RESULTS = Path(__file__).resolve().parents[1] / "results" / "peers"
FIGURE = RESULTS.parents[1] / "docs" / "images" / "peers.png"
COVERAGE = 0.95
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
# Methods too slow for every split of a large dataset.
SPLIT_LIMITS = {
    ("protein", "mlp_conformal"): 2,
    ("protein", "ngboost_normal"): 2,
}
KEY = ("dataset", "method", "split", "grouped", "train_rows", "coverage")
TIES = ("dataset", "split", "coverage", "picp", "shared", "versions")
FIELDS = (
    *KEY,
    *("n_train", "n_test", "picp", "mpiw", "interval_score", "mse", "crps", "crossed"),
    *("seconds", "cpu_seconds", "threads", "versions"),
)


def planned_splits(dataset, method):
    """Number of splits in a complete comparison."""
    return SPLIT_LIMITS.get((dataset, method), split_count(dataset))


def row_key(row):
    """Identity of a row as text, the same for a new row and for a stored one."""
    return tuple(str(row[name]) for name in KEY)


def read_keys(path):
    """Identities of the rows in a file."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {row_key(row) for row in csv.DictReader(file)}


def append(path, rows, fields=FIELDS):
    """Append rows in one write, under a lock, so that several runs can share the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = io.StringIO()
        writer = csv.DictWriter(text, fields, lineterminator="\n")
        if path.stat().st_size == 0:
            writer.writeheader()
        writer.writerows(rows)
        file.write(text.getvalue())


def versions(packages):
    """Versions of distributions as one string; of a source folder, that of the module."""

    def version(name):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return importlib.import_module(name).__version__

    return " ".join(f"{name}={version(name)}" for name in packages)


@contextlib.contextmanager
def stopwatch(record):
    """Add wall seconds and CPU seconds of a block to a dict, finished child processes included."""
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    yield
    record["seconds"] = time.perf_counter() - wall
    record["cpu_seconds"] = sum(os.times()[:4]) - cpu


def evaluate(task, method, coverages):
    """Fit a method once and measure it at some coverages.

    Parameters
    ----------
    task : Task
    method : Method
        With more than one coverage, one that gives every coverage from one fit.
    coverages : sequence of float
        The first is the one to fit for.

    Returns
    -------
    list of dict
        Measures, one dict per coverage.
    """
    shared = {"n_train": len(task.y), "n_test": len(task.y_test), "crps": ""}
    with stopwatch(shared):
        forecast = method.forecast(task, coverages[0])
        bounds = [forecast.interval(coverages[0])]
    bounds += [forecast.interval(coverage) for coverage in coverages[1:]]
    shared["mse"] = np.mean((forecast.point - task.y_test) ** 2)
    if forecast.crps is not None:
        shared["crps"] = np.mean(forecast.crps(task.y_test))
    found = [
        {"coverage": c, **shared, **interval_measures(lower, upper, task.y_test, coverage=c)}
        for c, (lower, upper) in zip(coverages, bounds, strict=True)
    ]
    if forecast.shared is not None:
        found = [{**one, "shared": forecast.shared(task.y_test, one["coverage"])} for one in found]
    return found


def fits(method, coverages):
    """Coverages of each fit that a method needs."""
    if not method.any_coverage:
        return [[coverage] for coverage in coverages]
    return [[COVERAGE, *(c for c in sorted({*COVERAGES, *coverages}) if c != COVERAGE)]]


def run_split(name, task, identity, coverages, done, path):
    """Run one method on one task unless its rows are stored; return the number of failures."""
    failures = 0
    for wanted in fits(METHODS[name], coverages):
        if all(row_key({**identity, "coverage": c}) in done for c in wanted):
            continue
        try:
            measured = evaluate(task, METHODS[name], wanted)
        except Exception as error:
            reason = " ".join(str(error).split())
            print(f"{identity} failed: {type(error).__name__}: {reason}", flush=True)
            failures += 1
            continue
        threads = THREADS if name in PEERS else len(os.sched_getaffinity(0))
        about = {"threads": threads, "versions": versions(METHODS[name].packages)}
        rows = [{**identity, **about, **measures} for measures in measured]
        rows = [{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in rows]
        if "shared" in rows[0] and not identity["grouped"] and not identity["train_rows"]:
            ties = [{field: row[field] for field in TIES} for row in rows]
            append(path.with_name("ties.csv"), ties, TIES)
        rows = [{field: row[field] for field in FIELDS} for row in rows]
        append(path, [row for row in rows if row_key(row) not in done])
        first = rows[0]
        print(
            f"{first['dataset']:9s} {name:17s} split {first['split']:2d} n {first['n_train']:5d}  "
            f"PICP {first['picp']:8s} score {first['interval_score']:8s} {first['seconds']} s",
            flush=True,
        )
    return failures


def run(args):
    """Run methods on datasets; stored rows are skipped unless ``--redo`` is given."""
    path = args.results / "rows.csv"
    done = set() if args.redo else read_keys(path)
    failures = 0
    for dataset in args.datasets:
        X, y = load(dataset)
        tests = grouped_splits(dataset, X) if args.grouped else canonical_splits(dataset, len(y))
        for train_rows in args.train_rows:
            for split, test in enumerate(tests[: args.splits]):
                if split < args.from_split:
                    continue
                if train_rows and train_rows > len(y) - len(test):
                    print(f"{dataset} has fewer than {train_rows} training rows, skipped")
                    break
                task = make_task(X, y, test, split=split, train_rows=train_rows)
                for method in args.methods:
                    if args.splits is None and split >= planned_splits(dataset, method):
                        continue
                    identity = {
                        "dataset": dataset,
                        "method": method,
                        "split": split,
                        "grouped": int(args.grouped),
                        "train_rows": train_rows or "",
                    }
                    failures += run_split(method, task, identity, args.coverages, done, path)
    if failures:
        raise SystemExit(f"{failures} fits failed.")


def published(args):
    """Run methods on the folds of DiffGBM's published results."""
    path = args.results / "published.csv"
    done = published_folds.read(path)
    for dataset in args.datasets:
        for fold, task in published_folds.tasks(dataset, args.folds):
            for name in args.methods:
                if (dataset, name, fold) in done and not args.redo:
                    continue
                found = evaluate(task, METHODS[name], [COVERAGE])[0]
                row = {"dataset": dataset, "method": name, "fold": fold, **found}
                row |= {
                    "crps": found["crps"] * task.unit,
                    "versions": versions(METHODS[name].packages),
                }
                row = {key: row[key] for key in published_folds.FIELDS}
                row = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
                append(path, [row], published_folds.FIELDS)
                print(f"{dataset:9s} {name} fold {fold} CRPS {row['crps']}", flush=True)


def table(args):
    """Write summary.md and the comparison texts of the pages from the stored rows."""
    from _peers_pages import write_pages
    from _peers_table import write_summary

    write_summary(args.results, focus=args.focus)
    if args.results == RESULTS and args.focus == "calipers":
        print("changed:", *write_pages(RESULTS))
    print((args.results / "summary.md").read_text())


def figure(args):
    """Draw scores against CPU time, on the shared splits."""
    from _peers_figure import draw

    print(draw(args.results, FIGURE))


def parser():
    """Command line of the program."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = top.add_subparsers(required=True)
    one = commands.add_parser("run", help=run.__doc__.splitlines()[0])
    one.set_defaults(command=run)
    one.add_argument("--methods", nargs="+", choices=METHODS, default=PEERS, metavar="METHOD")
    one.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS, metavar="NAME")
    one.add_argument("--splits", type=int, help="run this many splits, whatever the plan says")
    one.add_argument("--from-split", type=int, default=0, help="skip the splits before this one")
    one.add_argument("--coverages", nargs="+", type=float, default=[COVERAGE])
    one.add_argument("--grouped", action="store_true", help="keep identical inputs together")
    one.add_argument("--train-rows", nargs="+", type=int, default=[None], metavar="ROWS")
    one.add_argument("--redo", action="store_true", help="run again; the table takes the last row")
    two = commands.add_parser("table", help=table.__doc__)
    two.set_defaults(command=table)
    two.add_argument("--focus", choices=METHODS, default="calipers", help="method to compare")
    four = commands.add_parser("figure", help=figure.__doc__)
    four.set_defaults(command=figure)
    five = commands.add_parser("published", help=published.__doc__)
    five.set_defaults(command=published)
    five.add_argument("--methods", nargs="+", choices=METHODS, default=["calipers"])
    names = tuple(published_folds.PUBLISHED)
    five.add_argument("--datasets", nargs="+", choices=names, default=names, metavar="NAME")
    five.add_argument("--folds", nargs="+", type=int, choices=range(6), default=range(1, 6))
    five.add_argument("--redo", action="store_true", help="run again; the table takes the last row")
    for command in (one, two, four, five):
        command.add_argument("--results", type=Path, default=RESULTS)
    three = commands.add_parser("export", help="write the datasets for the peers' environment")
    three.set_defaults(command=lambda args: export(args.folder))
    three.add_argument("folder", type=Path)
    return top


if __name__ == "__main__":
    logging.disable(logging.INFO)
    arguments = parser().parse_args()
    arguments.command(arguments)
