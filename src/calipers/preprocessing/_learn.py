"""Learning one column: its description, its encoder and its values."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers._text import counted
from calipers.preprocessing import _kinds as kinds, _readings as readings
from calipers.preprocessing._categories import CategoryEncoder, TextEncoder, as_objects, digests
from calipers.preprocessing._column import Column, DataError, as_frame, check_kind, check_names
from calipers.preprocessing._encoders import (
    BooleanEncoder,
    ConstantEncoder,
    DateEncoder,
    Encoder,
    IdentifierEncoder,
    NumberEncoder,
)
from calipers.preprocessing._text_columns import is_truth
from calipers.preprocessing._words import frequent_words

if TYPE_CHECKING:
    import pandas as pd


class LearnedColumn(NamedTuple):
    """The description of a column, its encoder, and its values as the encoder reads them."""

    column: Column
    encoder: Encoder
    values: NDArray[Any]


FEW_CATEGORIES = 30  # up to which every category has an input
_ROWS_FOR_INPUT = 20  # rows with which one of many categories has an input
_MAX_INPUTS = 300  # of one column
_FEW_ROWS = 10  # mean rows of a category below which words in the names have inputs
_NO_WORDS = f"free text without a word that many rows have; {kinds.NOT_STORED}"


def learn(
    series: "pd.Series[Any]", kind: str | None, max_categories: int | None, min_frequency: int
) -> LearnedColumn:
    """Describe a column, make its encoder and read it; its kind is detected if ``kind`` is None."""
    name = str(series.name)
    kind, _, written = (kind or "").partition(" ")
    if not kind:
        detected = kinds.find_kind(series, max_categories or FEW_CATEGORIES)
    elif kind in ("number", "date"):
        style, form = _format(series, kind, written)
        detected = kinds.DetectedKind(kind, style, form)
    elif written:
        raise _no_format(name, kind, written)
    else:
        detected = kinds.DetectedKind(kind)
    if detected.kind == "text" or (detected.kind == "identifier" and detected.texts):
        texts = detected.texts or kinds.Texts.of(series)
        if words := frequent_words(texts.levels.to_pylist(), texts.counts, min_frequency):
            return _text(texts, name, words)
        detected = detected._replace(kind="identifier", note=detected.note or _NO_WORDS)
    if detected.kind == "identifier":
        return _identifier(series, name, detected.note or f"row identifier; {kinds.NOT_STORED}")
    if detected.kind == "constant":
        return _constant(detected.texts or kinds.Texts.of(series), name)
    if detected.kind == "category":
        texts = detected.texts or kinds.Texts.of(series)
        return _category(texts, name, detected.note, max_categories, min_frequency)
    return _ordered(series, name, detected)


def read_number(series: "pd.Series[Any]", kind: str | None = None) -> FloatArray:
    """A column of numbers, or of text that means numbers, as floats; NaN where it is missing."""
    return learn_number(series, kind)[0]


def learn_number(series: "pd.Series[Any]", kind: str | None = None) -> tuple[FloatArray, str]:
    """A column as floats, NaN where they are missing; and its kind, as ``kind`` takes it.

    ``kind`` is ``"number"``, perhaps with an example of how text writes numbers, as in
    ``"number 1,234.5"``; this is detected by default.
    """
    check_kind(str(series.name), kind or "number")
    kind, _, written = (kind or "number").partition(" ")
    if kind != "number":
        raise DataError(f"a column of numbers cannot be of kind {kind!r}", column=str(series.name))
    typed = kinds.type_of(series)
    words = _words(series)
    if typed == "boolean" or (not written and len(words) and is_truth(words)):
        return BooleanEncoder().read(series), "number"
    if typed == "date" or (
        not written
        and readings.number_text(words, codes=False) == (None, "")
        and readings.date_text(words)[0] is not None
    ):
        problem = "holds dates where numbers are needed: convert them to days, hours or years"
        raise DataError(problem, column=str(series.name))
    style, _ = _format(series, "number", written, words)
    encoder = NumberEncoder(**vars(style))
    return encoder.read(series), kind_of("number", encoder)


def read_target(y: ArrayLike, *, plain: bool = False) -> FloatArray:
    """Targets as floats of the same shape, NaN where they are missing; text as in a column.

    ``plain`` refuses text in a number format such as ``1,234.5``. A block of rows cannot tell the
    format of the others; but booleans have only one.

    >>> read_target(["1,234.5", "(7)", "na"]).tolist()
    [1234.5, -7.0, nan]
    >>> read_target(["1.5", "1,234.5"], plain=True)
    Traceback (most recent call last):
    ...
    calipers.preprocessing._column.DataError: column 'y', row 1 (from 0): '1,234.5' is not a number
    """
    import pandas as pd

    if isinstance(y, pd.Series) and y.dtype.kind in "biuf":
        return y.to_numpy(np.float64, na_value=np.nan)
    values = np.asarray(y)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind in "mM":
        raise DataError(f"must hold numbers, got {values.dtype}: convert times to numbers")
    if not any(isinstance(value, str | bytes) for value in values.flat):
        with suppress(TypeError, ValueError):  # a missing value that is no NaN, or no number
            return values.astype(object).astype(np.float64)
    column = pd.Series(values.ravel(), dtype=object, name="y")
    if plain and not ((words := _words(column)) and is_truth(words)):
        return NumberEncoder().read(column).reshape(values.shape)
    numbers, _ = learn_number(column)
    return numbers.reshape(values.shape)


def pick_numbers(frame: "pd.DataFrame", names: Sequence[str]) -> "pd.DataFrame":
    """The columns ``names`` of a frame as numbers, none of which may be missing."""
    import pandas as pd

    frame = as_frame(frame)
    check_names(map(str, frame), names)
    columns = {name: read_number(frame[name]) for name in names}
    for name, values in columns.items():
        missing = np.flatnonzero(np.isnan(values))
        if missing.size:
            raise DataError("the number is missing", column=name, row=int(missing[0]))
    return pd.DataFrame(columns, index=frame.index)


def _words(series: "pd.Series[Any]") -> pa.Array:
    """The distinct texts of a column, without missing ones; none if it is not text."""
    if kinds.type_of(series) is None:
        return kinds.Texts.of(series).words
    return pa.array([], pa.large_string())


def as_numbers(series: "pd.Series[Any]") -> "pd.Series[Any]":
    """A column of text that means numbers as floats; any other column unchanged."""
    import pandas as pd

    if kinds.type_of(series) is not None:
        return series
    texts = kinds.Texts.of(series)
    style, _ = readings.number_text(texts.words)
    if style is None or not len(texts.words):
        return series
    return pd.Series(texts.by_row(style.read(texts.words)), series.index, name=series.name)


def kind_of(kind: str, encoder: Encoder) -> str:
    """The kind of a column and how its text is written, as ``learn`` takes it."""
    if isinstance(encoder, NumberEncoder):
        example = readings.NumberText(encoder.decimal, encoder.thousands, encoder.unit).example()
        return f"{kind} {example}".rstrip()
    if isinstance(encoder, DateEncoder) and encoder.form not in (None, "ISO8601"):
        return f"{kind} {encoder.form}"
    return kind


def how_written(kind: str) -> str:
    """Describe how a column's text is written, from the result of ``kind_of``.

    >>> how_written("number 1,234.5"), how_written("number")
    ('numbers written like 1,234.5', '')
    """
    kind, _, written = kind.partition(" ")
    if not written:
        return ""
    if kind == "date":
        return f"dates written as {written}"
    times = "clock times as hours: 10:30 is 10.5"
    return times if written == "10:30" else f"numbers written like {written}"


def _format(
    series: "pd.Series[Any]", kind: str, written: str, words: pa.Array | None = None
) -> tuple[readings.NumberText, str | None]:
    """How a column writes numbers or dates: as ``written`` says, unless it is empty.

    ``words`` are those of the column, if they are known.
    """
    if kind == "date" and written:
        return readings.NumberText(), written
    words = _words(series) if words is None else words
    if written:
        style = readings.given_number_text(written, words)
        if style is None:
            raise _no_format(str(series.name), kind, written)
        return style, None
    if not len(words):
        return readings.NumberText(), None
    if kind == "number":
        found, note = readings.number_text(words, codes=False)
        form, style = None, found or readings.best_number_text(words)
    else:
        form, note = readings.date_text(words)
        form, style = None if form == "ISO8601" else form, readings.NumberText()
    if note:
        raise DataError(note, column=str(series.name))
    return style, form


def _no_format(name: str, kind: str, written: str) -> ValueError:
    return ValueError(
        f"kinds[{name!r}] must be a kind of column, 'number' with an example such as "
        f"'number 1,234.5', or 'date' with a format such as 'date %d/%m/%Y'; got "
        f"{kind + ' ' + written!r}"
    )


def _identifier(series: "pd.Series[Any]", name: str, note: str) -> LearnedColumn:
    encoder, column = IdentifierEncoder(), Column(name, "identifier", used=False, note=note)
    return LearnedColumn(column, encoder, encoder.read(series))


def _constant(texts: kinds.Texts, name: str) -> LearnedColumn:
    texts = texts.plain()
    values = tuple(texts.levels.to_pylist())
    missing = bool((texts.codes < 0).any())
    note = f"always {values[0]!r}" if len(values) == 1 else "always empty"
    column = Column(name, "constant", categories=values, missing=missing, used=False, note=note)
    encoder = ConstantEncoder([*values, None] if missing else [*values])
    return LearnedColumn(column, encoder, _objects(texts))


def _category(
    texts: kinds.Texts, name: str, note: str, max_categories: int | None, min_frequency: int
) -> LearnedColumn:
    texts = texts.plain()
    ranked = sorted(
        zip(texts.levels.to_pylist(), texts.counts.tolist(), strict=True),
        key=lambda item: (-item[1], item[0]),
    )
    required = 1 if len(ranked) <= 2 else min_frequency
    levels = [level for level, count in ranked if count >= required]
    counts = [count for _, count in ranked if count >= required]
    kept = len(levels)
    if len(ranked) > 2 and kept > (max_categories or FEW_CATEGORIES):
        kept = max_categories or _with_inputs(counts)
    missing = bool((texts.codes < 0).any())
    if kept < len(ranked) and not note:
        note = f"{len(ranked):,} categories, of which the {kept} most frequent have inputs"
        note = note if kept else f"{len(ranked):,} categories, all too rare to have inputs"
    rare = digests(level for level, _ in ranked[len(levels) :])
    words: list[str] = []
    if kept < len(ranked) and texts.counts.mean() < _FEW_ROWS:
        words = frequent_words(texts.levels.to_pylist(), texts.counts, min_frequency)
        note += f"; inputs for {counted(len(words), 'word')} in them" if words else ""
    encoder = CategoryEncoder(levels, counts, kept, missing, rare, words=words)
    column = Column(name, "category", categories=tuple(levels[:kept]), missing=missing, note=note)
    return LearnedColumn(column, encoder, _objects(texts))


def _text(texts: kinds.Texts, name: str, words: list[str]) -> LearnedColumn:
    missing = bool((texts.codes < 0).any())
    note = f"free text, with inputs for {counted(len(words), 'word')}; {kinds.NOT_STORED}"
    column = Column(name, "text", categories=tuple(words), missing=missing, note=note)
    return LearnedColumn(column, TextEncoder(words, missing), _objects(texts))


def _with_inputs(counts: list[int]) -> int:
    """Number of categories with an input each, from their rows in descending order, if many.

    At least one has none, so that networks learn what a category without an input is like.
    """
    frequent = sum(count >= _ROWS_FOR_INPUT for count in counts)
    return max(FEW_CATEGORIES, min(frequent, _MAX_INPUTS, len(counts) - 1))


def _objects(texts: kinds.Texts) -> NDArray[np.object_]:
    """The text of each row, None where it is missing."""
    return as_objects(texts.levels.take(pa.array(texts.codes, mask=texts.codes < 0)))


def _ordered(series: "pd.Series[Any]", name: str, detected: kinds.DetectedKind) -> LearnedColumn:
    """Learn a column of numbers, booleans or dates."""
    kind, style, form, _, values, _ = detected
    if values is None:
        readers: dict[str, NumberEncoder | DateEncoder] = {
            "number": NumberEncoder(**vars(style)),
            "boolean": BooleanEncoder(),
            "date": DateEncoder(form=form),
        }
        values = readers[kind].read(series)
    present = values[~np.isnan(values)]
    missing = len(present) < len(values)
    if not present.size or (present.min() == present.max() and not missing):
        texts = kinds.Texts.of(series)
        if len(texts.levels) > 1 and present.size:
            return _identifier(
                series, name, kinds.row_identifier("numbers that differ beyond 15 digits")
            )
        return _constant(texts, name)
    low, high, median = float(present.min()), float(present.max()), float(np.median(present))
    encoder: Encoder
    outliers = ""
    summary: tuple[Any, Any, Any] = (low, high, median)
    if kind == "boolean":
        mode = float(present.mean() > 0.5)
        summary, encoder = (low, high, mode), BooleanEncoder(low, high, mode, missing)
    elif kind == "number":
        encoder = NumberEncoder.learn(values, style)
        outliers = "has far outliers: transformed by asinh" if encoder.scale else outliers
    else:
        summary = _iso(low), _iso(high), _iso(median)
        encoder = DateEncoder.learn(values, form)
    note = "; ".join(filter(None, [how_written(kind_of(kind, encoder)), outliers]))
    return LearnedColumn(Column(name, kind, *summary, missing=missing, note=note), encoder, values)


def _iso(seconds: float) -> str:
    """A time as ISO text in UTC, without the time of day at midnight.

    >>> _iso(0.0), _iso(-1.5)
    ('1970-01-01', '1969-12-31T23:59:58.500000')
    """
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return time.replace(tzinfo=None).isoformat().removesuffix("T00:00:00")
