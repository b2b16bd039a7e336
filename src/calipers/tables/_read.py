"""Reading of tables from files, pipes and bytes in memory, whole or in blocks of rows."""

import glob
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO

from calipers.tables._delimited import DELIMITERS, TextFormat
from calipers.tables._formats import TEXT, FileFormat
from calipers.tables._limits import BODY, Reserve, TableLimits
from calipers.tables._open import open_bytes
from calipers.tables._source import STANDARD, RowSource, TableError, check_distinct

_ROWS = 2**16
_MARKS = re.compile(r"[*?\[]")


def find_files(patterns: Sequence[str]) -> list[str]:
    """The files that names and patterns stand for, in this order; those of a pattern are sorted.

    Examples
    --------
    >>> find_files(["-", "flats.csv"])
    ['-', 'flats.csv']

    Raises
    ------
    TableError
        If a pattern matches no file.
    """
    files: list[str] = []
    for pattern in patterns:
        if pattern == STANDARD or os.path.exists(pattern) or not _MARKS.search(pattern):  # noqa: PTH110
            files.append(pattern)
            continue
        names = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - may be absolute
        if not names:
            raise TableError("no file matches this pattern", file=pattern)
        files += names
    return files


def read_blocks(
    name: str,
    *,
    stream: BinaryIO | None = None,
    form: TextFormat | None = None,
    rows: int = _ROWS,
    report: Callable[[int], None] = lambda _: None,
) -> Iterator[RowSource]:
    """Rows of a file, block by block.

    Parameters
    ----------
    name : str
        Path, or ``-`` for standard input.
    stream : binary file, optional
        Read and closed in place of the file; ``name`` is then only used in errors.
    form : TextFormat, optional
        How text is written.
    rows : int
        Most rows in a block.
    report : callable
        Called with the number of bytes read since the last call.

    Raises
    ------
    TableError
        If the file cannot be read, or has no rows.
    """
    try:
        with ExitStack() as stack:
            raw, file_format = open_bytes(name, stack, stream)
            seen = 0
            for block in _blocks(raw, file_format, name, form, rows):
                yield block
                at = _position(raw)
                report(max(at - seen, 0))
                seen = max(at, seen)
    except OSError as error:
        raise TableError(f"cannot be read: {error.strerror or error}", file=name) from None


def read_bytes(
    body: bytes, limits: TableLimits, reserve: Reserve = lambda _: None, *, arrow: bool = False
) -> RowSource:
    """A table in memory from an untrusted sender: delimited text, or Arrow IPC.

    No other format is tried, so that limits bound the work: reading ends with the first row beyond
    them, and no two values of a column share their bytes. ``reserve`` is called with a number of
    bytes before they are allocated. Arrow may be a stream or a file; its columns of extension types
    are left out. Raises ``TooLargeError`` if the table is larger than the limits, or would be when
    decoded, and ``EncodedError`` if it is encoded in a way that is not supported.
    """
    if arrow:
        from calipers.tables._ipc import read_arrow

        return RowSource(read_arrow(body, limits, reserve), ((BODY, 0),))
    import pyarrow as pa

    header = body[: body.find(b"\n") if b"\n" in body else len(body)]
    marks = [mark.encode() for mark in DELIMITERS]
    limits.check(1, max(header.count(mark) for mark in marks) + 1)
    # Every value except the first follows a separator.
    values = body.count(b"\n") + body.count(b"\r") + sum(map(body.count, marks)) + 1
    reserve(len(body) + 8 * min(values, limits.cells))
    parts: list[Any] = []
    rows = 0
    with io.BufferedReader(io.BytesIO(body)) as raw:
        for block in _blocks(raw, TEXT, BODY, None, min(_ROWS, limits.rows + 1)):
            parts.append(block.table)
            rows += block.table.num_rows
            limits.check(rows, block.table.num_columns)
    return RowSource(pa.concat_tables(parts), ((BODY, 0),))


def read_table(
    names: Sequence[str],
    *,
    form: TextFormat | None = None,
    report: Callable[[int], None] = lambda _: None,
) -> RowSource:
    """All rows of several files, one file after the other.

    Parameters
    ----------
    names : sequence of str
        Files with the same columns, in any order.
    form : TextFormat, optional
        How text is written.
    report : callable
        Called with the number of bytes read since the last call.
    """
    import pyarrow as pa

    parts: list[Any] = []
    files: list[tuple[str, int]] = []
    for name in names:
        files.append((name, sum(part.num_rows for part in parts)))
        for block in read_blocks(name, form=form, report=report):
            if parts and set(block.table.column_names) != set(parts[0].column_names):
                _refuse_columns(block.table.column_names, parts[0].column_names, name, names[0])
            parts.append(block.table.select(parts[0].column_names) if parts else block.table)
    try:
        table = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"a column changes its type between files: {error}", file=name) from None
    return RowSource(table, tuple(files))


def _blocks(
    raw: BinaryIO, file_format: FileFormat, name: str, form: TextFormat | None, rows: int
) -> Iterator[RowSource]:
    """Rows of an open file."""
    start = 0
    for table in file_format.read(raw, name, form or TextFormat(), rows):
        check_distinct(table.column_names, name)
        if table.num_rows:
            yield RowSource(table, ((name, -start),))
        start += table.num_rows
    if not start:
        raise TableError("the file has a header but no rows", file=name)


def _position(raw: Any) -> int:
    """Number of bytes of the file that have been read; 0 if that is unknown."""
    while hasattr(raw, "raw") and hasattr(raw.raw, "fileobj"):
        raw = raw.raw.fileobj
    try:
        return int(raw.tell())
    except (OSError, ValueError):
        return 0


def _refuse_columns(columns: list[str], expected: list[str], name: str, first: str) -> None:
    lacking = [column for column in expected if column not in columns]
    extra = [column for column in columns if column not in expected]
    if lacking:
        raise TableError(f"lacks the column {lacking[0]!r} of {first}", file=name)
    raise TableError(f"has a column {extra[0]!r}, which {first} lacks", file=name)
