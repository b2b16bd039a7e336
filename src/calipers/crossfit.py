"""Folds: who trains on which rows, and what networks say of the rows they have not seen."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold

from calipers.calibration import Calibration, normal_scores
from calipers.ensemble import Ensemble

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_FEWEST_TO_STOP = 20  # with fewer rows than this none is set aside to stop a training


class Fold(NamedTuple):
    """Rows that networks train on, and rows that judge them."""

    train: IntArray
    judge: IntArray


def make_folds(cv: Any, rows: IntArray, X: Any, y: Any, groups: Any, seed: int) -> list[Fold]:
    """Folds of some rows.

    Parameters
    ----------
    cv : int, splitter or None
        Number of shuffled folds, which keep groups together where there are any; or any
        scikit-learn splitter; or None for one fold in which all rows train and none judges.
    rows : array of int
        Rows to use.
    X, y, groups : arrays
        The data of all rows; ``groups`` may be None.
    seed : int
        Seeds the shuffle.

    Raises
    ------
    ValueError
        If there are fewer groups than folds.
    """
    if cv is None or len(rows) < 2:
        return [Fold(rows, rows[:0])]
    chosen = None if groups is None else np.asarray(groups)[rows]
    if isinstance(cv, (int, np.integer)):
        count = len(rows) if chosen is None else len(np.unique(chosen))
        if chosen is not None and count < cv:
            raise ValueError(f"groups has {count} distinct values, too few for cv={cv} folds")
        kind = KFold if chosen is None else GroupKFold
        cv = kind(n_splits=min(int(cv), count), shuffle=True, random_state=seed)
    folds = cv.split(X[rows], y[rows], chosen)
    return [Fold(rows[train], rows[judge]) for train, judge in folds]


def set_aside(rows: IntArray, fraction: float, groups: Any, seed: int) -> tuple[IntArray, IntArray]:
    """Rows that train, and rows that tell when to stop; whole groups where there are any."""
    if len(rows) < _FEWEST_TO_STOP:
        return rows, rows[:0]
    rng = np.random.default_rng(seed)
    labels = (
        np.arange(len(rows)) if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    )
    kinds = rng.permutation(labels.max() + 1)
    held = np.isin(labels, kinds[: int(np.ceil(fraction * len(kinds)))])
    return (rows, rows[:0]) if held.all() else (rows[~held], rows[held])


def calibrate(
    ensemble: Ensemble,
    folds: Sequence[Fold],
    fold_of: IntArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray | None,
) -> Calibration | None:
    """Calibration by each row's score under the networks that have not seen it.

    Parameters
    ----------
    ensemble : Ensemble
        All networks.
    folds : sequence of Fold
        The folds.
    fold_of : array of int
        Fold of each network.
    X, y : arrays
        The data of all rows.
    weights : array, optional
        Weights of the rows.

    Returns
    -------
    Calibration or None
        None where no row has been judged.
    """
    scores, judged = [], []
    for number, fold in enumerate(folds):
        networks = np.flatnonzero(fold_of == number)
        if fold.judge.size and networks.size:
            mixture = ensemble.part(networks).mixture(X[fold.judge])
            scores.append(
                normal_scores(mixture, y[fold.judge])
                * _sharper(mixture, y[fold.judge], len(fold_of))
            )
            judged.append(fold.judge)
    if not judged:
        return None
    rows = np.concatenate(judged)
    return Calibration.from_scores(
        np.concatenate(scores), None if weights is None else weights[rows]
    )


def _sharper(mixture, y, pool):
    means = mixture.components.mean
    r = len(means)
    if r < 2:
        return 1.0
    delta = means.var(axis=0, ddof=1) * (1 / r - 1 / pool)
    e2 = np.minimum((y - means.mean(axis=0)) ** 2, 9 * mixture.var)
    return float(
        np.sqrt(
            np.clip(
                np.mean((e2 - delta) / (mixture.var + delta)) / np.mean(e2 / mixture.var), 0.25, 1
            )
        )
    )
