"""Small models, and servers of them."""

import io
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from calipers import IntervalRegressor
from calipers.networks import MLP
from calipers.preprocessing import TableEncoder
from calipers.serve import ServerSettings, create_app

SMALL = {
    "n_networks": 2,
    "cv": 2,
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "epochs": 20,
    "patience": None,
    "random_state": 0,
    "verbose": 0,
}


def plain_table(rows=120):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-2, 2, (rows, 2)), columns=["speed", "load"])
    return X, pd.Series(X["speed"] ** 2 + rng.normal(0, 0.3, rows), name="wear")


def mixed_table(rows=150):
    rng = np.random.default_rng(1)
    size = rng.uniform(20, 200, rows)
    kind = rng.choice(["flat", "house", "loft"], rows)
    table = pd.DataFrame(
        {
            "size": size,
            "kind": kind,
            "garden": rng.random(rows) < 0.4,
            "built": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(1900, 2020, rows)),
            "sold": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 900, rows), unit="D"),
            "country": "Norway",
        }
    )
    price = 30 * size + 500 * (kind == "house") + rng.normal(0, 200, rows)
    return table, pd.Series(price, name="price")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Model folders: plain numbers, rows in groups, a mixed table, one coverage, points alone."""
    root = tmp_path_factory.mktemp("models")
    X, y = plain_table()
    IntervalRegressor(**SMALL).fit(X, y).save(root / "plain")
    groups = np.arange(len(X)) % 10
    IntervalRegressor(coverage=0.8, **SMALL).fit(X, y, groups=groups).save(root / "grouped")
    table, price = mixed_table()
    IntervalRegressor(preprocessor=TableEncoder(), **SMALL).fit(table, price).save(root / "homes")
    bounds = IntervalRegressor.load(root / "plain").set_params(aggregation="sem", cv=None)
    bounds.ensemble_ = replace(bounds.ensemble_, aggregation="sem", calibrations=())
    bounds.save(root / "bounds")
    IntervalRegressor(**SMALL | {"loss": "mse", "cv": None}).fit(X, y).save(root / "points")
    return root


@pytest.fixture(scope="session")
def served(folder):
    """The models, whose predictions the tests compare with the served ones."""
    return {path.name: IntervalRegressor.load(path) for path in folder.iterdir()}


@pytest.fixture(scope="session")
def tables():
    """Training tables of two of the models."""
    return {"plain": plain_table()[0], "homes": mixed_table()[0]}


class Client(TestClient):
    """A client with a method for each route."""

    def predict(self, model="plain", **body):
        return self.post(f"/v1/models/{model}/predict", json=body)

    def table(self, content, kind="text/csv", model="plain", accept="*/*", **query):
        headers = {"Content-Type": kind, "Accept": accept}
        path = f"/v1/models/{model}/predict"
        return self.post(path, params=query, content=content, headers=headers)

    def label(self, *labels, model="plain"):
        return self.post(f"/v1/models/{model}/labels", json={"labels": list(labels)})


def connect(folder, *names, **settings):
    app = create_app([folder / name for name in names], ServerSettings(**settings))
    return Client(app, base_url="http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="session")
def arrow():
    """A function that writes frames as Arrow IPC."""

    def write(frame, *, file=False, **options):
        found = pa.Table.from_pandas(frame, preserve_index=False)
        sink = io.BytesIO()
        make = pa.ipc.new_file if file else pa.ipc.new_stream
        with make(sink, found.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(found)
        return sink.getvalue()

    return write


@pytest.fixture(scope="session")
def client(folder):
    with connect(folder, "plain", "homes", "bounds", "points") as client:
        yield client


@pytest.fixture
def make_client(folder):
    """Clients of servers with settings of their own."""
    made = []

    def make(*names, **settings):
        client = connect(folder, *(names or ("plain",)), **settings)
        made.append(client)
        return client.__enter__()

    yield make
    for client in made:
        client.__exit__(None, None, None)


SERVER = """
import sys
from calipers.serve import ServerSettings, create_app, run
settings = ServerSettings(**eval(sys.argv[2]))
run(create_app([sys.argv[1]], settings), settings, port=0, notify=lambda a: print(a, flush=True))
"""


class Server:
    """A server process that may not have much more memory than it started with."""

    def __init__(self, folder, *, stderr=False, **settings):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(folder), repr(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr else None,
            text=True,
            env={**os.environ, "MALLOC_ARENA_MAX": "2"},
        )
        self.address = self.process.stdout.readline().strip()
        self.client = httpx.Client(base_url=self.address, timeout=60)
        self.wait_until("/ready", 200)

    def wait_until(self, path, status):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.client.get(path).status_code == status:
                return
            time.sleep(0.05)
        raise TimeoutError(path)

    def status(self, name):
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])

    def limit(self, size):
        """Allow the process this many more bytes of address space."""
        import resource

        most = self.status("VmSize") + size
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (most, most))

    def post(self, content, kind, path="predict", **query):
        """Status and the first words of an answer, which must not take long."""
        url = f"/v1/models/plain/{path}"
        began = time.monotonic()
        response = self.client.post(
            url, content=content, headers={"Content-Type": kind}, params=query
        )
        assert time.monotonic() - began < 30  # on a machine that others share
        return response.status_code, response.text[:500]

    def close(self):
        self.client.close()
        self.process.kill()
        return self.process.communicate()[1]


@pytest.fixture(scope="session")
def start_server(folder):
    """Server processes with settings of their own."""
    made = []

    def start(**settings):
        made.append(Server(folder / "plain", **settings))
        return made[-1]

    yield start
    for server in made:
        server.close()
