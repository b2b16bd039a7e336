"""Writing tables: block by block, and under their name only when they are whole."""

import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

from calipers._files import replacing
from calipers.tables._open import STANDARD, TableError

FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
}
"""Formats by the ending of a name; delimited text may be compressed, as in ``.csv.gz``."""

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".xz": "xz"}


def format_of(name: str) -> tuple[str, str | None]:
    """Format and compression that a name asks for.

    Examples
    --------
    >>> format_of("scored.csv.gz"), format_of("-")
    (('csv', 'gzip'), ('csv', None))

    Raises
    ------
    TableError
        If the ending is none of those known.
    """
    if name == STANDARD:
        return "csv", None
    endings = [ending.lower() for ending in Path(name).suffixes]
    compression = _COMPRESSIONS.get(endings[-1]) if endings else None
    kind = FORMATS.get((endings[:-1] if compression else endings)[-1:][0] if endings else "")
    if kind is None or (compression and kind not in ("csv", "tsv")):
        raise TableError(
            f"the name must end in {', '.join(FORMATS)}, or .csv.gz and the like", file=name
        )
    return kind, compression


@contextmanager
def write_blocks(name: str) -> Iterator[Callable[[Any], None]]:
    """Write a table: call what it yields with one pyarrow table after the other.

    The file appears under its name when the block ends, whole; if it fails, nothing changes.

    Parameters
    ----------
    name : str
        Path, whose ending says the format, or ``-`` for CSV on standard output.

    Raises
    ------
    TableError
        If the file cannot be written there.
    """
    kind, compression = format_of(name)
    with ExitStack() as stack:
        raw = stack.enter_context(_destination(name))
        out = stack.enter_context(_compressed(raw, compression)) if compression else raw
        writers: list[Any] = []

        def write(table: Any) -> None:
            if not writers:
                writers.append(stack.enter_context(_writer(out, kind, table.schema)))
            writers[0].write_table(table)
            if name == STANDARD:
                out.flush()

        yield write


@contextmanager
def _destination(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        yield sys.stdout.buffer
        return
    path = Path(name)
    if path.is_dir():
        raise TableError("cannot be written: it is a folder", file=name)
    if not path.parent.is_dir():
        raise TableError(f"cannot be written: there is no folder {str(path.parent)!r}", file=name)
    special = path.exists() and not stat.S_ISREG(path.stat().st_mode)
    opened: AbstractContextManager[Any] = path.open("wb") if special else replacing(path)
    try:
        file = opened.__enter__()
    except OSError as error:
        raise TableError(f"cannot be written: {error.strerror or error}", file=name) from None
    with ExitStack() as stack:
        stack.push(opened)
        yield file


def _compressed(raw: BinaryIO, compression: str) -> Any:
    if compression == "xz":
        import lzma

        return lzma.LZMAFile(raw, "wb")
    if compression == "gzip":
        import gzip

        return gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0)
    if compression == "bz2":
        import bz2

        return bz2.BZ2File(raw, "wb")
    import pyarrow as pa

    return pa.CompressedOutputStream(pa.PythonFile(_Lasting(raw), "w"), compression)


class _Lasting:
    """A file that stays open when a writer is done with it."""

    closed = False

    def __init__(self, raw: BinaryIO) -> None:
        self.write, self.flush = raw.write, raw.flush

    def close(self) -> None:
        self.flush()


def _writer(out: Any, kind: str, schema: Any) -> Any:
    import pyarrow as pa

    if kind == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetWriter(out, schema)
    if kind == "arrow":
        return pa.ipc.new_file(out, schema)
    return _TextWriter(out, "," if kind == "csv" else "\t", schema.names)


class _TextWriter:
    """Delimited text with quotation marks around those values alone that need them.

    pyarrow's own writer puts them around all text, also around numbers that are kept as they were.
    """

    def __init__(self, out: Any, delimiter: str, names: list[str]) -> None:
        import pyarrow as pa

        self._out, self._delimiter = out, delimiter
        self._write([self._cells(pa.array([name])) for name in names])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the file open: it is not the writer's."""

    def write_table(self, table: Any) -> None:
        """Write some rows."""
        self._write([self._cells(column) for column in table.columns])

    def _cells(self, column: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        text = column.cast(pa.large_string())
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            return pc.fill_null(text, "")
        odd = pc.match_substring_regex(text, f'[{self._delimiter}"\r\n]|^$')
        twice = pc.replace_substring(text, '"', '""')
        mark = pa.scalar('"', text.type)
        quoted = pc.binary_join_element_wise(mark, twice, mark, pa.scalar("", text.type))
        return pc.fill_null(pc.if_else(odd, quoted, text), "")

    def _write(self, cells: list[Any]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        between = pa.scalar(self._delimiter, pa.large_string())
        lines = pc.binary_join_element_wise(*cells, between).to_pylist()
        self._out.write("".join(f"{line}\n" for line in lines).encode())
