"""File formats: how to recognise, read and write each of them.

To add a format, put a ``FileFormat`` into ``FORMATS``.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from calipers.tables._binary import arrow_tables, arrow_writer, parquet_tables, parquet_writer
from calipers.tables._compression import COMPRESSIONS, Compression
from calipers.tables._delimited import TextFormat, TextWriter, text_tables
from calipers.tables._excel import excel_tables
from calipers.tables._source import STANDARD, TableError

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
    #: First bytes of a file, by which it is recognised. None for delimited text, which any file is
    #: taken for that no other format recognises.
    magic: bytes | None = None
    seeks: bool = False  #: Whether reading it needs random access.

    @property
    def is_text(self) -> bool:
        """Whether it is delimited text, which may be compressed as a whole."""
        return self.magic is None


TEXT = FileFormat("CSV", text_tables, partial(TextWriter, delimiter=","), (".csv",))

FORMATS = {
    one.name: one
    for one in (
        TEXT,
        FileFormat("TSV", text_tables, partial(TextWriter, delimiter="\t"), (".tsv",)),
        FileFormat("Parquet", parquet_tables, parquet_writer, (".parquet",), b"PAR1", seeks=True),
        FileFormat(
            "Arrow", arrow_tables, arrow_writer, (".feather", ".arrow"), b"ARROW1", seeks=True
        ),
        FileFormat("Arrow stream", arrow_tables, magic=b"\xff\xff\xff\xff"),
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
