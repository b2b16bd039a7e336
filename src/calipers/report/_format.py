"""Formatting of numbers and values for readers."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Unit:
    """A format for values of one quantity, with enough digits to tell them apart.

    >>> Unit.of(np.array([100.0, 150.0, 223.0])).write(152.1335)
    '152.1'
    >>> Unit.of(np.array([1e5, 5e5])).write(1234567.8), Unit(0).write(-0.4)
    ('1,234,568', '0')
    """

    decimals: int | None  # None for four significant digits, if numbers are very large or small

    @classmethod
    def of(cls, values: NDArray[Any], digits: int = 3) -> "Unit":
        """Return a format for these values that shows ``digits`` digits of a standard deviation."""
        scale = float(np.std(values)) or abs(float(values[0])) or 1.0
        decimals = max(0, digits - 1 - math.floor(math.log10(scale)))
        if digits < 3 and np.all(values == np.rint(values)):
            decimals = 0
        return cls(decimals if decimals < 10 and np.max(np.abs(values)) < 1e12 else None)

    def write(self, value: float) -> str:
        """Return a value as text."""
        if not math.isfinite(value):
            return "unbounded"
        if self.decimals is None:
            return f"{value:.4g}"
        return f"{value:z,.{self.decimals}f}".replace("-", "\N{MINUS SIGN}")


def percent(value: float) -> str:
    """Return a fraction as a percentage, with enough decimals to differ from 0 and 100%.

    >>> percent(0.95), percent(0.9464), percent(1.0), percent(0.9999)
    ('95%', '94.6%', '100%', '99.99%')
    """
    for places in range(1, 5):
        text = f"{100 * value:.{places}f}"
        if value in (0, 1) or float(text) not in (0, 100):
            break
    return text.rstrip("0").rstrip(".") + "%"


def brief(value: object) -> str:
    """Return a value of an input in few characters.

    >>> brief(0.123456), brief(1234.0), brief("red"), brief(True)
    ('0.1235', '1234', 'red', 'True')
    >>> brief(np.datetime64("2024-02-29T00:00:00")), brief(np.datetime64("2024-02-29T08:15:00"))
    ('2024-02-29', '2024-02-29 08:15')
    """
    if isinstance(value, float | np.floating):
        number = float(value)
        whole = number.is_integer() and abs(number) < 1e7
        return (str(int(number)) if whole else f"{number:.4g}").replace("-", "\N{MINUS SIGN}")
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[m]")).replace("T", " ").removesuffix(" 00:00")
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "\N{HORIZONTAL ELLIPSIS}"


def write_cell(value: Any, dtype: np.dtype[Any]) -> str:
    """Return a value as the model reads it, such as a date in seconds since 1970, as text.

    >>> truth, time = np.dtype(bool), np.dtype("datetime64[us]")
    >>> write_cell(0.0, truth), write_cell(86400.0, time), write_cell(np.nan, np.dtype(float))
    ('no', '1970-01-02', 'missing')
    """
    if value is None or value != value:
        return "missing"
    if dtype.kind == "b":
        return "yes" if value else "no"
    return brief(np.datetime64(int(value), "s") if dtype.kind == "M" else value)


def rounded(values: NDArray[Any]) -> list[float | None]:
    """Return values for JSON with five significant digits, and None for those not finite.

    >>> rounded(np.array([1234.56789, 0.0001234567, np.inf]))
    [1234.6, 0.00012346, None]
    """
    return [
        float(f"{value:.5g}") if math.isfinite(value) else None
        for value in np.asarray(values, dtype=float).tolist()
    ]
