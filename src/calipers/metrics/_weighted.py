"""Shared by all metrics: checked rows of one shape with their weights, and weighted averages."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import FloatArray
from calipers._checks import finite, numbers, refuse_where, require_same_shape

# The only infinities allowed in arguments: the ends of open intervals.
_OPEN_END = {"y_lower": -math.inf, "y_upper": math.inf}


def checked_rows(sample_weight: ArrayLike | None, /, **data: ArrayLike) -> list[FloatArray]:
    """Weights and data of the rows of positive weight, as flat float arrays; weights come first.

    Raises ``ValueError`` if shapes differ, if there is no row, if a value is not a finite number
    (``y_lower`` may be -inf and ``y_upper`` inf), or if weights are negative or all zero.
    """
    return weighted(sample_weight, {name: _read(name, values) for name, values in data.items()})


def interval_rows(sample_weight: ArrayLike | None, /, **data: ArrayLike) -> list[FloatArray]:
    """Like ``checked_rows``, but raise ``ValueError`` for bounds that cross on most rows.

    The bounds of a model may cross on a few rows. On most rows they cross if arguments are passed
    in the wrong order, such as ``y_lower, y_upper, y_true``.
    """
    weights, *columns = checked_rows(sample_weight, **data)
    named = dict(zip(data, columns, strict=True))
    crossed = np.count_nonzero(named["y_lower"] > named["y_upper"])
    if 2 * crossed > weights.size:
        raise ValueError(
            f"y_lower is above y_upper in {crossed} of {weights.size} rows; "
            f"the order of arguments is {', '.join(data)}"
        )
    return [weights, *columns]


def weighted(sample_weight: ArrayLike | None, named: Mapping[str, FloatArray]) -> list[FloatArray]:
    """Like ``checked_rows``, for arrays whose values have been checked."""
    name, first = next(iter(named.items()))
    if first.size == 0:
        raise ValueError(f"{name} must hold at least one row, got shape {first.shape}")
    if sample_weight is None:
        require_same_shape(dict(named))
        return [np.ones(first.size), *(array.ravel() for array in named.values())]
    weights = finite("sample_weight", sample_weight)
    require_same_shape({**named, "sample_weight": weights})
    refuse_where("sample_weight", weights, weights < 0, "must not be negative")
    kept = weights > 0
    if not kept.any():
        raise ValueError("sample_weight must be positive somewhere, got zeros only")
    return [array[kept] for array in (weights, *named.values())]


def weighted_average(values: NDArray[Any], weights: FloatArray) -> float:
    return float(np.average(values, weights=weights))


def _read(name: str, values: ArrayLike) -> FloatArray:
    if name not in _OPEN_END:
        return finite(name, values)
    array = numbers(name, values)
    refuse_where(name, array, ~np.isfinite(array) & (array != _OPEN_END[name]), "must be finite")
    return array
