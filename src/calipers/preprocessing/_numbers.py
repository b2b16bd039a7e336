"""Columns and targets as numbers, and the ways in which text writes numbers and dates."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from calipers._arrays import FloatArray
from calipers.preprocessing import _kinds as kinds, _readings as readings
from calipers.preprocessing._column import DataError, as_frame, check_kind, check_names
from calipers.preprocessing._column_encoder import Encoder
from calipers.preprocessing._encoders import BooleanEncoder, DateEncoder, NumberEncoder
from calipers.preprocessing._text_columns import is_truth

if TYPE_CHECKING:
    import pandas as pd


def read_number(series: "pd.Series[Any]", kind: str | None = None) -> FloatArray:
    """A column of numbers, or of text that means numbers, as floats; NaN where it is missing."""
    return learn_number(series, kind)[0]


def learn_number(
    series: "pd.Series[Any]", kind: str | None = None, table: Iterable["pd.Series[Any]"] = ()
) -> tuple[FloatArray, str]:
    """A column as floats, NaN where they are missing; and its kind, as ``kind`` takes it.

    ``kind`` is ``"number"``, perhaps with an example of how text writes numbers, as in
    ``"number 1,234.5"``; this is detected by default, also from other columns of the ``table``.
    """
    if kind is None and kinds.in_thousands([series], table):
        kind = kinds.IN_THOUSANDS
    check_kind(str(series.name), kind or "number")
    kind, _, written = (kind or "number").partition(" ")
    if kind != "number":
        raise DataError(f"a column of numbers cannot be of kind {kind!r}", column=str(series.name))
    typed = kinds.type_of(series)
    words = _distinct_texts(series)
    if typed == "boolean" or (not written and len(words) and is_truth(words)):
        return BooleanEncoder().read(series), "number"
    if typed == "date" or (
        not written
        and readings.number_text(words, codes=False) == (None, "")
        and readings.date_text(words)[0] is not None
    ):
        problem = "holds dates where numbers are needed: convert them to days, hours or years"
        raise DataError(problem, column=str(series.name))
    style, _ = written_format(series, "number", written, words)
    encoder = NumberEncoder(**vars(style))
    return encoder.read(series), kind_of("number", encoder)


def read_target(y: ArrayLike, *tables: Any, plain: bool = False) -> FloatArray:
    """Targets as floats of the same shape, NaN where they are missing; text as in a column.

    ``tables`` have the other columns of the same rows, which may show how numbers are written.
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
    if plain and not ((words := _distinct_texts(column)) and is_truth(words)):
        if kinds.in_thousands([column], _columns(tables)):
            raise ValueError(
                f"points in the target may separate thousands, as in {words[0].as_py()!r}, since "
                "inputs have decimal commas: convert text in all blocks alike, by "
                "calipers.preprocessing.read_number(y, kind)"
            )
        return NumberEncoder().read(column).reshape(values.shape)
    numbers, _ = learn_number(column, table=_columns(tables))
    return numbers.reshape(values.shape)


def _columns(tables: Iterable[Any]) -> "Iterator[pd.Series[Any]]":
    """All columns of tables, none of which is looked at before it is needed."""
    return (column for table in tables for _, column in as_frame(table).items())


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


def written_format(
    series: "pd.Series[Any]", kind: str, written: str, words: pa.Array | None = None
) -> tuple[readings.NumberText, str | None]:
    """How a column writes numbers or dates: as ``written`` says, unless it is empty.

    ``words`` are those of the column, if they are known.
    """
    if kind == "date" and written:
        return readings.NumberText(), written
    words = _distinct_texts(series) if words is None else words
    if written:
        style = readings.given_number_text(written, words)
        if style is None:
            raise format_error(str(series.name), kind, written)
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


def format_error(name: str, kind: str, written: str) -> ValueError:
    return ValueError(
        f"kinds[{name!r}] must be a kind of column, 'number' with an example such as "
        f"'number 1,234.5', or 'date' with a format such as 'date %d/%m/%Y'; got "
        f"{kind + ' ' + written!r}"
    )


def _distinct_texts(series: "pd.Series[Any]") -> pa.Array:
    """The distinct texts of a column, without missing ones; none if it is not text."""
    if kinds.type_of(series) is None:
        return kinds.Texts.of(series).words
    return pa.array([], pa.large_string())
