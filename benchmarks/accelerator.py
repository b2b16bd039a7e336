"""Training on an accelerator: time, and the share of it that the device is busy.

    python benchmarks/accelerator.py [--profile]

Two banks: 100 networks at the paper's Boston setting, and 5 networks on a synthetic table of the
size of YearPredictionMSD (515,345 rows of 90 inputs, two hidden layers of 100, batches of 1,000,
40 epochs). Times include compilation, and stand beside those without it. With ``--profile`` a few
epochs more tell how many kernels there are and how long they take.
"""

import argparse
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from calipers.bank import Plan, Program, Settings, Table, train
from calipers.networks import DenseFactory
from calipers.objectives import LOSSES


class Busy:
    """Mean utilisation of the first GPU while the block runs, by nvidia-smi."""

    def __enter__(self):
        self.share = float("nan")
        self.process = None
        if shutil.which("nvidia-smi"):
            query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "50"]
            self.process = subprocess.Popen(
                ["nvidia-smi", *query], stdout=subprocess.PIPE, text=True
            )
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            lines = self.process.communicate()[0].splitlines()
            values = [float(line) for line in lines if line.strip().isdigit()]
            self.share = np.mean(values) / 100 if values else float("nan")


def boston(epochs=662):
    """Bank of 100 at the Boston setting."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(455, 13))
    table = Table.from_arrays(X, X[:, 0] + rng.normal(0, 0.3, 455))
    program = Program(DenseFactory((50, 50)), LOSSES["qd+"], 13)
    loss = {"coverage_weight": 0.9974, "point_weight": 0.51}
    settings = Settings(learning_rate=0.009, epochs=epochs, loss=loss)
    plans = [Plan(seed, np.arange(455), settings=settings) for seed in range(100)]
    return program, table, plans


def year(epochs=40):
    """Five networks on a table of the size of YearPredictionMSD."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((515_345, 90), dtype=np.float32)
    table = Table.from_arrays(X, X[:, 0] + np.sin(X[:, 1]) + rng.normal(0, 0.3, len(X)))
    program = Program(DenseFactory((100, 100)), LOSSES["qd+"], 90, batch_size=1000)
    loss = {"coverage_weight": 0.999, "point_weight": 0.1}
    settings = Settings(learning_rate=0.005, decay_rate=0.99, epochs=epochs, loss=loss)
    plans = [Plan(seed, np.arange(463_715), settings=settings) for seed in range(5)]
    return program, table, plans


def kernels(make, epochs):
    """Print how many kernels and copies a step has, and the device's time for them."""
    program, table, plans = make(epochs)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            train(program, table, plans, n_jobs=-1)
        (path,) = Path(folder).rglob("*.xplane.pb")
        found = [
            (event.name, event.duration_ns / 1e3)
            for plane in jax.profiler.ProfileData.from_file(str(path)).planes
            for line in plane.lines
            for event in line.events
            if "GPU" in plane.name and "Stream" in line.name
        ]
    steps = epochs * -(-len(plans[0].rows) // program.batch_size)
    looks = sum(name == "MemcpyD2H" for name, _ in found)
    print(
        f"\n{len(found) / steps:.0f} kernels a step, {sum(us for _, us in found) / steps:.0f} us; "
        f"{looks / steps:.1f} copies to the host a step"
    )


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", action="store_true")
    profile = parser.parse_args().profile
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}\n")
    print("| bank | first run, s | second run, s | us per network-step | device busy |")
    print("|---|---:|---:|---:|---:|")
    for name, make in (("100 networks, Boston", boston), ("5 networks, Year-sized", year)):
        program, table, plans = make()
        steps = sum(-(-len(p.rows) // program.batch_size) * p.settings.epochs for p in plans)
        seconds = []
        for _ in range(2):
            with Busy() as busy:
                began = time.perf_counter()
                train(program, table, plans, n_jobs=-1)
                seconds.append(time.perf_counter() - began)
        cost = seconds[1] / steps * 1e6
        print(f"| {name} | {seconds[0]:.1f} | {seconds[1]:.1f} | {cost:.2f} | {busy.share:.0%} |")
        if profile:
            kernels(make, 40 if make is boston else 2)


if __name__ == "__main__":
    main()
