"""Which kind a column is: by its type, or by what all of its text means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, time
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calipers._checks import FloatArray
from calipers.preprocessing._column import DataError
from calipers.preprocessing._dates import date_text, read_dates
from calipers.preprocessing._encoders import NumberEncoder, check_finite
from calipers.preprocessing._numbers import NumberText, best_number_text, number_text
from calipers.preprocessing._text_columns import (
    MISSING_MARKS,
    as_text,
    every,
    is_truth,
    is_whole,
    read_truth,
)

_FEWEST_IDENTIFIERS = 20  # fewer rows than this can be all different by chance
_NAMES_ROWS = re.compile(r"(^|[\W_])(id|uuid|guid|index|key|row|rownum|nr|no)$|[a-z](Id|ID)$", re.I)
_SCALARS = ("string", "mixed-integer", "mixed", "bytes", "time", "empty")
_MOSTLY = 0.9  # a column with this share of numbers, or dates, is one with mistakes in it
_IN_THOUSANDS = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$"
_LIKE_NUMBERS = r"^[<>~≈±+-]*\s*[$€£¥]?\s*\d+([.,]\d+)*\s*[A-Za-z%$€£¥]{0,9}$"
_SENTENCE = 25  # characters of half of the texts of a column of free text, or more


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of text: its distinct texts, and which of them each row has."""

    levels: Any
    codes: NDArray[np.int64]  # position of each row's text among them; -1 where it is missing

    @classmethod
    def of(cls, series: Any) -> Self:
        """The texts of a column."""
        found = as_text(series).dictionary_encode()
        codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return cls(found.dictionary, codes.astype(np.int64))

    @cached_property
    def is_word(self) -> NDArray[np.bool_]:
        """Which levels are there in a column of numbers or dates, where marks are missing."""
        marks = pc.is_in(self.levels, value_set=pa.array(MISSING_MARKS, self.levels.type))
        found: NDArray[np.bool_] = ~marks.to_numpy(zero_copy_only=False)
        return found

    @property
    def words(self) -> Any:
        """Those levels."""
        return self.levels.filter(pa.array(self.is_word))

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each level."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))

    def spread(self, values: FloatArray) -> FloatArray:
        """Values of the words, for each row; NaN where it is missing."""
        found = np.full(len(self.levels) + 1, np.nan)
        found[:-1][self.is_word] = values
        return found[self.codes]


class Found(NamedTuple):
    """What was found out about a column: its kind, how it is written, and its values."""

    kind: str
    style: NumberText = NumberText()
    form: str | None = None
    note: str = ""
    values: FloatArray | None = None
    texts: Texts | None = None


def find_kind(series: Any, most: int) -> Found:
    """Kind of a column by its values; up to ``most`` distinct texts are categories anyway."""
    kind = type_of(series)
    if kind is None:
        return _kind_of_text(series, most)
    if series.nunique(dropna=False) <= 1:
        return Found("constant")
    values = None
    if kind == "number":
        values = NumberEncoder(0.0, 0.0, 0.0, True).read(series)
        if _is_integer(series) and _counts_rows(values, series.nunique(), str(series.name)):
            return _counted()
    return Found(kind, values=values)


def type_of(series: Any) -> str | None:
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
    if isinstance(dtype, pd.StringDtype):
        return None
    found = types.infer_dtype(series, skipna=True)
    if found in ("integer", "floating", "decimal", "mixed-integer-float"):
        return "number"
    if found in ("date", "datetime", "datetime64"):
        return "date"
    if found == "boolean":
        return "boolean"
    scalar = found == "string" or found in _SCALARS
    if not scalar or (
        found.startswith("mixed") and not series.map(_is_scalar, na_action="ignore").all()
    ):
        raise DataError(
            f"holds values of type {type(series.dropna().iloc[0]).__name__}, and an input is a "
            "number, text or a date",
            column=str(series.name),
        )
    return None


def _is_scalar(value: Any) -> bool:
    return bool(np.isscalar(value)) or isinstance(value, date | time)


