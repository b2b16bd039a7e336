"""Coverage of the default over hundreds of refits, on problems with a known distribution.

    python benchmarks/validity.py [--problems toy ...] [--sizes 50 100 200 1000] [--refits 200]
        [--seed 1]

All refits of a problem and size train as one bank, each on its own rows. Coverage is not counted on
test rows but computed from the true distribution at 300 inputs, so that all randomness is in the
training rows. Prints a table: the mean over refits with its standard error, the lowest decile over
refits, and conditional coverage: in the tenth of the inputs with the lowest mean coverage, and in
the narrowest and widest thirds of the intervals. Earlier results for other problems and sizes are
kept.
"""

import argparse
import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from calipers import IntervalRegressor
from calipers.bank import Table, train
from calipers.crossfit import calibrate, make_folds
from calipers.datasets import PROBLEMS
from calipers.ensemble import Ensemble
from calipers.prediction import Query
from calipers.training import batch_size_of, make_plans, make_program

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
RESULTS = Path(__file__).resolve().parents[1] / "results" / "validity"
COLUMNS = ("problem", "rows", "refits", "coverage", "mean", "sem", "least_tenth", "worst_inputs")
COLUMNS += ("narrow_third", "wide_third", "unbounded")


def refits(model, problem, rows, count, seed=1):
    """Ensembles of many fits, each on its own rows, trained as one bank.

    Rows of seed 0 were used to choose how a pool's scores follow from out-of-fold scores.
    """
    X, y = problem.sample(rows * count, np.random.default_rng([rows, seed]))
    table = Table.from_arrays(X, y)
    batch_size = batch_size_of(model, rows)
    plans, folds = [], []
    for number in range(count):
        own = np.arange(number * rows, (number + 1) * rows)
        folds.append(make_folds(model.cv, own, X, y, None, model.n_networks, number))
        fold_of = np.arange(model.n_networks) % len(folds[-1])
        chosen = [folds[-1][i] for i in fold_of]
        plans += make_plans(model, chosen, None, None, (seed, number), batch_size=batch_size)
    bank = train(make_program(model, X, rows), table, plans, n_jobs=-1)
    size = model.n_networks
    for number, part in enumerate(folds):
        members = bank[number * size : (number + 1) * size]
        ensemble = Ensemble(members, model.coverage, model.aggregation, n_jobs=-1)
        found, _ = calibrate(
            ensemble, part, np.arange(size) % len(part), X, y, None, model.calibration
        )
        yield replace(ensemble, calibrations=found)


def true_coverage(problem, inputs, bounds):
    """Probability of the true target between bounds of shape (rows, 2, levels), (levels, rows)."""
    below = [problem.cdf(inputs, lower) for lower in bounds[:, 0].T]
    return np.array([problem.cdf(inputs, upper) for upper in bounds[:, 1].T]) - below


def evaluate(problem, model, rows, count, seed=1):
    """Rows of the table for one problem and size."""
    inputs, _ = problem.sample(300, random_state=12345)
    ensembles = refits(model, problem, rows, count, seed)
    bounds = [e.predict(inputs, Query(LEVELS)).intervals for e in ensembles]
    covered = np.array([true_coverage(problem, inputs, b) for b in bounds])
    for i, level in enumerate(LEVELS):
        held = covered[:, i]
        means = held.mean(axis=1)
        width = np.array([b[:, 1, i] - b[:, 0, i] for b in bounds])
        third = np.quantile(width, [1 / 3, 2 / 3], axis=1, method="nearest")[:, :, np.newaxis]
        by_input = np.sort(held.mean(axis=0))
        values = (
            *(problem.name, rows, count, level),
            means.mean(),
            means.std(ddof=1) / count**0.5,
            np.quantile(means, 0.1),
            by_input[: len(by_input) // 10].mean(),
            held[width <= third[0]].mean(),
            held[width >= third[1]].mean(),
            np.isinf(width).mean(),
        )
        yield dict(zip(COLUMNS, values, strict=True))


def markdown(rows, coverage=0.95):
    """The rows of one coverage as a table."""
    head = "| problem | rows | refits | coverage | lowest decile | worst inputs | narrow | wide |"
    lines = [head, "|---|" + "---:|" * 7]
    for row in rows:
        if float(row["coverage"]) == coverage:
            mean = f"{float(row['mean']):.3f} ± {float(row['sem']):.3f}"
            names = ("least_tenth", "worst_inputs", "narrow_third", "wide_third")
            rest = " | ".join(f"{float(row[name]):.3f}" for name in names)
            lines.append(
                f"| {row['problem']} | {row['rows']} | {row['refits']} | {mean} | {rest} |"
            )
    return "\n".join(lines)


def store(folder, new):
    """Write rows to the table, replacing those of the same problem and size."""
    path = folder / "coverage.csv"
    found = list(csv.DictReader(path.open(newline=""))) if path.exists() else []
    texts = [{k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in r.items()} for r in new]
    done = {(row["problem"], row["rows"]) for row in texts}
    found = [row for row in found if (row["problem"], row["rows"]) not in done] + texts
    found.sort(key=lambda r: (list(PROBLEMS).index(r["problem"]), int(r["rows"]), r["coverage"]))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    (folder / "coverage.md").write_text(markdown(found) + "\n")


def main():
    """Evaluate the default and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[50, 100, 200, 1000])
    parser.add_argument("--refits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="other seeds use other rows")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    model = IntervalRegressor(verbose=0)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.problems:
        for rows in options.sizes:
            new = list(evaluate(PROBLEMS[name], model, rows, options.refits, options.seed))
            print(markdown(new).splitlines()[-1], flush=True)
            store(options.out, new)


if __name__ == "__main__":
    main()
