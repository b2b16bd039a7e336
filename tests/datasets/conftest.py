"""A made-up dataset and a local server that can fail in every way a real one does."""

import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from calipers.datasets import CATALOGUE, Entry, _download
from calipers.datasets._raw_files import values_sha256

Behaviour = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's folder, cache, mirror or proxy, and none waits between retries."""
    for name in ("CALIPERS_DATA", "CALIPERS_MIRROR", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CALIPERS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_download, "FIRST_PAUSE", 0.0)


@dataclasses.dataclass
class Tiny:
    entry: Entry
    X: np.ndarray
    y: np.ndarray
    text: bytes

    @property
    def cached(self) -> Path:
        return Path(os.environ["CALIPERS_CACHE"], "datasets", "tiny", "data.txt")

    def cache_files(self) -> list[Path]:
        return [path for path in self.cached.parents[2].rglob("*") if path.is_file()]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A dataset of 30 rows and 2 inputs, which is in the catalogue during a test."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    rows = np.column_stack([X, y]).tolist()
    text = "".join(" ".join(map(repr, row)) + "\n" for row in rows).encode()
    entry = dataclasses.replace(
        CATALOGUE["yacht"],
        name="tiny",
        rows=30,
        feature_names=("a", "b"),
        target_column=2,
        url="http://127.0.0.1:9/never-served/data.txt",
        sha256=hashlib.sha256(text).hexdigest(),
        values_sha256=values_sha256(X, y),
    )
    monkeypatch.setitem(CATALOGUE, "tiny", entry)
    return Tiny(entry, X, y, text)


class Server:
    """Handles each request by the next of its behaviours, and all further ones by the last."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.behaviours: list[Behaviour] = []
        self.requests: list[str] = []
        self.released = threading.Event()
        self.arrived = threading.Condition()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        with self.arrived:
            turn = min(len(self.requests), len(self.behaviours) - 1)
            self.requests.append(handler.path)
            self.arrived.notify_all()
        self.behaviours[turn](handler)

    def wait_for_requests(self, count: int) -> None:
        """Wait for requests that the client may have abandoned."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, timeout=60)

    def send(self, body: bytes, *, status: int = 200, announced: int | None = None) -> Behaviour:
        def behaviour(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            handler.send_header("Content-Length", str(announced or len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        return behaviour

    def stall(self, handler: BaseHTTPRequestHandler) -> None:
        self.released.wait(60)

    def stall_midway(self, handler: BaseHTTPRequestHandler) -> None:
        self.send(b"1 2 3\n", announced=1000)(handler)
        handler.wfile.flush()
        self.released.wait(60)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A mirror on this machine, already set as CALIPERS_MIRROR."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            script.answer(self)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        script = Server(f"http://127.0.0.1:{http.server_port}")
        monkeypatch.setenv("CALIPERS_MIRROR", script.base + "/")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield script
        script.released.set()
        http.shutdown()
        thread.join(60)
