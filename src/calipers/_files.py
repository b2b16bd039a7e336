"""Atomic writes of files, locks against concurrent writers, and the cache folder.

`replacing` writes a file under a temporary name in the same folder, flushes it to disk, and renames
it. A reader sees the old bytes or the new ones; a process killed at any moment leaves no partial
file. Models, predictions, reports and caches are written this way. Scratch files without a name are
not, nor files to which `append_to` adds lines (the store of a search, ``calipers watch --out``).
"""

import errno
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import platformdirs

if sys.platform != "win32":
    import fcntl


def cache_folder() -> Path:
    """Folder of downloads and compiled programs.

    The environment variable ``CALIPERS_CACHE`` if it is set, otherwise the folder ``calipers`` in
    the system's cache folder: ``$XDG_CACHE_HOME`` or ``~/.cache``, ``~/Library/Caches`` on macOS,
    ``%LOCALAPPDATA%`` on Windows.
    """
    if folder := os.environ.get("CALIPERS_CACHE"):
        return Path(folder)
    return platformdirs.user_cache_path("calipers", appauthor=False, opinion=False)


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file atomically and flush it to disk."""
    with replacing(path) as file:
        file.write(content)


def append_to(path: str | os.PathLike[str], content: bytes, start: int) -> int:
    """Write bytes from the offset ``start`` of a file on, flushed to disk; return its new length.

    Those that were there, left by a killed process, are cut off. A missing file is created.
    """
    with Path(path).open("ab") as file:
        file.truncate(start)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


@contextmanager
def replacing(
    path: str | os.PathLike[str], *, wait: bool = False, race: bool = False, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Write a file that appears under its name, complete and on disk, when the block ends.

    If the block fails, the temporary file is removed. Its name, the ``name`` of the file object, is
    derived from the final one, so that the next attempt overwrites what a killed process leaves.
    Raises ``BlockingIOError`` if another process is writing the same file, unless ``wait`` is set,
    or ``race``, with which each writes under a temporary name of its own and the last one stays.
    A pipe or a device is not replaced, but written to.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    require_folder(path)
    with _open_part(path, wait, race, mode) as file:
        temporary = Path(file.name)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if sys.platform != "win32":  # Windows cannot rename an open file
                temporary.replace(path)
        except BaseException:
            with suppress(OSError):  # Windows cannot remove an open file
                temporary.unlink(missing_ok=True)
            raise
    if sys.platform == "win32":
        temporary.replace(path)
    with suppress(OSError):  # Windows cannot open a folder, some file systems cannot sync one
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def require_folder(path: Path) -> None:
    """Raise an error that names the folder of a file to be written, if there is no such folder."""
    folder = path.resolve().parent
    if not folder.exists():
        raise FileNotFoundError(errno.ENOENT, "There is no such folder", str(folder))
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "This is not a folder", str(folder))


def _open_part(path: Path, wait: bool, race: bool, mode: int) -> BinaryIO:
    """Open the temporary file of `path`, empty and locked; without locks, under a unique name."""

    def opened(name: str) -> BinaryIO:
        def opener(file: str, _: int) -> int:
            return os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), mode)

        return open(path.with_name(name), "wb", opener=opener)

    while not race:
        file = opened(f".{path.name}.part")
        try:
            locks = _lock(file.fileno(), wait)
            # The previous writer may have renamed the file between the two calls above.
            ours = not locks or os.path.samestat(Path(file.name).stat(), os.fstat(file.fileno()))
        except FileNotFoundError:
            ours = False
        except BlockingIOError:
            file.close()
            raise BlockingIOError(f"another process is writing {path}") from None
        except BaseException:
            file.close()
            raise
        if ours and locks:
            file.truncate()
            return file
        file.close()
        if not locks:
            with suppress(OSError):
                Path(file.name).unlink()
            break
    return opened(f".{path.name}.{secrets.token_hex(8)}.part")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a folder, or a file that is created if missing, against other writers.

    Windows and some network file systems have no such locks; there the block runs without.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor, wait=True)
        yield
    finally:
        with suppress(OSError):  # closing does not unlock while a forked child has a copy
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    """Lock an open file; return whether the file system supports it."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
