"""Seconds from a new process to the first interval, with an empty and with a warm cache.

    python benchmarks/cold_start.py

1,000 rows of 10 columns with the default model, and 500 rows of 13 columns at the paper's Boston
setting (5 networks of 50-50, 662 epochs), compared with a random forest of 500 trees.
"""

import os
import subprocess
import sys
import tempfile

SCRIPT = """
import sys, time
began = time.perf_counter()
import numpy as np
from calipers import IntervalRegressor
imported = time.perf_counter()
rng = np.random.default_rng(0)
if sys.argv[1] == "default":
    X = rng.normal(size=(1000, 10))
    model = IntervalRegressor(random_state=0, verbose=0)
else:
    X = rng.normal(size=(500, 13))
    model = IntervalRegressor.paper(
        epochs=662,
        optimizer__learning_rate=0.009,
        loss__coverage_weight=0.9974,
        loss__point_weight=0.51,
        random_state=0,
        verbose=0,
    )
y = X[:, 0] + np.sin(X[:, 1]) + rng.normal(0, 0.3, len(X))
model.fit(X, y).predict_interval(X)
first = time.perf_counter()
model.fit(X, y).predict_interval(X)
second = time.perf_counter()
print(imported - began, first - began, second - first)
"""
FOREST = """
import time
import numpy as np
from sklearn.ensemble import RandomForestRegressor
rng = np.random.default_rng(0)
X = rng.normal(size=(1000, 10))
y = X[:, 0] + np.sin(X[:, 1]) + rng.normal(0, 0.3, len(X))
began = time.perf_counter()
RandomForestRegressor(500, n_jobs=-1).fit(X, y).predict(X)
print(time.perf_counter() - began)
"""


def measure(script, cache, *arguments):
    """The seconds that a script prints."""
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"CALIPERS_CACHE": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(part) for part in result.stdout.split()]


def main():
    """Print the table."""
    print("| model | cache | import, s | import to first interval, s | second fit, s |")
    print("|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as cache:
        for model in ("default", "paper"):
            for name in ("empty", "warm"):
                found = " | ".join(f"{part:.1f}" for part in measure(SCRIPT, cache, model))
                print(f"| {model} | {name} | {found} |", flush=True)
        (forest,) = measure(FOREST, cache)
    print(f"\nrandom forest of 500 trees, fit and points in a running process: {forest:.1f} s")


if __name__ == "__main__":
    main()
