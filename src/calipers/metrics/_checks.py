"""Turn what a caller passes into clean rows, or say what is wrong with it and where."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

# The one infinity that makes sense in an argument: the end of an open interval.
_OPEN_END = {"lower": -math.inf, "upper": math.inf}


def rows(weight: ArrayLike | None, /, **data: ArrayLike) -> list[FloatArray]:
    """Weights and data of the rows that have weight, as flat float arrays.

    Returns
    -------
    list of arrays
        The weights, ones where none were given, then the data in order.

    Raises
    ------
    ValueError
        If shapes differ, if there is no row, if a value is not a finite number, or if weights are
        negative or all zero.
    """
    return weighed(weight, {name: finite(name, values) for name, values in data.items()})


def weighed(weight: ArrayLike | None, named: dict[str, FloatArray]) -> list[FloatArray]:
    """Do what ``rows`` does, for arrays whose values have been checked."""
    name, first = next(iter(named.items()))
    if first.size == 0:
        raise ValueError(f"{name} must hold at least one row, got shape {first.shape}")
    if weight is None:
        weights = np.ones_like(first)
        require_same_shape(named)
    else:
        weights = finite("weight", weight)
        require_same_shape({**named, "weight": weights})
    refuse("weight", weights, weights < 0, "must not be negative")
    kept = weights > 0
    if not kept.any():
        raise ValueError("weight must be positive somewhere, got zeros only")
    return [array[kept] for array in (weights, *named.values())]


def finite(name: str, values: ArrayLike) -> FloatArray:
    """Read values as finite floats; ``lower`` and ``upper`` may reach their own infinity."""
    array = numbers(name, values)
    # Nothing equals NaN, so an argument without an open end makes no exception.
    bad = ~np.isfinite(array) & (array != _OPEN_END.get(name, math.nan))
    refuse(name, array, bad, "must be finite")
    return array


def numbers(name: str, values: ArrayLike) -> FloatArray:
    """Read values as floats, NaN included, but not text, dates or complex numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"got an array of {array.dtype}")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}") from None


def fraction(name: str, values: ArrayLike) -> FloatArray:
    """Read values as floats above 0 and below 1."""
    array = numbers(name, values)
    refuse(name, array, ~((array > 0) & (array < 1)), "must be above 0 and below 1")
    return array


def require_same_shape(named: dict[str, NDArray[Any]]) -> None:
    """Refuse arrays that would have to broadcast."""
    if len({array.shape for array in named.values()}) > 1:
        found = ", ".join(f"{name} {array.shape}" for name, array in named.items())
        raise ValueError(f"arrays must have the same shape, got {found}")


def refuse(name: str, array: FloatArray, bad: NDArray[np.bool_], rule: str) -> None:
    """Raise an error for the first bad value, if there is one."""
    if bad.any():
        where = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        place = f" at index {where}" if where else ""
        raise ValueError(f"{name} {rule}, got {float(array[where])!r}{place}")
