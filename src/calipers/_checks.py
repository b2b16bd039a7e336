"""Validate numbers; errors name the argument, the rule, the value and its index.

Valid input costs one pass for the minimum and one for the maximum: NaN propagates to both, so a
temporary mask is made only if there is something to report.
"""

import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calipers._arrays import BoolArray, FloatArray

MAX_TARGET = 1e150
"""Largest absolute target: its square is still finite."""

COVERAGES = (1e-9, 1 - 1e-9)
"""Smallest and largest coverage of a model."""

_MAX_FLOAT = float(np.finfo(np.float64).max)


def warn(text: str) -> None:
    """Warn with the location of the caller outside this library."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("calipers."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


def refuse_masked(name: str, values: Any) -> None:
    """Refuse an array with masked values, which would otherwise be used as if they were not masked.

    >>> refuse_masked("y", np.ma.masked_invalid([1.0, np.nan]))
    Traceback (most recent call last):
    ...
    ValueError: y has masked values, 1 of 2: leave those rows out, or fill them, y.filled(np.nan)
    """
    if np.ma.is_masked(values):
        masked = int(np.ma.getmaskarray(values).sum())
        raise ValueError(
            f"{name} has masked values, {masked} of {np.size(values)}: leave those rows out, or "
            f"fill them, {name}.filled(np.nan)"
        )


def numbers(name: str, values: ArrayLike) -> FloatArray:
    """Return values as float64, including NaN; refuse text, dates and complex numbers.

    >>> numbers("target", ["1", "2"])
    Traceback (most recent call last):
    ...
    ValueError: target must hold real numbers: got an array of <U1
    """
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    refuse_masked(name, values)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"got an array of {array.dtype}")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}") from None


def checked(
    name: str,
    value: ArrayLike,
    rule: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    strict: bool = False,
) -> FloatArray:
    """Return `value` as float64 if all of it lies in [low, high], or in (low, high) if `strict`.

    >>> checked("coverage", [0.5, 1.5], "must be between 0 and 1", low=0, high=1)
    Traceback (most recent call last):
    ...
    ValueError: coverage must be between 0 and 1, got 1.5 at index (1,)
    """
    array = numbers(name, value)
    if array.size == 0:
        return array
    least, most = array.min(), array.max()
    if (low < least and most < high) if strict else (low <= least and most <= high):
        return array
    good = ((array > low) & (array < high)) if strict else ((array >= low) & (array <= high))
    refuse_where(name, array, ~good, rule)
    return array


def refuse_where(name: str, array: FloatArray, bad: BoolArray, rule: str) -> None:
    """Raise an error for the first bad value, if there is one."""
    if bad.any():
        where = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
        place = f" at index {where}" if where else ""
        raise ValueError(f"{name} {rule}, got {float(array[where])!r}{place}")


finite = partial(checked, rule="must be finite", strict=True)
scale = partial(checked, rule="must be finite and not negative", low=0.0, high=_MAX_FLOAT)
positive = partial(checked, rule="must be finite and above 0", low=0.0, strict=True)
not_nan = partial(checked, rule="must not be NaN")  # infinities pass
probability = partial(checked, rule="must be between 0 and 1", low=0.0, high=1.0)
fraction = partial(checked, rule="must be above 0 and below 1", low=0.0, high=1.0, strict=True)
coverage = partial(fraction, "coverage")


def require_same_shape(named: Mapping[str, Any]) -> None:
    """Refuse arrays, of any library, that would have to broadcast.

    >>> require_same_shape({"lower": np.zeros(3), "upper": np.zeros((1, 3))})
    Traceback (most recent call last):
    ...
    ValueError: arrays must have the same shape, got lower (3,), upper (1, 3)
    """
    shapes = {name: tuple(getattr(array, "shape", ())) for name, array in named.items()}
    if len(set(shapes.values())) > 1:
        shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"arrays must have the same shape, got {shown}")


def common_shape(names: Sequence[str], arrays: Sequence[FloatArray]) -> tuple[int, ...]:
    """Shape that the arrays broadcast to.

    >>> common_shape(["lower", "upper"], [np.zeros((2, 3)), np.zeros(4)])
    Traceback (most recent call last):
    ...
    ValueError: lower and upper must have shapes that broadcast, got (2, 3) and (4,)
    """
    shapes = [array.shape for array in arrays]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        wanted, got = (
            f"{', '.join(words[:-1])} and {words[-1]}"
            for words in (list(names), [str(shape) for shape in shapes])
        )
        raise ValueError(f"{wanted} must have shapes that broadcast, got {got}") from None
