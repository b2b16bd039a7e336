"""Files as streams of bytes: what they hold, decompressed, and as UTF-8 where they are text."""

import codecs
import io
import lzma
import shutil
import sys
import tempfile
import zipfile
import zlib
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

STANDARD = "-"
"""The name of standard input and output."""

HEAD = 2**16  # bytes that tell what a file holds

_CHUNK = 2**20
_BROKEN = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)  # decompressing damaged data
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_FORMATS = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow stream",
}
_ZIP = b"PK\x03\x04"
_FOREIGN = {
    _ZIP: "a zip archive: unpack it",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook: save the sheet as CSV",
    b"SQLite format 3": "an SQLite database: export the table as CSV",
    b"%PDF": "a PDF document, not a table",
    b"FEA1": "a Feather file of the first version: write it again by pyarrow.feather",
    b"\x89HDF": "an HDF5 file: write the table as Parquet or CSV",
    b"\x93NUMPY": "a NumPy array: write it as CSV with a header",
}
_WIDE = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


class TableError(ValueError):
    """A table that cannot be read or used, with its file and, where they are known, row and column.

    Examples
    --------
    >>> raise TableError("'many' is not a number", file="flats.csv", row=3, column="rooms")
    Traceback (most recent call last):
    calipers.tables._open.TableError: flats.csv, row 3, column 'rooms': 'many' is not a number
    """

    def __init__(
        self, problem: str, *, file: str, row: int | None = None, column: str | None = None
    ) -> None:
        self.problem, self.file, self.row, self.column = problem, file, row, column
        place = "standard input" if file == STANDARD else file
        place += "" if row is None else f", row {row:,}"
        place += "" if column is None else f", column {column!r}"
        super().__init__(f"{place}: {problem}")

    def __reduce__(self) -> Any:
        """Let the error come from another machine."""
        make = partial(type(self), file=self.file, row=self.row, column=self.column)
        return make, (self.problem,)


class TooLargeError(TableError):
    """A table with more rows or columns than are allowed."""


def open_bytes(name: str, stack: ExitStack, stream: BinaryIO | None = None) -> tuple[BinaryIO, str]:
    """Open a file, decompressed, and say what it holds: "text", "parquet", "arrow", "arrow stream".

    Parameters
    ----------
    name : str
        Path, or ``-`` for standard input.
    stack : ExitStack
        Closes what is opened.
    stream : binary file, optional
        What to read in place of the file; it is closed afterwards.
    """
    raw = _open_raw(name, stack) if stream is None else _buffered(stream, stack)
    head = _peek(raw)
    compression = next(
        (kind for magic, kind in _COMPRESSED.items() if head.startswith(magic)), None
    )
    if compression is not None:
        raw = stack.enter_context(_decompressed(raw, compression))
        try:
            head = _peek(raw)
        except _BROKEN as error:
            refuse_compressed(name, error)
    if not head:
        raise TableError("the file is empty", file=name)
    if head.startswith(_ZIP):
        raw = raw if raw.seekable() else _spooled(raw, stack)
        if _is_workbook(raw):
            return raw, "excel"
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise TableError(f"this is {what}", file=name)
    form = next((kind for magic, kind in _FORMATS.items() if head.startswith(magic)), "text")
    if form in ("parquet", "arrow") and (compression is not None or not raw.seekable()):
        try:
            raw = _spooled(raw, stack)
        except _BROKEN as error:
            refuse_compressed(name, error)
    return raw, form


def _is_workbook(raw: BinaryIO) -> bool:
    """Whether a zip archive is a workbook of Excel; leaves the file at its beginning."""
    try:
        with zipfile.ZipFile(raw) as archive:
            found = "xl/workbook.xml" in archive.namelist()
    except zipfile.BadZipFile:
        found = False
    raw.seek(0)
    return found


def _open_raw(name: str, stack: ExitStack) -> BinaryIO:
    if name == STANDARD:
        return _buffered(sys.stdin.buffer, stack)
    path = Path(name)
    if path.is_dir():
        raise TableError(f"this is a folder: name its files, such as '{name}/*.csv'", file=name)
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        raise TableError("there is no such file", file=name) from None
    except OSError as error:
        raise TableError(f"cannot be read: {error.strerror}", file=name) from None


def _buffered(stream: Any, stack: ExitStack) -> BinaryIO:
    return stack.enter_context(io.BufferedReader(stream))


def _peek(raw: Any) -> bytes:
    found: bytes = raw.peek(16)[:16]
    return found


def _decompressed(raw: BinaryIO, compression: str) -> Any:
    """The content of a compressed stream."""
    if compression == "gzip":
        import gzip

        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if compression == "bz2":
        import bz2

        return io.BufferedReader(bz2.BZ2File(raw))
    if compression == "xz":
        return io.BufferedReader(lzma.LZMAFile(raw))
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd"))


def refuse_compressed(name: str, error: Exception) -> NoReturn:
    """Say that compressed data end early or are damaged."""
    early = isinstance(error, EOFError) or "runcated" in str(error)
    what = "end early: the file was cut off" if early else f"are damaged ({error})"
    raise TableError(f"the compressed data {what}", file=name) from None


def _spooled(raw: BinaryIO, stack: ExitStack) -> BinaryIO:
    """A copy on the disk, for formats that are not read from front to back."""
    copy = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(raw, copy, _CHUNK)
    copy.seek(0)
    return copy


class TextStream(io.RawIOBase):
    """Text as UTF-8 without a mark in front, checked on the way; counts quotation marks.

    Parameters
    ----------
    raw : binary file
        The text.
    encoding : str
        Its encoding.
    name : str
        The file, for errors.
    """

    def __init__(self, raw: BinaryIO, encoding: str, name: str) -> None:
        self._raw, self._name, self._encoding = raw, name, encoding
        try:
            kind = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
            self._decoder = codecs.getincrementaldecoder(kind)()
        except LookupError:
            raise TableError(f"there is no encoding {encoding!r}", file=name) from None
        self._ready, self._lines, self.quotes, self._start = b"", 1, 0, True

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; 0 at the end."""
        while not self._ready:
            chunk = self._chunk()
            if chunk is None:
                return 0
            self._ready = chunk
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def peek(self, size: int) -> bytes:
        """The next bytes without taking them; fewer where the text ends before."""
        while len(self._ready) < size:
            chunk = self._chunk()
            if chunk is None:
                break
            self._ready += chunk
        return self._ready[:size]

    def _chunk(self) -> bytes | None:
        """The next part of the text; None at the end."""
        try:
            found = self._raw.read(_CHUNK)
        except _BROKEN as error:
            refuse_compressed(self._name, error)
        if self._start and found[:2] in _WIDE and not self._encoding.lower().startswith("utf-16"):
            raise TableError("the text is UTF-16: give the encoding utf-16", file=self._name)
        self._start = False
        try:
            text = self._decoder.decode(found, final=not found)
        except UnicodeDecodeError as error:
            line = self._lines + error.object[: error.start].count(b"\n")
            raise TableError(
                f"the byte 0x{error.object[error.start]:02x} in line {line:,} is not "
                f"{self._encoding}: give the encoding, such as cp1252 or latin-1",
                file=self._name,
            ) from None
        if "\0" in text:
            line = self._lines + text[: text.index("\0")].count("\n")
            raise TableError(
                f"there is a NUL byte in line {line:,}: the file is damaged, is no text, or has "
                "the encoding utf-16",
                file=self._name,
            )
        self._lines += text.count("\n")
        self.quotes += text.count('"')
        return text.encode() if found or text else None
