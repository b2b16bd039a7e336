"""Requests that are wrong, large, slow or many: refused, within memory and time, and others served.

The server may have 512 MiB of addresses more than it starts with, of which half are its budget.
"""

import io
import json
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from calipers import load

from ._server import PREDICT, Server
from ._tally import FOLDERS, Part, Tally
from .bad_tables import damaged

MEMORY = 256 * 2**20
MANY = 16 * 2**20 - 200
NAMES = ("x0", "x1", "x2")
JSON, CSV = "application/json", "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
REFUSED = {400, 408, 413, 415, 422, 429, 503}


def arrow(columns: dict[str, Any], **options: Any) -> bytes:
    table, sink = pa.table(columns), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def numbers(rows: int, rng: np.random.Generator) -> dict[str, Any]:
    return {name: rng.normal(size=rows) for name in NAMES}


def good(rng: np.random.Generator, rows: int = 3) -> list[tuple[bytes, str]]:
    """Bodies that are answered."""
    values = numbers(rows, rng)
    table = np.stack(list(values.values()), axis=1)
    lines = "\n".join(",".join(map(str, row)) for row in table)
    return [
        (json.dumps({"rows": table.tolist(), "coverage": [0.5, 0.9]}).encode(), JSON),
        (f"x0,x1,x2\n{lines}\n".encode(), CSV),
        (arrow(values), ARROW),
    ]


