"""Time for several targets: fitted in one bank, and one after another.

    python benchmarks/targets.py            # prints a table; some minutes on two cores

The models are the same to the bit on a CPU (``tests/test_multitarget.py``), so only the time
differs. Programs are compiled beforehand.
"""

import argparse
import os
import time

import numpy as np
from sklearn.base import clone

from calipers import IntervalRegressor
from calipers.datasets import TOY
from calipers.multitarget import MultiTargetRegressor


def rows_of(rows, targets):
    """Inputs, and targets that each depend on them differently."""
    X, y = TOY.sample(rows, random_state=0)
    rng = np.random.default_rng(0)
    X = np.column_stack([X, rng.normal(size=(rows, 7))])
    return X, np.column_stack([y + i * X[:, 1 + i % 7] for i in range(targets)])


def seconds(fit):
    """Seconds of a call, the second of two."""
    for _ in range(2):
        began = time.perf_counter()
        fit()
        took = time.perf_counter() - began
    return took


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 1500])
    parser.add_argument("--targets", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    model = IntervalRegressor(random_state=0, verbose=0)
    print(f"{len(os.sched_getaffinity(0))} cores")
    print("| rows | targets | one of them, s | one after another, s | one bank, s | ratio |")
    print("|---:|---:|---:|---:|---:|---:|")
    for rows in options.rows:
        for targets in options.targets:
            X, Y = rows_of(rows, targets)
            each = [seconds(lambda y=y: clone(model).fit(X, y)) for y in Y.T]  # noqa: B023
            one = seconds(lambda: MultiTargetRegressor(model).fit(X, Y))  # noqa: B023
            cells = (f"{each[0]:.1f}", f"{sum(each):.1f}", f"{one:.1f}", f"{one / sum(each):.2f}")
            print(f"| {rows:,} | {targets} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
