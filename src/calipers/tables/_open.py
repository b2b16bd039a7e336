"""Opening of files: decompression, and recognition of their format."""

import io
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from calipers.tables._compression import DAMAGED, decompressed, find_compression, refuse_compressed
from calipers.tables._formats import FileFormat, find_format
from calipers.tables._source import STANDARD, TableError

_CHUNK = 2**20
_FOREIGN = {
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the sheet as CSV",
    b"SQLite format 3": "an SQLite database: export the table as CSV",
    b"%PDF": "a PDF document, not a table",
    b"FEA1": "a Feather file of the first version: write it again with pyarrow.feather",
    b"\x89HDF": "an HDF5 file: write the table as Parquet or CSV",
    b"\x93NUMPY": "a NumPy array: write it as CSV with a header",
}


def open_bytes(
    name: str, stack: ExitStack, stream: BinaryIO | None = None
) -> tuple[BinaryIO, FileFormat]:
    """Open a file, ``-`` or a stream, decompressed, and recognise its format."""
    raw = _open_raw(name, stack) if stream is None else _buffered(stream, stack)
    head = _peek(raw)
    compression = find_compression(head)
    if compression is not None:
        raw = stack.enter_context(decompressed(raw, compression))
        try:
            head = _peek(raw)
        except DAMAGED as error:
            refuse_compressed(name, error)
    if not head:
        raise TableError("the file is empty", file=name)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise TableError(f"this is {what}", file=name)
    form = find_format(head)
    if form.seeks and (compression is not None or not raw.seekable()):
        try:
            raw = _spooled(raw, stack)
        except DAMAGED as error:
            refuse_compressed(name, error)
    return raw, form


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


def _open_raw(name: str, stack: ExitStack) -> BinaryIO:
    if name == STANDARD:
        if sys.stdin is None or sys.stdin.closed:
            raise TableError("is closed, or was read already", file=name)
        return _buffered(sys.stdin.buffer, stack)
    path = Path(name)
    if path.is_dir():
        raise TableError(f"this is a folder: name its files, such as '{name}/*.csv'", file=name)
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        raise TableError("there is no such file", file=name) from None


def _buffered(stream: Any, stack: ExitStack) -> BinaryIO:
    return stack.enter_context(io.BufferedReader(stream))


def _peek(raw: Any) -> bytes:
    return raw.peek(16)[:16]


def _spooled(raw: BinaryIO, stack: ExitStack) -> BinaryIO:
    """A copy on disk, for formats that need random access."""
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(raw, copy, _CHUNK)
    copy.seek(0)
    return copy
