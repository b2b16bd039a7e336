"""Combinators that validate documents and arrays from a file before they are used.

A check is a function of a value and its place in the document; it raises a ``SchemaError`` that
names the place, the rule and the value. Checks of lists and records are composed of others.
"""

import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

Check = Callable[[object, str], None]

MAX_FLOAT = sys.float_info.max


class SchemaError(ValueError):
    """A value that does not match the schema."""


def refuse(place: str, rule: str, value: object) -> NoReturn:
    """Raise the error for a value that breaks a rule."""
    raise SchemaError(f"{place} must be {rule}, got {reprlib.repr(value)}")


def _holding(holds: Callable[[Any], bool], rule: str) -> Check:
    """A check of values by a condition."""

    def check(value: object, place: str) -> None:
        if not holds(value):
            refuse(place, rule, value)

    return check


anything = _holding(lambda value: True, "a JSON value")
text = _holding(lambda value: isinstance(value, str), "text")
flag = _holding(lambda value: isinstance(value, bool), "true or false")


def number(low: float = -MAX_FLOAT, high: float = MAX_FLOAT) -> Check:
    """Accept finite numbers in [low, high].

    >>> number(0, 1)(1.5, "coverage")
    Traceback (most recent call last):
    calipers._schema.SchemaError: coverage must be a number from 0 to 1, got 1.5
    """

    def holds(value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low <= value <= high

    return _holding(holds, f"a number from {low:g} to {high:g}")


def whole(low: int, high: int) -> Check:
    """Accept integers in [low, high]."""
    rule = f"a whole number from {low} to {high}"
    return _holding(lambda value: type(value) is int and low <= value <= high, rule)


def one_of(*known: str) -> Check:
    """Accept only these texts."""
    rule = f"one of {sorted(known)}"
    return _holding(lambda value: isinstance(value, str) and value in known, rule)


def optional(inner: Check) -> Check:
    """Also accept null."""

    def check(value: object, place: str) -> None:
        if value is not None:
            inner(value, place)

    return check


def list_of(inner: Check, least: int = 0, most: int = sys.maxsize) -> Check:
    """Accept lists of ``least`` to ``most`` values that pass a check."""

    def check(value: object, place: str) -> None:
        if not isinstance(value, list) or not least <= len(value) <= most:
            refuse(place, f"a list of {least} to {most} entries", value)
        for i, item in enumerate(value):
            inner(item, f"{place}[{i}]")

    return check


def record(
    required: Mapping[str, Check],
    more: Mapping[str, Check] | None = None,
    rest: Check | None = None,
) -> Check:
    """Accept objects with the required entries, optionally ``more``, and others that pass ``rest``.

    >>> record({"name": text})({"nmae": "x"}, "column")
    Traceback (most recent call last):
    calipers._schema.SchemaError: column must be an object with 'name', got {'nmae': 'x'}
    """
    known = {**required, **(more or {})}

    def check(value: object, place: str) -> None:
        if not isinstance(value, dict):
            refuse(place, "an object", value)
        for name in required:
            if name not in value:
                refuse(place, f"an object with {name!r}", value)
        for name, item in value.items():
            inner = known.get(name, rest)
            if inner is None:
                refuse(place, f"an object without {name!r}", value)
            inner(item, f"{place}.{name}")

    return check


def mapping_of(inner: Check) -> Check:
    """Accept objects with any names, whose values pass a check."""
    return record({}, rest=inner)


def array_of(
    arrays: Mapping[str, ArrayLike],
    name: str,
    kinds: str,
    shape: tuple[int, ...] | None = None,
    low: float = -np.inf,
    high: float = np.inf,
) -> NDArray[Any]:
    """Return an array after checking its kind of type, shape and range, and that it is finite."""
    if name not in arrays:
        raise SchemaError(f"the weights lack the array {name!r}")
    array = np.asarray(arrays[name])
    if array.dtype.kind not in kinds:
        refuse(f"array {name!r}", f"of a type of kind {kinds!r}", array.dtype.name)
    if shape is not None and array.shape != shape:
        refuse(f"array {name!r}", f"of shape {shape}", array.shape)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        refuse(f"array {name!r}", "finite", array[~np.isfinite(array)].flat[0])
    if (low, high) != (-np.inf, np.inf):
        within(name, array, low, high)
    return array


def arrays_under(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Arrays whose names start with ``prefix``, by their names without it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def within(name: str, array: NDArray[Any], low: float, high: float) -> None:
    """Refuse an array with numbers outside [low, high]."""
    array = np.asarray(array, np.float64)
    if array.size and not (array.min() >= low and array.max() <= high):
        bad = array[~((array >= low) & (array <= high))]
        refuse(f"array {name!r}", f"of numbers from {low:g} to {high:g}", bad.flat[0])
