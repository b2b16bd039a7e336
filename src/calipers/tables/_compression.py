"""Decompression, and conversion of text in any encoding to a stream of UTF-8."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from calipers.tables._source import TableError

if TYPE_CHECKING:
    import pyarrow as pa

DAMAGED = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)  # from damaged data


@dataclass(frozen=True)
class Compression:
    """A kind of compression."""

    name: str  #: Its name.
    ending: str  #: Ending of file names, after that of the format.
    magic: bytes  #: First bytes of compressed data.
    #: Wrap a stream of compressed bytes, which stays open, in a stream of plain bytes.
    open_to_read: Callable[[BinaryIO], Any]
    open_to_write: Callable[[BinaryIO], Any]


def _read_zstd(raw: BinaryIO) -> "pa.CompressedInputStream":
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")


def _write_zstd(raw: BinaryIO) -> "pa.CompressedOutputStream":
    import pyarrow as pa

    return pa.CompressedOutputStream(pa.PythonFile(_Unclosed(raw), "w"), "zstd")


class _Unclosed:
    """A file that stays open when a writer closes it."""

    closed = False

    def __init__(self, raw: BinaryIO) -> None:
        self.write, self.flush = raw.write, raw.flush

    def close(self) -> None:
        self.flush()


COMPRESSIONS = {
    one.name: one
    for one in (
        Compression(
            "gzip",
            ".gz",
            b"\x1f\x8b",
            lambda raw: gzip.GzipFile(fileobj=raw),
            lambda raw: gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0),
        ),
        Compression("bz2", ".bz2", b"BZh", bz2.BZ2File, partial(bz2.BZ2File, mode="wb")),
        Compression("xz", ".xz", b"\xfd7zXZ\x00", lzma.LZMAFile, partial(lzma.LZMAFile, mode="wb")),
        Compression("zstd", ".zst", b"\x28\xb5\x2f\xfd", _read_zstd, _write_zstd),
    )
}
"""Kinds of compression by name."""


def find_compression(head: bytes) -> Compression | None:
    """The compression of data that begin with ``head``, if any."""
    return next((one for one in COMPRESSIONS.values() if head.startswith(one.magic)), None)


def refuse_compressed(name: str, error: Exception) -> NoReturn:
    """Raise a ``TableError`` for compressed data that end early or are damaged."""
    truncated = isinstance(error, EOFError) or "runcated" in str(error)
    what = "end early: the file was cut off" if truncated else f"are damaged ({error})"
    raise TableError(f"the compressed data {what}", file=name) from None


_CHUNK = 2**20
_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32",  # must precede utf-16, with whose mark it begins
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class TextStream(io.RawIOBase):
    """Text as UTF-8 without a byte order mark, validated on the way; counts quotation marks."""

    def __init__(self, raw: BinaryIO, encoding: str, name: str) -> None:
        self._raw, self._name, self._encoding = raw, name, encoding
        try:
            kind = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
            io.TextIOWrapper(io.BytesIO(), kind)  # refuses codecs that are not for text, like hex
            self._decoder = codecs.getincrementaldecoder(kind)()
        except LookupError:
            raise TableError(f"there is no text encoding {encoding!r}", file=name) from None
        self._ready, self._lines, self.quotes, self._start = b"", 1, 0, True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, and return the number of bytes, which is 0 at the end."""
        self.peek(1)
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes without consuming them; fewer at the end of the text."""
        while len(self._ready) < size:
            chunk = self._chunk()
            if chunk is None:
                break
            self._ready += chunk
        return self._ready[:size]

    def _chunk(self) -> bytes | None:
        """The next part of the text; None at the end."""
        try:
            data = self._raw.read(_CHUNK)
        except DAMAGED as error:
            refuse_compressed(self._name, error)
        wide = next((kind for mark, kind in _WIDE.items() if data.startswith(mark)), "")
        if self._start and wide not in codecs.lookup(self._encoding).name:
            problem = f"the text is {wide.upper()}: give the encoding {wide}"
            raise TableError(problem, file=self._name)
        self._start = False
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = self._lines + error.object[: error.start].count(b"\n")
            raise TableError(
                f"the byte 0x{error.object[error.start]:02x} in line {line:,} is not "
                f"{self._encoding}: give the encoding, such as cp1252 or latin-1",
                file=self._name,
            ) from None
        except UnicodeError as error:  # from stateful encodings
            problem = f"the text is not {self._encoding} ({error})"
            raise TableError(problem, file=self._name) from None
        if "\0" in text:
            line = self._lines + text[: text.index("\0")].count("\n")
            raise TableError(
                f"there is a NUL byte in line {line:,}: the file is damaged, is not text, or has "
                "the encoding utf-16",
                file=self._name,
            )
        self._lines += text.count("\n")
        self.quotes += text.count('"')
        return text.encode() if data or text else None
