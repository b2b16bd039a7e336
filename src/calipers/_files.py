"""Files that appear whole or not at all, locks that keep other writers out, and the cache folder.

Every file that the library writes goes through `replacing`: under a temporary name beside the final
one, to the disk, and into place in one step. A reader sees the old bytes or the new ones, a process
killed at any moment leaves no half of either.
"""

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
    """Folder that keeps downloads and compiled programs.

    ``CALIPERS_CACHE`` if that environment variable is set, otherwise the folder ``calipers`` where
    the system wants caches: ``$XDG_CACHE_HOME`` or ``~/.cache``, ``~/Library/Caches`` on macOS,
    ``%LOCALAPPDATA%`` on Windows.
    """
    if own := os.environ.get("CALIPERS_CACHE"):
        return Path(own)
    return platformdirs.user_cache_path("calipers", appauthor=False, opinion=False)


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Put a file in place in one step and see it to the disk."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(
    path: str | os.PathLike[str], *, wait: bool = False, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Write a file that appears under its name, whole and on the disk, when the block ends.

    If the block fails, nothing of it stays. The temporary name, which is the file's ``name``,
    follows from the final one, so what a kill leaves behind is overwritten by the next attempt.
    Raises ``BlockingIOError`` if another process is writing the same file, unless told to wait.
    A pipe or a device stays what it is, and is written to.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    with _open_part(path, wait, mode) as file:
        temporary = Path(file.name)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if sys.platform != "win32":  # which moves no open file
                temporary.replace(path)
        except BaseException:
            with suppress(OSError):  # Windows removes no open file
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


def _open_part(path: Path, wait: bool, mode: int) -> BinaryIO:
    """Open the temporary file of `path`, empty and locked; with a name of its own without locks."""

    def opened(name: str) -> BinaryIO:
        def opener(file: str, _: int) -> int:
            return os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), mode)

        return open(path.with_name(name), "wb", opener=opener)

    while True:
        file = opened(f".{path.name}.part")
        try:
            locks = _lock(file.fileno(), wait)
            # The writer before may have put the file in place between the two calls above.
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
            return opened(f".{path.name}.{secrets.token_hex(8)}.part")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for other writers and keep them out of a folder, or of a file that is made if missing.

    Windows and some network file systems have no such locks; there the block just runs.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor, wait=True)
        yield
    finally:
        with suppress(OSError):  # closing is not enough while a forked child has a copy
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    """Lock an open file; whether the file system can."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
