"""Targets, weights and groups of rows, checked and as numbers."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import _check_sample_weight

from calipers import preprocessing
from calipers._arrays import FloatArray, IntArray
from calipers._checks import MAX_TARGET, refuse_masked
from calipers.preprocessing import HOW, DataError

_MIN_RANGE = 1e-290  # range of targets: a millionth of it still has full precision


def readable_target(y: ArrayLike, *tables: Any) -> ArrayLike:
    """Return targets in a form that scikit-learn reads; text is read like a column of inputs.

    Other columns of the same rows, in ``tables``, may show how its numbers are written.

    >>> readable_target(["1,234.5", "(7)"]).tolist()
    [1234.5, -7.0]
    >>> readable_target(["1.5", "many"])
    Traceback (most recent call last):
    ...
    ValueError: y must hold numbers, got 'many' in row 1 (from 0)
    """
    refuse_masked("y", y)
    values = np.asarray(y)
    if values.dtype.kind in "mMOSU" and values.ndim:
        y = values = _read(values, tables)
    if values.dtype.kind == "f" and (missing := np.isnan(values)).any():
        raise ValueError(
            f"Input y contains NaN, in {np.count_nonzero(missing):,} of {len(values):,} rows: "
            "leave them out, by known = ~np.isnan(y) and X[known], y[known]"
        )
    return y


def checked_target(X: ArrayLike, y: ArrayLike) -> FloatArray:
    """Return the targets of the rows of ``X`` as finite numbers, read as ``fit`` reads them."""
    check_consistent_length(X, y)
    target = finite_target(y, X)
    if not len(target):
        raise ValueError("an evaluation needs at least one labelled row, got none")
    return target


def finite_target(y: ArrayLike, *tables: Any) -> FloatArray:
    """Return targets as finite numbers, read as ``fit`` reads them."""
    target = column_or_1d(readable_target(y, *tables)).astype(np.float64)
    if bad := np.flatnonzero(~np.isfinite(target)).tolist():
        raise ValueError(f"y must be finite, got {target[bad[0]]} in row {bad[0]}")
    return target


def _read(values: NDArray[Any], tables: tuple[Any, ...]) -> FloatArray:
    """Read targets that are text or of mixed types; refuse times."""
    try:
        return preprocessing.read_target(values, *tables)
    except OverflowError:
        raise ValueError(f"y must lie within +-{MAX_TARGET:g}, got more") from None
    except DataError as error:
        if error.row is not None:
            shown = str(values.ravel()[error.row])
            problem = f"must hold numbers, got {shown!r} in row {error.row} (from 0)"
        else:
            remedy = "; convert text to numbers by calipers.preprocessing.read_number(y, kind)"
            problem = error.problem.replace(f" {HOW}", remedy)
        raise ValueError(f"y {problem}") from None


def check_size(y: FloatArray) -> None:
    """Refuse targets so large, or so close to each other, that precision is lost."""
    large = np.flatnonzero((np.abs(y) > MAX_TARGET) & np.isfinite(y))
    if large.size:
        row = int(large[0])
        raise DataError(f"y must lie within +-{MAX_TARGET:g}, got {y[row]:g}", row=row)
    finite = y[np.isfinite(y)]  # scikit-learn reports the others
    if finite.size and 0 < np.ptp(finite) < _MIN_RANGE:
        raise ValueError(
            f"y must have a range of at least {_MIN_RANGE:g}, got {y.min():g} to {y.max():g}: give "
            "it in another unit"
        )


def checked_weights(sample_weight: ArrayLike, X: ArrayLike) -> FloatArray:
    """Return the weights of the rows of ``X`` as finite numbers, none of them negative."""
    refuse_masked("sample_weight", sample_weight)
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


def group_labels(groups: ArrayLike, rows: ArrayLike) -> IntArray:
    """Return labels of groups as integers from 0."""
    refuse_masked("groups", groups)
    labels = column_or_1d(groups)
    check_consistent_length(rows, labels)
    try:
        return np.unique(labels, return_inverse=True)[1]
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            f"groups must hold labels of one type, got {' and '.join(kinds)}: convert all of them "
            "to text, or to numbers"
        ) from None
