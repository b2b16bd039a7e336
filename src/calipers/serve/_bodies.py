"""Tables in and out: JSON, CSV and Arrow, read with limits and written with names."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ValidationError

from calipers.preprocessing import Column, DataError
from calipers.serve._asking import Ask, Columns
from calipers.serve._models import Served
from calipers.serve._problems import Problem
from calipers.serve._schemas import PredictRequest
from calipers.tables import TableError, TooLargeError, read_bytes

JSON, CSV = "application/json", "text/csv"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"

_BRANCHES = ("objects", "lists", "float", "bool", "str", "constrained-float")


def parse_json(model: Any, body: bytes) -> Any:
    """A body in JSON as a schema has it, or a problem that names the first thing wrong."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Problem(422, _first_error(error)) from None


def _first_error(error: ValidationError) -> str:
    """Where and what, for the branch of a union that got furthest."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return f"the body is not JSON: {found[0]['msg'].removeprefix('Invalid JSON: ')}"
    worst = max(found, key=lambda one: len(one["loc"]))
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for part in worst["loc"]
        if isinstance(part, int) or not (part in _BRANCHES or part.startswith("list["))
    ).lstrip(".")
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{place or 'the body'}: {worst['msg']}{more}"


def ask_of(request: PredictRequest) -> Ask:
    """What a request in JSON asks."""
    coverage = request.coverage
    coverages = (coverage,) if isinstance(coverage, float) else coverage
    return Ask(
        None if coverages is None else tuple(coverages),
        tuple(request.quantiles),
        request.parameters,
        request.density,
    )


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
        values: Any = zip(*rows, strict=True)
        return {c.name: _typed(part, c) for c, part in zip(inputs, values, strict=True)}
    first = served.pick(rows[0])
    table: Columns = {}
    for column in served.model.inputs_:
        if column.name in first:
            try:
                table[column.name] = _typed([row[column.name] for row in rows], column)
            except KeyError:
                lacking = next(i for i, row in enumerate(rows) if column.name not in row)
                if column.used:
                    raise DataError("is not there", column=column.name, row=lacking) from None
    return table


def _typed(values: Sequence[Any], column: Column) -> NDArray[Any]:
    """Values in the type that is read fastest: numbers as floats, ISO dates as times."""
    if column.kind == "number" and all(v is None or type(v) is float for v in values):
        return np.array(values, dtype=np.float64)
    if column.kind == "boolean" and all(type(v) is bool for v in values):
        return np.array(values, dtype=bool)
    found = np.empty(len(values), dtype=object)
    found[:] = values
    if column.kind != "date":
        return found
    import pandas as pd

    times = pd.to_datetime(pd.Series(found), format="ISO8601", errors="coerce", utc=True)
    if times.isna().sum() > sum(value is None for value in values):
        return found  # the model may know a way to read them
    return times.dt.tz_localize(None).to_numpy().astype("datetime64[us]")


def frame_columns(frame: Any, served: Served) -> Columns:
    """The columns of a frame that the model looks at."""
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"the table has more than one column {twice[0]!r}: give each its own name")
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
    return _typed(values.where(series.notna(), None).tolist(), column)


def read_csv(body: bytes, served: Served, max_rows: int, max_columns: int) -> Any:
    """CSV or other delimited text with a header as a pandas frame."""
    try:
        table = read_bytes(body, "text", max_rows=max_rows, max_columns=max_columns)
    except TooLargeError as error:
        raise Problem(413, error.problem) from None
    except TableError as error:
        raise Problem(422, str(error)) from None
    return table.frame


def read_arrow(body: bytes, served: Served, max_rows: int, max_columns: int) -> Any:
    """Arrow IPC, a stream or a file, as a pandas frame.

    A file is a stream between two marks. Buffers are checked before anything trusts them; what is
    compressed is refused, since it could unpack to any size.
    """
    stream = body[8:] if body.startswith(b"ARROW1") else body
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(stream)):
            if _is_compressed(message.metadata.to_pybytes()):
                raise Problem(415, "the Arrow buffers are compressed: send them uncompressed")
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            if len(reader.schema) > max_columns:
                raise Problem(413, f"the table has more than {max_columns:,} columns")
            table = _first_rows(reader, max_rows)
        table.validate(full=True)
        return table.to_pandas(date_as_object=False)
    except (pa.ArrowException, OSError, ValueError, TypeError, struct.error) as error:
        raise Problem(422, f"the body is not Arrow IPC: {' '.join(str(error).split())}") from None


def _first_rows(reader: Any, max_rows: int) -> Any:
    """Batches up to one row more than allowed, without the columns that are no plain values."""
    plain = [field.name for field in reader.schema if _is_plain(field.type)]
    batches, rows = [], 0
    for batch in reader:
        batches.append(batch.select(plain).slice(0, max_rows + 1 - rows))
        rows += batches[-1].num_rows
        if rows > max_rows:
            break
    schema = pa.schema([reader.schema.field(name) for name in plain])
    return pa.Table.from_batches(batches, schema)


def _is_plain(kind: Any) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return not (pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)) and kind.id != (
        pa.lib.Type_RUN_END_ENCODED
    )


def _is_compressed(message: bytes) -> bool:
    """Whether an Arrow message says that its buffers are compressed.

    The message is a FlatBuffer; pyarrow has no way to ask before it has unpacked them.
    """
    table = _follow(message, 0)
    kind, header = _field(message, table, 1), _field(message, table, 2)
    if not (kind and header):
        return False
    batch = _follow(message, header)
    if message[kind] == 2:  # a batch of dictionaries, around a batch of records
        inner = _field(message, batch, 1)
        return bool(inner) and _field(message, _follow(message, inner), 3) != 0
    return message[kind] == 3 and _field(message, batch, 3) != 0


def _follow(message: bytes, place: int) -> int:
    return int(place + struct.unpack_from("<I", message, place)[0])


def _field(message: bytes, table: int, number: int) -> int:
    """Place of a field of a FlatBuffer's table, 0 if it is not there."""
    layout = table - struct.unpack_from("<i", message, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", message, layout)[0]:
        return 0
    offset = struct.unpack_from("<H", message, layout + 4 + 2 * number)[0]
    return int(table + offset) if offset else 0
