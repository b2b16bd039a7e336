"""Compare calipers with its peers on real tables with categories, dates and missing values.

    export CALIPERS_TABLES=build/peers-tables
    .venv-peers/bin/python benchmarks/peers_tables.py export $CALIPERS_TABLES
    .venv-peers/bin/python benchmarks/peers_tables.py run
    .venv/bin/python benchmarks/peers_tables.py run --methods calipers
    .venv/bin/python benchmarks/peers_tables.py table

`_peers_frames.py` has the tables and the methods. A fifth of the rows, at most 2,000, is for
testing, and at most 5,000 are for training. Interval score at 95%, CRPS and RMSE are in standard
deviations of the target. Two methods are compared on the splits that both have run. Rows are
appended to ``results/peers/tables.csv``; stored rows are not run again unless ``--redo`` is given.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import pandas as pd
from _peers_data import interval_measures
from _peers_frames import METHODS, TABLES, export, load_task
from peers import COVERAGE, RESULTS, append, stopwatch, versions

FIELDS = (
    *("table", "method", "split", "n_train", "n_test", "n_columns", "picp", "interval_score"),
    *("crps", "rmse", "seconds", "cpu_seconds", "versions"),
)
PEERS = tuple(name for name in METHODS if name != "calipers")


def read_rows(path):
    """Stored rows, the last of each table, method and split."""
    if not path.exists():
        return pd.DataFrame(columns=FIELDS)
    return pd.read_csv(path).drop_duplicates(["table", "method", "split"], keep="last")


def evaluate(name, task):
    """Measures of one method on one split."""
    forecast, packages = METHODS[name]
    row = {"n_train": len(task.y), "n_test": len(task.y_test), "n_columns": task.X.shape[1]}
    with stopwatch(row):
        found = forecast(task, COVERAGE)
        lower, upper = found.interval(COVERAGE)
    measures = interval_measures(lower, upper, task.y_test, coverage=COVERAGE)
    row["picp"] = measures["picp"]
    row["interval_score"] = measures["interval_score"] / task.unit
    row["rmse"] = np.sqrt(np.mean((found.point - task.y_test) ** 2)) / task.unit
    row["crps"] = np.mean(found.crps(task.y_test)) / task.unit if found.crps else ""
    return row | {"versions": versions(packages)}


def run(args):
    """Run what is not stored."""
    path = args.results / "tables.csv"
    stored = read_rows(path)
    done = set(zip(stored["table"], stored["method"], stored["split"], strict=True))
    for split in range(args.from_split, args.splits):
        for table in args.tables:
            for name in args.methods:
                if (table, name, split) in done and not args.redo:
                    continue
                row = {"table": table, "method": name, "split": split}
                try:
                    row |= evaluate(name, load_task(table, split))
                except Exception as error:
                    print(f"{row} failed: {type(error).__name__}: {error}", flush=True)
                    continue
                row = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
                append(path, [row], FIELDS)
                print(" ".join(f"{key} {row[key]}" for key in FIELDS[:-1]), flush=True)


def worst(rows, table, measure, focus="calipers"):
    """The method against which the focus does worst, the ratio, and the number of shared splits."""
    wide = rows[rows["table"] == table].pivot_table(measure, "split", "method")
    ratios = {}
    for other in wide.columns.drop(focus):
        both = wide[[focus, other]].dropna()
        if len(both):
            ratios[other] = both[focus].mean() / both[other].mean(), len(both)
    if not ratios:
        return "", np.nan, 0
    other = max(ratios, key=ratios.get)
    return other, *ratios[other]


def shown(rows):
    """Table of calipers against the strongest other on each table, and the ratios by measure."""
    from _peers_table import markdown

    lines, columns = [], ("interval_score", "crps", "rmse")
    found = {measure: [] for measure in columns}
    for name in [name for name in TABLES if name in set(rows["table"])]:
        own = rows[(rows["table"] == name) & (rows["method"] == "calipers")]
        if own.empty:
            continue
        line = [name, f"{own['n_train'].iloc[0]:.0f}", own["n_columns"].iloc[0], len(own)]
        line.append(f"{own['picp'].mean():.3f}")
        for measure in columns:
            other, ratio, splits = worst(rows, name, measure)
            found[measure].append(ratio)
            line += [f"{other} ({splits})", f"{ratio:.3f}"]
        lines.append([*line, f"{own['seconds'].median():.0f}"])
    header = ["table", "rows", "columns", "splits", "PICP", "best other", "score ratio"]
    header += ["best other by CRPS", "CRPS ratio", "best other by RMSE", "RMSE ratio", "seconds"]
    return markdown(header, lines), found


def table(args):
    """Print calipers against the strongest other on each table."""
    text, found = shown(read_rows(args.results / "tables.csv"))
    print(text)
    for measure, ratios in found.items():
        ratios = [ratio for ratio in ratios if np.isfinite(ratio)]
        mean = np.exp(np.mean(np.log(ratios)))
        won = f"{sum(r < 1 for r in ratios)} of {len(ratios)}"
        print(f"{measure}: ahead on {won}, geometric mean {mean:.3f}, worst {max(ratios):.3f}")


def parser():
    """Command line of the program."""
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = top.add_subparsers(required=True)
    one = commands.add_parser("export", help="write the tables as CSV")
    one.set_defaults(command=lambda args: export(args.folder))
    one.add_argument("folder", type=Path)
    two = commands.add_parser("run", help=run.__doc__)
    two.set_defaults(command=run)
    two.add_argument("--methods", nargs="+", choices=METHODS, default=PEERS, metavar="METHOD")
    two.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, metavar="NAME")
    two.add_argument("--splits", type=int, default=3)
    two.add_argument("--from-split", type=int, default=0)
    two.add_argument("--redo", action="store_true")
    three = commands.add_parser("table", help=table.__doc__)
    three.set_defaults(command=table)
    for command in (two, three):
        command.add_argument("--results", type=Path, default=RESULTS)
    return top


if __name__ == "__main__":
    arguments = parser().parse_args()
    arguments.command(arguments)
