"""Numbers, counts and columns in words, suggestions for mistyped names, and values as JSON."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

JSON: TypeAlias = bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"] | None


def counted(value: int, noun: str) -> str:
    """Return a count with its noun in the singular or the plural.

    >>> counted(1, "row"), counted(12345, "row")
    ('1 row', '12,345 rows')
    """
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def listed(texts: Iterable[str]) -> str:
    """Return texts with commas, and "and" before the last.

    >>> listed(["90%", "95%", "99%"]), listed(["a"])
    ('90%, 95% and 99%', 'a')
    """
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def few_digits(value: object) -> str:
    """Return a value as text, numbers with four significant digits.

    >>> few_digits(1234.5678), few_digits(0.00012345), few_digits(12), few_digits("flat")
    ('1,235', '0.0001234', '12', 'flat')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e10 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def describe_support(target: str, support: str, excluded: int = 0) -> str:
    """Return what is assumed of a target, and how many targets contradict it.

    ``support`` is ``str`` of a ``Support``.

    >>> describe_support("price", "non-negative numbers")
    'price is assumed to be non-negative'
    >>> describe_support("grade", "integers from 1 to 5", excluded=2)
    'Values of grade are assumed to be integers from 1 to 5, which 2 targets are not'
    >>> describe_support("profit", "any number, often 0")
    'profit can be any number, often 0'
    """
    if support.startswith("any number"):
        return f"{target} can be {support}"
    text = f"Values of {target} are assumed to be {support}"
    if support == "non-negative numbers":
        text = f"{target} is assumed to be non-negative"
    if not excluded:
        return text
    return f"{text}, which {counted(excluded, 'target')} {'is' if excluded == 1 else 'are'} not"


def digits(value: float) -> str:
    """Return a number with six decimals, or six significant digits if it is small.

    >>> digits(20000001.0), digits(1234567.25), digits(-1 / 3), digits(1e-9)
    ('20000001', '1234567.25', '-0.333333', '1e-09')
    """
    return f"{value:g}" if abs(value) < 1 else f"{round(value, 6):.15g}"


def column_values(column: Mapping[str, Any], most: int, *, typical: bool = False) -> str:
    """Return the range of a column, as JSON describes it, or its first categories.

    >>> column_values({"kind": "number", "low": 1896.0, "high": 2012.0}, 4)
    '1896 to 2012'
    """
    if column["low"] is None:
        hidden = len(column["categories"]) - most
        shown = ", ".join(column["categories"][:most])
        return shown + (f" and {hidden:,} more" if hidden > 0 else "")
    if column["kind"] == "boolean":
        return "true, false" + (f", mostly {bool(column['typical'])}".lower() if typical else "")
    ends = [column[end] for end in (("low", "high", "typical") if typical else ("low", "high"))]
    years = all(not isinstance(end, str) and end in range(1000, 3000) for end in ends[:2])
    low, high, *median = (f"{end:.0f}" if years else few_digits(end) for end in ends)
    return ", median ".join([f"{low} to {high}", *median])


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Suggest the closest known name in parentheses, or return an empty text if none is close.

    >>> did_you_mean("Prise", ["size", "price"])
    " (did you mean 'price'?)"
    >>> did_you_mean("prise", ["colour"])
    ''
    """
    folded = {str(other).casefold(): str(other) for other in known}
    matches = get_close_matches(str(name).casefold(), folded, n=1)
    return f" (did you mean {folded[matches[0]]!r}?)" if matches else ""


def same_names(what: str, names: Iterable[str]) -> str:
    """Say which name is not the only one of its kind, or return an empty text if all are distinct.

    >>> same_names("there is more than one column", ["size", "kind", "size"])
    "there is more than one column 'size': give each its own name"
    """
    repeated = [name for name, count in Counter(names).items() if count > 1]
    return f"{what} {repeated[0]!r}: give each its own name" if repeated else ""


def plain(value: object, place: str = "value", other: Callable[[Any], JSON] | None = None) -> JSON:
    """Copy a value to JSON types; NumPy scalars and arrays become numbers and lists.

    A value that JSON lacks is replaced by ``other(value)``, or raises an error that says where it
    is.

    >>> import numpy as np
    >>> plain({"layers": (np.int64(64), 64), "network": print}, other=lambda f: f.__name__)
    {'layers': [64, 64], 'network': 'print'}
    >>> plain({"rates": [0.1, float("nan")]}, "settings")
    Traceback (most recent call last):
    ...
    ValueError: settings['rates'][1] is nan, which JSON lacks: use None, or put it in arrays
    """
    import numpy as np  # not at the top: the help of commands does not need it

    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{place} has the key {key!r}, but keys in JSON are strings")
        return {key: plain(item, f"{place}[{key!r}]", other) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{place}[{index}]", other) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if other is not None:
        return other(value)
    if isinstance(value, float):
        raise ValueError(f"{place} is {value}, which JSON lacks: use None, or put it in arrays")
    raise TypeError(f"{place} is of type {type(value).__name__}, which JSON lacks: {value!r}")
