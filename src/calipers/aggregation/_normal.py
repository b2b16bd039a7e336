"""A mixture of normals, as in deep ensembles."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calipers.aggregation._aggregation import Aggregation, checked, quantile
from calipers.distributions import SplitNormal, SplitNormalMixture


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
    members = checked(lower, point, upper)
    scale = np.abs(members.upper - members.lower) / (2.0 * quantile(coverage))
    return SplitNormalMixture(SplitNormal(members.point, scale, scale))


def _onnx(
    graph: Any, lower: str, point: str, upper: str, *, coverage: float, members: int
) -> tuple[str, str, str]:
    width = graph("Abs", graph("Sub", upper, lower))
    scale = graph("Mul", width, graph.constant(0.5 / quantile(coverage)))
    return point, scale, scale


NORMAL = Aggregation(normal, gives_distribution=True, onnx=_onnx)
