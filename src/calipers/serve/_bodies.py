"""Rows of a request as columns that the model reads."""

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
    """Rows of a request in JSON, by column."""
    inputs = served.inputs
    if isinstance(rows[0], list):
        wrong = next((i for i, row in enumerate(rows) if len(row) != len(inputs)), None)
        if wrong is not None:
            names = ", ".join(column.name for column in inputs[:8])
            raise DataError(
                f"has {len(rows[wrong])} values and the model {len(inputs)} inputs: {names}"
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
                lacking = next(i for i, row in enumerate(rows) if column.name not in row)
                if column.used:
                    raise DataError("is not there", column=column.name, row=lacking) from None
                continue
            place = "rows[{}]." + column.name.replace("{", "{{").replace("}", "}}")
            table[column.name] = _typed(read_cells(values, place), column)
    return table


def _numbers(rows: Sequence[list[Any]], inputs: Sequence[Column]) -> NDArray[np.float64] | None:
    """Rows of finite numbers for inputs of numbers, at once; None where any is something else."""
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
    """Values in the type that is read fastest: numbers as floats, ISO dates as times.

    JSON has no dates: callers and the page write them by ISO 8601, however the text that the model
    was fitted on wrote them. The encoder knows that one form alone, and reads what is left as text.
    """
    if column.kind == "number" and (
        values.dtype == np.float64 or all(v is None or type(v) is float for v in values)
    ):
        return values.astype(np.float64)
    if column.kind == "boolean" and all(type(v) is bool for v in values):
        return values.astype(bool)
    found = values.astype(object)
    if column.kind != "date":
        return found
    import pandas as pd

    times = pd.to_datetime(pd.Series(found), format="ISO8601", errors="coerce", utc=True)
    if times.isna().sum() > sum(value is None for value in found):
        return found  # in the form of the training data, or wrong
    return times.dt.tz_localize(None).to_numpy().astype("datetime64[us]")


def frame_of(table: Any) -> Any:
    """A pandas frame of a table; columns of text files stay text."""
    try:
        return table.to_pandas(date_as_object=False, ignore_metadata=True)
    except (pa.ArrowException, ValueError) as error:
        raise HTTPProblem(
            422, f"the table cannot be read: {' '.join(str(error).split())}"
        ) from None


def frame_columns(frame: Any, served: Served) -> Columns:
    """The columns of a frame that the model looks at."""
    found = served.pick(frame)
    kinds = {column.name: column for column in served.model.inputs_}
    return {name: _plain(series, kinds[name]) for name, series in found.items()}


def _plain(series: Any, column: Column) -> NDArray[Any]:
    """A column of a frame as an array of floats, times or objects."""
    if getattr(series.dtype, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
    if column.kind == "number" and series.dtype.kind in "iuf":
        return np.asarray(series, dtype=np.float64)
    if series.dtype.kind in "Mmbiuf":
        return np.asarray(series)
    values = series.astype(object)
    return _typed(values.where(series.notna(), None).to_numpy(), column)
