"""Speed and memory of the split normal aggregation, and of the gradient descent it replaces.

Run with ``python benchmarks/aggregation.py``; ``--rows`` takes other numbers of rows.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable

import joblib
import numpy as np
from scipy.special import erfc, ndtri

from calipers.distributions import SplitNormal, SplitNormalMixture

MEMBERS = 5
COVERAGE = 0.95
ACCURACY = 1e-12
MAX_STEPS = 10_000


def ensemble(rows: int) -> np.ndarray:
    """Lower bounds, points and upper bounds of members that roughly agree."""
    rng = np.random.default_rng(0)
    point = 3 * rng.normal(size=rows) + 0.5 * rng.normal(size=(MEMBERS, rows))
    below, above = 2 * np.exp(0.3 * rng.normal(size=(2, MEMBERS, rows)))
    return np.stack([point - below, point, point + above])


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Least time of a few runs: what the work takes when nothing else gets in its way."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def exact_speed(members: np.ndarray, threads: int) -> tuple[float, float]:
    """Seconds for the fits and for the interval of their mixture."""
    rows = members.shape[-1]
    repeats = 3 if rows >= 10**6 else 7
    mixture = SplitNormalMixture(SplitNormal.from_interval(*members, COVERAGE))
    with joblib.parallel_config("threading", n_jobs=threads):
        fit = seconds(lambda: SplitNormal.from_interval(*members, COVERAGE), repeats)
        return fit, seconds(lambda: mixture.interval(COVERAGE), repeats)


def memory(members: np.ndarray) -> float:
    """Megabytes that fit and interval need at their peak beyond what they take and give."""
    tracemalloc.start()
    components = SplitNormal.from_interval(*members, COVERAGE)
    bounds = SplitNormalMixture(components).interval(COVERAGE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    parts = (components.loc, components.left_scale, components.right_scale, components.repaired)
    return (peak - sum(array.nbytes for array in (*parts, *bounds))) / 2**20


def descent(members: np.ndarray) -> tuple[float, float]:
    """Seconds for the paper's gradient descent, and the share of fits that got there.

    All fits go in step, each in units of its own width and from the paper's initialisation, and
    leave as soon as both of their quantile conditions hold to `ACCURACY`. Of the rates that are
    powers of two, 1 was the fastest; momentum made it slower.
    """
    start = time.perf_counter()
    lower, point, upper = members.reshape(3, -1)
    tail = (1 - COVERAGE) / 2
    lengths = np.stack([point - lower, upper - point]) / (upper - lower)
    scales = lengths / -ndtri(tail)
    going = np.ones(lengths.shape[1], dtype=bool)
    for _ in range(MAX_STEPS):
        share, t = scales / scales.sum(axis=0), lengths / scales
        tails = erfc(t / np.sqrt(2))
        error = share * tails - tail
        going = np.abs(error).max(axis=0) > ACCURACY
        lengths, scales, share, t, tails, error = (
            array[:, going] for array in (lengths, scales, share, t, tails, error)
        )
        if not going.any():
            break
        bell = np.sqrt(2 / np.pi) * np.exp(-(t**2) / 2) * t
        own, other = error * (share[::-1] * tails + bell), (error * share * tails)[::-1]
        scales = scales - 2 * (own - other) / scales.sum(axis=0)
    return time.perf_counter() - start, 1 - lengths.shape[1] / members[0].size


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6])
    sizes = parser.parse_args().rows
    print(f"{MEMBERS} members, {COVERAGE:.0%} interval; rows per second")
    print(
        f"{'rows':>9} {'threads':>8} {'fit':>12} {'interval':>12} {'both':>12} {'extra memory':>14}"
    )
    both = {}
    for rows in sizes:
        members = ensemble(rows)
        extra = memory(members)
        for threads in (1, 2):
            fit, interval = exact_speed(members, threads)
            both[rows, threads] = rows / (fit + interval)
            print(
                f"{rows:>9} {threads:>8} {rows / fit:>12,.0f} {rows / interval:>12,.0f} "
                f"{both[rows, threads]:>12,.0f} {extra:>11,.0f} MB"
            )
    rows = min(sizes)
    took, share = descent(ensemble(rows))
    fit, _ = exact_speed(ensemble(rows), 1)
    print(f"\nThe paper's descent on the same {rows} rows, both quantiles to {ACCURACY:g}:")
    print(f"{rows / took:,.0f} rows per second ({share:.2%} of the fits got there),")
    print(f"{rows / fit:,.0f} for the exact fit, {took / fit:,.0f} times as many")


if __name__ == "__main__":
    main()
