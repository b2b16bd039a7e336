"""Reading of tables from files, pipes and bytes in memory, whole or in blocks of rows."""

import glob
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from calipers.tables._compression import DAMAGED, find_compression, refuse_compressed
from calipers.tables._delimited import DELIMITERS, TextFormat
from calipers.tables._formats import TEXT, FileFormat, find_format
from calipers.tables._source import (
    BODY,
    STANDARD,
    Reserve,
    RowSource,
    TableError,
    TableLimits,
    check_distinct,
)

_ROWS = 2**16
_CHUNK = 2**20
_MARKS = re.compile(r"[*?\[]")
_FOREIGN = {
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the sheet as CSV",
    b"SQLite format 3": "an SQLite database: export the table as CSV",
    b"%PDF": "a PDF document, not a table",
    b"FEA1": "a Feather file of the first version: write it again with pyarrow.feather",
    b"\x89HDF": "an HDF5 file: write the table as Parquet or CSV",
    b"\x93NUMPY": "a NumPy array: write it as CSV with a header",
}


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


def visible_paths(folder: Path, pattern: str = "*") -> list[Path]:
    """Paths under a folder, sorted, except where a name begins with ``.`` or ``_``."""
    paths = sorted(folder.rglob(pattern))
    return [p for p in paths if not any(n[0] in "._" for n in p.relative_to(folder).parts)]


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
            raw, file_format = _open_bytes(name, stack, stream)
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
    for column in expected:
        if column not in columns:
            raise TableError(f"lacks the column {column!r} of {first}", file=name)
    extra = next(column for column in columns if column not in expected)
    raise TableError(f"has a column {extra!r}, which {first} lacks", file=name)


def _open_bytes(
    name: str, stack: ExitStack, stream: BinaryIO | None = None
) -> tuple[BinaryIO, FileFormat]:
    """Open a file, ``-`` or a stream, decompressed, and recognise its format."""
    raw: Any = _open_raw(name) if stream is None else io.BufferedReader(stream)
    stack.enter_context(raw)
    head = _peek(raw)
    compression = find_compression(head)
    try:
        if compression is not None:
            raw = stack.enter_context(io.BufferedReader(compression.open_to_read(raw)))
            head = _peek(raw)
        file_format = find_format(head)
        if file_format.seeks and (compression is not None or not raw.seekable()):
            copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
            shutil.copyfileobj(raw, copy, _CHUNK)
            copy.seek(0)
            raw = copy
    except DAMAGED as error:
        refuse_compressed(name, error)
    if not head:
        raise TableError("the file is empty", file=name)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise TableError(f"this is {what}", file=name)
    return raw, file_format


def whole_lines(name: str) -> int | None:
    """Size of a file in bytes, or None if it is plain text whose last line is incomplete."""
    path = Path(name)
    if name == STANDARD or not path.is_file():
        return 0
    with path.open("rb") as raw:
        head = _peek(raw)
        size = raw.seek(0, io.SEEK_END)
        raw.seek(max(0, size - 4))
        last = raw.read().rstrip(b"\0")[-1:]  # works in encodings of several bytes too
    text = find_compression(head) is None and find_format(head).is_text
    return None if text and last not in (b"\n", b"\r") else size


def _open_raw(name: str) -> BinaryIO:
    if name == STANDARD:
        if sys.stdin is None or sys.stdin.closed:
            raise TableError("is closed, or was read already", file=name)
        stdin: Any = sys.stdin.buffer
        return io.BufferedReader(stdin)
    path = Path(name)
    if path.is_dir():
        raise TableError(f"this is a folder: name its files, such as '{name}/*.csv'", file=name)
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise TableError("there is no such file", file=name) from None


def _peek(raw: io.BufferedReader) -> bytes:
    return raw.peek(16)[:16]
