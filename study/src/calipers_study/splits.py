"""Training and test rows of the two protocols behind most published tables."""

import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calipers.datasets import CATALOGUE, DatasetCorruptError, DatasetUnavailableError
from calipers_study.methods import choose, paper_trials


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of one trial."""

    #: Rows to train on and rows to test on; together every row once.
    train: NDArray[np.int64]
    test: NDArray[np.int64]


def shuffled_splits(n_rows: int, *, trials: int, random_state: int) -> list[Split]:
    """Shuffle the rows once per trial and split them 90 to 10.

    The first round(0.9 n) rows of each shuffle are for training, the others for testing; halves
    round up. Trial `i` does not depend on the number of trials.

    Parameters
    ----------
    n_rows : int
        Number of rows, at least 6: fewer would leave none to test.
    trials : int
        Number of splits.
    random_state : int
        Seed.

    Returns
    -------
    list of Split
        Rows in shuffled order.

    Examples
    --------
    >>> [split] = shuffled_splits(20, trials=1, random_state=0)
    >>> split.train.size, split.test.size
    (18, 2)
    """
    if n_rows < 6:
        raise ValueError(f"n_rows must be at least 6, so that a row is left to test, got {n_rows}")
    if trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    cut = _train_rows(n_rows)
    seeds = np.random.SeedSequence(random_state).spawn(trials)
    shuffles = (np.random.default_rng(seed).permutation(n_rows) for seed in seeds)
    return [Split(train=rows[:cut], test=rows[cut:]) for rows in shuffles]


def whole_batch_splits(
    rows: int, batch_size: int, count: int, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Shuffled splits of 90 to 10 without a last batch of only a few rows.

    QD+ is a loss of a whole batch. On boston, 409 rows end in a batch of nine, which makes
    intervals wider than 400 rows do; those nine become validation rows instead.

    Examples
    --------
    >>> [(train.size, valid.size) for train, valid in whole_batch_splits(455, 100, 2, 0)]
    [(400, 55), (400, 55)]
    """
    splits = shuffled_splits(rows, trials=count, random_state=seed)
    left = len(splits[0].train) % batch_size
    cut = len(splits[0].train) - (left if left < batch_size / 4 else 0)
    if not cut:
        return [(split.train, split.test) for split in splits]
    return [(split.train[:cut], np.append(split.train[cut:], split.test)) for split in splits]


def paper_splits(name: str, *, random_state: int = 0, trials: int | None = None) -> list[Split]:
    """Split a dataset by the paper's protocol.

    There are twenty shuffles (five for protein), see ``shuffled_splits``. Year has one split, the
    official one: the first 463,715 rows are for training and the others for testing. The paper's
    shuffles were not published; these are drawn by the same rule.

    Parameters
    ----------
    name : str
        A key of ``calipers.datasets.CATALOGUE``.
    random_state : int, default=0
        Seed; without effect on year.
    trials : int, optional
        Number of splits, if other than the paper's.

    Returns
    -------
    list of Split

    Raises
    ------
    ValueError
        If more than one trial is requested for a dataset whose split is fixed.

    Examples
    --------
    >>> splits = paper_splits("yacht")
    >>> len(splits), splits[0].train.size, splits[0].test.size
    (20, 277, 31)
    """
    choose([name], CATALOGUE, "dataset")
    trials = paper_trials(name) if trials is None else trials
    if CATALOGUE[name].train_rows is None:
        return shuffled_splits(CATALOGUE[name].rows, trials=trials, random_state=random_state)
    if trials != 1:
        raise ValueError(f"the split of {name!r} is fixed, so trials must be 1, got {trials}")
    return _official_split(name)


def hernandez_lobato_splits(
    name: str, *, folder: str | os.PathLike[str] | None = None
) -> list[Split]:
    """Return the splits of Hernández-Lobato & Adams (2015), which most later tables share.

    They are read from ``splits/<name>.npz`` (arrays of test rows ``test_0``, ``test_1``, ...) if
    the user's own folder has that file, and otherwise drawn by the same rule: successive
    permutations of the rows from NumPy's legacy generator with seed 1, in which all rows after the
    first round(0.9 n) are for testing. Year has its official split alone.

    Parameters
    ----------
    name : str
        A key of ``calipers.datasets.CATALOGUE``.
    folder : path-like, optional
        As in ``calipers.datasets.load``; ``CALIPERS_DATA`` if not given.

    Returns
    -------
    list of Split
        Training rows in the order of the source, test rows in the order of the published files.

    Raises
    ------
    DatasetCorruptError
        If the file in the folder does not hold splits of this dataset.

    Examples
    --------
    >>> splits = hernandez_lobato_splits("protein")
    >>> len(splits), splits[0].test.size
    (5, 4573)
    """
    choose([name], CATALOGUE, "dataset")
    rows = CATALOGUE[name].rows
    if CATALOGUE[name].train_rows is not None:
        return _official_split(name)
    own = folder if folder is not None else os.environ.get("CALIPERS_DATA") or None
    if own is not None and not Path(own).is_dir():
        raise DatasetUnavailableError(f"{os.fspath(own)!r} is not a folder")
    if own is not None and Path(own, "splits", f"{name}.npz").is_file():
        tests = _read_tests(Path(own, "splits", f"{name}.npz"), rows)
    else:
        tests = _draw_tests(rows, paper_trials(name))
    return [_complete(test, rows) for test in tests]


def _train_rows(n_rows: int) -> int:
    return (9 * n_rows + 5) // 10


def _official_split(name: str) -> list[Split]:
    rows, cut = np.arange(CATALOGUE[name].rows), CATALOGUE[name].train_rows
    return [Split(train=rows[:cut], test=rows[cut:])]


def _complete(test: NDArray[np.int64], n_rows: int) -> Split:
    return Split(train=np.setdiff1d(np.arange(n_rows), test), test=test)


def _draw_tests(n_rows: int, trials: int) -> list[NDArray[np.int64]]:
    generator = np.random.RandomState(1)
    return [generator.permutation(n_rows)[_train_rows(n_rows) :] for _ in range(trials)]


def _read_tests(path: Path, n_rows: int) -> list[NDArray[np.int64]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            tests = [arrays[f"test_{i}"] for i in range(len(arrays.files))]
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetCorruptError(f"{path} cannot be read as splits: {error}") from error
    for i, test in enumerate(tests):
        rows = np.unique(test)
        whole = test.ndim == 1 and np.issubdtype(test.dtype, np.integer)
        if not whole or rows.size != test.size or not 0 < rows.size < n_rows:
            raise DatasetCorruptError(f"test_{i} of {path} should list distinct row numbers.")
        if rows[0] < 0 or rows[-1] >= n_rows:
            raise DatasetCorruptError(f"test_{i} of {path} has rows outside 0 to {n_rows - 1}.")
    return [test.astype(np.int64) for test in tests]
