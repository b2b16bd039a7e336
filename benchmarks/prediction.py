"""Rows per second and memory of predict_interval, and the cost of moments.

    python benchmarks/prediction.py [--rows 1000000]

13 inputs, 95% intervals from split normal mixtures; the paper's ensemble (5 networks of 50-50) and
the default one (10 networks of 128-128 over embeddings, calibrated). The last table is of moments
and the CRPS of the default model's distributions; processor time, not wall time.
"""

import argparse
import itertools
import resource
import time
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from calipers import IntervalRegressor

MANY, REPEATS = 4096, 5


def peak():
    """Largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def throughput(models, many):
    """Print rows per second of whole predictions."""
    rows = len(many)
    print("| model | threads | rows | rows per second | memory beyond input and output, MB |")
    print("|---|---:|---:|---:|---:|")
    for (name, model), threads in itertools.product(models.items(), (1, 2)):
        model.set_params(n_jobs=threads)
        model.predict_interval(many[:1000])
        before = peak()
        began = time.perf_counter()
        bounds = model.predict_interval(many)
        seconds = time.perf_counter() - began
        extra = max(0, peak() - before - bounds.nbytes)
        print(f"| {name} | {threads} | {rows:,} | {rows / seconds:,.0f} | {extra / 1e6:.0f} |")


def latency(models, one):
    """Print milliseconds of a prediction of one row."""
    print("\n| model | one row, p50 ms | p99 ms |")
    print("|---|---:|---:|")
    for name, model in models.items():
        taken = []
        for _ in range(1000):
            began = time.perf_counter()
            model.predict_interval(one)
            taken.append(time.perf_counter() - began)
        p50, p99 = np.quantile(taken, [0.5, 0.99]) * 1e3
        print(f"| {name} | {p50:.2f} | {p99:.2f} |")


def parts(model, many):
    """Print where the time of the default model goes, on one thread."""
    ensemble = model.ensemble_
    block = many[:8192]
    values = ensemble.bank.predict(block)
    mixture = ensemble.mixture(block)
    dist = ensemble.calibrated(block)
    compiled = replace(ensemble.bank)
    vars(compiled)["_dense"] = None
    steps = {
        "networks": lambda: ensemble.bank.predict(block),
        "networks by a compiled program": lambda: compiled.predict(block),
        "mixtures": lambda: ensemble.head.mixture(values).by_network.mean,
        "width calibration": lambda: ensemble._calibrated(mixture, block),
        "quantiles": lambda: dist.interval(0.95),
    }
    print("\n| part | us a row |")
    print("|---|---:|")
    for name, step in steps.items():
        print(f"| {name} | {quickest(step, len(block)):.2f} |")
    for name, took in floor(ensemble.bank).items():
        print(f"| {name} | {took:.2f} |")


def floor(bank):
    """Minimum microseconds a row of a forward pass in NumPy, each part at its full rate."""
    layers = [leaf[0].shape for leaf in bank.weights if leaf.ndim == 3][1:]
    products, units = sum(a * b for a, b in layers), sum(b for _, b in layers[:-1])
    cosines, rows = bank.weights[0][0].size, 256
    a, b = np.ones((rows, 128), np.float32), np.ones((128, 128), np.float32)
    result, bias = np.empty_like(a), np.ones(128, np.float32)

    def activate():
        np.add(a, bias, out=result)
        np.tanh(result, out=result)
        np.multiply(result, a, out=result)
        np.add(result, a, out=result)

    def each(function, numbers, times=100):
        took = quickest(lambda: [function() for _ in range(times)], times)
        return took * len(bank) / numbers

    with threadpool_limits(1):
        return {
            "of these, products alone": each(lambda: np.matmul(a, b, out=result), a.size * 128)
            * products,
            "biases and activations alone": each(activate, a.size) * units,
            "cosines alone": each(lambda: np.cos(a, out=result), a.size) * cosines,
        }


def quickest(function, rows):
    """Microseconds of processor time a row, at best."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return 1e6 * min(times) / rows


def methods(dist):
    """Print the time of the methods of distributions that integrate."""
    y = dist.ppf(np.random.default_rng(2).uniform(0.01, 0.99, len(dist)))
    print("\n| method | us a row |")
    print("|---|---:|")
    for name, method in {"mean and variance": dist.moments, "crps": lambda: dist.crps(y)}.items():
        print(f"| {name} | {quickest(method, len(dist)):,.1f} |")


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 13))
    y = X[:, 0] + rng.normal(0, 0.3, 500)
    models = {
        "paper": IntervalRegressor.paper(epochs=100, random_state=0).fit(X, y),
        "default": IntervalRegressor(epochs=20, random_state=0).fit(X, y),
    }
    many = rng.normal(size=(rows, 13))
    throughput(models, many)
    latency(models, many[:1])
    parts(models["default"], many)
    methods(models["default"].predict_dist(many[:MANY]))


if __name__ == "__main__":
    main()
