"""Aggregation of the members of an ensemble into one prediction.

Every aggregation has the same signature: it takes the members' lower bounds, points and upper
bounds, each of shape (members, rows), and the coverage they were trained for. Two of them return a
distribution, which gives intervals of any coverage; the others return an `Interval` for the
coverage of the members. The point prediction of the paper is always the mean of the members'
points, not the mean of a mixture.

To add an aggregation, write an ``Aggregation`` and register it in ``AGGREGATIONS``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from calipers import _checks as checks
from calipers._arrays import FloatArray
from calipers._blocks import sum_members
from calipers.distributions import SplitNormal, SplitNormalMixture, scale_table

if TYPE_CHECKING:
    from calipers.onnx import Graph, Value

__all__ = ["AGGREGATIONS", "Aggregation", "Interval", "mean", "none", "normal", "sem", "snm", "std"]

_TINY = 1e-300


class Interval(NamedTuple):
    """Bounds and points, in this order everywhere."""

    lower: FloatArray
    point: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class Aggregation:
    """A method that aggregates the members of an ensemble into one prediction."""

    #: ``function(lower, point, upper, *, coverage)`` of the members' bounds and points, each of
    #: shape (members, rows), and the coverage they were trained for.
    function: Callable[..., SplitNormalMixture | Interval]
    #: Whether it returns a ``SplitNormalMixture``, which gives intervals of any coverage, or an
    #: ``Interval`` for the coverage of the members.
    gives_distribution: bool = False
    single: bool = False  #: Whether it is for an ensemble of one network.
    #: The function in a ``calipers.onnx`` graph: ``onnx(graph, lower, point, upper, coverage=...,
    #: members=...)``, from names of values to the names of ``loc``, ``left_scale`` and
    #: ``right_scale`` of shape (members, rows), or of ``lower`` and ``upper`` of shape (rows,).
    #: Without it a model cannot be exported.
    onnx: Callable[..., tuple["Value", ...]] | None = None

    def __call__(
        self, lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float
    ) -> SplitNormalMixture | Interval:
        """Aggregate members."""
        return self.function(lower, point, upper, coverage=coverage)


def _checked(lower: ArrayLike, point: ArrayLike, upper: ArrayLike) -> Interval:
    """Members as float arrays, checked to be finite, of one shape and at least one member."""
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
    """Interval of each member, unchanged, of shape (members, rows).

    Examples
    --------
    >>> none([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower.shape
    (2, 1)
    """
    _quantile(coverage)
    return _checked(lower, point, upper)


def _widened(members: Interval, factor: float) -> Interval:
    """Mean bounds, moved outwards by `factor` standard deviations over the members."""
    lower, point, upper = (sum_members(array) / len(array) for array in members)
    return Interval(
        lower - factor * _std(members.lower), point, upper + factor * _std(members.upper)
    )


def _std(values: FloatArray) -> FloatArray:
    """Standard deviation over members, 0 for a single one."""
    deviation = values - sum_members(values) / len(values)
    return np.sqrt(sum_members(deviation * deviation) / max(len(values) - 1, 1))


def snm(
    lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float
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
    return SplitNormalMixture(SplitNormal.from_interval(*members, coverage))


def normal(
    lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float
) -> SplitNormalMixture:
    """Mixture of normals with each member's point as the mean and a scale from its width.

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


def _snm_onnx(
    graph: "Graph", lower: "Value", point: "Value", upper: "Value", *, coverage: float, members: int
) -> tuple["Value", ...]:
    """``SplitNormal.from_interval`` as a graph."""
    least, most = graph("Min", lower, upper), graph("Max", lower, upper)
    middle = graph("Min", graph("Max", point, least), most)
    left, right = middle - graph("Min", least, point), graph("Max", most, point) - middle
    longer = graph("Max", left, right)
    ratio = graph("Min", left, right) / graph("Max", longer, _TINY)
    tables = scale_table(coverage)
    cells, tail = tables[0].shape[1], (1.0 - coverage) / 2.0
    place = graph("Log", ratio / tail + 1.0) * (cells / np.log1p(1.0 / tail))
    cell = graph("Min", graph("Floor", place), float(cells - 1))
    within, index = place - cell, graph("Cast", cell, to=7)  # 7 is int64
    per_length, per_scale = (
        graph.polynomial(within, [graph("Gather", powers, index) for powers in table])
        for table in tables
    )
    of_longer = per_length * longer
    of_shorter = per_scale * of_longer
    swap = graph("Less", left, right)
    scales = (of_shorter, of_longer), (of_longer, of_shorter)
    return middle, *(graph("Where", swap, *pair) for pair in scales)


def _normal_onnx(
    graph: "Graph", lower: "Value", point: "Value", upper: "Value", *, coverage: float, members: int
) -> tuple["Value", ...]:
    scale = graph("Abs", upper - lower) * (0.5 / _quantile(coverage))
    return point, scale, scale


def _mean_bounds_onnx(
    widening: Callable[[float, int], float],
) -> Callable[..., tuple["Value", ...]]:
    """``_widened`` in a graph, by ``widening(coverage, members)`` standard deviations."""

    def combined(
        graph: "Graph",
        lower: "Value",
        point: "Value",
        upper: "Value",
        *,
        coverage: float,
        members: int,
    ) -> tuple["Value", ...]:
        def margin(side: "Value") -> "Value":
            deviation = side - graph.mean(side)
            variance = graph.sum(deviation * deviation) / float(max(members - 1, 1))
            return graph("Sqrt", variance) * widening(coverage, members)

        return graph.mean(lower) - margin(lower), graph.mean(upper) + margin(upper)

    return combined


AGGREGATIONS: dict[str, Aggregation] = {
    "snm": Aggregation(snm, gives_distribution=True, onnx=_snm_onnx),
    "sem": Aggregation(sem, onnx=_mean_bounds_onnx(lambda level, m: _quantile(level) / m**0.5)),
    "std": Aggregation(std, onnx=_mean_bounds_onnx(lambda level, _: _quantile(level))),
    "mean": Aggregation(mean, onnx=_mean_bounds_onnx(lambda *_: 0.0)),
    "normal": Aggregation(normal, gives_distribution=True, onnx=_normal_onnx),
    "none": Aggregation(none, single=True, onnx=_mean_bounds_onnx(lambda *_: 0.0)),
}
"""The aggregations by name."""
