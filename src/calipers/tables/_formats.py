"""File formats: how to recognise, read and write each of them.

To add a format, put a ``FileFormat`` into ``FORMATS``. A written file appears under its name only
when it is complete.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from calipers._files import replacing
from calipers.tables._compression import COMPRESSIONS, Compression
from calipers.tables._delimited import TextFormat, TextWriter, text_tables
from calipers.tables._excel import excel_tables
from calipers.tables._source import STANDARD, TableError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Reader = Callable[[BinaryIO, str, TextFormat, int], Iterator[Any]]
Writer = Callable[[Any, Any], AbstractContextManager[Any]]


@dataclass(frozen=True)
class FileFormat:
    """A file format."""

    name: str  #: Its name.
    #: Takes an open file, its name for errors, how text is written and the most rows of a table;
    #: yields pyarrow tables.
    read: Reader
    #: Takes an open file and a pyarrow schema; returns a context manager with a method
    #: ``write_table``. None for a format that can only be read.
    write: Writer | None = None
    endings: tuple[str, ...] = ()  #: Endings of file names that select it for writing.
    #: First bytes of a file, by which it is recognised. None for delimited text, the format of
    #: any file that no other format recognises.
    magic: bytes | None = None
    seeks: bool = False  #: Whether reading it needs random access.

    @property
    def is_text(self) -> bool:
        """Whether it is delimited text, which may be compressed as a whole."""
        return self.magic is None


def _parquet_tables(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator["pa.Table"]:
    return parquet_tables(raw, name, rows)


def parquet_tables(
    raw: BinaryIO, name: str, rows: int, groups: list[int] | None = None
) -> Iterator["pa.Table"]:
    """Tables of up to ``rows`` rows of a Parquet file, or of some of its row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _reading("Parquet", name):
        file = pq.ParquetFile(raw, pre_buffer=False)
        for batch in file.iter_batches(batch_size=rows, row_groups=groups, use_threads=False):
            batch.validate(full=True)
            yield pa.Table.from_batches([batch])


def _arrow_tables(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator["pa.Table"]:
    import pyarrow as pa

    with _reading("Arrow", name):
        if raw.peek(6)[:6] == b"ARROW1":  # type: ignore[attr-defined]
            file = pa.ipc.open_file(raw)
            batches = (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(raw))
        for batch in batches:
            batch.validate(full=True)  # a damaged offset would point outside the file's memory
            table = pa.Table.from_batches([batch])
            yield from (table.slice(i, rows) for i in range(0, table.num_rows, rows))


@contextmanager
def _reading(what: str, name: str) -> Iterator[None]:
    """Raise a ``TableError`` for a file that cannot be read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        problem = f"the {what} file is damaged or cut off ({str(error).splitlines()[0]})"
        raise TableError(problem, file=name) from None


def _parquet_writer(out: BinaryIO, schema: "pa.Schema") -> "pq.ParquetWriter":
    import pyarrow.parquet as pq

    return pq.ParquetWriter(out, schema)


def _stream_writer(out: BinaryIO, schema: "pa.Schema") -> "pa.ipc.RecordBatchStreamWriter":
    import pyarrow as pa

    return pa.ipc.new_stream(out, schema)


def _arrow_writer(out: BinaryIO, schema: "pa.Schema") -> "pa.ipc.RecordBatchFileWriter":
    import pyarrow as pa

    return pa.ipc.new_file(out, schema)


TEXT = FileFormat("CSV", text_tables, partial(TextWriter, delimiter=","), (".csv",))

FORMATS = {
    one.name: one
    for one in (
        TEXT,
        FileFormat("TSV", text_tables, partial(TextWriter, delimiter="\t"), (".tsv",)),
        FileFormat("Parquet", _parquet_tables, _parquet_writer, (".parquet",), b"PAR1", seeks=True),
        FileFormat(
            "Arrow", _arrow_tables, _arrow_writer, (".feather", ".arrow"), b"ARROW1", seeks=True
        ),
        FileFormat("Arrow stream", _arrow_tables, _stream_writer, magic=b"\xff\xff\xff\xff"),
        FileFormat("Excel", excel_tables, magic=b"PK\x03\x04", seeks=True),
    )
}
"""Formats by name."""


def find_format(head: bytes) -> FileFormat:
    """The format of a file that begins with ``head``; delimited text if no other fits."""
    matches = (one for one in FORMATS.values() if one.magic and head.startswith(one.magic))
    return next(matches, TEXT)


def format_names() -> str:
    """Return the names of all formats, for help texts.

    >>> format_names()
    'CSV, TSV, Parquet, Feather (Arrow), Arrow stream, Excel'
    """
    return ", ".join("Feather (Arrow)" if name == "Arrow" else name for name in FORMATS)


def known_endings() -> str:
    """A text that lists the endings of files that can be written.

    >>> known_endings()
    '.csv, .tsv, .parquet, .feather, .arrow, or .csv.gz and the like'
    """
    endings = [ending for one in FORMATS.values() if one.write for ending in one.endings]
    compressed = TEXT.endings[0] + next(iter(COMPRESSIONS.values())).ending
    return f"{', '.join(endings)}, or {compressed} and the like"


def format_of(name: str) -> tuple[FileFormat, Compression | None]:
    """The format and compression that the ending of a file name selects.

    >>> file_format, compression = format_of("scored.csv.gz")
    >>> file_format.name, compression.name
    ('CSV', 'gzip')
    """
    if name == STANDARD:
        return TEXT, None
    endings = [ending.lower() for ending in Path(name).suffixes]
    last = endings.pop() if endings else ""
    compression = next((one for one in COMPRESSIONS.values() if one.ending == last), None)
    if compression is not None:
        last = endings.pop() if endings else ""
    for one in FORMATS.values():
        if last in one.endings and one.write and (one.is_text or compression is None):
            return one, compression
    raise TableError(f"the name must end in {known_endings()}", file=name)


@contextmanager
def write_blocks(name: str) -> Iterator[Callable[[Any], None]]:
    """Yield a function that writes one pyarrow table after the other to a file.

    The complete file appears under its name when the ``with`` block ends; if the block raises, an
    existing file remains unchanged.

    Parameters
    ----------
    name : str
        Path, whose ending selects the format, or ``-`` for CSV on standard output.

    Raises
    ------
    TableError
        If the file cannot be written there.
    """
    form, compression = format_of(name)
    with ExitStack() as stack:
        raw = stack.enter_context(_destination(name))
        out = stack.enter_context(compression.open_to_write(raw)) if compression else raw
        make = form.write
        assert make is not None  # noqa: S101 - names only select formats that can be written
        writer: Any = None

        def write(table: "pa.Table") -> None:
            nonlocal writer
            if writer is None:
                writer = stack.enter_context(make(out, table.schema))
            writer.write_table(table)
            if name == STANDARD:
                out.flush()

        yield write


@contextmanager
def _destination(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        if sys.stdout is None:
            raise TableError("is closed", file="standard output")
        yield sys.stdout.buffer
        return
    path = Path(name)
    if path.is_dir():
        raise TableError("cannot be written: it is a folder", file=name)
    if not path.parent.is_dir():
        raise TableError(f"cannot be written: there is no folder {str(path.parent)!r}", file=name)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(replacing(path))
        except OSError as error:
            raise TableError(f"cannot be written: {error.strerror or error}", file=name) from None
        yield file
