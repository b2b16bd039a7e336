"""Smooth targets, and where networks with slower cosines and no segments are better for them.

    python benchmarks/smooth.py run [--tables kin8nm arm ...]     # minutes for each on one core
    python benchmarks/smooth.py table

Fits the default, the piecewise-linear encoding ("pieces") and networks for a smooth target
(``calipers.networks.smooth``) on training rows of tables of which a trial leaves 4% of the variance
unexplained, and on known functions with noise; no test row is read. Interval score at 95%, squared
error and CRPS are measured on rows that none of them has seen. ``run`` appends to
``results/defaults/smooth.csv``; ``table`` prints ratios to pieces, and what the default selected.
"""

import time
import warnings
from pathlib import Path

import numpy as np
from _tables import append, read, stored, two_commands

from calipers import IntervalRegressor
from calipers.metrics import interval_score
from calipers.networks import MLP, smooth

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "smooth.csv"
MEASURES = ("score", "mse", "crps", "epochs")
SIMULATED = {  # rows, and the fraction of the variance that is noise
    "arm": (6000, 0.06),
    "short arm": (2000, 0.1),
    "friedman1": (6000, 0.08),
    "few friedman1": (1500, 0.15),
    "waves": (6000, 0.1),
    "few waves": (3000, 0.05),
    "steps": (4000, 0.1),
}
REAL = ("kin8nm", "housing", "deliveries", "storms", "computers", "power", "protein", "concrete")
MAX_ROWS, TEST = 8000, 1500


def simulated(name):
    """Inputs and targets of a known function."""
    count, noise = SIMULATED[name]
    rng = np.random.default_rng(count)
    kind = name.split()[-1]
    if (
        kind == "arm"
    ):  # distance of the end of an arm from its shoulder, by the angles of six joints
        X = rng.uniform(-1.5, 1.5, (count, 6))
        angle = np.cumsum(X, axis=1)
        y = np.hypot(np.cos(angle).sum(axis=1), np.sin(angle).sum(axis=1))
    elif kind == "friedman1":
        X = rng.uniform(0, 1, (count, 10))
        y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
        y += 10 * X[:, 3] + 5 * X[:, 4]
    elif kind == "waves":  # a sum of many cosines of directions drawn at random
        X = rng.normal(size=(count, 5))
        turn = X @ (0.6 * rng.normal(size=(5, 400))) + rng.uniform(0, 2 * np.pi, 400)
        y = np.cos(turn) @ rng.normal(size=400)
    else:
        X = rng.uniform(0, 1, (count, 6))
        y = np.floor(4 * X[:, 0]) + 2 * (X[:, 1] > 0.3) * (X[:, 2] > 0.6)
        y += np.floor(8 * X[:, 3]) / 3
    return X, y / y.std() + rng.normal(0, np.sqrt(noise / (1 - noise)), count)


def evaluate(name):
    """Rows of the results of one table."""
    X, y = simulated(name) if name in SIMULATED else read(name, MAX_ROWS)
    test = min(TEST, len(y) // 5)
    usual = MLP(bins=0).factory(X[test:], len(y) - test)
    for called, network in (
        ("pieces", MLP(bins=32, trees=0)),
        ("smooth", smooth(usual)),
        ("auto", MLP()),
    ):
        model, cpu = (
            IntervalRegressor(network=network, random_state=0, verbose=0),
            time.process_time(),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X[test:], y[test:])
        cpu, unit, bank = time.process_time() - cpu, y[test:].std(), model.ensemble_.bank
        lower, upper = model.predict_interval(X[:test]).T
        found = {
            "score": interval_score(y[:test], lower, upper, coverage=0.95) / unit,
            "mse": np.mean((model.predict(X[:test]) - y[:test]) ** 2) / unit**2,
            "crps": np.mean(model.predict_dist(X[:test]).crps(y[:test])) / unit,
            "epochs": np.mean([len(history) for history in bank.histories]),
            "cpu": cpu,
        }
        took = "smooth" if bank.program.network.smooth else "pieces"
        row = {"table": name, "rows": len(y) - test, "inputs": X.shape[1], "networks": called}
        yield {**row, "took": took, **{key: f"{value:.5g}" for key, value in found.items()}}


def run(options):
    """Evaluate the tables that have no results yet."""
    known = {row["table"] for row in stored(options.out)}
    for name in options.tables:
        if name not in known:
            append(options.out, list(evaluate(name)))
            print(name, flush=True)


def table(options):
    """Print ratios of smooth networks to pieces."""
    found = {(row["table"], row["networks"]): row for row in stored(options.out)}
    print("| table | rows | taken | score | MSE | CRPS | epochs |")
    print("|---|---:|---|---:|---:|---:|---:|")
    for name in dict.fromkeys(name for name, _ in found):
        pieces, other, auto = (found[name, kind] for kind in ("pieces", "smooth", "auto"))
        ratios = [float(other[key]) / float(pieces[key]) for key in MEASURES]
        cells = [f"| {name}", pieces["rows"], auto["took"], *(f"{ratio:.3f}" for ratio in ratios)]
        print(*cells, sep=" | ", end=" |\n")


def main():
    """Run the requested command."""
    parser, one = two_commands(__doc__, run, table, RESULTS)
    usual = (*REAL, *SIMULATED)
    one.add_argument("--tables", nargs="+", choices=usual, default=usual)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
