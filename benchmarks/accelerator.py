"""Training on an accelerator: time, and the fraction of it that the device is busy.

    python benchmarks/accelerator.py [--networks 100 500 1500] [--no-year] [--unrolled]

Banks of networks at the paper's Boston setting, and 5 networks on a synthetic table of the size of
YearPredictionMSD (515,345 rows of 90 inputs, two hidden layers of 100, batches of 1,000, 40
epochs). The first run compiles, into an empty cache. A few more epochs are profiled to count the
kernels of a step and their time. Divided by the time of the second run, this says how busy the
device was: in steps alone, and in all, including the host's work before and after them.
``nvidia-smi`` measures the latter from outside. ``--unrolled`` unrolls the steps between two checks
by the host, instead of a loop on the device.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from calipers.bank import Plan, Program, Settings, Table, _run, train
from calipers.networks import DenseFactory
from calipers.objectives import LOSSES

SPENT = []  # seconds of segments of epochs, networks that end in them collected


def timed(method):
    """Return a method that records its seconds."""

    def call(*given):
        began = time.perf_counter()
        found = method(*given)
        SPENT.append(time.perf_counter() - began)
        return found

    return call


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


def boston(networks):
    """Networks at the Boston setting."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(455, 13))
    table = Table.from_arrays(X, X[:, 0] + rng.normal(0, 0.3, 455))
    program = Program(DenseFactory((50, 50)), LOSSES["qd+"], 13)
    loss = {"coverage_weight": 0.9974, "point_weight": 0.51}
    settings = Settings(learning_rate=0.009, epochs=662, loss=loss)
    plans = [Plan(seed, np.arange(455), settings=settings) for seed in range(networks)]
    return program, table, plans


def year():
    """Five networks on a table of the size of YearPredictionMSD."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((515_345, 90), dtype=np.float32)
    table = Table.from_arrays(X, X[:, 0] + np.sin(X[:, 1]) + rng.normal(0, 0.3, len(X)))
    program = Program(DenseFactory((100, 100)), LOSSES["qd+"], 90, batch_size=1000)
    loss = {"coverage_weight": 0.999, "point_weight": 0.1}
    settings = Settings(learning_rate=0.005, decay_rate=0.99, epochs=40, loss=loss)
    plans = [Plan(seed, np.arange(463_715), settings=settings) for seed in range(5)]
    return program, table, plans


def kernels(program, table, plans, epochs):
    """Kernels and copies of a step, the device's microseconds for them, and checks by the host.

    Measured as the difference of two trainings with different epochs, so that work before and after
    the epochs, such as copies of the table and a check of all rows, is not counted.
    """
    more, fewer = (profile(program, table, plans, count * epochs) for count in (5, 1))
    steps = 4 * epochs * -(-len(plans[0].rows) // program.batch_size)
    return [(a - b) / steps for a, b in zip(more, fewer, strict=True)]


def profile(program, table, plans, epochs):
    """The same for a whole training."""
    few = [replace(plan, settings=plan.settings._replace(epochs=epochs)) for plan in plans]
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            train(program, table, few, n_jobs=-1, needed=0, retries=0)
        (path,) = Path(folder).rglob("*.xplane.pb")
        found = [
            (event.name, event.duration_ns / 1e3)
            for plane in jax.profiler.ProfileData.from_file(str(path)).planes
            for line in plane.lines
            for event in line.events
            if "GPU" in plane.name and "Stream" in line.name
        ]
    looks = sum(name == "MemcpyD2H" for name, _ in found)
    return len(found), sum(us for _, us in found), looks


def unrolled(lower, upper, body, init, **rest):
    """Unroll a loop of known length."""
    if not isinstance(upper, int):
        return LOOP(lower, upper, body, init, **rest)
    for i in range(lower, upper):
        init = body(i, init)
    return init


LOOP = jax.lax.fori_loop


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, nargs="*", default=[100, 500, 1500])
    parser.add_argument("--no-year", action="store_true")
    parser.add_argument("--unrolled", action="store_true")
    chosen = parser.parse_args()
    if chosen.unrolled:
        jax.lax.fori_loop = unrolled
    os.environ["CALIPERS_CACHE"] = tempfile.mkdtemp()
    _run._Filling.advance = timed(_run._Filling.advance)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}\n")
    print(
        "| bank | first run, s | second run, s | us per network-step | us a step | without host | "
        "kernels a step | us of kernels | looks of the host a step | busy in steps | in all | by "
        "nvidia-smi |"
    )
    print("|---|" + "---:|" * 11, flush=True)
    banks = [(f"{n:,} networks, Boston", partial(boston, n), 20) for n in chosen.networks]
    banks += [] if chosen.no_year else [("5 networks, Year-sized", year, 1)]
    for name, make, epochs in banks:
        program, table, plans = make()
        steps = -(-len(plans[0].rows) // program.batch_size) * plans[0].settings.epochs
        seconds = []
        for _ in range(2):
            SPENT.clear()
            with Busy() as busy:
                began = time.perf_counter()
                train(program, table, plans, n_jobs=-1, needed=0, retries=0)
                seconds.append(time.perf_counter() - began)
        us, alone = (part / steps * 1e6 for part in (seconds[1], sum(SPENT)))
        count, spent, looks = kernels(program, table, plans, epochs)
        print(
            f"| {name} | {seconds[0]:.1f} | {seconds[1]:.1f} | {us / len(plans):.2f} | {us:.0f} | "
            f"{alone:.0f} | {count:.0f} | {spent:.0f} | {looks:.2f} | {spent / alone:.0%} | "
            f"{spent / us:.0%} | {busy.share:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
