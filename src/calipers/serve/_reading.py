"""Tables of bodies: CSV or Arrow in, a bounded pyarrow table out."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from calipers.serve._arrow import read_arrow
from calipers.serve._limits import Limits, Reserve
from calipers.serve._problems import HTTPProblem
from calipers.tables import TableError, TooLargeError, read_bytes

JSON, CSV = "application/json", "text/csv"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"
MEDIA_TYPES = (JSON, CSV, ARROW_STREAM, ARROW_FILE)

_NUMBER_BYTES, _OBJECT_BYTES = 16, 112  # of a value of a frame, at most
_DELIMITERS = (b",", b";", b"\t", b"|")


def media_type(header: str) -> str:
    """What a body is, by its Content-Type.

    Examples
    --------
    >>> media_type("Text/CSV; charset=utf-8")
    'text/csv'
    """
    given = header.split(";")[0].strip().lower()
    if given not in MEDIA_TYPES:
        raise HTTPProblem(
            415, f"Content-Type must be one of {', '.join(MEDIA_TYPES)}; got {given[:100]!r}"
        )
    return given


def read_table(body: bytes, kind: str, limits: Limits, reserve: Reserve) -> Any:
    """The table of a body in CSV or Arrow, none of whose values shares its bytes with another.

    Columns of CSV are text. ``reserve`` is called with the number of bytes before they are
    allocated, including those of a frame.
    """
    read: Callable[..., Any] = _read_csv if kind == CSV else read_arrow
    table = read(body, limits, reserve)
    if not table.num_rows:
        raise HTTPProblem(422, "the table has no rows")
    reserve(sum(_frame_bytes(column) for column in table.columns))
    return table


def _read_csv(body: bytes, limits: Limits, reserve: Reserve) -> Any:
    """Delimited text with a header; every value but the first follows a separator."""
    header = body[: body.find(b"\n") if b"\n" in body else len(body)]
    limits.check(1, max(header.count(mark) for mark in _DELIMITERS) + 1)
    values = body.count(b"\n") + body.count(b"\r") + sum(map(body.count, _DELIMITERS)) + 1
    reserve(len(body) + 8 * min(values, limits.cells))
    try:
        source = read_bytes(body, max_rows=limits.rows, max_columns=limits.columns)
    except TooLargeError as error:
        raise HTTPProblem(413, error.problem) from None
    except TableError as error:
        raise HTTPProblem(422, str(error)) from None
    limits.check(source.table.num_rows, source.table.num_columns)
    return source.table


def _frame_bytes(column: Any) -> int:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        return _NUMBER_BYTES * len(column)
    return _OBJECT_BYTES * len(column) + 4 * int(column.nbytes)  # 4 bytes of a wide character
