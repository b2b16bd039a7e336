"""The gain from respecting the support of a target: counts, zeros, caps, grades and bounds.

    CALIPERS_DATA=... python benchmarks/support.py [--tables poisson wine ...] [--epochs 60]

The default trains once on two thirds of the rows. Its networks are then calibrated twice, with
`bounds=None` and with what `bounds="auto"` finds, and the other third measures both: CRPS, interval
score, coverage at 50, 80, 90 and 95%, and coverage with ties shared out. For the paper's datasets,
only training rows of the first split are used, at most 2,400. Writes results/support/scores.csv and
prints it as a table; earlier results for other tables are kept.
"""

import argparse
import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from calipers import IntervalRegressor, datasets, metrics
from calipers.crossfit import calibrate, make_folds
from calipers.distributions import learn_support
from calipers.prediction import Query

LEVELS = (0.5, 0.8, 0.9, 0.95)
RESULTS = Path(__file__).resolve().parents[1] / "results" / "support" / "scores.csv"
COLUMNS = ("table", "rows", "bounds", "support", "crps", "score_80", "score_95", "mse", "mse_mean")
COLUMNS += tuple(f"held_{p}" for p in (50, 80, 90, 95)) + tuple(
    f"shared_{p}" for p in (50, 80, 90, 95)
)
ROWS, MAX_ROWS = 1600, 2400


def _zeros(rng, share, rest):
    return np.where(rng.random(len(rest)) < share, 0.0, rest)


SYNTHETIC = {
    "poisson, mean 1.5": lambda rng, X, eta: rng.poisson(np.exp(eta)),
    "poisson, mean 12": lambda rng, X, eta: rng.poisson(8 * np.exp(eta)),
    "negative binomial": lambda rng, X, eta: rng.poisson(4 * np.exp(eta) * rng.gamma(1, 1, ROWS)),
    "zero-inflated counts": lambda rng, X, eta: _zeros(
        rng, 1 / (1 + np.exp(-X[:, 3])), rng.poisson(3 * np.exp(eta))
    ),
    "zero-inflated spending": lambda rng, X, eta: _zeros(
        rng, 1 / (1 + np.exp(0.5 - X[:, 3])), np.exp(1 + eta + 0.7 * rng.normal(size=ROWS))
    ),
    "profit or loss, often 0": lambda rng, X, eta: _zeros(
        rng, 1 / (1 + np.exp(0.5 - X[:, 3])), 2 * eta - 0.7 + rng.normal(size=ROWS)
    ),
    "grades 1 to 5": lambda rng, X, eta: np.clip(
        np.round(3 + eta + rng.normal(0, 0.8, ROWS)), 1, 5
    ),
    "capped at 6": lambda rng, X, eta: np.minimum(4 + 2 * eta + rng.normal(size=ROWS), 6),
    "cut off at 0": lambda rng, X, eta: np.maximum(eta + rng.normal(size=ROWS), 0),
    "yes or no": lambda rng, X, eta: rng.random(ROWS) < 1 / (1 + np.exp(-eta)),
    "positive, continuous": lambda rng, X, eta: np.exp(eta) * rng.gamma(1.5, 1, ROWS),
    "any number": lambda rng, X, eta: 2 * eta + rng.normal(size=ROWS),
}
REAL = ("wine", "boston", "naval", "yacht", "concrete")


def rows_of(name):
    """Inputs and targets of a table."""
    if name in SYNTHETIC:
        rng = np.random.default_rng(list(name.encode()))
        X = rng.normal(size=(ROWS, 4))
        eta = 0.5 * X[:, 0] - 0.4 * X[:, 1] + 0.3 * X[:, 2] ** 2
        return X, np.asarray(SYNTHETIC[name](rng, X, eta), np.float64)
    data = datasets.load(name, verbose=0)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(_training_rows(name, len(data.y)))[:MAX_ROWS]
    return data.X[chosen], data.y[chosen]


def _training_rows(name, count):
    """Rows outside of the first test split, which lies beside the data."""
    splits = np.load(Path(os.environ["CALIPERS_DATA"], "splits", f"{name}.npz"))
    return np.setdiff1d(np.arange(count), splits["test_0"])


def measured(name, epochs):
    """Measures of a table without and with its support."""
    X, y = rows_of(name)
    cut = 2 * len(y) // 3
    model = IntervalRegressor(bounds=None, epochs=epochs, random_state=0).fit(X[:cut], y[:cut])
    own = np.arange(cut)
    seed = model.about_["split"]["seed"]
    folds = make_folds(model.cv, own, X[:cut], y[:cut], None, model.n_networks, seed)
    plain = replace(model.ensemble_, support=learn_support(y[:cut]), calibrations=())
    fold_of = np.arange(model.n_networks) % len(folds)
    found, kept = calibrate(plain, folds, fold_of, X[:cut], y[:cut], None, seed=seed)
    auto = replace(plain, calibrations=found, support=kept.support)
    for bounds, ensemble in (("none", model.ensemble_), ("auto", auto)):
        yield (name, cut, bounds, *_scores(ensemble, X[cut:], y[cut:]))


def _scores(ensemble, X, y):
    dist = ensemble.distribution(X)
    found = ensemble.predict(X, Query(LEVELS))
    sides = [found.bounds(level) for level in LEVELS]
    scores = [
        metrics.interval_score(y, *side, coverage=c) for side, c in zip(sides, LEVELS, strict=True)
    ]
    held = [metrics.coverage_rate(y, *side) for side in sides]
    shared = metrics.calibration_curve(y, dist, coverages=LEVELS).observed.tolist()
    errors = (np.mean((found.point - y) ** 2), np.mean((dist.mean - y) ** 2))
    measures = (metrics.crps(y, dist), scores[1], scores[3], *errors, *held, *shared)
    return (str(ensemble.support), *(f"{value:.6g}" for value in measures))


def table(rows):
    """The results in Markdown: with the support, relative to without it."""
    found = {(row["table"], row["bounds"]): row for row in rows}
    lines = [
        "| table | found | CRPS | score 80% | score 95% | held 50, 80, 90, 95% | ties shared |"
    ]
    lines.append("|---|---|---:|---:|---:|---|---|")
    for name in dict.fromkeys(row["table"] for row in rows):
        none, auto = (found[name, kind] for kind in ("none", "auto"))
        ratios = [
            f"{float(auto[k]) / float(none[k]):.3f}" for k in ("crps", "score_80", "score_95")
        ]
        shares = (
            ", ".join(f"{float(auto[f'{kind}_{p}']):.3f}" for p in (50, 80, 90, 95))
            for kind in ("held", "shared")
        )
        lines.append(f"| {' | '.join((name, auto['support'], *ratios, *shares))} |")
    return "\n".join(lines)


def main():
    """Measure the requested tables and print all results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="*", default=[*SYNTHETIC, *REAL])
    parser.add_argument("--epochs", type=int, default=None)
    arguments = parser.parse_args()
    for name in arguments.tables:
        new = [dict(zip(COLUMNS, row, strict=True)) for row in measured(name, arguments.epochs)]
        old = list(csv.DictReader(RESULTS.open())) if RESULTS.exists() else []
        rows = [row for row in old if row["table"] != name] + new
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    print(table(list(csv.DictReader(RESULTS.open()))))


if __name__ == "__main__":
    main()
