"""Reading tables: in blocks of rows, or whole, from files, pipes and bytes in memory."""

import glob
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from calipers.preprocessing import DataError
from calipers.tables._open import STANDARD, TableError, TooLargeError, open_bytes
from calipers.tables._text import TextFormat, text_tables

_ROWS = 2**16
_MARKS = re.compile(r"[*?\[]")


@dataclass(frozen=True, eq=False)
class RowSource:
    """Rows, and where they are from.

    Attributes
    ----------
    table : pyarrow.Table
        The rows; all columns of text files are text, as it stands there.
    files : tuple of (str, int)
        Each file, and the row of the table at which it begins; below 0 in a later block of it.
    rows : array of int, optional
        Which rows of the files these are, counted through all files; all by default.
    """

    table: Any
    files: tuple[tuple[str, int], ...]
    rows: NDArray[np.int64] | None = None

    @cached_property
    def frame(self) -> Any:
        """The rows as a pandas frame."""
        return self.table.to_pandas()

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """Number of each row as people count, from 1, through all files."""
        return 1 + (np.arange(self.table.num_rows) if self.rows is None else self.rows)

    def take(self, chosen: NDArray[np.bool_]) -> "RowSource":
        """Some of the rows, which keep their places in errors."""
        import pyarrow as pa

        rows = self.row_numbers[chosen] - 1
        return RowSource(self.table.filter(pa.array(chosen)), self.files, rows)

    def placed(self, error: DataError) -> TableError:
        """An error in the rows, with its place in the files."""
        file, start = self.files[0]
        if error.row is None:
            name = file if len(self.files) == 1 else f"{file} and {len(self.files) - 1} more"
            return TableError(error.problem, file=name, column=error.column)
        row = error.row if self.rows is None else int(self.rows[error.row])
        file, start = next(entry for entry in reversed(self.files) if entry[1] <= row)
        return TableError(error.problem, file=file, row=row - start + 1, column=error.column)


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
        The table, not compressed: what it unpacks to could not be bounded. The buffers within Arrow
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
    readers = {"text": text_tables, "parquet": _parquet, "arrow": _arrow, "arrow stream": _arrow}
    start = 0
    for table in readers[kind](raw, name, form or TextFormat(), rows):
        check_names(table.column_names, name)
        if table.num_rows:
            yield RowSource(table, ((name, -start),))
        start += table.num_rows
    if not start:
        raise TableError("the file has a header and no rows", file=name)


def _parquet(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(raw, pre_buffer=False)
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"the Parquet file is damaged or cut off ({str(error).splitlines()[0]})", file=name
        ) from None


def _arrow(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator[Any]:
    import pyarrow as pa

    try:
        if raw.peek(6)[:6] == b"ARROW1":  # type: ignore[attr-defined]
            file = pa.ipc.open_file(raw)
            batches = (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(raw))
        for batch in batches:
            table = pa.Table.from_batches([batch])
            yield from (table.slice(i, rows) for i in range(0, table.num_rows, rows))
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"the Arrow file is damaged or cut off ({str(error).splitlines()[0]})", file=name
        ) from None


def _position(raw: Any) -> int:
    """Bytes of the file that have been read, as far as that can be told."""
    while hasattr(raw, "raw") and hasattr(raw.raw, "fileobj"):
        raw = raw.raw.fileobj
    try:
        return int(raw.tell())
    except (OSError, ValueError):
        return 0


def check_names(names: list[str], name: str) -> None:
    """Refuse a table with two columns of one name."""
    column, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise TableError(f"there is more than one column {column!r}", file=name)


def _refuse_columns(found: list[str], wanted: list[str], name: str, first: str) -> None:
    lacking = [column for column in wanted if column not in found]
    extra = [column for column in found if column not in wanted]
    what = f"lacks the column {lacking[0]!r}" if lacking else f"has a column {extra[0]!r} more"
    raise TableError(f"{what}, compared with {first}", file=name)
