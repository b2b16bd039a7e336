"""Aggregation by mixtures of split normals, as in the paper, or of normals."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calipers.aggregation._mean_bounds import Aggregation, checked, quantile
from calipers.distributions import SplitNormal, SplitNormalMixture, scale_table

_TINY = 1e-300


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
    members = checked(lower, point, upper)
    return SplitNormalMixture(SplitNormal.from_interval(*members, coverage))


def _snm_onnx(
    graph: Any, lower: str, point: str, upper: str, *, coverage: float, members: int
) -> tuple[str, str, str]:
    """``SplitNormal.from_interval`` as a graph."""
    least, most = graph("Min", lower, upper), graph("Max", lower, upper)
    middle = graph("Min", graph("Max", point, least), most)
    left = graph("Sub", middle, graph("Min", least, point))
    right = graph("Sub", graph("Max", most, point), middle)
    longer = graph("Max", left, right)
    ratio = graph("Div", graph("Min", left, right), graph("Max", longer, graph.constant(_TINY)))
    tables = scale_table(coverage)
    cells, tail = tables[0].shape[1], (1.0 - coverage) / 2.0
    grown = graph("Add", graph("Div", ratio, graph.constant(tail)), graph.constant(1.0))
    place = graph("Mul", graph("Log", grown), graph.constant(cells / np.log1p(1.0 / tail)))
    cell = graph("Min", graph("Floor", place), graph.constant(cells - 1))
    within, index = graph("Sub", place, cell), graph("Cast", cell, to=7)  # 7 is int64
    per_length, per_scale = (
        graph.polynomial(
            within, [graph("Gather", graph.constant(powers), index) for powers in table]
        )
        for table in tables
    )
    of_longer = graph("Mul", per_length, longer)
    of_shorter = graph("Mul", per_scale, of_longer)
    swap = graph("Less", left, right)
    return (
        middle,
        graph("Where", swap, of_shorter, of_longer),
        graph("Where", swap, of_longer, of_shorter),
    )


SNM = Aggregation(snm, gives_distribution=True, onnx=_snm_onnx)


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
    members = checked(lower, point, upper)
    scale = np.abs(members.upper - members.lower) / (2.0 * quantile(coverage))
    return SplitNormalMixture(SplitNormal(members.point, scale, scale))


def _normal_onnx(
    graph: Any, lower: str, point: str, upper: str, *, coverage: float, members: int
) -> tuple[str, str, str]:
    width = graph("Abs", graph("Sub", upper, lower))
    scale = graph("Mul", width, graph.constant(0.5 / quantile(coverage)))
    return point, scale, scale


NORMAL = Aggregation(normal, gives_distribution=True, onnx=_normal_onnx)
