"""Folds: rows that networks train on, and rows that are held out."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import GroupKFold, KFold

from calipers._arrays import FloatArray, IntArray

# With fewer rows, none is set aside for early stopping. Without early stopping, a network memorises
# a dozen rows or so and predicts intervals of almost no width.
_MIN_TO_STOP = 5


class Fold(NamedTuple):
    """Rows that networks train on, and rows that are held out."""

    train: IntArray
    held_out: IntArray


def make_folds(
    cv: Any,
    rows: IntArray,
    X: FloatArray,
    y: FloatArray,
    groups: IntArray | None,
    n_networks: int,
    seed: int,
) -> list[Fold]:
    """Split rows into folds, each for the same number of networks.

    Parameters
    ----------
    cv : int, splitter or None
        Number of shuffled folds, which keep groups together if there are any; or any scikit-learn
        splitter; or None for one fold that trains on all rows and holds none out. With fewer rows
        than folds, as many folds as possible.
    rows : array of int
        Rows to use.
    X, y, groups : arrays
        The data of all rows; ``groups`` may be None.
    n_networks : int
        Networks to distribute over the folds.
    seed : int
        Seeds the shuffle.

    Raises
    ------
    ValueError
        If there are fewer groups than folds, or if networks cannot be distributed evenly.
    """
    if cv is None or len(rows) < 2:
        return [Fold(rows, rows[:0])]
    labels = None if groups is None else groups[rows]
    if isinstance(cv, Integral):
        count = len(rows) if labels is None else len(np.unique(labels))
        if labels is not None and count < int(cv):
            raise ValueError(f"groups has {count} distinct values, too few for cv={cv} folds")
        kind = KFold if labels is None else GroupKFold
        most = next(k for k in range(min(int(cv), count), 0, -1) if n_networks % k == 0)
        if most == 1:
            return [Fold(rows, rows[:0])]
        cv = kind(n_splits=most, shuffle=True, random_state=seed)
    folds = [Fold(rows[a], rows[b]) for a, b in cv.split(X[rows], y[rows], labels)]
    empty = [number for number, fold in enumerate(folds) if not fold.train.size]
    if empty or not folds:
        what = f"no rows to train on in fold {empty[0]}" if empty else "no folds"
        raise ValueError(f"cv={cv!r} leaves {what} of {len(rows)} rows: choose another splitter")
    if n_networks % len(folds):
        raise ValueError(
            f"n_networks must be a multiple of the {len(folds)} folds of cv, got {n_networks}"
        )
    return folds


def leave_rows_out(folds: Sequence[Fold]) -> bool:
    """Whether some fold neither trains on nor holds out some of the rows, as in time order.

    ``TimeSeriesSplit`` trains its first networks on the oldest rows alone. They show the errors of
    a model that has only seen the past, but the networks that predict are better trained on all
    rows.

    Examples
    --------
    >>> from sklearn.model_selection import KFold, TimeSeriesSplit
    >>> y = np.zeros(12)
    >>> folds = [[Fold(*s) for s in cv(3).split(y)] for cv in (KFold, TimeSeriesSplit)]
    >>> [leave_rows_out(each) for each in folds]
    [False, True]
    """
    each = [np.unique(np.concatenate(fold)) for fold in folds]
    return min(map(len, each)) < len(np.unique(np.concatenate(each)))


def set_aside(
    rows: IntArray, fraction: float, groups: IntArray | None, seed: int
) -> tuple[IntArray, IntArray]:
    """Split rows into training and validation rows, without splitting groups if there are any."""
    if len(rows) < _MIN_TO_STOP:
        return rows, rows[:0]
    rng = np.random.default_rng(seed)
    labels = (
        np.arange(len(rows)) if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    )
    shuffled = rng.permutation(labels.max() + 1)
    held = np.isin(labels, shuffled[: int(np.ceil(fraction * len(shuffled)))])
    return (rows, rows[:0]) if held.all() else (rows[~held], rows[held])
