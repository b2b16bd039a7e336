"""What a column is: its kind, found from its values, and the encoder that follows."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.preprocessing._column import Column, DataError
from calipers.preprocessing._encoders import (
    BooleanEncoder,
    CategoryEncoder,
    ConstantEncoder,
    DateEncoder,
    Encoder,
    IdentifierEncoder,
    NumberEncoder,
    as_text,
)
from calipers.preprocessing._text import (
    MISSING_WORDS,
    NumberText,
    date_text,
    number_text,
    refuse_mixture,
)

FloatArray = NDArray[np.float64]

_FEWEST_IDENTIFIERS = 20  # fewer rows than this can be all different by chance
_NAMES_ROWS = re.compile(r"(^|[\W_])(id|uuid|guid|index|key|row|rownum|nr|no)$|[a-z](Id|ID)$", re.I)
_SCALARS = ("string", "mixed-integer", "mixed", "bytes", "time", "empty")


def learn(
    series: Any, kind: str | None, max_categories: int, min_frequency: int
) -> tuple[Column, Encoder]:
    """Describe a column and make its encoder.

    Parameters
    ----------
    series : pandas Series
        The column, with its name.
    kind : str, optional
        Its kind, for text with how it is written; found from the values by default.
    max_categories, min_frequency : int
        See ``TableEncoder``.
    """
    name, note = str(series.name), ""
    style, form = NumberText(), None
    kind, _, written = (kind or "").partition(" ")
    if not kind:
        kind, style, form, note = _find_kind(series, max_categories)
    elif written:
        style, form = _given_format(name, kind, written)
    elif kind in ("number", "date"):
        style, form = _find_format(series, kind)
    if kind == "identifier":
        return Column(name, kind, used=False, note=note or "names rows"), IdentifierEncoder()
    if kind == "constant":
        return _constant(series, name, note)
    if kind == "category":
        return _category(series, name, note, max_categories, min_frequency)
    return _ordered(series, name, kind, style, form, note)


def read_number(series: Any) -> FloatArray:
    """A column as numbers, NaN where they are missing, also where text writes them."""
    style, _ = _find_format(series, "number")
    return NumberEncoder(0.0, 0.0, 0.0, True, **vars(style)).read(series)


def _find_kind(series: Any, most: int) -> tuple[str, NumberText, str | None, str]:
    """Kind of a column, how its text is to be read, and what was noticed."""
    kind, style, form, note = _kind_of_type(series), NumberText(), None, ""
    if kind is None:
        kind, style, form, note = _kind_of_text(series, most)
    if kind != "identifier" and _distinct(series) <= 1:
        return "constant", style, form, ""
    if kind == "number" and _counts_rows(series):
        return "identifier", style, form, "a different whole number in each row: names rows"
    return kind, style, form, note


def _kind_of_type(series: Any) -> str | None:
    """Kind by the type of a column; None for text."""
    import pandas as pd

    types, dtype = pd.api.types, series.dtype
    if types.is_bool_dtype(dtype):
        return "boolean"
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if types.is_complex_dtype(dtype):
        raise DataError("Complex data not supported", column=str(series.name))
    if types.is_numeric_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        return "date"
    found = types.infer_dtype(series, skipna=True)
    if found in ("integer", "floating", "decimal", "mixed-integer-float"):
        return "number"
    if found in ("date", "datetime", "datetime64"):
        return "date"
    if found == "boolean":
        return "boolean"
    if found not in _SCALARS or not series.map(np.isscalar, na_action="ignore").all():
        raise DataError(
            f"holds values of type {type(series.dropna().iloc[0]).__name__}, and an input is a "
            "number, text or a date",
            column=str(series.name),
        )
    return None


def _kind_of_text(series: Any, most: int) -> tuple[str, NumberText, str | None, str]:
    """Kind of a column of text: numbers, dates, names of rows, or categories."""
    texts = as_text(series).reset_index(drop=True).dropna()
    words = texts[~texts.str.lower().isin(MISSING_WORDS)]
    counts = words.value_counts()
    levels = counts.index.to_series().reset_index(drop=True)
    plain = NumberText()
    if not len(levels):
        return "constant", plain, None, ""
    style, note = number_text(levels)
    if style is not None:
        written = "" if style == plain else f"numbers written like {levels.iloc[0]!r}"
        return "number", style, None, written
    form, hint = date_text(levels)
    if form is not None:
        return "date", plain, form, "" if form == "ISO8601" else f"dates written as {form}"
    refuse_mixture(words, levels, most, str(series.name))
    if len(words) >= _FEWEST_IDENTIFIERS and len(levels) > 0.9 * len(words):
        return "identifier", plain, None, note or hint or "nearly every text differs: names rows"
    return "category", plain, None, note or hint


def _find_format(series: Any, kind: str) -> tuple[NumberText, str | None]:
    """How the text of a column is to be read whose kind is given."""
    if _kind_of_type(series) is not None:
        return NumberText(), None
    texts = as_text(series).dropna()
    levels = texts[~texts.str.lower().isin(MISSING_WORDS)].drop_duplicates()
    style, note = number_text(levels) if kind == "number" and len(levels) else (NumberText(), "")
    form, hint = date_text(levels) if kind == "date" and len(levels) else (None, "")
    if note or hint:
        raise DataError(note or hint, column=str(series.name))
    return style or NumberText(), form


def _given_format(name: str, kind: str, written: str) -> tuple[NumberText, str | None]:
    """How text is to be read that is described by a number, or by a format of dates."""
    import pandas as pd

    if kind == "date":
        return NumberText(), written
    style = number_text(pd.Series([written]))[0] if kind == "number" else None
    if style is None:
        raise ValueError(
            f"kinds[{name!r}] must be a kind, a number such as 'number 1,234.5' or a date such as "
            f"'date %d/%m/%Y'; got {kind + ' ' + written!r}"
        )
    return style, None


def kind_of(kind: str, encoder: Encoder) -> str:
    """Kind of a column with how its text is written, as ``learn`` takes it."""
    if isinstance(encoder, NumberEncoder) and (encoder.thousands or encoder.unit):
        return f"{kind} 1{encoder.thousands}234{encoder.decimal}5{encoder.unit}"
    if isinstance(encoder, DateEncoder) and encoder.form not in (None, "ISO8601"):
        return f"{kind} {encoder.form}"
    return kind


def _distinct(series: Any) -> int:
    """Distinct values of a column, a missing one among them."""
    texts = as_text(series) if series.dtype == object else series
    return int(texts.nunique(dropna=False))


def _counts_rows(series: Any) -> bool:
    """Whether whole numbers count rows, or differ in each under a name that says why."""
    import pandas as pd

    if len(series) < _FEWEST_IDENTIFIERS or not pd.api.types.is_integer_dtype(series.dtype):
        return False
    if series.isna().any() or series.nunique() < len(series):
        return False
    low, high = int(series.min()), int(series.max())
    counting = low in (0, 1) and high - low == len(series) - 1
    return counting or bool(_NAMES_ROWS.search(str(series.name)))


def _constant(series: Any, name: str, note: str) -> tuple[Column, Encoder]:
    texts = as_text(series)
    values = tuple(str(text) for text in texts.dropna().unique())
    missing = bool(texts.isna().any())
    note = note or (f"always {values[0]!r}" if len(values) == 1 else "always empty")
    column = Column(name, "constant", categories=values, missing=missing, used=False, note=note)
    return column, ConstantEncoder([*values, None] if missing else [*values])


def _category(
    series: Any, name: str, note: str, max_categories: int, min_frequency: int
) -> tuple[Column, Encoder]:
    texts = as_text(series)
    found = texts.value_counts()
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    levels, counts = [str(level) for level, _ in ranked], [int(count) for _, count in ranked]
    frequent = sum(count >= min_frequency for count in counts)
    kept = len(levels) if len(levels) <= 2 else min(frequent, max_categories)
    missing = bool(texts.isna().any())
    if kept < len(levels) and not note:
        note = f"{len(levels):,} categories, of which the {kept} most frequent have inputs"
    encoder = CategoryEncoder(levels, counts, kept, missing)
    return Column(name, "category", categories=tuple(levels), missing=missing, note=note), encoder


def _ordered(
    series: Any, name: str, kind: str, style: NumberText, form: str | None, note: str
) -> tuple[Column, Encoder]:
    """Numbers, booleans and dates."""
    reader: Encoder
    if kind == "boolean":
        reader = BooleanEncoder(0.0, 1.0, 0.0, True)
    elif kind == "number":
        reader = NumberEncoder(0.0, 0.0, 0.0, True, **vars(style))
    else:
        reader = DateEncoder(0.0, 0.0, 0.0, True, [], form)
    values = reader.read(series)
    there = values[~np.isnan(values)]
    missing = len(there) < len(values)
    if not there.size or (there.min() == there.max() and not missing):
        return _constant(series, name, note)
    low, high, middle = float(there.min()), float(there.max()), float(np.median(there))
    if kind == "boolean":
        often = float(there.mean() > 0.5)
        encoder: Encoder = BooleanEncoder(low, high, often, missing)
        return Column(name, kind, low, high, often, missing=missing, note=note), encoder
    if kind == "number":
        encoder = NumberEncoder.learn(values, style)
        note = note or ("has far outliers: drawn in by asinh" if encoder.scale else "")
        return Column(name, kind, low, high, middle, missing=missing, note=note), encoder
    ends = _iso(low), _iso(high), _iso(middle)
    encoder = DateEncoder.learn(values, form)
    return Column(name, kind, *ends, missing=missing, note=note), encoder


def _iso(seconds: float) -> str:
    """A time as ISO text, in UTC; only the day at midnight.

    Examples
    --------
    >>> _iso(0.0), _iso(-1.5)
    ('1970-01-01', '1969-12-31T23:59:58.500000')
    """
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return time.replace(tzinfo=None).isoformat().removesuffix("T00:00:00")
