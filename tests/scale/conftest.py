"""Clusters of several processes on this machine, and work for them."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor
from calipers.networks import MLP
from calipers.optimizers import Adam

TINY = {
    "cv": 2,
    "loss": "normal",
    "network": MLP(hidden_layers=(8,), activation="relu", frequencies=0),
    "optimizer": Adam(averaging=0.0),
    "patience": None,
    "epochs": 20,
    "random_state": 0,
}


@pytest.fixture(scope="session")
def rows():
    """Inputs and targets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, X[:, 0] + rng.normal(0, 0.3, 300)


@pytest.fixture(scope="session")
def model(rows):
    """A model of them, fitted on a frame."""
    X, y = rows
    frame = pd.DataFrame(X, columns=list("abc"))
    return IntervalRegressor(n_networks=2, **TINY).fit(frame, y)


@pytest.fixture(scope="session")
def plain(rows):
    """The same, fitted on an array."""
    return IntervalRegressor(n_networks=2, **TINY).fit(*rows)


@pytest.fixture(scope="session")
def saved(model, tmp_path_factory):
    """Its folder."""
    folder = tmp_path_factory.mktemp("models") / "model"
    model.save(folder)
    return folder


@pytest.fixture(scope="session")
def client():
    """A client of a cluster of two processes."""
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options, memory_limit=0) as cluster, Client(cluster) as client:
        yield client


class Machines:
    """A scheduler and workers as processes of their own, which can be killed."""

    def __init__(self, folder, workers=2):
        self.folder, self.count = folder, 0
        self.workers = []
        self.start(workers)

    def start(self, workers=2):
        """Start a scheduler and its workers."""
        self.count += 1
        file = self.folder / f"scheduler-{self.count}.json"
        options = ["--port", "0", "--no-dashboard", "--host", "127.0.0.1"]
        self.scheduler = self._run("scheduler", *options, "--scheduler-file", file)
        wait_until(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        self.address = json.loads(file.read_text())["address"]
        self.workers = [self.add_worker() for _ in range(workers)]

    def add_worker(self):
        """Start one more worker."""
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0"]
        return self._run("worker", self.address, *options)

    def _run(self, *arguments):
        command = [sys.executable, "-m", "dask", *map(str, arguments)]
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder
        )

    def stop(self):
        """End all processes."""
        for process in (self.scheduler, *self.workers):
            process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path_factory):
    """A scheduler and two workers."""
    found = Machines(tmp_path_factory.mktemp("machines"))
    yield found
    found.stop()


def kill(process):
    """Kill a process that a test has started."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(condition, seconds=300):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
