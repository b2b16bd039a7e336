"""One encoder for each kind of column: how it reads values and what numbers it makes of them.

Every encoder has ``read`` (a column of a frame to values, errors naming row and column), ``encode``
(values to numbers, one row each), ``names`` (of those numbers) and ``outside`` (values that
training did not see). They are frozen dataclasses of JSON values: ``vars`` of one is its document.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from calipers._checks import BoolArray, FloatArray, IntArray
from calipers.preprocessing._categories import CategoryEncoder, as_objects
from calipers.preprocessing._column import DataError
from calipers.preprocessing._dates import read_dates
from calipers.preprocessing._numbers import NumberText
from calipers.preprocessing._text_columns import as_text, read_truth

TAIL = 10.0  # robust deviations beyond which the tail of a column is heavy
DAY = 86_400.0
SINGLE = 2e-7  # relative error of a number in single precision, and some more
_LARGEST = np.finfo(np.float64).max
CYCLES = {"year": 365.2425 * DAY, "week": 7 * DAY, "day": DAY}


def _read(series: Any, reader: Callable[[Any], FloatArray], what: str) -> FloatArray:
    """Numbers of a column of text, NaN where they are missing; an error names what is none."""
    texts = as_text(series, marks=True)
    values = reader(texts)
    wrong = np.flatnonzero(np.isnan(values) & pc.is_valid(texts).to_numpy(zero_copy_only=False))
    if wrong.size:
        row = int(wrong[0])
        raise DataError(f"{texts[row].as_py()!r} is not {what}", column=str(series.name), row=row)
    return values


def _floats(series: Any) -> FloatArray:
    """Values of a column of text that are numbers already; NaN for others."""
    if series.dtype != object:
        return np.array([np.nan])
    kinds = float | np.floating | Decimal
    return np.array([float(v) if isinstance(v, kinds) else np.nan for v in series])


def check_finite(series: Any, values: FloatArray) -> None:
    """Refuse infinite numbers."""
    wrong = np.flatnonzero(np.isinf(values))
    if wrong.size:
        raise DataError(
            f"{series.iloc[int(wrong[0])]} is not finite: correct it, or leave it empty",
            column=str(series.name),
            row=int(wrong[0]),
        )


def _beyond(values: FloatArray, low: float, high: float, missing: bool) -> BoolArray:
    return (values < low) | (values > high) | (np.isnan(values) & (not missing))


def distinct_levels(values: FloatArray) -> FloatArray:
    """Different values, ascending; those that are one in single precision are one level.

    >>> distinct_levels(np.array([2.0, 0.3, 0.1 + 0.2])).round(3)
    array([0.3, 2. ])
    """
    known = np.unique(values)
    return known[np.diff(known, prepend=-np.inf) > 2 * SINGLE * np.abs(known)]


def level_codes(levels: Any, values: FloatArray) -> NDArray[np.intp]:
    """Position of each value among ascending levels, to single precision; -1 for others.

    >>> level_codes([0.1, 2.0], np.array([2.0, np.float32(0.1), 0.2, np.nan]))
    array([ 1,  0, -1, -1])
    """
    known = np.asarray(levels, dtype=np.float64)
    middles = known[:-1] / 2 + known[1:] / 2
    codes = np.searchsorted(middles, values)
    near = np.abs(values - known[codes]) <= SINGLE * np.abs(known[codes])
    return np.where(near, codes, -1)


@dataclass(frozen=True)
class NumberEncoder:
    """Numbers: the median where they are missing, heavy tails drawn in by asinh.

    Numbers that are also names have ``levels``, and as further inputs how often each occurred and
    what a smooth function left of its targets, ``means`` and ``spreads``; the last are for others.
    """

    low: float
    high: float
    fill: float
    missing: bool
    center: float = 0.0
    scale: float = 0.0  # 0 leaves values as they are
    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    levels: list[float] = field(default_factory=list)  # ascending
    counts: list[int] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)

    def read(self, series: Any) -> FloatArray:
        """Numbers of a column, NaN where they are missing."""
        import pandas as pd

        if pd.api.types.is_timedelta64_dtype(series.dtype):
            values = series.dt.total_seconds().to_numpy(np.float64)
        elif pd.api.types.is_numeric_dtype(series.dtype):
            values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            style = NumberText(self.decimal, self.thousands, self.unit)
            like = style.example()
            what, floats = f"a number like {like}" if like else "a number", _floats(series)
            if np.isnan(floats).all():
                values = _read(series, style.read, what)
            else:  # 1.234 is no text, whatever that would mean
                written = series.where(np.isnan(floats))
                values = np.where(np.isnan(floats), _read(written, style.read, what), floats)
        check_finite(series, values)
        return values

    @classmethod
    def learn(cls, values: FloatArray, style: NumberText) -> "NumberEncoder":
        """Encoder for numbers like these, some of which may be NaN."""
        there = values[~np.isnan(values)]
        first, center, third = (float(q) for q in np.quantile(there, [0.25, 0.5, 0.75]))
        away = np.abs(there / 2 - center / 2)  # halves, since a difference may overflow
        scale = (third / 2 - first / 2) / 1.349
        if not scale and away.any():
            scale = float(np.median(away[away > 0]))
        heavy = away.max() > TAIL * scale and scale > np.finfo(np.float64).tiny
        return cls(
            low=float(there.min()),
            high=float(there.max()),
            fill=center,
            missing=len(there) < len(values),
            center=center if heavy else 0.0,
            scale=2 * scale if heavy else 0.0,
            **vars(style),
        )

    def encode(self, values: FloatArray) -> FloatArray:
        """The number, and whether it is missing where that was so in training."""
        gone = np.isnan(values)
        filled = np.where(gone, self.fill, values)
        if self.scale:
            with np.errstate(over="ignore"):
                away = filled / self.scale - self.center / self.scale
            filled = np.arcsinh(np.clip(away, -_LARGEST, _LARGEST))
        columns = [filled, gone] if self.missing else [filled]
        if self.levels:
            codes = level_codes(self.levels, values)
            columns += [known[codes] for known in self.numbers]
        return np.stack(columns, axis=1)

    @property
    def numbers(self) -> list[FloatArray]:
        """What each level has as inputs beside its size; last, what others have."""
        counts = np.log1p(np.array([*self.counts, 0.0]))
        return [counts, np.array(self.means), np.array(self.spreads)]

    def with_levels(
        self, levels: FloatArray, counts: IntArray, means: FloatArray, spreads: FloatArray
    ) -> "NumberEncoder":
        """The same for numbers that are also names, with what is known of each and of others."""
        return replace(
            self,
            levels=levels.tolist(),
            counts=counts.tolist(),
            means=means.tolist(),
            spreads=spreads.tolist(),
        )

    def names(self, name: str) -> list[str]:
        """Names of what ``encode`` gives."""
        found = [name, f"{name} (missing)"] if self.missing else [name]
        more = ("frequency", "mean of targets", "spread of targets") if self.levels else ()
        return found + [f"{name} ({what})" for what in more]

    def outside(self, values: FloatArray) -> BoolArray:
        """Which values are beyond what training saw, or missing where none was."""
        return _beyond(values, self.low, self.high, self.missing)


@dataclass(frozen=True)
class BooleanEncoder(NumberEncoder):
    """Truth as 1 and 0; the more frequent one where it is missing."""

    def read(self, series: Any) -> FloatArray:
        """1 and 0, NaN where the value is missing."""
        import pandas as pd

        if pd.api.types.is_numeric_dtype(series.dtype):
            values = series.to_numpy(dtype=np.float64, na_value=np.nan)
            if (np.isin(values, [0.0, 1.0]) | np.isnan(values)).all():
                return values
        return _read(series, read_truth, "true or false")


@dataclass(frozen=True)
class DateEncoder:
    """Dates: days since the first one, and the cycles of year, week and day that they span."""

    low: float
    high: float
    fill: float
    missing: bool
    cycles: list[str]
    form: str | None

    def read(self, series: Any) -> FloatArray:
        """Seconds since 1970, NaN where the date is missing."""
        import pandas as pd

        if isinstance(series.dtype, pd.PeriodDtype):
            series = series.dt.to_timestamp()
        if pd.api.types.is_datetime64_any_dtype(series.dtype):
            found = read_dates(series, None)
            lost = np.flatnonzero(np.isnan(found) & series.notna().to_numpy())
            if lost.size:
                row, name = int(lost[0]), str(series.name)
                when = pd.to_datetime(series.iloc[[row]], utc=True).dt.tz_localize(None)
                problem = f"{when.to_numpy()[0]} is not in the years 1 to 9999"
                raise DataError(problem, column=name, row=row)
            return found
        form = self.form or "ISO8601"
        like = "2024-01-31" if form == "ISO8601" else form
        return _read(series, lambda texts: read_dates(texts, form), f"a date such as {like}")

    @classmethod
    def learn(cls, times: FloatArray, form: str | None) -> "DateEncoder":
        """Encoder for times like these, some of which may be NaN."""
        there = times[~np.isnan(times)]
        span = float(np.ptp(there))
        cycles = [
            name
            for name, length in CYCLES.items()
            if span >= 2 * length and len(np.unique(np.floor(there % length / DAY * 24))) > 1
        ]
        low, fill, high = float(there.min()), float(np.median(there)), float(there.max())
        return cls(low, high, fill, len(there) < len(times), cycles, form)

    def encode(self, times: FloatArray) -> FloatArray:
        """Days, sine and cosine of each cycle, and whether the date is missing."""
        gone = np.isnan(times)
        filled = np.where(gone, self.fill, times)
        columns = [(filled - self.low) / DAY]
        for cycle in self.cycles:
            angle = 2 * np.pi * (filled % CYCLES[cycle]) / CYCLES[cycle]
            columns += [np.where(gone, 0.0, np.sin(angle)), np.where(gone, 0.0, np.cos(angle))]
        return np.stack([*columns, gone] if self.missing else columns, axis=1)

    def names(self, name: str) -> list[str]:
        """Names of what ``encode`` gives."""
        found = [f"{name} (days)"]
        found += [f"{name} ({cycle} {part})" for cycle in self.cycles for part in ("sin", "cos")]
        return [*found, f"{name} (missing)"] if self.missing else found

    def outside(self, times: FloatArray) -> BoolArray:
        """Which dates are beyond those of training, or missing where none was."""
        return _beyond(times, self.low, self.high, self.missing)


@dataclass(frozen=True)
class IdentifierEncoder:
    """A column that names rows: no input, and every name is new."""

    def read(self, series: Any) -> NDArray[np.object_]:
        """Nothing of each value."""
        return np.full(len(series), None)

    def encode(self, values: NDArray[np.object_]) -> FloatArray:
        """No numbers."""
        return np.empty((len(values), 0))

    def names(self, name: str) -> list[str]:
        """No names."""
        return []

    def outside(self, values: NDArray[np.object_]) -> BoolArray:
        """Nowhere."""
        return np.zeros(len(values), dtype=bool)


@dataclass(frozen=True)
class ConstantEncoder(IdentifierEncoder):
    """A column with one value: no input either, but it tells when that changes."""

    values: list[str | None]  # None for a missing one

    def read(self, series: Any) -> NDArray[np.object_]:
        """Values as text, None where they are missing."""
        return as_objects(as_text(series, keep=[v for v in self.values if v is not None]))

    def outside(self, values: NDArray[np.object_]) -> BoolArray:
        """Which values are others."""
        return np.array([value not in self.values for value in values], dtype=bool)


Encoder = NumberEncoder | CategoryEncoder | DateEncoder | IdentifierEncoder

ENCODERS: dict[str, Any] = {
    "number": NumberEncoder,
    "boolean": BooleanEncoder,
    "category": CategoryEncoder,
    "date": DateEncoder,
    "constant": ConstantEncoder,
    "identifier": IdentifierEncoder,
}
