"""From the members of an ensemble to one prediction.

Every aggregator takes the members' lower bounds, points and upper bounds, each of shape
``(members, rows)``, and the coverage they were trained for. The point of an aggregate is the mean of
the members' points, as in the paper, and not the mean of a mixture.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from calipers.distributions import SplitNormal, SplitNormalMixture

FloatArray = NDArray[np.float64]


class Interval(NamedTuple):
    """Bounds and points, in this order everywhere."""

    lower: FloatArray
    point: FloatArray
    upper: FloatArray


def snm(
    lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float
) -> SplitNormalMixture:
    """Mixture of the members' split normals, fitted exactly (SNM).

    Examples
    --------
    >>> mixture = snm([[-1.0], [-2.0]], [[0.0], [0.0]], [[1.0], [3.0]], coverage=0.95)
    >>> low, high = mixture.interval(0.95)
    >>> low.round(2), high.round(2)
    (array([-1.74]), array([2.63]))
    """
    return SplitNormalMixture(SplitNormal.from_interval(lower, point, upper, coverage))


def normal(
    lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float
) -> SplitNormalMixture:
    """Mixture of normals: each member's point, and the scale that its width stands for.

    For members that predict a normal it is the mixture of those normals, as in deep ensembles.

    Examples
    --------
    >>> mixture = normal([[-1.0], [-2.0]], [[0.0], [0.0]], [[1.0], [2.0]], coverage=0.95)
    >>> mixture.mean
    array([0.])
    """
    width = np.subtract(upper, lower)
    scale = np.abs(width) / (2 * ndtri((1 + coverage) / 2))
    return SplitNormalMixture(SplitNormal(np.asarray(point, dtype=float), scale, scale))


def sem(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Mean bounds, widened by normal quantiles of their standard error (SEM).

    Examples
    --------
    >>> bounds = sem([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95)
    >>> bounds.lower.round(2), bounds.upper
    (array([-3.96]), array([1.]))
    """
    return _widened(lower, point, upper, coverage, len(np.asarray(lower)))


def std(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Mean bounds, widened by normal quantiles of their standard deviation (STD).

    Examples
    --------
    >>> std([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower.round(2)
    array([-4.77])
    """
    return _widened(lower, point, upper, coverage, 1)


def mean(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Mean bounds.

    Examples
    --------
    >>> mean([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower
    array([-2.])
    """
    return Interval(*(np.mean(values, axis=0) for values in (lower, point, upper)))


def none(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Each member's own interval, as it is: shape (members, rows).

    Examples
    --------
    >>> none([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower.shape
    (2, 1)
    """
    return Interval(*(np.asarray(values, dtype=float) for values in (lower, point, upper)))


def _widened(
    lower: ArrayLike, point: ArrayLike, upper: ArrayLike, coverage: float, share: int
) -> Interval:
    middle = mean(lower, point, upper, coverage=coverage)
    factor = ndtri((1 + coverage) / 2) / np.sqrt(share)
    below, above = (_spread(np.asarray(bound, dtype=float)) for bound in (lower, upper))
    return Interval(middle.lower - factor * below, middle.point, middle.upper + factor * above)


def _spread(values: FloatArray) -> FloatArray:
    """Standard deviation over members, 0 for a single one."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


AGGREGATORS: dict[str, Callable[..., Any]] = {
    "snm": snm,
    "sem": sem,
    "std": std,
    "mean": mean,
    "normal": normal,
    "none": none,
}
"""The aggregators by name."""
