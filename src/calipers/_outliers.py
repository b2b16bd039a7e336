"""Gross errors among numbers: values too far from all others to belong to a tail.

A heavy tail is not an error. The growth of the distances from the median between two of their
quantiles gives the expected largest distance if the tail is a power law, which is heavier than the
tails of normal and lognormal numbers; only values ten times beyond that count as errors. One in a
hundred samples of Student's t with two degrees of freedom has such a value, and practically no
sample with lighter tails.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from calipers._arrays import AnyFloatArray, BoolArray

FAR_TARGETS = (
    "networks are not trained on such rows, but calibration uses them, so intervals of high "
    "coverage may be wide. Correct or remove wrong values; if such targets are real, fit their "
    "logarithm"
)
"""What becomes of outlying targets, and what to do about them."""

_MIN_DISTANCES = 20  # distances that are needed to estimate a tail
_LEVELS = (0.75, 0.9)  # of the distances that estimate the tail; too low for errors to affect them
_FACTOR = 10.0  # an error is this many times beyond the expected largest distance
_MAX_FRACTION = 0.05  # fraction of the values; if there are more, they are not errors
_NEIGHBOURS, _MAX_CHECKED, _ROWS = 3, 50, 50_000
_EXPLAINED = 0.4  # fraction of outlying rows with outlying neighbours: inputs then explain them


def outlying_values(values: "AnyFloatArray") -> "BoolArray":
    """Mask of values so far from all others that they are likely to be errors.

    >>> values = np.random.default_rng(0).normal(size=300)
    >>> values[7] = 1e6
    >>> np.flatnonzero(outlying_values(values))
    array([7])
    >>> int(outlying_values(np.random.default_rng(0).lognormal(0, 2, 10_000)).sum())
    0
    """
    low, high = outlier_limits(values, len(values))
    outlying = (values < low) | (values > high)
    return outlying if outlying.mean() <= _MAX_FRACTION else np.zeros(len(values), dtype=bool)


def outlier_limits(values: "AnyFloatArray", count: int) -> tuple[float, float]:
    """Limits beyond which one of ``count`` values like these is likely to be an error.

    >>> low, high = outlier_limits(np.random.default_rng(0).normal(size=1000), 10**7)
    >>> -1e4 < low < -20, 20 < high < 1e4
    (True, True)
    """
    peak = np.max(np.abs(values), initial=0.0)
    scaled = values / (peak or 1.0)  # so that differences cannot overflow
    median = np.median(scaled) if len(scaled) else 0.0
    distance = np.abs(scaled - median)
    positive = distance[distance > 0]  # a target may be 0 in most rows
    if len(positive) < _MIN_DISTANCES:
        return -np.inf, np.inf
    low, high = np.quantile(positive[:: len(positive) // _ROWS + 1], _LEVELS)
    growth = np.log(high / low) / np.log((1 - _LEVELS[0]) / (1 - _LEVELS[1]))
    largest = high * ((1 - _LEVELS[1]) * len(positive) / len(values) * count) ** growth
    reach = _FACTOR * largest
    with np.errstate(over="ignore"):
        return float((median - reach) * peak), float((median + reach) * peak)


def ordinary_limits(columns: "AnyFloatArray") -> "tuple[AnyFloatArray, AnyFloatArray] | None":
    """Smallest and largest value of each column without errors; None if there are no errors.

    >>> columns = np.random.default_rng(0).uniform(size=(100, 2))
    >>> columns[3, 1] = -1e9
    >>> low, high = ordinary_limits(columns)
    >>> low.round(1), high.round(1)
    (array([0., 0.]), array([1., 1.]))
    """
    masks = {i: outlying_values(columns[:, i]) for i in range(columns.shape[1])}
    if not any(mask.any() for mask in masks.values()):
        return None
    low, high = columns.min(axis=0), columns.max(axis=0)
    for i, mask in masks.items():
        low[i], high[i] = columns[~mask, i].min(), columns[~mask, i].max()
    return low, high


def outlying_targets(X: "AnyFloatArray", y: "AnyFloatArray") -> "BoolArray":
    """Mask of targets that are likely to be errors: outliers that the inputs do not explain.

    If many rows with outlying targets are neighbours of each other, the inputs explain the targets,
    which are then not errors.
    """
    outlying = outlying_values(y)
    if outlying.sum() > 1 and _with_outlying_neighbours(X, outlying) > _EXPLAINED:
        outlying[:] = False
    return outlying


def _with_outlying_neighbours(X: "AnyFloatArray", outlying: "BoolArray") -> float:
    """Fraction of outlying rows that have another one among their nearest neighbours."""
    step = len(X) // _ROWS + 1
    X, outlying = X[::step], outlying[::step]
    checked = np.flatnonzero(outlying)[:_MAX_CHECKED]
    count = 0
    with np.errstate(over="ignore", invalid="ignore"):  # inputs may be near the largest float
        scale = X.std(axis=0)
        scaled = (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        for row in checked:
            distance = np.square(scaled - scaled[row]).sum(axis=1)
            distance[row] = np.inf
            count += bool(outlying[np.argpartition(distance, _NEIGHBOURS)[:_NEIGHBOURS]].any())
    return count / max(1, len(checked))
