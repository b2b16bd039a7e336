"""Read numbers that a caller passes, or say what is wrong with them and where."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import refuse_masked

FloatArray = NDArray[np.float64]


def numbers(name: str, values: ArrayLike) -> FloatArray:
    """Read values as floats, NaN included, but not text, dates or complex numbers."""
    refuse_masked(name, values)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"got an array of {array.dtype}")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}") from None


def finite(name: str, values: ArrayLike) -> FloatArray:
    """Read values as finite floats."""
    array = numbers(name, values)
    refuse(name, array, ~np.isfinite(array), "must be finite")
    return array


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
