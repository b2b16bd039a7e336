"""Reading tables: in blocks of rows, or whole, from files, pipes and bytes in memory."""

import glob
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO, Literal

from calipers.tables._binary import arrow_tables, parquet_tables
from calipers.tables._excel import excel_tables
from calipers.tables._open import STANDARD, TableError, TooLargeError, open_bytes
from calipers.tables._source import RowSource, check_names
from calipers.tables._text import TextFormat, text_tables

_ROWS = 2**16
_MARKS = re.compile(r"[*?\[]")


def find_files(patterns: Sequence[str]) -> list[str]:
    """Files that names and patterns stand for, in order; those of a pattern sorted.

    Examples
    --------
    >>> find_files(["-", "flats.csv"])
    ['-', 'flats.csv']

    Raises
    ------
    TableError
        If a pattern fits no file.
    """
    found: list[str] = []
    for pattern in patterns:
        if pattern == STANDARD or os.path.exists(pattern) or not _MARKS.search(pattern):  # noqa: PTH110
            found.append(pattern)
            continue
        names = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - also absolute ones
        if not names:
            raise TableError("no file fits this pattern", file=pattern)
        found += names
    return found


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
        What to read, and close, in place of the file, which then only names it in errors.
    form : TextFormat, optional
        How text is written.
    rows : int
        Most rows of a block.
    report : callable
        Is told the bytes read since it was last told.

    Raises
    ------
    TableError
        If the file cannot be read, or has no rows.
    """
    with ExitStack() as stack:
        raw, kind = open_bytes(name, stack, stream)
        told = 0
        for block in _blocks(raw, kind, name, form, rows):
            yield block
            at = _position(raw)
            report(max(at - told, 0))
            told = max(at, told)


def read_bytes(
    body: bytes,
    kind: Literal["text", "arrow", "parquet"],
    *,
    name: str = "the body",
    form: TextFormat | None = None,
    max_rows: int | None = None,
    max_columns: int | None = None,
) -> RowSource:
    """A table in memory, read as a file of that kind is.

    Parameters
    ----------
    body : bytes
        The table, not compressed: what it expands to could not be bounded. The buffers within Arrow
        and Parquet may be; refuse them before where the sender is not trusted.
    kind : "text", "arrow" or "parquet"
        What it is; nothing else is tried.
    name : str
        What errors call it.
    form : TextFormat, optional
        How text is written.
    max_rows, max_columns : int, optional
        Limits; what follows the row that is too much is not read.

    Raises
    ------
    TooLargeError
        If the table has more rows or columns.
    TableError
        If it cannot be read.
    """
    import pyarrow as pa

    parts: list[Any] = []
    rows = 0
    most = _ROWS if max_rows is None else min(_ROWS, max_rows + 1)
    with io.BufferedReader(io.BytesIO(body)) as raw:
        for block in _blocks(raw, kind, name, form, most):
            if max_columns is not None and block.table.num_columns > max_columns:
                raise TooLargeError(f"the table has more than {max_columns:,} columns", file=name)
            parts.append(block.table)
            rows += block.table.num_rows
            if max_rows is not None and rows > max_rows:
                raise TooLargeError(f"the table has more than {max_rows:,} rows", file=name)
    table = pa.concat_tables(parts)
    try:
        table.validate(full=kind != "text")
    except pa.ArrowInvalid as error:
        raise TableError(f"is damaged ({error})", file=name) from None
    return RowSource(table, ((name, 0),))


def read_table(
    names: Sequence[str],
    *,
    form: TextFormat | None = None,
    report: Callable[[int], None] = lambda _: None,
) -> RowSource:
    """All rows of some files, one file after the other.

    Parameters
    ----------
    names : sequence of str
        Files with the same columns, in any order.
    form : TextFormat, optional
        How text is written.
    report : callable
        Is told the bytes read since it was last told.
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
    raw: BinaryIO, kind: str, name: str, form: TextFormat | None, rows: int
) -> Iterator[RowSource]:
    """Rows of an open file, whose kind is known."""
    readers = {
        "text": text_tables,
        "parquet": parquet_tables,
        "arrow": arrow_tables,
        "arrow stream": arrow_tables,
        "excel": excel_tables,
    }
    start = 0
    for table in readers[kind](raw, name, form or TextFormat(), rows):
        check_names(table.column_names, name)
        if table.num_rows:
            yield RowSource(table, ((name, -start),))
        start += table.num_rows
    if not start:
        raise TableError("the file has a header and no rows", file=name)


def _position(raw: Any) -> int:
    """Bytes of the file that have been read, as far as that can be told."""
    while hasattr(raw, "raw") and hasattr(raw.raw, "fileobj"):
        raw = raw.raw.fileobj
    try:
        return int(raw.tell())
    except (OSError, ValueError):
        return 0


def _refuse_columns(found: list[str], wanted: list[str], name: str, first: str) -> None:
    lacking = [column for column in wanted if column not in found]
    extra = [column for column in found if column not in wanted]
    what = f"lacks the column {lacking[0]!r}" if lacking else f"has a column {extra[0]!r} more"
    raise TableError(f"{what}, compared with {first}", file=name)
