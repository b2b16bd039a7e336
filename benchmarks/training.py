"""Network-steps per second of the bank, compared with common alternatives in one run.

    make benchmark-training

The setting is that of the paper's Boston table: 455 rows of 13 inputs, two hidden layers of 50,
batches of 100, the QD+ loss, Adam. The bank is compared with a PyTorch loop that trains one network
after another, with scikit-learn's MLPRegressor of the same size (squared error only), and with the
rate at which the machine's BLAS multiplies matrices of these sizes on one thread. PyTorch is
skipped if it is not installed.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from threadpoolctl import threadpool_limits

from calipers.bank import Plan, Program, Settings, Table, train
from calipers.networks import DenseFactory
from calipers.objectives import LOSSES

ROWS, INPUTS, HIDDEN, BATCH = 455, 13, 50, 100
BATCHES = -(-ROWS // BATCH)
LOSS = {"coverage_weight": 0.9974, "point_weight": 0.51}


def data():
    """Rows like Boston's in number and shape."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, INPUTS))
    return X, X[:, 0] + np.sin(X[:, 1]) + rng.normal(0, 0.3, ROWS)


def bank_seconds(networks, threads, epochs):
    """Seconds per network-step of a bank; compilation is not counted."""
    X, y = data()
    table = Table.from_arrays(X, y)
    program = Program(DenseFactory((HIDDEN, HIDDEN)), LOSSES["qd+"], INPUTS, BATCH)

    def run(epochs):
        settings = Settings(learning_rate=0.009, epochs=epochs, loss=LOSS)
        plans = [Plan(seed, np.arange(ROWS), settings=settings) for seed in range(networks)]
        began = time.perf_counter()
        train(program, table, plans, n_jobs=threads, retries=0, needed=0)
        return time.perf_counter() - began

    run(2)
    return run(epochs) / (networks * epochs * BATCHES)


def torch_seconds(threads, epochs):
    """Seconds per step of a plain PyTorch loop, as the paper's authors trained."""
    import torch

    from calipers.losses import qd_plus

    torch.set_num_threads(threads)
    X, y = (torch.tensor(a, dtype=torch.float32) for a in data())
    network = torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 3),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.009)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1.0)
    options = {"coverage_weight": LOSS.coverage_weight, "point_weight": LOSS.point_weight}

    def run(epochs):
        began = time.perf_counter()
        for _ in range(epochs):
            order = torch.randperm(ROWS)
            for start in range(0, ROWS, BATCH):
                rows = order[start : start + BATCH]
                lower, point, upper = network(X[rows]).T
                loss = qd_plus(lower, point, upper, y[rows], **options)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
        return time.perf_counter() - began

    run(5)
    return run(epochs) / (epochs * BATCHES)


def scikit_learn_seconds(threads, epochs):
    """Seconds per step of MLPRegressor, which minimises squared error."""
    X, y = data()
    model = MLPRegressor(
        hidden_layer_sizes=(HIDDEN, HIDDEN), batch_size=BATCH, max_iter=epochs, tol=0
    )
    model.set_params(n_iter_no_change=epochs)
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        began = time.perf_counter()
        model.fit(X.astype(np.float32), y.astype(np.float32))
    return (time.perf_counter() - began) / (model.n_iter_ * BATCHES)


def products():
    """Sizes (m, k, n) of the matrix products in one step: forward, then both gradients."""
    layers = [(INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 3)]
    forward = [(BATCH, a, b) for a, b in layers]
    weights = [(a, BATCH, b) for a, b in layers]
    rows = [(BATCH, b, a) for a, b in layers[1:]]
    return forward + weights + rows


def flops():
    """Floating-point operations of the matrix products in one step."""
    return sum(2 * m * k * n for m, k, n in products())


def blas_seconds(repeats):
    """Seconds that BLAS takes for the products of one step, on one thread."""
    total = 0.0
    with threadpool_limits(1):
        for m, k, n in products():
            a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
            out = np.empty((m, n), np.float32)
            np.matmul(a, b, out=out)
            began = time.perf_counter()
            for _ in range(repeats):
                np.matmul(a, b, out=out)
            total += (time.perf_counter() - began) / repeats
    return total


def fastest(function, *arguments, tries=3):
    """Shortest of several runs: noise on a shared machine only ever adds."""
    return min(function(*arguments) for _ in range(tries))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=300)
    epochs = parser.parse_args().epochs
    blas = fastest(blas_seconds, 5000)
    print(f"BLAS, one thread: {flops() / blas / 1e9:.1f} GFLOP/s, {blas * 1e6:.0f} us a step\n")
    print("| threads | what | us per network-step | times PyTorch | fraction of BLAS rate |")
    print("|---:|---|---:|---:|---:|")
    for threads in (1, 2):
        rows = {"scikit-learn MLPRegressor": fastest(scikit_learn_seconds, threads, epochs)}
        try:
            rows["PyTorch, one after another"] = fastest(torch_seconds, threads, epochs)
        except ImportError:
            print("PyTorch is not installed; skipped")
        for networks in (1, 5, 10, 20, 100):
            rows[f"bank of {networks}"] = fastest(bank_seconds, networks, threads, epochs)
        loop = rows.get("PyTorch, one after another", np.nan)
        for name, seconds in rows.items():
            share = f"{blas / seconds:.0%}" if threads == 1 else ""
            print(f"| {threads} | {name} | {seconds * 1e6:.0f} | {loop / seconds:.1f} | {share} |")


if __name__ == "__main__":
    main()
