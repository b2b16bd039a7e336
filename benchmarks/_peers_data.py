"""Data, splits and measures of the comparison, independent of the compared libraries.

Only NumPy and scikit-learn are needed, so the environment of the peers does not need calipers.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# Smallest first, so that an interrupted run has complete datasets.
DATASETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")


@dataclass(frozen=True, eq=False)
class Task:
    """One split of one dataset.

    `y` and `y_test` are standardised by the whole dataset, whose mean and standard deviation are
    `mean` and `unit`; `y_unit` is the training target unchanged.
    """

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    seed: int
    y_unit: np.ndarray
    mean: float
    unit: float


def cut_task(X, y, train, test, seed):
    """The task of some training and test rows, `y` in its unit."""
    mean, unit = y.mean(), y.std()
    scaled = (y - mean) / unit
    rows = {"X": X[train], "y": scaled[train], "X_test": X[test], "y_test": scaled[test]}
    return Task(**rows, seed=seed, y_unit=y[train], mean=mean, unit=unit)


def load(name):
    """Inputs and target of a dataset.

    From ``<name>.npz`` in the folder that the environment variable ``CALIPERS_DATA`` names, or
    else through :func:`calipers.datasets.load`, where calipers is installed.

    Parameters
    ----------
    name : str
        One of `DATASETS`.

    Returns
    -------
    X : ndarray of shape (n_rows, n_inputs)
    y : ndarray of shape (n_rows,)
    """
    return _load_folder(name) if os.environ.get("CALIPERS_DATA") else _load_calipers(name)


def export(folder):
    """Write every dataset to a folder, from which an environment without calipers can read it."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in DATASETS:
        X, y = _load_calipers(name)
        np.savez_compressed(folder / f"{name}.npz", X=X, y=y)


def _load_folder(name):
    with np.load(Path(os.environ["CALIPERS_DATA"], f"{name}.npz"), allow_pickle=False) as arrays:
        return arrays["X"], arrays["y"]


def _load_calipers(name):
    try:
        from calipers.datasets import load as load_calipers
    except ImportError as error:
        raise SystemExit(
            "Without calipers the data must come from a folder: set CALIPERS_DATA to the one that "
            "`python benchmarks/peers.py export FOLDER` wrote in calipers' own environment."
        ) from error
    data = load_calipers(name)
    return data.X, data.y


def split_count(name):
    """Splits of a dataset in the protocol of Hernández-Lobato & Adams (2015)."""
    return 5 if name == "protein" else 20


def canonical_splits(name, n_rows):
    """Test rows of each split of Hernández-Lobato & Adams (2015), by the rule that made them.

    Successive permutations from NumPy's legacy generator with seed 1; the rows after the first
    round(0.9 n) test.
    """
    generator = np.random.RandomState(1)
    cut = (9 * n_rows + 5) // 10
    return [generator.permutation(n_rows)[cut:] for _ in range(split_count(name))]


def grouped_splits(name, X):
    """Test rows of splits that keep rows with identical inputs on one side, 90 to 10 by group."""
    from sklearn.model_selection import GroupShuffleSplit

    groups = np.unique(X, axis=0, return_inverse=True)[1].ravel()
    splitter = GroupShuffleSplit(split_count(name), test_size=0.1, random_state=1)
    return [test for _, test in splitter.split(X, groups=groups)]


def make_task(X, y, test, *, split, train_rows=None):
    """Cut a dataset into a task, with at most `train_rows` training rows drawn by the split.

    Training rows keep the order of the source. Smaller draws are part of larger ones.

    Raises
    ------
    ValueError
        If there are fewer training rows than asked for.
    """
    train = np.setdiff1d(np.arange(len(y)), test)
    if train_rows is not None:
        if train_rows > len(train):
            raise ValueError(f"{train_rows} training rows were asked of {len(train)}.")
        train = np.sort(np.random.default_rng(split).permutation(train)[:train_rows])
    return cut_task(X, y, train, test, split)


def interval_measures(lower, upper, target, *, coverage):
    """PICP, MPIW, mean interval score and share of crossed bounds.

    Crossed bounds are counted and then put in order, as a user would do; that never makes the
    interval score worse.
    """
    crossed = np.mean(lower > upper)
    lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
    below = np.maximum(lower - target, 0.0)
    above = np.maximum(target - upper, 0.0)
    score = upper - lower + 2.0 / (1.0 - coverage) * (below + above)
    return {
        "picp": np.mean((lower <= target) & (target <= upper)),
        "mpiw": np.mean(upper - lower),
        "interval_score": np.mean(score),
        "crossed": crossed,
    }


def normal_crps(mean, scale, target):
    """CRPS of normal distributions, one value per row."""
    from scipy.stats import norm

    z = (target - mean) / scale
    return scale * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi))


# Midpoints of a hundred equal steps.
DENSE_LEVELS = (np.arange(100) + 0.5) / 100.0


def quantile_crps(quantiles, target):
    """CRPS from quantiles at `DENSE_LEVELS`: twice the pinball loss, averaged over levels.

    Parameters
    ----------
    quantiles : ndarray of shape (n_samples, 100)
    target : ndarray of shape (n_samples,)

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    error = target[:, None] - quantiles
    return 2.0 * np.mean(np.maximum(DENSE_LEVELS * error, (DENSE_LEVELS - 1.0) * error), axis=1)


def sample_crps(samples, target):
    """CRPS of equally weighted draws: E|X - y| - E|X - X'| / 2.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, n_draws)
    target : ndarray of shape (n_samples,)

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    ordered = np.sort(samples, axis=1)
    count = samples.shape[1]
    weights = 2.0 * np.arange(1, count + 1) - count - 1.0
    return np.abs(ordered - target[:, None]).mean(axis=1) - ordered @ weights / count**2
