"""Reading of bodies in CSV or Arrow into bounded pyarrow tables."""

from typing import Any

import pyarrow as pa

from calipers.serve._problems import HTTPProblem
from calipers.tables import Reserve, TableLimits, read_bytes

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


def read_table(body: bytes, kind: str, limits: TableLimits, reserve: Reserve) -> Any:
    """Return the table in a body, in which no two values share memory.

    Columns of CSV are text. ``reserve`` is called with the number of bytes before they are
    allocated, including those of a frame.
    """
    table = read_bytes(body, limits, reserve, arrow=kind != CSV).table
    if not table.num_rows:
        raise HTTPProblem(422, "the table has no rows")
    reserve(sum(_frame_bytes(column) for column in table.columns))
    return table


def _frame_bytes(column: Any) -> int:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        return _NUMBER_BYTES * len(column)
    return _OBJECT_BYTES * len(column) + 4 * int(column.nbytes)  # a wide character has 4 bytes