def _kind_of_text(series: Any, most: int) -> Found:
    """Kind of a column of text: numbers, truth, dates, names of rows, free text or categories."""
    texts, name = Texts.of(series), str(series.name)
    words, missing = texts.words, bool((texts.codes < 0).any() or not texts.is_word.all())
    if len(words) + missing <= 1:
        return Found("constant", texts=texts)
    style, note = number_text(words)
    if style is not None:
        values = texts.spread(style.read(words))
        check_finite(series, values)
        if not missing and is_whole(words) and _counts_rows(values, len(words), name):
            return _counted()
        return Found("number", style, None, _how_written(style, words), values)
    if is_truth(words):
        return Found("boolean", values=texts.spread(read_truth(words)))
    form, hint = date_text(words)
    if form is not None:
        values = texts.spread(read_dates(words, form))
        if form == "ISO8601":  # as dates are read anyway
            return Found("date", values=values)
        return Found("date", form=form, note=f"dates written as {form}", values=values)
    note = note or hint
    if len(words) > most:
        found = _mixture(texts, name)  # which refuses some, whatever else is noted
        note = note or found
    if len(words) > _FEWEST_IDENTIFIERS and not note and every(words, _LIKE_NUMBERS):
        note = f"like numbers in several units, e.g. {words[0].as_py()!r}: make plain ones of them"
    rows = int(texts.counts.sum())
    if rows >= _FEWEST_IDENTIFIERS and len(texts.levels) > 0.9 * rows:
        note = note or "nearly every text differs: names rows, no value is kept"
        return Found("identifier", note=note)
    if len(texts.levels) > _FEWEST_IDENTIFIERS and _is_prose(texts):
        return Found("identifier", note=note or "free text: not an input, no value is kept")
    return Found("category", note=note, texts=texts)


def _mixture(texts: Texts, name: str) -> str:
    """A note on a column that is numbers, or dates, for the most part.

    One that is so but for a few values is refused.
    """
    rows = np.flatnonzero(texts.codes >= 0)
    rows = rows[texts.is_word[texts.codes[rows]]]
    readings = (("numbers", NumberText().read), ("dates", lambda part: read_dates(part, "ISO8601")))
    for what, read in readings:
        fits = ~np.isnan(read(texts.levels))[texts.codes[rows]]
        if _MOSTLY <= fits.mean() < 1:
            row = int(rows[np.argmin(fits)])
            raise DataError(
                f"{texts.levels[int(texts.codes[row])].as_py()!r} is not among the {what} that "
                f"this column holds otherwise ({fits.mean():.0%} of it): correct it, or leave it "
                "empty",
                column=name,
                row=row,
            )
        if 0.5 <= fits.mean() < 1:
            other = texts.levels[int(texts.codes[rows[np.argmin(fits)]])].as_py()
            return (
                f"{fits.mean():.0%} of it are {what}, others such as {other!r} are not: with those "
                f"left empty it is a column of {what}"
            )
    return ""


def _how_written(style: NumberText, words: Any) -> str:
    first = words[0].as_py()
    if style.unit == ":":
        return f"clock times as hours: {first!r} is {style.read(words[:1])[0]:g}"
    return "" if style == NumberText() else f"numbers written like {first!r}"


def _is_prose(texts: Texts) -> bool:
    """Whether texts are sentences: long, of several words, and most of them in one row only."""
    once = float((texts.counts == 1).mean())
    length = np.median(pc.utf8_length(texts.levels).to_numpy(zero_copy_only=False))
    spaces = np.median(pc.count_substring(texts.levels, " ").to_numpy(zero_copy_only=False))
    return once > 0.5 and bool(length >= _SENTENCE and spaces >= 2)


def _is_integer(series: Any) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_integer_dtype(series.dtype) and not series.isna().any())


def _counts_rows(values: FloatArray, distinct: int, name: str) -> bool:
    """Whether whole numbers count rows, or differ in each under a name that says why."""
    if len(values) < _FEWEST_IDENTIFIERS or distinct < len(values):
        return False
    low, high = values.min(), values.max()
    counting = low in (0, 1) and high - low == len(values) - 1
    return bool(counting) or bool(_NAMES_ROWS.search(name))


def _counted() -> Found:
    note = "a different whole number in each row: names rows, no value is kept"
    return Found("identifier", note=note)


def number_style(words: Any, name: str) -> NumberText:
    """How the distinct texts of a column write numbers, when it is known to hold some."""
    style, note = number_text(words, codes=False)
    if note:
        raise DataError(note, column=name)
    return style or best_number_text(words)


def is_in_thousands(series: Any, others: Iterable[Any]) -> bool:
    """Whether points of a column of text part thousands, since other columns have decimal commas.

    ``17.195`` alone is a number with three decimals; in every row, beside ``71,2``, it is not.

    >>> import pandas as pd
    >>> price, size = pd.Series(["17.195", "147.242"]), pd.Series(["71,2", "9,5"])
    >>> is_in_thousands(price, [size]), is_in_thousands(price, [price])
    (True, False)
    """
    first = next((value for value in series.iloc[:20] if isinstance(value, str)), "")
    if not re.match(_IN_THOUSANDS, first.strip()) or type_of(series) is not None:
        return False
    if not every(Texts.of(series).words, _IN_THOUSANDS):
        return False
    texts = (Texts.of(other).words for other in others if type_of(other) is None)
    styles = (number_text(found)[0] for found in texts if len(found))
    return any(style is not None and style.decimal == "," for style in styles)
