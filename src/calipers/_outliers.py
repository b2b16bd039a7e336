"""Gross errors among numbers: values so far from all others that no tail leads to them.

A heavy tail is no error. How fast the distances from the median grow between two of their
quantiles tells how far the largest of so many is to be expected if the tail goes on as a power law,
which is heavier than those of normal and lognormal numbers; only what lies ten times beyond that is
taken for an error. Of a hundred samples of Student's t with two degrees of freedom one has such a
value, of samples with lighter tails practically none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

_FEWEST = 20  # distances from which on a tail can be told
_LEVELS = (0.75, 0.9)  # of the distances that tell the tail; below what errors can reach
_BEYOND = 10.0  # times the largest distance to be expected
_MOST = 0.05  # share of the values; more of them are no errors
_NEIGHBOURS, _LOOKED_AT, _ROWS = 3, 50, 50_000
_REAL = 0.4  # share of far rows with a far neighbour from which on inputs explain them


def far_values(values: FloatArray) -> BoolArray:
    """Which values lie so far from all others that they are likely to be errors.

    >>> values = np.random.default_rng(0).normal(size=300)
    >>> values[7] = 1e6
    >>> np.flatnonzero(far_values(values))
    array([7])
    >>> int(far_values(np.random.default_rng(0).lognormal(0, 2, 10_000)).sum())
    0
    """
    low, high = farthest(values, len(values))
    far = (values < low) | (values > high)
    return far if far.mean() <= _MOST else np.zeros(len(values), dtype=bool)


def farthest(values: FloatArray, count: int) -> tuple[float, float]:
    """Ends beyond which one of ``count`` values like these is likely to be an error.

    >>> low, high = farthest(np.random.default_rng(0).normal(size=1000), 10**7)
    >>> -1e4 < low < -20, 20 < high < 1e4
    (True, True)
    """
    peak = np.max(np.abs(values), initial=0.0)
    share = values / (peak or 1.0)  # whose differences cannot overflow
    middle = np.median(share) if len(share) else 0.0
    distance = np.abs(share - middle)
    there = distance[distance > 0]  # a target may be 0 in most rows
    if len(there) < _FEWEST:
        return -np.inf, np.inf
    low, high = np.quantile(there[:: len(there) // _ROWS + 1], _LEVELS)
    growth = np.log(high / low) / np.log((1 - _LEVELS[0]) / (1 - _LEVELS[1]))
    largest = high * ((1 - _LEVELS[1]) * len(there) / len(values) * count) ** growth
    reach = _BEYOND * largest
    with np.errstate(over="ignore"):
        return float((middle - reach) * peak), float((middle + reach) * peak)


def ordinary_limits(columns: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Least and largest of the values of each column that are no errors; None without errors.

    >>> columns = np.random.default_rng(0).uniform(size=(100, 2))
    >>> columns[3, 1] = -1e9
    >>> low, high = ordinary_limits(columns)
    >>> low.round(1), high.round(1)
    (array([0., 0.]), array([1., 1.]))
    """
    far = {i: found for i in range(columns.shape[1]) if (found := far_values(columns[:, i])).any()}
    if not far:
        return None
    low, high = columns.min(axis=0), columns.max(axis=0)
    for i, found in far.items():
        low[i], high[i] = columns[~found, i].min(), columns[~found, i].max()
    return low, high


def far_targets(X: FloatArray, y: FloatArray) -> BoolArray:
    """Which targets are likely to be errors: far from all others, and not so for their neighbours.

    Where many of the rows with far targets lie beside each other, inputs tell of them and they are
    no errors.
    """
    far = far_values(y)
    if far.sum() > 1 and _neighbours_are_far(X, far) > _REAL:
        far[:] = False
    return far


def _neighbours_are_far(X: FloatArray, far: BoolArray) -> float:
    """Share of far rows that have another one among the rows nearest to them."""
    step = len(X) // _ROWS + 1
    X, far = X[::step], far[::step]
    looked_at = np.flatnonzero(far)[:_LOOKED_AT]
    found = 0
    with np.errstate(over="ignore", invalid="ignore"):  # numbers near the largest there is
        scale = X.std(axis=0)
        scaled = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        for row in looked_at:
            distance = np.square(scaled - scaled[row]).sum(axis=1)
            distance[row] = np.inf
            found += bool(far[np.argpartition(distance, _NEIGHBOURS)[:_NEIGHBOURS]].any())
    return found / max(1, len(looked_at))
