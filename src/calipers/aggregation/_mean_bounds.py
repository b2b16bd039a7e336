"""The `Aggregation` record, and aggregation by mean bounds, widened by members' disagreement."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from calipers import _checks as checks
from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers.distributions import SplitNormalMixture


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
    gives_distribution: bool
    single: bool = False  #: Whether it is for an ensemble of one network.
    #: The function in a ``calipers.onnx`` graph: ``onnx(graph, lower, point, upper, coverage=...,
    #: members=...)``, from names of values to the names of ``loc``, ``left_scale`` and
    #: ``right_scale`` of shape (members, rows), or of ``lower`` and ``upper`` of shape (rows,).
    #: Without it a model cannot be exported.
    onnx: Callable[..., tuple[Any, ...]] | None = None

    def __call__(
        self, lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float
    ) -> SplitNormalMixture | Interval:
        """Aggregate members."""
        return self.function(lower, point, upper, coverage=coverage)


def checked(lower: ArrayLike, point: ArrayLike, upper: ArrayLike) -> Interval:
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


def quantile(coverage: float) -> float:
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
    members = checked(lower, point, upper)
    return _widened(members, quantile(coverage) / np.sqrt(len(members.lower)))


def std(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Mean bounds, widened by the normal quantile times their standard deviation (STD).

    Examples
    --------
    >>> std([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower.round(2)
    array([-4.77])
    """
    return _widened(checked(lower, point, upper), quantile(coverage))


def mean(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Mean bounds.

    Examples
    --------
    >>> mean([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower
    array([-2.])
    """
    quantile(coverage)
    return _widened(checked(lower, point, upper), 0.0)


def none(lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float) -> Interval:
    """Interval of each member, unchanged, of shape (members, rows).

    Examples
    --------
    >>> none([[-1.0], [-3.0]], [[0.0], [0.0]], [[1.0], [1.0]], coverage=0.95).lower.shape
    (2, 1)
    """
    quantile(coverage)
    return checked(lower, point, upper)


def _widened(members: Interval, factor: float) -> Interval:
    """Mean bounds, moved outwards by `factor` standard deviations over the members."""
    lower, point, upper = (sum_members(array) / len(array) for array in members)
    return Interval(
        lower - factor * _std(members.lower), point, upper + factor * _std(members.upper)
    )


def _std(values: FloatArray) -> FloatArray:
    """Standard deviation over members, 0 for a single one."""
    if len(values) == 1:
        return np.zeros(values.shape[1:])
    deviation = values - sum_members(values) / len(values)
    return np.sqrt(sum_members(deviation * deviation) / (len(values) - 1))


def _onnx(widening: Callable[[float, int], float]) -> Callable[..., tuple[str, str]]:
    """``_widened`` in a graph, by ``widening(coverage, members)`` standard deviations."""

    def combined(
        graph: Any, lower: str, point: str, upper: str, *, coverage: float, members: int
    ) -> tuple[str, str]:
        factor = graph.constant(widening(coverage, members))

        def margin(side: str) -> str:
            deviation = graph("Sub", side, graph.mean(side))
            squares = graph("Mul", deviation, deviation)
            total = graph("ReduceSum", squares, graph.integers(0), keepdims=0)
            variance = graph("Div", total, graph.constant(float(max(members - 1, 1))))
            return str(graph("Mul", graph("Sqrt", variance), factor))

        return (
            graph("Sub", graph.mean(lower), margin(lower)),
            graph("Add", graph.mean(upper), margin(upper)),
        )

    return combined


SEM = Aggregation(sem, False, onnx=_onnx(lambda coverage, m: quantile(coverage) / m**0.5))
STD = Aggregation(std, False, onnx=_onnx(lambda coverage, _: quantile(coverage)))
MEAN = Aggregation(mean, False, onnx=_onnx(lambda *_: 0.0))
NONE = Aggregation(none, False, single=True, onnx=_onnx(lambda *_: 0.0))
