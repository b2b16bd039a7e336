"""From the members of an ensemble to one prediction.

Every aggregator takes the members' lower bounds, points and upper bounds, each of shape
(members, rows), and the coverage they were trained for, so that they can be called alike. Two of
them give a distribution, from which intervals of any coverage follow; the others give an
`Interval` for the coverage of the members. The final point of the paper is the mean of the
members' points, whatever becomes of their bounds, and not the mean of a mixture.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.distributions import _checks as checks
from calipers.distributions._checks import FloatArray


class Interval(NamedTuple):
    """Bounds and points, in this order everywhere."""

    lower: FloatArray
    point: FloatArray
    upper: FloatArray


def snm(
    lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float, n_jobs: int = 1
) -> SplitNormalMixture:
    """Mixture of the members' split normals, fitted exactly (SNM).

    Examples
    --------
    >>> mixture = snm([[-1.0], [-2.0]], [[0.0], [0.0]], [[1.0], [3.0]], coverage=0.95)
    >>> low, high = mixture.interval(0.95)
    >>> low.round(2), high.round(2)
    (array([-1.66]), array([2.55]))
    """
    members = _checked(lower, point, upper)
    return SplitNormalMixture(SplitNormal.from_interval(*members, coverage, n_jobs=n_jobs))


def normal(
    lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float
) -> SplitNormalMixture:
    """Mixture of normals: each member's point, and the scale that its width stands for.

    For members that predict a normal distribution it is the mixture of these, as in deep
    ensembles.

    Examples
    --------
    >>> mixture = normal([[-1.96], [-3.92]], [[0.0], [0.0]], [[1.96], [3.92]], coverage=0.95)
    >>> mixture.components.left_scale.round(3)
    array([[1.],
           [2.]])
    """
    members = _checked(lower, point, upper)
    scale = np.abs(members.upper - members.lower) / (2.0 * _quantile(coverage))
    return SplitNormalMixture(SplitNormal(members.point, scale, scale))


def sem(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    r"""Mean bounds, widened by the normal quantile times their standard error (SEM).

    .. math:: \bar L - z \, s_L / \sqrt m, \quad \bar U + z \, s_U / \sqrt m, \quad
              z = \Phi^{-1}\left(\tfrac{1 + coverage}{2}\right)

    with the standard deviations over the members (m - 1 in the denominator, 0 for one member).

    Examples
    --------
    >>> bounds = sem([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95)
    >>> bounds.lower.round(2), bounds.upper
    (array([-3.96]), array([1.]))
    """
    members = _checked(lower, point, upper)
    return _widened(members, _quantile(coverage) / np.sqrt(len(members.lower)))


def std(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Mean bounds, widened by the normal quantile times their standard deviation (STD).

    Examples
    --------
    >>> std([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower.round(2)
    array([-4.77])
    """
    return _widened(_checked(lower, point, upper), _quantile(coverage))


def mean(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Mean bounds.

    Examples
    --------
    >>> mean([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower
    array([-2.])
    """
    _quantile(coverage)
    return _widened(_checked(lower, point, upper), 0.0)


def none(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Each member's own interval as it is, shape (members, rows).

    Examples
    --------
    >>> none([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower.shape
    (2, 1)
    """
    _quantile(coverage)
    return _checked(lower, point, upper)


AGGREGATORS: dict[str, Callable[..., Any]] = {
    "snm": snm,
    "sem": sem,
    "std": std,
    "mean": mean,
    "normal": normal,
    "none": none,
}
"""The aggregators by name; "snm" and "normal" give a SplitNormalMixture, the rest an Interval."""


def _checked(lower: ArrayLike, point: ArrayLike, upper: ArrayLike) -> Interval:
    """Return finite numbers of one shape with at least one member."""
    members = Interval(
        checks.finite("lower", lower), checks.finite("point", point), checks.finite("upper", upper)
    )
    shapes = [array.shape for array in members]
    if len(set(shapes)) > 1 or not shapes[0] or shapes[0][0] == 0:
        raise ValueError(
            "lower, point and upper must have one shape (members, rows) with at least one member, "
            f"got {shapes[0]}, {shapes[1]} and {shapes[2]}"
        )
    return members


def _quantile(coverage: float) -> float:
    """Normal quantile of a central interval, 1.96 for 0.95."""
    return float(ndtri((1.0 + checks.coverage(coverage)) / 2.0))


def _widened(members: Interval, factor: float) -> Interval:
    """Mean bounds, moved outwards by `factor` standard deviations over the members."""
    lower, point, upper = (array.mean(axis=0) for array in members)
    return Interval(
        lower - factor * _spread(members.lower), point, upper + factor * _spread(members.upper)
    )


def _spread(values: FloatArray) -> FloatArray:
    """Standard deviation over members, 0 for a single one."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:])


def level_name(level: float) -> str:
    """A coverage or quantile level as names of columns have it: the shortest text that is it.

    Examples
    --------
    >>> level_name(0.95), level_name(0.9500001), level_name(0.1 + 0.2)
    ('0.95', '0.9500001', '0.30000000000000004')
    """
    return repr(float(level))
