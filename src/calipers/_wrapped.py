"""Regressors of other libraries whose points a model keeps: how they are fitted, and asked.

A model around a regressor needs two things of it: points of new rows, from the regressor itself,
and points of the training rows by a regressor that has not seen them, from copies that are fitted
in folds. Errors of the latter are what the intervals are learnt from.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from calipers._checks import FloatArray
from calipers.crossfit import Fold


def is_regressor(points: Any) -> bool:
    """Whether something predicts as the regressors of scikit-learn do."""
    return hasattr(points, "predict") and not isinstance(points, type)


def is_fitted(regressor: Any) -> bool:
    """Whether a regressor can predict already."""
    try:
        check_is_fitted(regressor)
    except NotFittedError:
        return False
    except TypeError:  # no estimator of scikit-learn, so that only its maker knows
        return True
    return True


def points_of(regressor: Any, X: Any, rows: int) -> FloatArray:
    """Points of a regressor, of shape (rows,)."""
    found = np.asarray(regressor.predict(X), dtype=np.float64)
    name = type(regressor).__name__
    if found.shape not in {(rows,), (rows, 1)}:
        raise ValueError(
            f"{name}.predict must give one point for each of {rows} rows, got shape {found.shape}"
        )
    points = found.reshape(rows)
    wrong = np.flatnonzero(~np.isfinite(points))
    if wrong.size:
        raise ValueError(
            f"{name}.predict gives {points[wrong[0]]} for row {wrong[0]} (from 0); points must be "
            "finite"
        )
    return points


def fitted(regressor: Any, X: Any, y: FloatArray, weights: FloatArray | None, rows: Any) -> Any:
    """A copy of a regressor, fitted on some rows; with their weights where it takes any."""
    part = _safe_indexing(X, rows)
    options = {}
    if weights is not None and has_fit_parameter(regressor, "sample_weight"):
        options["sample_weight"] = weights[rows]
    return _copy(regressor).fit(part, y[rows], **options)


def out_of_fold_points(
    regressor: Any, X: Any, y: FloatArray, weights: FloatArray | None, folds: Sequence[Fold]
) -> FloatArray:
    """Points of all rows by copies that have not seen them, or their mean; NaN without one."""
    total, count = np.zeros((2, len(y)))
    for fold in folds:
        if fold.held_out.size:
            model = fitted(regressor, X, y, weights, fold.train)
            part = _safe_indexing(X, fold.held_out)
            total[fold.held_out] += points_of(model, part, len(fold.held_out))
            count[fold.held_out] += 1
    with np.errstate(invalid="ignore"):
        return total / count


def _copy(regressor: Any) -> Any:
    """An unfitted copy; what has none knows every row it was fitted on, and is refused."""
    try:
        copy = clone(regressor)
    except (TypeError, RuntimeError):
        copy = regressor
    if copy is regressor or not hasattr(copy, "fit") or is_fitted(copy):
        raise ValueError(
            f"{type(regressor).__name__} cannot be fitted again in folds, and rows that it was "
            "fitted on do not tell how far it is off: pass rows that it has not seen and say "
            "fresh=True"
        )
    return copy
