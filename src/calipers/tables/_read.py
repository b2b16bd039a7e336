"""Reading tables: in blocks of rows, or whole."""

import glob
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO

from calipers.preprocessing import DataError
from calipers.tables._open import STANDARD, TableError, open_bytes
from calipers.tables._text import Form, text_tables, typed

_ROWS = 2**16
_MARKS = re.compile(r"[*?\[]")


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of a file.

    Attributes
    ----------
    file : str
        Where they are from.
    start : int
        Rows of the file before them.
    table : pyarrow.Table
        The rows; all columns of text files are text.
    text : bool
        Whether they are from a text file.
    """

    file: str
    start: int
    table: Any
    text: bool

    def frame(self, as_text: Collection[str] = ()) -> Any:
        """The rows as a pandas frame; columns of text are typed, except those that are named."""
        return typed(self.table, as_text).to_pandas() if self.text else self.table.to_pandas()

    def placed(self, error: DataError) -> TableError:
        """An error in the rows, with its place in the file."""
        row = None if error.row is None else self.start + error.row + 1
        return TableError(error.problem, file=self.file, row=row, column=error.column)


@dataclass(frozen=True, eq=False)
class Table:
    """All rows of some files.

    Attributes
    ----------
    frame : pandas DataFrame
        The rows.
    files : tuple of (str, int)
        Each file, and the rows before it.
    """

    frame: Any
    files: tuple[tuple[str, int], ...]

    def placed(self, error: DataError) -> TableError:
        """An error in the rows, with its place in the files."""
        file, start = self.files[0]
        if error.row is None:
            name = file if len(self.files) == 1 else f"{file} and {len(self.files) - 1} more"
            return TableError(error.problem, file=name, column=error.column)
        file, start = next(entry for entry in reversed(self.files) if entry[1] <= error.row)
        row = error.row - start + 1
        return TableError(error.problem, file=file, row=row, column=error.column)


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
    form: Form | None = None,
    rows: int = _ROWS,
    report: Callable[[int], None] = lambda _: None,
) -> Iterator[Block]:
    """Rows of a file, block by block.

    Parameters
    ----------
    name : str
        Path, or ``-`` for standard input.
    stream : binary file, optional
        What to read, and close, in place of the file, which then only names it in errors.
    form : Form, optional
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
        readers = {
            "text": text_tables,
            "parquet": _parquet,
            "arrow": _arrow,
            "arrow stream": _arrow,
        }
        start, told = 0, 0
        for table in readers[kind](raw, name, form or Form(), rows):
            _check_names(table.column_names, name)
            yield Block(name, start, table, kind == "text")
            start += table.num_rows
            at = _position(raw)
            report(max(at - told, 0))
            told = max(at, told)
        if not start:
            raise TableError("the file has a header and no rows", file=name)


def read_table(
    names: Sequence[str],
    *,
    form: Form | None = None,
    as_text: Collection[str] = (),
    report: Callable[[int], None] = lambda _: None,
) -> Table:
    """All rows of some files, one file after the other.

    Parameters
    ----------
    names : sequence of str
        Files with the same columns, in any order.
    form : Form, optional
        How text is written.
    as_text : collection of str
        Columns that stay text even if they look like numbers.
    report : callable
        Is told the bytes read since it was last told.
    """
    import pyarrow as pa

    parts: list[Any] = []
    files: list[tuple[str, int]] = []
    text = False
    for name in names:
        start = sum(part.num_rows for part in parts)
        for block in read_blocks(name, form=form, report=report):
            if parts and set(block.table.column_names) != set(parts[0].column_names):
                _refuse_columns(block.table.column_names, parts[0].column_names, name, names[0])
            parts.append(block.table.select(parts[0].column_names) if parts else block.table)
            text = text or block.text
        files.append((name, start))
    try:
        table = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"a column changes its type between files: {error}", file=name) from None
    frame = typed(table, as_text).to_pandas() if text else table.to_pandas()
    return Table(frame, tuple(files))


def _parquet(raw: BinaryIO, name: str, form: Form, rows: int) -> Iterator[Any]:
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


def _arrow(raw: BinaryIO, name: str, form: Form, rows: int) -> Iterator[Any]:
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


def _check_names(names: list[str], name: str) -> None:
    twice = {column for column in names if names.count(column) > 1}
    if twice:
        column = next(column for column in names if column in twice)
        raise TableError(f"there is more than one column {column!r}", file=name)


def _refuse_columns(found: list[str], wanted: list[str], name: str, first: str) -> None:
    lacking = [column for column in wanted if column not in found]
    extra = [column for column in found if column not in wanted]
    what = f"lacks the column {lacking[0]!r}" if lacking else f"has a column {extra[0]!r} more"
    raise TableError(f"{what}, compared with {first}", file=name)
