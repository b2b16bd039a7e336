"""Rows per second of predict_interval from end to end, and the memory it needs beside its output.

    python benchmarks/prediction.py [--rows 1000000]

13 inputs, 95% intervals from split normal mixtures; the paper's ensemble (5 networks of 50-50) and
the default one (10 networks of 128-128 over embeddings, calibrated).
"""

import argparse
import itertools
import resource
import time

import numpy as np

from calipers import IntervalRegressor


def peak():
    """Largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    """Print the table."""
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


if __name__ == "__main__":
    main()
