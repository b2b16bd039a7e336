"""Download of one file: verified, retried within limits, and never half-written.

The bytes go to a temporary file beside the target and take its name only once they are complete,
checked and on disk. Whatever goes wrong, an interrupt included, the temporary file goes away.
"""

import contextlib
import itertools
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from http.client import HTTPException
from pathlib import Path
from typing import IO

from calipers._files import replacing
from calipers._progress import progress

ATTEMPTS = 3
FIRST_PAUSE = 1.0
"""Seconds before the second attempt; every later pause is twice as long."""
MAX_BYTES = 1 << 29
"""More than twice the largest file of the catalogue: an endless answer must not fill the disk."""
_CHUNK = 1 << 16


class TransferError(Exception):
    """The server could not be reached or did not deliver."""

    def __init__(self, message: str, *, transient: bool = True) -> None:
        super().__init__(message)
        self.transient = transient


def download(
    url: str, target: Path, *, check: Callable[[Path], None], timeout: float, verbose: int = 1
) -> None:
    """Fetch `url` into `target`, completely or not at all; its folder is made if missing.

    ``check`` is called with the complete temporary file, and what it raises ends the download. A
    server that is silent for ``timeout`` seconds counts as stalled. ``TransferError`` is raised if
    the last of `ATTEMPTS` attempts failed, or the first with an error that will not pass, such as a
    missing page.
    """
    if not url.startswith(("http://", "https://")):
        raise TransferError(f"{url!r} is not an http or https address", transient=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with replacing(target, wait=True) as file:
                _transfer(url, file, timeout=timeout, label=target.name, verbose=verbose)
                check(Path(file.name))
            return
        except TransferError as error:
            if attempt == ATTEMPTS or not error.transient:
                raise
        time.sleep(FIRST_PAUSE * 2 ** (attempt - 1))


def _transfer(url: str, file: IO[bytes], *, timeout: float, label: str, verbose: int) -> None:
    """Copy the answer of a server into an open file, showing progress on a terminal."""
    with contextlib.closing(_answer(url, timeout)) as answer:
        first = next(answer, (b"", 0, None))
        with progress(label, first[2], visible=verbose > 0) as report:
            for chunk, received, _ in itertools.chain([first], answer):
                if received > MAX_BYTES:
                    raise TransferError(f"{url} sends more than {MAX_BYTES} bytes", transient=False)
                file.write(chunk)
                report(len(chunk))
    file.flush()


def _answer(url: str, timeout: float) -> Generator[tuple[bytes, int, int | None], None, None]:
    """Pieces of the answer, each with the bytes so far and the bytes announced, if any were."""
    request = urllib.request.Request(url, headers={"User-Agent": "calipers"})  # noqa: S310
    received = 0
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310
            header = response.headers.get("Content-Length", "")
            total = int(header) if header.isdigit() else None
            while chunk := response.read1(_CHUNK):
                received += len(chunk)
                yield chunk, received, total
            if total is not None and received < total:
                raise TransferError(f"{url} ended after {received} of {total} bytes")
    except urllib.error.HTTPError as error:
        error.close()
        passing = error.code in (408, 425, 429) or error.code >= 500
        raise TransferError(
            f"{url} answered {error.code} {error.reason}", transient=passing
        ) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TransferError(f"{url} cannot be reached: {reason}") from error
