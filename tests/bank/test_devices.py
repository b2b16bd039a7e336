"""Several devices: chunks of a bank are spread over them, and the networks are the same."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import jax
import numpy as np
from calipers.bank import Plan, Program, Settings, Table, train, _train
from calipers.networks import DenseFactory
from calipers.objectives import LOSSES

used, run = set(), _train.run

def seen(*arguments):
    used.add(jax.config.jax_default_device)
    return run(*arguments)

_train.run = seen
X = np.random.default_rng(0).normal(size=(100, 2))
table = Table.from_arrays(X, X[:, 0])
program = Program(DenseFactory((4,)), LOSSES["mse"], 2, 64, "constant")
rows, short = np.arange(100), Settings(epochs=3)
plans = [Plan(seed, rows, settings=short) for seed in range(10)]  # two chunks
spread = train(program, table, plans, n_jobs=2)
assert used == set(jax.devices()) and len(used) == 2, used
with jax.default_device(jax.devices()[0]):
    alone = train(program, table, plans, n_jobs=2)
assert used == set(jax.devices())
assert all(map(np.array_equal, spread.weights, alone.weights))
assert np.array_equal(spread.predict(X)["point"], alone.predict(X)["point"])
"""


@pytest.mark.long
def test_chunks_are_spread_over_devices(tmp_path):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "CALIPERS_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
