"""Conversion of the rows of a request to the columns that the model reads."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calipers.preprocessing import Column, DataError
from calipers.serve._json import read_cells
from calipers.serve._models import Served
from calipers.serve._problems import HTTPProblem
from calipers.serve._queries import Columns


def columns_of(rows: Sequence[Any], served: Served) -> Columns:
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
    if not all(column.kind == "number" for column in inputs):
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
    if column.kind == "number" and (
        values.dtype == np.float64 or all(v is None or type(v) is float for v in values)
    ):
        return values.astype(np.float64)
    if column.kind == "boolean" and all(type(v) is bool for v in values):
        return values.astype(bool)
    objects = values.astype(object)
    if column.kind != "date":
        return objects
    import pandas as pd

    times = pd.to_datetime(pd.Series(objects), format="ISO8601", errors="coerce", utc=True)
    if times.isna().sum() > sum(value is None for value in objects):
        return objects  # in the format of the training data, or wrong
    return times.dt.tz_localize(None).to_numpy().astype("datetime64[us]")


def frame_of(table: Any) -> Any:
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


def _array(series: Any, column: Column) -> NDArray[Any]:
    """Return a column of a frame as an array of floats, times or objects."""
    if getattr(series.dtype, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if column.kind == "number" and series.dtype.kind in "iuf":
        return np.asarray(series, dtype=np.float64)
    if series.dtype.kind in "Mmbiuf":
        return np.asarray(series)
    values = series.astype(object)
    return _typed(values.where(series.notna(), None).to_numpy(), column)
