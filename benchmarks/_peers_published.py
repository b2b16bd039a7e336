"""CRPS on the folds of the DiffGBM repository, next to the best tuned method published there.

There are six folds; row `permutation[i]` of ``numpy.random.default_rng(0)`` is in fold ``i % 6``.
The published methods were tuned on fold 0. Folds 1 to 5 are evaluated, each by a model of the other
five, and the CRPS is in the unit of the target. calipers runs with its defaults.
"""

import csv

import numpy as np
from _peers_data import cut_task, load

# Best tuned method of the repository on each dataset.
PUBLISHED = {
    "power": 1.535,
    "concrete": 2.126,
    "protein": 1.682,
    "kin8nm": 0.0367,
    "energy": 0.204,
    "yacht": 0.283,
}
FOLDS = 6
FIELDS = ("dataset", "method", "fold", "n_train", "n_test", "crps", "seconds", "versions")


def fold_task(X, y, fold):
    """The task whose test rows are one fold."""
    rows = np.random.default_rng(0).permutation(len(y))
    inside = np.arange(len(y)) % FOLDS == fold
    return cut_task(X, y, rows[~inside], rows[inside], fold)


def read(path):
    """Stored rows, the last of each dataset, method and fold."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["dataset"], row["method"], int(row["fold"])): row for row in rows}


def tasks(dataset, folds):
    """Each fold and its task."""
    X, y = load(dataset)
    return [(fold, fold_task(X, y, fold)) for fold in folds]


def table_lines(path):
    """Mean CRPS of each method over its folds, and the ratio to the published one."""
    means = {}
    for (dataset, method, _), row in read(path).items():
        means.setdefault((dataset, method), []).append(float(row["crps"]))
    return [
        [
            dataset,
            method,
            len(found),
            f"{np.mean(found):.4g}",
            f"{PUBLISHED[dataset]:g}",
            f"{np.mean(found) / PUBLISHED[dataset]:.3f}",
        ]
        for (dataset, method), found in sorted(means.items())
    ]
