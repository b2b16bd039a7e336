"""Cost of the QD+ column of the paper on this machine, and of training one network after another.

    .venv-torch/bin/python benchmarks/study.py

For each dataset a part of the column is trained, ten networks for a few hundred steps, and the time
for the whole is extrapolated from it. The same is done for a PyTorch loop that trains one network
after another, as the authors did. Rows are random, in the number and width of the dataset's.
"""

import argparse
import dataclasses
import itertools
import time

import numpy as np

from calipers.bank import Plan, Table, train
from calipers.datasets import CATALOGUE
from calipers.losses import qd_plus
from calipers_study.settings import load_settings
from calipers_study.translation import program_of, training_of

DATASETS = (
    "boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht"
)  # fmt: skip


def made_up(name):
    """Random rows in the number and width of a dataset's."""
    entry = CATALOGUE[name]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(entry.rows, len(entry.feature_names))).astype(np.float32)
    return X, X[:, 0] + rng.normal(0, 0.3, len(X)).astype(np.float32)


def bank_seconds(settings, X, y, rows, threads, steps):
    """Seconds per network-step in a bank of ten."""
    table = Table.from_arrays(X, y)
    program = program_of(settings, X.shape[1])
    batches = -(-rows // settings.batch_size)

    def run(epochs):
        one = training_of(dataclasses.replace(settings, epochs=epochs))
        plans = [Plan(seed, np.arange(rows), settings=one) for seed in range(10)]
        began = time.perf_counter()
        train(program, table, plans, n_jobs=threads, retries=0, needed=0)
        return time.perf_counter() - began

    run(1)
    epochs = max(1, round(steps / batches))
    return run(epochs) / (10 * epochs * batches)


def loop_seconds(settings, X, y, rows, steps):
    """Seconds per step of a PyTorch loop."""
    import torch

    X, y = torch.from_numpy(X), torch.from_numpy(y)
    sizes = [X.shape[1], *settings.hidden_layers]
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 3))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
    began = time.perf_counter()
    for _ in range(steps):
        batch = torch.randint(rows, (settings.batch_size,))
        loss = qd_plus(*network(X[batch]).T, y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - began) / steps


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    print("| dataset | million network-steps | bank, us | bank, s | loop, us | loop, h |")
    print("|---|---:|---:|---:|---:|---:|")
    totals = np.zeros(3)
    for name in DATASETS:
        settings = load_settings("qd+", name)
        X, y = made_up(name)
        rows = round(0.9 * len(y))
        steps = -(-rows // settings.batch_size) * settings.epochs
        count = steps * settings.members * settings.trials
        bank = bank_seconds(settings, X, y, rows, options.threads, options.steps)
        loop = loop_seconds(settings, X, y, rows, options.steps)
        totals += np.array([count, bank * count, loop * count])
        print(
            f"| {name} | {count / 1e6:.2f} | {bank * 1e6:.0f} | {bank * count:.0f} "
            f"| {loop * 1e6:.0f} | {loop * count / 3600:.1f} |"
        )
    count, bank, loop = totals
    print(f"| all | {count / 1e6:.1f} | | {bank:.0f} | | {loop / 3600:.1f} |")
    print(f"\nthe loop takes {loop / bank:.0f} times as long")


if __name__ == "__main__":
    main()
