"""What documents and arrays from a file must look like, said once and checked before they are used.

A check is a function of a value and of the place it stands at; it raises ``SchemaError``, which
names the place, the rule and the value. Checks of lists and records are made of others.
"""

import reprlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

Check = Callable[[Any, str], None]

LARGEST = sys.float_info.max


class SchemaError(ValueError):
    """A value that is not what a schema says."""


def refuse(place: str, rule: str, value: object) -> NoReturn:
    """Raise the error for a value that breaks a rule."""
    raise SchemaError(f"{place} must be {rule}, got {reprlib.repr(value)}")


def anything(value: Any, place: str) -> None:
    """Take any JSON value."""


def text(value: Any, place: str) -> None:
    """Take text."""
    if not isinstance(value, str):
        refuse(place, "text", value)


def flag(value: Any, place: str) -> None:
    """Take true or false."""
    if not isinstance(value, bool):
        refuse(place, "true or false", value)


def number(low: float = -LARGEST, high: float = LARGEST) -> Check:
    """Take finite numbers in [low, high].

    >>> number(0, 1)(1.5, "coverage")
    Traceback (most recent call last):
    calipers._schema.SchemaError: coverage must be a number from 0 to 1, got 1.5
    """

    def check(value: Any, place: str) -> None:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not (real and low <= value <= high):
            refuse(place, f"a number from {low:g} to {high:g}", value)

    return check


def whole(low: int, high: int) -> Check:
    """Take whole numbers in [low, high]."""

    def check(value: Any, place: str) -> None:
        if type(value) is not int or not low <= value <= high:
            refuse(place, f"a whole number from {low} to {high}", value)

    return check


def one_of(*known: str) -> Check:
    """Take some texts."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or value not in known:
            refuse(place, f"one of {sorted(known)}", value)

    return check


def optional(inner: Check) -> Check:
    """Take null too."""

    def check(value: Any, place: str) -> None:
        if value is not None:
            inner(value, place)

    return check


def list_of(inner: Check, least: int = 0, most: int = sys.maxsize) -> Check:
    """Take lists of so many values that pass a check."""

    def check(value: Any, place: str) -> None:
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
    """Take objects with the required entries, some more, and others only if ``rest`` takes them.

    >>> record({"name": text})({"nmae": "x"}, "column")
    Traceback (most recent call last):
    calipers._schema.SchemaError: column must be an object with 'name', got {'nmae': 'x'}
    """
    known = {**required, **(more or {})}

    def check(value: Any, place: str) -> None:
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
    """Take objects with any names."""
    return record({}, rest=inner)


def array_of(
    arrays: Mapping[str, NDArray[Any]], name: str, kinds: str, shape: tuple[int, ...] | None = None
) -> NDArray[Any]:
    """An array of some kinds of types, of a shape, without NaN or infinity."""
    found = arrays.get(name)
    if found is None:
        raise SchemaError(f"the weights lack the array {name!r}")
    if found.dtype.kind not in kinds:
        refuse(f"array {name!r}", f"of a type of kind {kinds!r}", found.dtype.name)
    if shape is not None and found.shape != shape:
        refuse(f"array {name!r}", f"of shape {shape}", found.shape)
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        refuse(f"array {name!r}", "finite", found[~np.isfinite(found)].flat[0])
    return found


def arrays_under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Arrays whose names begin so, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def within(name: str, array: NDArray[Any], low: float, high: float) -> None:
    """Refuse an array with numbers beyond [low, high]."""
    array = np.asarray(array, np.float64)
    if array.size and not (array.min() >= low and array.max() <= high):
        bad = array[~((array >= low) & (array <= high))]
        refuse(f"array {name!r}", f"of numbers from {low:g} to {high:g}", bad.flat[0])
