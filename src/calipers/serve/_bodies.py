"""Bodies of requests: from bytes in CSV or Arrow to tables, and from rows to columns."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calipers.preprocessing import Column, DataError, parse_times
from calipers.serve._json import read_cells
from calipers.serve._problems import HTTPProblem
from calipers.serve._served import Columns, Served
from calipers.tables import Reserve, TableLimits, read_bytes

if TYPE_CHECKING:
    import pandas as pd

JSON, CSV = "application/json", "text/csv"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"
MEDIA_TYPES = (JSON, CSV, ARROW_STREAM, ARROW_FILE)

_NUMBER_BYTES, _OBJECT_BYTES = 16, 112  # of a value of a frame, at most


def media_type(header: str) -> str:
    """Return the media type of a Content-Type header, if it is supported.

    >>> media_type("Text/CSV; charset=utf-8")
    'text/csv'
    """
    kind = header.split(";")[0].strip().lower()
    if kind not in MEDIA_TYPES:
        raise HTTPProblem(
            415, f"Content-Type must be one of {', '.join(MEDIA_TYPES)}; got {kind[:100]!r}"
        )
    return kind


def row_columns(rows: Sequence[Any], served: Served) -> Columns:
    """Return the rows of a request in JSON as columns."""
    inputs = served.inputs
    if isinstance(rows[0], list):
        wrong = next((i for i, row in enumerate(rows) if len(row) != len(inputs)), None)
        if wrong is not None:
            names = ", ".join(column.name for column in inputs[:8])
            raise DataError(
                f"has {len(rows[wrong])} values, but the model has {len(inputs)} inputs: {names}"
                + (", ..." if len(inputs) > 8 else ""),
                row=wrong,
            )
        if (numbers := _numbers(rows, inputs)) is not None:
            return {column.name: numbers[:, i] for i, column in enumerate(inputs)}
        return {
            column.name: _typed(read_cells([row[i] for row in rows], f"rows[{{}}][{i}]"), column)
            for i, column in enumerate(inputs)
        }
    first = served.pick(rows[0])
    table: Columns = {}
    for column in served.model.inputs_:
        if column.name in first:
            try:
                values = [row[column.name] for row in rows]
            except KeyError:
                without = next(i for i, row in enumerate(rows) if column.name not in row)
                if column.used:
                    raise DataError(
                        "the field is missing", column=column.name, row=without
                    ) from None
                continue
            place = "rows[{}]." + column.name.replace("{", "{{").replace("}", "}}")
            table[column.name] = _typed(read_cells(values, place), column)
    return table


def _numbers(rows: Sequence[list[Any]], inputs: Sequence[Column]) -> NDArray[np.float64] | None:
    """Return rows of finite numbers as one array; None if any input or value is not numeric."""
    if not all(column.dtype == np.float64 for column in inputs):
        return None
    if not set(map(type, chain.from_iterable(rows))) <= {float, int}:
        return None
    with suppress(OverflowError):
        numbers = np.array(rows, dtype=np.float64)
        if np.isfinite(numbers).all():
            return numbers
    return None


def _typed(values: NDArray[Any], column: Column) -> NDArray[Any]:
    """Return values in the type that is read fastest: numbers as floats, ISO dates as times.

    JSON has no dates: callers and the page write them in ISO 8601, while the encoder knows only the
    format of the text that the model was fitted on. Other values stay text for the encoder.
    """
    if column.dtype == np.float64 and (
        values.dtype == np.float64 or all(v is None or type(v) is float for v in values)
    ):
        return values.astype(np.float64)
    if column.dtype == bool and all(type(v) is bool for v in values):
        return values.astype(bool)
    objects = values.astype(object)
    if column.dtype.kind != "M":
        return objects
    import pandas as pd

    times = parse_times(pd.Series(objects), "ISO8601")
    if np.isnat(times).sum() > sum(value is None for value in objects):
        return objects  # in the format of the training data, or wrong
    return times.astype("datetime64[us]")


def read_body(body: bytes, kind: str, limits: TableLimits, reserve: Reserve) -> pa.Table:
    """Return the table in a body, in which no two values share memory.

    Columns of CSV are text. ``reserve`` is called with the number of bytes before they are
    allocated, including those of a frame.
    """
    table = read_bytes(body, limits, reserve, arrow=kind != CSV).table
    if not table.num_rows:
        raise HTTPProblem(422, "the table has no rows")
    reserve(sum(_frame_bytes(column) for column in table.columns))
    return table


def _frame_bytes(column: pa.ChunkedArray) -> int:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        return _NUMBER_BYTES * len(column)
    return _OBJECT_BYTES * len(column) + 4 * int(column.nbytes)  # a wide character has 4 bytes


def frame_of(table: pa.Table) -> "pd.DataFrame":
    """Return a table as a pandas frame; columns of text files stay text."""
    try:
        return table.to_pandas(date_as_object=False, ignore_metadata=True)
    except (pa.ArrowException, ValueError) as error:
        raise HTTPProblem(
            422, f"the table cannot be read: {' '.join(str(error).split())}"
        ) from None


def frame_columns(frame: Any, served: Served) -> Columns:
    """Return the columns of a frame that the model looks at."""
    columns = {column.name: column for column in served.model.inputs_}
    return {name: _array(series, columns[name]) for name, series in served.pick(frame).items()}


def _array(series: "pd.Series[Any]", column: Column) -> NDArray[Any]:
    """Return a column of a frame as an array of floats, times or objects."""
    if getattr(series.dtype, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if column.dtype == np.float64 and series.dtype.kind in "iuf":
        return np.asarray(series, dtype=np.float64)
    if series.dtype.kind in "Mmbiuf":
        return np.asarray(series)
    values = series.astype(object)
    return _typed(values.where(series.notna(), None).to_numpy(), column)
