"""Whether one bank for several targets would be faster than one bank each.

    python benchmarks/targets.py            # prints a table; some minutes on two cores

A bank for two targets would be one program that trains twice as many networks. So twice as many
networks for one target cost what it would cost, and two fits are what is done. Programs are
compiled before.
"""

import argparse
import time

import numpy as np

from calipers import IntervalRegressor
from calipers.datasets import TOY


def seconds(networks, X, y):
    """Seconds of a fit of so many networks, to which another seed has compiled the programs."""
    for seed in (0, 1):
        began = time.perf_counter()
        IntervalRegressor(n_networks=networks, random_state=seed).fit(X, y)
        took = time.perf_counter() - began
    return took


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 1500])
    options = parser.parse_args()
    networks = IntervalRegressor().n_networks
    print("| rows | two banks, s | one bank of twice as many networks, s | ratio |")
    print("|---:|---:|---:|---:|")
    for rows in options.rows:
        X, y = TOY.sample(rows, random_state=0)
        X = np.column_stack([X, np.random.default_rng(0).normal(size=(rows, 7))])
        two, one = 2 * seconds(networks, X, y), seconds(2 * networks, X, y)
        print(f"| {rows:,} | {two:.1f} | {one:.1f} | {one / two:.2f} |", flush=True)


if __name__ == "__main__":
    main()
