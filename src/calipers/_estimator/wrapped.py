"""Fit and query regressors of other libraries, whose point predictions a model keeps.

A model around a regressor needs two things: predictions for new rows, from the regressor itself,
and out-of-fold predictions for the training rows, from copies that are fitted on folds. The
intervals are learned from the errors of the latter.
"""

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from calipers._arrays import FloatArray, IntArray
from calipers.crossfit import Fold


class Regressor(Protocol):
    """A regressor of another library."""

    def fit(self, X: ArrayLike, y: ArrayLike, **options: ArrayLike) -> Self:
        """Learn from rows."""
        ...

    def predict(self, X: ArrayLike) -> ArrayLike:
        """Point predictions."""
        ...


def is_fitted(regressor: object) -> bool:
    """Whether a regressor is fitted."""
    try:
        check_is_fitted(regressor)
    except NotFittedError:
        return False
    except TypeError:  # not a scikit-learn estimator: trust the user
        return True
    return True


def points_of(regressor: Regressor, X: ArrayLike, rows: int) -> FloatArray:
    """Point predictions of a regressor, of shape (rows,)."""
    points = np.asarray(regressor.predict(X), dtype=np.float64)
    name = type(regressor).__name__
    if points.shape not in {(rows,), (rows, 1)}:
        raise ValueError(
            f"{name}.predict must return one number for each of {rows} rows, got shape "
            f"{points.shape}"
        )
    points = points.reshape(rows)
    wrong = np.flatnonzero(~np.isfinite(points))
    if wrong.size:
        raise ValueError(
            f"{name}.predict must return finite numbers, got {points[wrong[0]]} in row {wrong[0]} "
            "(from 0)"
        )
    return points


def fitted(
    regressor: Regressor, X: ArrayLike, y: FloatArray, weights: FloatArray | None, rows: IntArray
) -> Regressor:
    """Fit a copy of a regressor on some rows, with their weights if it takes any."""
    options = {}
    if weights is not None and has_fit_parameter(regressor, "sample_weight"):
        options["sample_weight"] = weights[rows]
    return _copy(regressor).fit(_safe_indexing(X, rows), y[rows], **options)


def cross_fitted_points(
    regressor: Regressor,
    X: ArrayLike,
    y: FloatArray,
    weights: FloatArray | None,
    folds: Sequence[Fold],
) -> FloatArray:
    """Mean prediction of each row by copies that were not fitted on it; NaN if there is none."""
    total, count = np.zeros((2, len(y)))
    for fold in folds:
        if fold.held_out.size:
            model = fitted(regressor, X, y, weights, fold.train)
            X_held_out = _safe_indexing(X, fold.held_out)
            total[fold.held_out] += points_of(model, X_held_out, len(fold.held_out))
            count[fold.held_out] += 1
    with np.errstate(invalid="ignore"):
        return total / count


def _copy(regressor: Regressor) -> Regressor:
    """Return an unfitted copy, or raise ValueError if there is none to fit on folds."""
    try:
        copy = clone(regressor)
    except (TypeError, RuntimeError):
        copy = regressor
    if copy is regressor or not hasattr(copy, "fit") or is_fitted(copy):
        raise ValueError(
            f"{type(regressor).__name__} cannot be fitted again in folds, and its errors on rows "
            "that it was fitted on are too small: pass rows that it has not seen and set "
            "fresh=True"
        )
    return copy
