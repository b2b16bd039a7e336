"""The encoders of numbers, booleans, dates and unused columns, and all encoders by kind."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from calipers._arrays import BoolArray, FloatArray
from calipers.preprocessing._categories import CategoryEncoder, TextEncoder, as_objects, respelled
from calipers.preprocessing._column import DataError
from calipers.preprocessing._column_encoder import Encoder
from calipers.preprocessing._readings import NumberText, read_dates
from calipers.preprocessing._text_columns import as_text, read_truth
from calipers.preprocessing._unread import OnUnread, refuse_unread, tell_unread

if TYPE_CHECKING:
    import pandas as pd

    from calipers.onnx import Graph, Value

TAIL = 10.0  # robust standard deviations beyond which values make a column heavy-tailed
DAY = 86_400.0  # seconds
SINGLE = 2e-7  # a little more than the relative error of a number in single precision
_MAX_FLOAT = np.finfo(np.float64).max
_ASINH_LIMIT = 1e150  # where ONNX clips inputs of asinh, since squares of larger numbers overflow
CYCLES = {"year": 365.2425 * DAY, "week": 7 * DAY, "day": DAY}


def _read(
    series: "pd.Series[Any]",
    reader: Callable[[Any], FloatArray],
    what: str,
    on_unread: OnUnread,
    others: int = 0,
) -> FloatArray:
    """Values of a column of text, NaN where they are missing or not ``what``.

    The column has so many ``others``, which are not text.
    """
    texts = as_text(series, marks=True)
    values, present = reader(texts), pc.is_valid(texts).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(np.isnan(values) & present)
    if wrong.size:
        problem = f"{texts[int(wrong[0])].as_py()!r} is not {what}"
        tell_unread(series, wrong, int(present.sum()) + others, problem, on_unread)
    return values


def _floats(series: "pd.Series[Any]") -> FloatArray:
    """Numbers among the objects of a column; NaN for text."""
    if series.dtype != object:
        return np.array([np.nan])
    types = float | np.floating | Decimal
    return np.array([float(v) if isinstance(v, types) else np.nan for v in series])


def check_finite(series: "pd.Series[Any]", values: FloatArray) -> None:
    wrong = np.flatnonzero(np.isinf(values))
    if wrong.size:
        raise DataError(
            f"{series.iloc[int(wrong[0])]} is not finite: correct it, or leave it empty",
            column=str(series.name),
            row=int(wrong[0]),
        )


def distinct_levels(values: FloatArray) -> FloatArray:
    """Distinct values in ascending order; values equal in single precision count as one.

    >>> distinct_levels(np.array([2.0, 0.3, 0.1 + 0.2])).round(3)
    array([0.3, 2. ])
    """
    levels = np.unique(values)
    return levels[np.diff(levels, prepend=-np.inf) > 2 * SINGLE * np.abs(levels)]


def level_codes(levels: Any, values: FloatArray) -> NDArray[np.intp]:
    """Index of each value among ascending levels, to single precision; -1 for other values.

    >>> level_codes([0.1, 2.0], np.array([2.0, np.float32(0.1), 0.2, np.nan]))
    array([ 1,  0, -1, -1])
    """
    levels = np.asarray(levels, dtype=np.float64)
    middles = levels[:-1] / 2 + levels[1:] / 2
    codes = np.searchsorted(middles, values)
    equal = np.abs(values - levels[codes]) <= SINGLE * np.abs(levels[codes])
    return np.where(equal, codes, -1)


@dataclass(frozen=True)
class RangeEncoder(Encoder):
    """What numbers and dates have in common."""

    low: float = 0.0
    high: float = 0.0
    fill: float = 0.0  # in place of missing values
    missing: bool = True

    def outside(self, values: FloatArray) -> BoolArray:
        return (values < self.low) | (values > self.high) | (np.isnan(values) & (not self.missing))

    def _onnx_filled(self, graph: "Graph", value: "Value") -> tuple["Value", "Value"]:
        """Which values are missing, and the values with missing ones imputed."""
        missing = graph("IsNaN", value)
        return missing, graph("Where", missing, self.fill, value)


@dataclass(frozen=True)
class NumberEncoder(RangeEncoder):
    """Numbers: imputed by the median; columns with heavy tails are transformed by asinh.

    Numeric codes have ``levels``, whose frequency and target encoding, ``means`` and ``spreads`` of
    the residuals of a smooth function, are inputs too; the last entries are for other values.
    """

    center: float = 0.0
    scale: float = 0.0  # 0 for no asinh
    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    levels: list[float] = field(default_factory=list)  # ascending
    counts: list[int] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    spreads: list[float] = field(default_factory=list)

    def read(self, series: "pd.Series[Any]", on_unread: OnUnread = refuse_unread) -> FloatArray:
        import pandas as pd

        if pd.api.types.is_timedelta64_dtype(series.dtype):
            values = series.dt.total_seconds().to_numpy(np.float64)
        elif pd.api.types.is_numeric_dtype(series.dtype):
            values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            style = NumberText(self.decimal, self.thousands, self.unit)
            example = style.example()
            what = f"a number like {example}" if example else "a number"
            floats = _floats(series)
            is_text = np.isnan(floats)
            if is_text.all():
                values = _read(series, style.read, what, on_unread)
            else:  # the number 1.234 stays itself, even where the text "1.234" means 1234
                others = int((~is_text).sum())
                texts = _read(series.where(is_text), style.read, what, on_unread, others)
                values = np.where(is_text, texts, floats)
        check_finite(series, values)
        return values

    @classmethod
    def learn(cls, values: FloatArray, style: NumberText) -> "NumberEncoder":
        """The encoder for a column with these values, NaN where they are missing."""
        present = values[~np.isnan(values)]
        first, center, third = (float(q) for q in np.quantile(present, [0.25, 0.5, 0.75]))
        distance = np.abs(present / 2 - center / 2)  # halves, since a difference may overflow
        scale = (third / 2 - first / 2) / 1.349
        if not scale and distance.any():
            scale = float(np.median(distance[distance > 0]))
        heavy = distance.max() > TAIL * scale and scale > np.finfo(np.float64).tiny
        return cls(
            low=float(present.min()),
            high=float(present.max()),
            fill=center,
            missing=len(present) < len(values),
            center=center if heavy else 0.0,
            scale=2 * scale if heavy else 0.0,
            **vars(style),
        )

    def encode(self, values: FloatArray) -> FloatArray:
        missing = np.isnan(values)
        filled = np.where(missing, self.fill, values)
        if self.scale:
            with np.errstate(over="ignore"):
                scaled = filled / self.scale - self.center / self.scale
            filled = np.arcsinh(np.clip(scaled, -_MAX_FLOAT, _MAX_FLOAT))
        columns = [filled, missing] if self.missing else [filled]
        if self.levels:
            codes = level_codes(self.levels, values)
            columns += [part[codes] for part in self.numbers]
        return np.stack(columns, axis=1)

    def onnx(self, graph: "Graph", value: "Value") -> list["Value"]:
        missing, filled = self._onnx_filled(graph, value)
        if self.scale:
            scaled = filled / self.scale - self.center / self.scale
            size = graph("Min", graph("Abs", scaled), _ASINH_LIMIT)
            filled = graph("Sign", scaled) * graph("Log", size + graph("Sqrt", size * size + 1.0))
        parts = [filled, graph.cast(missing, "float64")] if self.missing else [filled]
        return parts + self._onnx_levels(graph, value) if self.levels else parts

    def _onnx_levels(self, graph: "Graph", value: "Value") -> list["Value"]:
        """Frequency and target encoding of a numeric code."""
        levels = np.array(self.levels)
        middles = graph.constant(levels[None, :-1] / 2 + levels[None, 1:] / 2)
        code = graph.count(graph("Greater", graph.unsqueezed(value, 1), middles), 1)
        level = graph("Gather", levels, code)
        near = graph("LessOrEqual", graph("Abs", value - level), graph("Abs", level) * SINGLE)
        code = graph("Where", near, code, graph.integers(len(levels)))
        return [graph("Gather", values, code) for values in self.numbers]

    @property
    def numbers(self) -> list[FloatArray]:
        """Frequency and target encoding of each level; the last entries are for other values."""
        frequency = np.log1p(np.array([*self.counts, 0.0]))
        return [frequency, np.array(self.means), np.array(self.spreads)]

    def names(self, name: str) -> list[str]:
        names = [name, f"{name} (missing)"] if self.missing else [name]
        encoding = ("frequency", "mean of targets", "spread of targets") if self.levels else ()
        return names + [f"{name} ({what})" for what in encoding]


@dataclass(frozen=True)
class BooleanEncoder(NumberEncoder):
    """Booleans as 1 and 0, imputed by the more frequent value."""

    def read(self, series: "pd.Series[Any]", on_unread: OnUnread = refuse_unread) -> FloatArray:
        import pandas as pd

        if pd.api.types.is_numeric_dtype(series.dtype):
            values = series.to_numpy(dtype=np.float64, na_value=np.nan)
            if (np.isin(values, [0.0, 1.0]) | np.isnan(values)).all():
                return values
        return _read(series, read_truth, "true or false", on_unread)


@dataclass(frozen=True)
class DateEncoder(RangeEncoder):
    """Dates, in seconds since 1970: days since the first, sine and cosine of cycles they span."""

    cycles: list[str] = field(default_factory=list)
    form: str | None = None

    def read(self, series: "pd.Series[Any]", on_unread: OnUnread = refuse_unread) -> FloatArray:
        import pandas as pd

        if isinstance(series.dtype, pd.PeriodDtype):
            series = series.dt.to_timestamp()
        if pd.api.types.is_datetime64_any_dtype(series.dtype):
            times = read_dates(series, None)
            present = series.notna().to_numpy()
            wrong = np.flatnonzero(np.isnan(times) & present)
            if wrong.size:
                when = pd.to_datetime(series.iloc[wrong[:1]], utc=True).dt.tz_localize(None)
                problem = f"{when.to_numpy()[0]} is not in the years 1 to 9999"
                tell_unread(series, wrong, int(present.sum()), problem, on_unread)
            return times
        form = self.form or "ISO8601"
        example = "2024-01-31" if form == "ISO8601" else form
        what = f"a date such as {example}"
        return _read(series, lambda texts: read_dates(texts, form), what, on_unread)

    @classmethod
    def learn(cls, times: FloatArray, form: str | None) -> "DateEncoder":
        """The encoder for a column with these times, NaN where they are missing."""
        present = times[~np.isnan(times)]
        span = float(np.ptp(present))
        cycles = [
            name
            for name, length in CYCLES.items()
            if span >= 2 * length and len(np.unique(np.floor(present % length / DAY * 24))) > 1
        ]
        low, fill, high = float(present.min()), float(np.median(present)), float(present.max())
        return cls(low, high, fill, len(present) < len(times), cycles, form)

    def encode(self, times: FloatArray) -> FloatArray:
        missing = np.isnan(times)
        filled = np.where(missing, self.fill, times)
        columns = [(filled - self.low) / DAY]
        for cycle in self.cycles:
            angle = 2 * np.pi * (filled % CYCLES[cycle]) / CYCLES[cycle]
            columns += [np.where(missing, 0.0, wave(angle)) for wave in (np.sin, np.cos)]
        return np.stack([*columns, missing] if self.missing else columns, axis=1)

    def onnx(self, graph: "Graph", value: "Value") -> list["Value"]:
        missing, filled = self._onnx_filled(graph, value)
        parts = [(filled - self.low) / DAY]
        for cycle in self.cycles:
            turns = filled / CYCLES[cycle]
            phase = turns - graph("Floor", turns)
            angle = graph.cast(phase * (2 * np.pi), "float32")
            for function in ("Sin", "Cos"):
                wave = graph.cast(graph(function, angle), "float64")
                parts.append(graph("Where", missing, 0.0, wave))
        return [*parts, graph.cast(missing, "float64")] if self.missing else parts

    def names(self, name: str) -> list[str]:
        names = [f"{name} (days)"]
        names += [f"{name} ({cycle} {wave})" for cycle in self.cycles for wave in ("sin", "cos")]
        return [*names, f"{name} (missing)"] if self.missing else names


@dataclass(frozen=True)
class IdentifierEncoder(Encoder):
    """A column that identifies rows: not an input, not stored; no value counts as unseen."""

    def read(
        self, series: "pd.Series[Any]", on_unread: OnUnread = refuse_unread
    ) -> NDArray[np.object_]:
        return np.full(len(series), None)

    def encode(self, values: NDArray[np.object_]) -> FloatArray:
        return np.empty((len(values), 0))

    def names(self, name: str) -> list[str]:
        return []

    def outside(self, values: NDArray[np.object_]) -> BoolArray:
        return np.zeros(len(values), dtype=bool)

    def onnx(self, graph: "Graph", value: "Value") -> list["Value"]:
        return []


@dataclass(frozen=True)
class ConstantEncoder(IdentifierEncoder):
    """A column with a single value: not an input, but other values are reported as unseen."""

    values: list[str | None]  # None for a missing value

    def read(
        self, series: "pd.Series[Any]", on_unread: OnUnread = refuse_unread
    ) -> NDArray[np.object_]:
        texts = as_text(series, keep=[v for v in self.values if v is not None])
        return as_objects(respelled(texts, self.values))

    def outside(self, values: NDArray[np.object_]) -> BoolArray:
        return np.array([value not in self.values for value in values], dtype=bool)


ENCODERS: dict[str, type[Encoder]] = {
    "number": NumberEncoder,
    "boolean": BooleanEncoder,
    "category": CategoryEncoder,
    "text": TextEncoder,
    "date": DateEncoder,
    "constant": ConstantEncoder,
    "identifier": IdentifierEncoder,
}
