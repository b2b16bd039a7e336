"""A server process to attack, and what it takes of the machine."""

import ctypes
import http.client
import os
import resource
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._forks import ended, fork
from ._tally import FOLDERS

PREDICT = "/v1/models/default/predict"
ARENA_MAX = -8  # of mallopt; by default each thread takes 64 MiB of addresses for its own arena


def memory(process: int, name: str = "VmRSS") -> int:
    """Bytes of a process, by a name of Linux."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


class Server:
    """A server in a child process, on a port of its own.

    Parameters
    ----------
    folder : Path
        A model's, which is served under its name.
    settings : any
        Of ``calipers.serve.ServerSettings``.
    """

    def __init__(self, folder: Path = FOLDERS / "default", **settings: Any) -> None:
        out, into = os.pipe()

        def serve() -> None:
            ctypes.CDLL(None).mallopt(ARENA_MAX, 2)  # MALLOC_ARENA_MAX is read before a fork
            from calipers.serve import ServerSettings, create_app, run

            given = ServerSettings(**settings)
            app = create_app([folder], given)
            run(app, given, port=0, notify=lambda a: os.write(into, a.encode() + b"\n") and None)

        self.process = fork(serve)
        os.close(into)
        with os.fdopen(out) as pipe:
            self.host, self.port = pipe.readline().strip().removeprefix("http://").split(":")
        end = time.monotonic() + 120
        while self.status("GET", "/ready") != 200:
            if time.monotonic() > end:
                raise TimeoutError("the server does not become ready")
            time.sleep(0.05)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, int(self.port), timeout=60)

    def socket(self) -> socket.socket:
        return socket.create_connection((self.host, int(self.port)), timeout=60)

    def status(self, method: str, path: str, body: Any = None, kind: str = "") -> int:
        """Status of one answer; 0 if the server cuts the connection."""
        link = self.connection()
        try:
            link.request(method, path, body, {"Content-Type": kind} if kind else {})
            response = link.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            link.close()

    def memory(self, name: str = "VmRSS") -> int:
        """Bytes, by a name of Linux."""
        return memory(self.process, name)

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process}/fd").iterdir()))

    def limit(self, size: int) -> None:
        """Let the process have so many bytes of addresses more."""
        most = self.memory("VmSize") + size
        resource.prlimit(self.process, resource.RLIMIT_AS, (most, most))

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        ended(self.process)
