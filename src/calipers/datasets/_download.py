"""Download of one file, which is verified, retried a few times, and never left half-written.

The bytes go to a temporary file next to the target, which gets the target's name once it is
complete, checked and on disk. On any error or interrupt, the temporary file is removed.
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
FIRST_PAUSE = 1.0  # seconds before the second attempt; every later pause is twice as long
MAX_BYTES = 1 << 29  # over twice the largest file: an endless response must not fill the disk
_CHUNK = 1 << 16


class TransferError(Exception):
    """The server could not be reached or did not deliver."""

    def __init__(self, message: str, *, transient: bool = True) -> None:
        super().__init__(message)
        self.transient = transient


def download(
    url: str, target: Path, *, check: Callable[[Path], None], timeout: float, verbose: int = 1
) -> None:
    """Fetch `url` into `target`, completely or not at all; creates the folder if needed.

    ``check`` is called with the complete temporary file; an exception that it raises ends the
    download. A server that is silent for ``timeout`` seconds counts as stalled. ``TransferError``
    is raised after `ATTEMPTS` failed attempts, or after one with a permanent error, such as a
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
    """Copy the response of a server into an open file, showing progress on a terminal."""
    with contextlib.closing(_response(url, timeout)) as response:
        first = next(response, (b"", 0, None))
        with progress(label, first[2], visible=verbose > 0) as report:
            for chunk, received, _ in itertools.chain([first], response):
                if received > MAX_BYTES:
                    raise TransferError(f"{url} sends more than {MAX_BYTES} bytes", transient=False)
                file.write(chunk)
                report(len(chunk))
    file.flush()


def _response(url: str, timeout: float) -> Generator[tuple[bytes, int, int | None], None, None]:
    """Chunks of the response, each with the bytes so far and the total, if it was announced."""
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
        transient = error.code in (408, 425, 429) or error.code >= 500
        raise TransferError(
            f"{url} answered {error.code} {error.reason}", transient=transient
        ) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise TransferError(f"{url} cannot be reached: {reason}") from error
