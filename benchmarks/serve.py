"""Load on a server of one model, on loopback, compared with predict_interval in this process.

    python benchmarks/serve.py [--seconds 5] [--soak 60] [--paper]

13 inputs, the default model (10 networks of 128-128 over embeddings, calibrated) or the paper's.
Every load is limited in time; the server is a separate process and is stopped at the end.
"""

import argparse
import asyncio
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from calipers import IntervalRegressor

CONCURRENCY = (1, 4, 16, 64)
NAMES = [f"x{i}" for i in range(13)]


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--soak", type=float, default=60.0, help="seconds of the soak")
    parser.add_argument("--paper", action="store_true", help="the paper's model")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(500, 13)), columns=NAMES)
    y = X["x0"] + rng.normal(0, 0.3, 500)
    if options.paper:
        model = IntervalRegressor.paper(epochs=100, random_state=0, verbose=0).fit(X, y)
    else:
        model = IntervalRegressor(epochs=20, random_state=0, verbose=0).fit(X, y)
    many = pd.DataFrame(rng.normal(size=(1000, 13)), columns=NAMES)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        process, address = start(Path(folder) / "model")
        try:
            loads(model, many, address, options.seconds)
            soak(many, address, options.soak)
        finally:
            process.terminate()
            process.wait()


def start(folder):
    """Start a server and return it with its address once it is ready."""
    command = [sys.executable, "-m", "calipers.cli", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().split()[-1]
    while True:
        try:
            urllib.request.urlopen(f"{address}/ready")
            return process, address
        except OSError:
            time.sleep(0.1)


def loads(model, many, address, seconds):
    """Every kind of request at every concurrency."""
    print(
        "| what | at a time | rows per second | of in-process | p50, ms | p99, ms | rows a batch |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    stream = io.BytesIO()
    table = pa.Table.from_pandas(many, preserve_index=False)
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    arrow = ("application/vnd.apache.arrow.stream", stream.getvalue())
    requests = {
        1: {"JSON": as_json(many.iloc[:1])},
        1000: {"JSON": as_json(many), "Arrow": arrow},
    }
    for rows, kinds in requests.items():
        inside, rate = timed(rows, lambda: in_process(model, many.iloc[:rows], seconds))  # noqa: B023
        show(f"{rows:,} row{'s' * (rows > 1)}, in process", 1, inside, rate)
        for name, (kind, body) in kinds.items():
            for concurrency in CONCURRENCY:
                before = batches(address)
                work = load(address, kind, body, concurrency, seconds)
                taken, found = timed(rows, lambda: asyncio.run(work))  # noqa: B023
                after = batches(address)
                size = (after[0] - before[0]) / (after[1] - before[1])
                show(
                    f"{rows:,} row{'s' * (rows > 1)}, {name}",
                    concurrency,
                    taken,
                    found,
                    found / rate,
                    size,
                )


def timed(rows, work):
    """Times of requests, and rows per second until the last answer."""
    began = time.perf_counter()
    taken = work()
    return taken, len(taken) * rows / (time.perf_counter() - began)


def as_json(frame):
    """A request as its type and body."""
    return "application/json", json.dumps({"rows": frame.to_numpy().tolist()}).encode()


def in_process(model, frame, seconds):
    """Times of calls one after the other."""
    model.predict_interval(frame)
    taken, end = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        model.predict_interval(frame)
        taken.append(time.perf_counter() - began)
    return taken


async def load(address, kind, body, concurrency, seconds):
    """Times of requests, each connection sending one after the other."""
    host, port = address.removeprefix("http://").split(":")
    head = (
        f"POST /v1/models/model/predict HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    taken, end = [], time.perf_counter() + seconds

    async def one():
        reader, writer = await asyncio.open_connection(host, int(port))
        while (began := time.perf_counter()) < end:
            writer.write(head.encode() + body)
            response = await reader.readuntil(b"\r\n\r\n")
            if not response.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(response)
            length = int(re.search(rb"content-length: (\d+)", response).group(1))
            await reader.readexactly(length)
            taken.append(time.perf_counter() - began)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one() for _ in range(concurrency)))
    return taken


def metric(address, name):
    """Read a number from the server's metrics."""
    text = urllib.request.urlopen(f"{address}/metrics").read().decode()
    return float(re.search(rf"^{name}\S* (\S+)$", text, re.MULTILINE).group(1))


def batches(address):
    """Rows predicted so far, and batches."""
    return tuple(metric(address, f"calipers_batch_rows_{part}") for part in ("sum", "count"))


def show(what, concurrency, taken, rate, share=None, batch=None):
    """Print a line of the table."""
    part = "" if share is None else f"{share:.2f}"
    size = "" if batch is None else f"{batch:,.1f}"
    p50, p99 = np.quantile(taken, [0.5, 0.99]) * 1e3
    times = f"{p50:.1f} | {p99:.1f}"
    print(f"| {what} | {concurrency} | {rate:,.0f} | {part} | {times} | {size} |", flush=True)


def soak(many, address, seconds):
    """Memory of the server under a steady load."""
    kind, body = as_json(many.iloc[:1])
    found = []
    requests = 0
    for _ in range(6):
        requests += len(asyncio.run(load(address, kind, body, 16, seconds / 6)))
        found.append(metric(address, "process_resident_memory_bytes") / 1e6)
    sizes = ", ".join(f"{size:,.0f}" for size in found)
    print(f"\nsoak of {seconds:g} s, {requests:,} requests: {sizes} MB after each sixth")


if __name__ == "__main__":
    main()
