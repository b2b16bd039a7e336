"""Intervals around an existing regressor: `upgrade` against MAPIE's residuals.

    .venv-peers/bin/python benchmarks/around.py [--datasets yacht boston] [--splits 3]

Needs calipers and MAPIE (benchmarks/peers_requirements.txt has the version) in one environment. On
each of the first Hernandez-Lobato splits, with the same training rows and the same scikit-learn
regressor with its defaults:

- constant: MAPIE's CV+ over five folds, absolute residuals;
- normalised: MAPIE's split conformal, four fifths of the rows for the regressor, residuals divided
  by a second model's estimate of their size (not available with folds);
- calipers: ``IntervalRegressor().upgrade(regressor, X, y)``.

The table has means over the splits in standard deviations of the target, and the ratio of calipers'
interval score to the better of the other two. Stored results are not computed again, so methods can
be run separately (``--methods calipers``); the table shows splits that all three have run.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from _peers_data import DATASETS, canonical_splits, interval_measures, load, make_task
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import train_test_split

from calipers import IntervalRegressor
from calipers._files import replace_file

COVERAGE = 0.95
FOLDS = 5
REGRESSORS = {
    "boosting": lambda seed: HistGradientBoostingRegressor(random_state=seed),
    "forest": lambda seed: RandomForestRegressor(random_state=seed),
}


def constant(regressor, task):
    """CV+ of MAPIE."""
    from mapie.regression import CrossConformalRegressor

    model = CrossConformalRegressor(
        regressor, confidence_level=COVERAGE, method="plus", cv=FOLDS, random_state=task.seed
    )
    model.fit_conformalize(task.X, task.y)
    return model.predict_interval(task.X_test, allow_infinite_bounds=True)[1][:, :, 0]


def normalised(regressor, task):
    """Split conformal of MAPIE with normalised residuals."""
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor

    X, X_held, y, y_held = train_test_split(
        task.X, task.y, test_size=1 / FOLDS, random_state=task.seed
    )
    score = ResidualNormalisedScore(random_state=task.seed)
    model = SplitConformalRegressor(
        regressor, confidence_level=COVERAGE, conformity_score=score, prefit=False
    )
    model.fit(X, y).conformalize(X_held, y_held)
    return model.predict_interval(task.X_test, allow_infinite_bounds=True)[1][:, :, 0]


def calipers(regressor, task):
    """Networks around the regressor's points; targets in their unit, since wine's are integers."""
    model = IntervalRegressor(coverage=COVERAGE, random_state=task.seed, verbose=0)
    model.upgrade(regressor, task.X, task.y_unit)
    return (model.predict_interval(task.X_test) - task.mean) / task.unit


METHODS = {"constant": constant, "normalised": normalised, "calipers": calipers}


def run(name, regressor, split, method):
    """One method on one split."""
    X, y = load(name)
    task = make_task(X, y, canonical_splits(name, len(y))[split], split=split)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from MAPIE, about its own defaults
        lower, upper = METHODS[method](REGRESSORS[regressor](split), task).T
    measured = interval_measures(lower, upper, task.y_test, coverage=COVERAGE)
    seconds = time.perf_counter() - began
    return {k: float(v) for k, v in measured.items()} | {"seconds": seconds}


def table(found):
    """Print coverage, width and interval score of each method, a row for each dataset."""
    print("| dataset | splits | constant | normalised | calipers | ratio of scores |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, rows in found.items():
        cells, scores = [], {}
        for method in METHODS:
            mean = {k: np.mean([row[method][k] for row in rows]) for k in rows[0][method]}
            scores[method] = np.array([row[method]["interval_score"] for row in rows])
            cells.append(f"{mean['picp']:.3f} {mean['mpiw']:.2f} {mean['interval_score']:.2f}")
        better = min(scores["constant"].mean(), scores["normalised"].mean())
        ratio = scores["calipers"].mean() / better
        print(f"| {name} | {len(rows)} | {' | '.join(cells)} | {ratio:.2f} |")


def main():
    """Run what is missing and print the table of each regressor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=DATASETS, choices=DATASETS)
    parser.add_argument("--regressors", nargs="*", default=list(REGRESSORS), choices=REGRESSORS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("results/around.json"))
    options = parser.parse_args()
    store = options.results
    done = json.loads(store.read_text()) if store.exists() else {}
    for regressor in options.regressors:
        found = {}
        for name in options.datasets:
            for split in range(options.splits):
                row = done.setdefault(f"{regressor} {name} {split}", {})
                for method in options.methods:
                    if method not in row:
                        row[method] = run(name, regressor, split, method)
                        store.parent.mkdir(parents=True, exist_ok=True)
                        replace_file(store, json.dumps(done, indent=1).encode())
                if len(row) == len(METHODS):
                    found.setdefault(name, []).append(row)
        print(f"\n{regressor}\n")
        table(found)


if __name__ == "__main__":
    main()
