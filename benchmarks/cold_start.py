"""Seconds from a new process to the first interval, with an empty and with a warm cache.

    python benchmarks/cold_start.py

500 rows of 13 columns at the paper's Boston setting (5 networks of 50-50, 662 epochs).
"""

import os
import subprocess
import sys
import tempfile

SCRIPT = """
import time
began = time.perf_counter()
import numpy as np
from calipers import IntervalRegressor
imported = time.perf_counter()
rng = np.random.default_rng(0)
X = rng.normal(size=(500, 13))
y = X[:, 0] + np.sin(X[:, 1]) + rng.normal(0, 0.3, 500)
model = IntervalRegressor.paper(
    epochs=662,
    optimizer__learning_rate=0.009,
    loss__coverage_weight=0.9974,
    loss__point_weight=0.51,
    random_state=0,
)
model.fit(X, y).predict_interval(X)
first = time.perf_counter()
model.fit(X, y).predict_interval(X)
second = time.perf_counter()
print(imported - began, first - began, second - first)
"""


def measure(cache):
    """Seconds of import, of import to first interval, and of a second fit."""
    environment = os.environ | {"CALIPERS_CACHE": cache}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    return [float(part) for part in result.stdout.split()]


def main():
    """Print the table."""
    print("| cache | import, s | import to first interval, s | second fit, s |")
    print("|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty", "warm"):
            print(f"| {name} | " + " | ".join(f"{part:.1f}" for part in measure(cache)) + " |")


if __name__ == "__main__":
    main()
