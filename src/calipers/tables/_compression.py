"""Compressed files: how to recognise, read and write each kind of compression."""

import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NoReturn

from calipers.tables._errors import TableError

DAMAGED = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
"""What reading damaged data raises."""


@dataclass(frozen=True)
class Compression:
    """One kind of compression."""

    name: str  #: What it is called.
    ending: str  #: Ending of the names of files, after that of their format.
    magic: bytes  #: First bytes of compressed data.
    #: Make a stream of plain bytes of one of compressed bytes, which stays open.
    open_to_read: Callable[[BinaryIO], Any]
    open_to_write: Callable[[BinaryIO], Any]


def _read_gzip(raw: BinaryIO) -> Any:
    import gzip

    return gzip.GzipFile(fileobj=raw)


def _write_gzip(raw: BinaryIO) -> Any:
    import gzip

    return gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0)


def _read_bz2(raw: BinaryIO) -> Any:
    import bz2

    return bz2.BZ2File(raw)


def _write_bz2(raw: BinaryIO) -> Any:
    import bz2

    return bz2.BZ2File(raw, "wb")


def _read_zstd(raw: BinaryIO) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")


def _write_zstd(raw: BinaryIO) -> Any:
    import pyarrow as pa

    return pa.CompressedOutputStream(pa.PythonFile(_Lasting(raw), "w"), "zstd")


class _Lasting:
    """A file that stays open when a writer is done with it."""

    closed = False

    def __init__(self, raw: BinaryIO) -> None:
        self.write, self.flush = raw.write, raw.flush

    def close(self) -> None:
        self.flush()


COMPRESSIONS = {
    one.name: one
    for one in (
        Compression("gzip", ".gz", b"\x1f\x8b", _read_gzip, _write_gzip),
        Compression("bz2", ".bz2", b"BZh", _read_bz2, _write_bz2),
        Compression("xz", ".xz", b"\xfd7zXZ\x00", lzma.LZMAFile, partial(lzma.LZMAFile, mode="wb")),
        Compression("zstd", ".zst", b"\x28\xb5\x2f\xfd", _read_zstd, _write_zstd),
    )
}
"""Kinds of compression by name."""


def find_compression(head: bytes) -> Compression | None:
    """The compression that data with these first bytes have, if any."""
    return next((one for one in COMPRESSIONS.values() if head.startswith(one.magic)), None)


def decompressed(raw: BinaryIO, compression: Compression) -> Any:
    """The content of a compressed stream."""
    return io.BufferedReader(compression.open_to_read(raw))


def refuse_compressed(name: str, error: Exception) -> NoReturn:
    """Say that compressed data end early or are damaged."""
    early = isinstance(error, EOFError) or "runcated" in str(error)
    what = "end early: the file was cut off" if early else f"are damaged ({error})"
    raise TableError(f"the compressed data {what}", file=name) from None
