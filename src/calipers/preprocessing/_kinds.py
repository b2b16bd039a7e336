"""Detection of the kind of a column, from its type or from the meaning of all of its text."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, time
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calipers._arrays import FloatArray
from calipers.preprocessing._column import DataError
from calipers.preprocessing._encoders import NumberEncoder, check_finite
from calipers.preprocessing._mistakes import note_mistakes
from calipers.preprocessing._readings import NumberText, date_text, number_text, read_dates
from calipers.preprocessing._text_columns import (
    MISSING_MARKS,
    all_match,
    as_text,
    is_truth,
    plain_text,
    read_truth,
)
from calipers.preprocessing._words import is_language, word_places

if TYPE_CHECKING:
    import pandas as pd

_MIN_IDENTIFIERS = 20  # fewer rows than this can be all different by chance
_NAMES_ROWS = re.compile(r"(^|[\W_])(id|uuid|guid|index|key|row|rownum|nr|no)$|[a-z](Id|ID)$", re.I)
_KIND_OF_TYPE = {  # by the name that pandas has for a type
    "boolean": "boolean",
    "categorical": "category",
    **dict.fromkeys(("integer", "floating", "decimal", "mixed-integer-float"), "number"),
    **dict.fromkeys(("date", "datetime", "datetime64", "period"), "date"),
    "timedelta64": "number",
}
_TEXT_TYPES, _MIXED_TYPES = ("string", "bytes", "time", "empty"), ("mixed-integer", "mixed")
_THREE_DIGITS = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$"
_LIKE_NUMBERS = r"^[<>~≈±+-]*\s*[$€£¥]?\s*\d+([.,]\d+)*\s*[A-Za-z%$€£¥]{0,9}$"
_WHOLE = r"^[+-]?\d+$"
_SENTENCE = 25  # least median number of characters of free text
_SHARED = 0.1  # fraction of the rows whose texts others have too, from which on they are names
NOT_STORED = "its values are not stored"
IN_THOUSANDS = "number 1.234,5"  # the kind of a column whose points separate thousands


def row_identifier(why: str) -> str:
    """Return the note of a column whose values only identify rows."""
    return f"looks like a row identifier ({why}); {NOT_STORED}"


@dataclass(frozen=True, eq=False)
class Texts:
    """A dictionary-encoded column of text."""

    levels: pa.Array  # the distinct texts
    codes: NDArray[np.int64]  # index of each row's text in ``levels``; -1 where it is missing

    @classmethod
    def of(cls, series: "pd.Series[Any]") -> Self:
        encoded = as_text(series).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return cls(encoded.dictionary, codes.astype(np.int64))

    @cached_property
    def is_word(self) -> NDArray[np.bool_]:
        """Which levels are not ``MISSING_MARKS``: those are missing among numbers and dates."""
        marks = pc.is_in(self.levels, value_set=pa.array(MISSING_MARKS, self.levels.type))
        return ~marks.to_numpy(zero_copy_only=False)

    @property
    def words(self) -> pa.Array:
        """The levels that are not ``MISSING_MARKS``."""
        return self.levels.filter(pa.array(self.is_word))

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))

    @cached_property
    def word_places(self) -> dict[str, list[int]]:
        """The words within the levels, with the indices of the levels that have each."""
        return word_places(self.levels.to_pylist())

    def plain(self) -> "Texts":
        """Whole numbers and booleans as a frame has them, where no two levels become the same."""
        plain = plain_text(self.levels)
        names = plain.to_pylist()
        counts = Counter(names)
        alone = pa.array([counts[name] == 1 for name in names], pa.bool_())
        return replace(self, levels=pc.if_else(alone, plain, self.levels))

    def by_row(self, values: FloatArray) -> FloatArray:
        """Expand values of ``words`` to one per row; NaN where the text is missing."""
        by_level = np.full(len(self.levels) + 1, np.nan)
        by_level[:-1][self.is_word] = values
        return by_level[self.codes]


class DetectedKind(NamedTuple):
    """The kind of a column, how its text is written, and its values where they were read.

    An identifier has ``texts`` if their words may be inputs.
    """

    kind: str
    style: NumberText = NumberText()
    form: str | None = None
    note: str = ""
    values: FloatArray | None = None
    texts: Texts | None = None


def find_kind(series: "pd.Series[Any]", most: int) -> DetectedKind:
    """The kind of a column; up to ``most`` distinct texts are categories even if some are numbers.

    With more of them, a few texts among numbers or dates count as mistakes.
    """
    kind = type_of(series)
    if kind is None:
        return _kind_of_text(series, most)
    if series.nunique(dropna=False) <= 1:  # noqa: PD101 - the values may not be comparable
        return DetectedKind("constant")
    values = None
    if kind == "number":
        values = NumberEncoder().read(series)
        whole = series.dtype.kind in "iu" and not series.isna().any()
        if whole and _counts_rows(values, series.nunique(), str(series.name)):
            return _ROW_NUMBERS
    return DetectedKind(kind, values=values)


def type_of(series: "pd.Series[Any]") -> str | None:
    """The kind that the type of a column implies; None for text."""
    import pandas as pd

    if isinstance(series.dtype, pd.StringDtype):
        return None
    inferred = pd.api.types.infer_dtype(series, skipna=True)
    if inferred == "complex":
        raise DataError("Complex data not supported", column=str(series.name))
    if inferred in _KIND_OF_TYPE and not (inferred == "period" and series.dtype == object):
        return _KIND_OF_TYPE[inferred]
    if inferred in _TEXT_TYPES:
        return None
    present = series.dropna()
    scalar = present.map(lambda value: np.isscalar(value) or isinstance(value, date | time))
    if len(present) and not (inferred in _MIXED_TYPES and scalar.all()):
        raise DataError(
            f"holds values of type {type(present.iloc[0]).__name__}, but an input must be a "
            "number, text or a date",
            column=str(series.name),
        )
    return None


def _kind_of_text(series: "pd.Series[Any]", most: int) -> DetectedKind:
    """The kind of a column of text: any of ``KINDS``."""
    texts, name = Texts.of(series), str(series.name)
    words, missing = texts.words, bool((texts.codes < 0).any() or not texts.is_word.all())
    if len(words) + missing <= 1:
        return DetectedKind("constant", texts=texts)
    style, note = number_text(words)
    if style is not None:
        values = texts.by_row(style.read(words))
        check_finite(series, values)
        if not missing and all_match(words, _WHOLE) and _counts_rows(values, len(words), name):
            return _ROW_NUMBERS
        return DetectedKind("number", style, values=values)
    if is_truth(words):
        return DetectedKind("boolean", values=texts.by_row(read_truth(words)))
    form, hint = date_text(words)
    if form is not None:
        values = texts.by_row(read_dates(words, form))
        return DetectedKind("date", form=None if form == "ISO8601" else form, values=values)
    note = note or hint
    if len(words) > most:
        mistakes = note_mistakes(texts, name)  # called even if there is a note, since it may refuse
        note = note or mistakes
    if len(words) > _MIN_IDENTIFIERS and not note and all_match(words, _LIKE_NUMBERS):
        example = words[0].as_py()
        note = f"looks like numbers in several units, e.g. {example!r}: convert them to one unit"
    rows = int(texts.counts.sum())
    if rows >= _MIN_IDENTIFIERS and len(texts.levels) > 0.9 * rows:
        why = row_identifier("almost all values differ")
        words = not note and is_language(texts.word_places, len(texts.levels))
        return DetectedKind("identifier", note=note or why, texts=texts if words else None)
    if len(texts.levels) > _MIN_IDENTIFIERS and _is_prose(texts):
        prose = f"free text; {NOT_STORED}"
        return DetectedKind("identifier", note=note or prose, texts=None if note else texts)
    return DetectedKind("category", note=note, texts=texts)


def _is_prose(texts: Texts) -> bool:
    """Whether texts are sentences: long, of several words, and hardly any in more than one row.

    The most frequent, such as "no remarks", does not count. Names may be as long, but repeat.
    """
    counts = texts.counts
    shared = int(counts[counts > 1].sum() - counts.max())
    length = np.median(pc.utf8_length(texts.levels).to_numpy(zero_copy_only=False))
    spaces = np.median(pc.count_substring(texts.levels, " ").to_numpy(zero_copy_only=False))
    few = shared < _SHARED * counts.sum() and (counts == 1).mean() > 0.5
    return bool(few and length >= _SENTENCE and spaces >= 2)


def _counts_rows(values: FloatArray, distinct: int, name: str) -> bool:
    """Whether whole numbers, all different, count rows or belong to a column named like an id."""
    if len(values) < _MIN_IDENTIFIERS or distinct < len(values):
        return False
    low, high = values.min(), values.max()
    counting = low in (0, 1) and high - low == len(values) - 1
    return bool(counting) or bool(_NAMES_ROWS.search(name))


_ROW_NUMBERS = DetectedKind("identifier", note=row_identifier("a different integer in each row"))


def in_thousands(
    columns: Iterable["pd.Series[Any]"], table: Iterable["pd.Series[Any]"]
) -> set[Any]:
    """Names of the columns of text whose points separate thousands, as ``IN_THOUSANDS`` says.

    ``17.195`` alone has three decimals; in every row, next to a column with ``71,2``, it has none.
    ``table`` has the columns to look for decimal commas in.

    >>> import pandas as pd
    >>> price, size = pd.Series(["17.195", "147.242"], name="price"), pd.Series(["71,2", "9,5"])
    >>> in_thousands([price, size], [price, size]), in_thousands([price], [price])
    ({'price'}, set())
    """
    found = {series.name for series in columns if _may_be_in_thousands(series)}
    return found if found and any(map(_has_decimal_comma, table)) else set()


def _may_be_in_thousands(series: "pd.Series[Any]") -> bool:
    """Whether all words of a column of text are groups of three digits with points between."""
    first = next((value for value in series.iloc[:20] if isinstance(value, str)), "")
    if not re.match(_THREE_DIGITS, first.strip()) or type_of(series) is not None:
        return False
    return all_match(Texts.of(series).words, _THREE_DIGITS)


def _has_decimal_comma(series: "pd.Series[Any]") -> bool:
    """Whether a column is text of numbers with a decimal comma."""
    if type_of(series) is not None or not len(words := Texts.of(series).words):
        return False
    style, _ = number_text(words)
    return style is not None and style.decimal == ","