def mutants(count: int, seed: int) -> Tally:
    """Good bodies with bytes changed."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with Server(max_memory=MEMORY) as server:
        for body, kind in good(rng):  # threads, and all that is loaded late
            server.status("POST", PREDICT, body, kind)
        server.limit(2 * MEMORY)
        for number in range(count):
            body, kind = good(rng)[rng.integers(3)]
            status = server.status("POST", PREDICT, damaged(body, rng), kind)
            where = f"{kind} mutant {number} of seed {seed}: status {status}"
            if status == 200:
                tally.add("answered")
            else:
                tally.check(status in REFUSED - {429, 503}, "refused", where)
        if server.status("GET", "/health") != 200:
            tally.wrong("no /health at the end")
    return tally


def bombs() -> dict[str, tuple[bytes, str]]:
    """Bodies that are small or allowed and stand for much."""

    def many(item: bytes, size: int) -> bytes:
        return b",".join([item] * (size // (len(item) + 1)))

    zeros = {f"x{i}": np.zeros(2**20) for i in range(32)}
    text = pa.array(["a" * 2**20])
    shared = pa.DictionaryArray.from_arrays(np.zeros(2_000, np.int8), text)
    return {
        "empty lists": (b'{"rows": [[%s]]}' % many(b"[]", MANY), JSON),
        "rows of lists": (b'{"rows": [%s]}' % many(b"[[],[]]", MANY), JSON),
        "empty rows": (b'{"rows": [%s]}' % many(b"{}", MANY), JSON),
        "depth": (b'{"rows": ' + b"[" * MANY, JSON),
        "texts": (b'{"rows": [%s]}' % many(b'["","",""]', MANY), JSON),
        "wide characters": (b'{"rows": [["%s"]]}' % ("\U0001f600".encode() * (MANY // 4)), JSON),
        "levels": (b'{"rows": [[1,2,3]], "quantiles": [%s]}' % many(b"0.5", MANY), JSON),
        "members": (
            json.dumps({"rows": [[0, 0, 0]] * 50_000, "density": 512, "members": True}).encode(),
            JSON,
        ),
        "one line": (b"a" * MANY, CSV),
        "columns": (b"," * MANY, CSV),
        "quotes": (b'x0,x1,x2\n"' + b'""' * (MANY // 2), CSV),
        "lines": (b"x0,x1,x2\n" + b"1,2,3\n" * (MANY // 6), CSV),
        "compressed Arrow": (arrow(zeros, compression="zstd"), ARROW),
        "shared texts": (arrow({**numbers(2_000, np.random.default_rng()), "t": shared}), ARROW),
        "nulls": (arrow({f"n{i}": pa.nulls(90_000) for i in range(900)}), ARROW),
        "many nulls": (arrow({"x0": pa.nulls(2**31 - 1)}), ARROW),
    }


def explosions(count: int, seed: int) -> Tally:
    """Those bodies, again and again, under a limit of addresses."""
    tally, rng = Tally(), np.random.default_rng(seed)
    known = bombs()
    with Server(max_memory=MEMORY) as server:
        for body, kind in good(rng, 20_000):  # as above
            server.status("POST", PREDICT, body, kind)
        server.limit(2 * MEMORY)
        for number in range(count):
            name = list(known)[number % len(known)]
            began = time.monotonic()
            status = server.status("POST", PREDICT, *known[name])
            tally.slowest = max(tally.slowest, time.monotonic() - began)
            tally.check(status in REFUSED, "refused", f"{name}: status {status}")
            if server.status("GET", "/health") != 200:
                tally.wrong(f"no /health after {name}")
                break
        if server.status("POST", PREDICT, *good(rng)[0]) != 200:
            tally.wrong("a good request is no longer answered")
    return tally


HEADERS = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % PREDICT.encode()


def connections(count: int, seed: int) -> Tally:
    """Sockets that say nothing, little, too much, or read nothing, while others ask."""
    tally, rng = Tally(), np.random.default_rng(seed)
    limits = {"max_connections": 40, "idle_timeout": 2.0, "timeout": 5.0, "max_requests": 32}
    body, kind = good(rng)[0]
    with Server(max_memory=MEMORY, **limits) as server, ExitStack() as stack:
        server.limit(2 * MEMORY)
        begun: list[socket.socket] = []
        for number in range(count):
            with suppress(OSError):
                link = stack.enter_context(server.socket())
                link.settimeout(0.2)
                begun.append(link)
                way = number % 5
                if way == 1:
                    link.sendall(HEADERS)
                elif way == 2:
                    link.sendall(HEADERS + b"X: " + b"a" * 10**6)
                elif way == 3:
                    length = b"Content-Type: application/json\r\nContent-Length: 9999999\r\n\r\n"
                    link.sendall(HEADERS + length + b" " * 10**5)
                elif way == 4:
                    link.sendall(rng.bytes(1000))
            if number % 20 == 0:
                status = server.status("GET", "/health")
                if status != 200:
                    tally.wrong(f"/health: {status} with {number} connections")
            tally.add("held open or broken")
        served = server.status("POST", PREDICT, body, kind)
        tally.check(served == 200, "answered meanwhile", f"status {served} to a good request")
        end = time.monotonic() + 30
        while server.files() > 80 and time.monotonic() < end:
            time.sleep(0.1)
        tally.check(server.files() <= 80, "cut", f"{server.files()} files open after 30 s")
    return tally


SIZES = [0.0, 1.0, -3.5, 5e-324, 1e308, -1e308]


def _labelled(server: Server, rng: np.random.Generator) -> int:
    """Ask for predictions and post labels of any size for them, perhaps many times over."""
    link = server.connection()

    def post(path: str, body: Any) -> tuple[int, Any]:
        link.request("POST", path, json.dumps(body), {"Content-Type": JSON})
        response = link.getresponse()
        return response.status, json.loads(response.read())

    rows = rng.normal(size=(rng.choice([1, 1, 50]), len(NAMES))).tolist()
    key = post(PREDICT, {"rows": rows})[1]["id"]
    label = {"id": key, "y": rng.choice(SIZES, len(rows)).tolist()}
    status, _ = post("/v1/models/default/labels", {"labels": [label] * rng.choice([1, 100])})
    link.close()
    return status


def floods(count: int, seed: int) -> Tally:
    """Labels by eight callers at once, from which a model learns: it can be loaded and predicts."""
    tally = Tally()
    with TemporaryDirectory() as root:
        folder = shutil.copytree(FOLDERS / "default", Path(root) / "default")
        with Server(folder, adapt=True, max_memory=MEMORY) as server, ThreadPoolExecutor(8) as pool:
            random = [np.random.default_rng([seed, number]) for number in range(count)]
            for status in pool.map(lambda rng: _labelled(server, rng), random):
                tally.check(status == 200, "learned from", f"labels of seed {seed}: {status}")
            if server.status("GET", "/health") != 200:
                tally.wrong("no /health at the end")
        found = load(folder).set_params(n_jobs=1).predict_quantiles(np.zeros((3, 3)), [0.1, 0.9])
        if not np.isfinite(found).all():
            tally.wrong(f"what was learned predicts {found}")
    return tally


PARTS = (
    Part("requests", "JSON, CSV and Arrow with bytes changed", 3000, mutants, 40, 1000),
    Part("requests", "bodies that stand for gigabytes", 96, explosions, 0),
    Part("requests", "sockets that are idle, slow, endless or garbage", 1000, connections, 60),
    Part("requests", "labels of any size by eight callers, with `--adapt`", 400, floods, 10),
)
