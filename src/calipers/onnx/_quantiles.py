"""The part of the graph that computes quantiles of mixtures of split normals.

At a given coverage, a calibrated interval is the pair of quantiles of the mixture at two levels
that calibration has determined, which are the same for every row or for all rows of similar width.
The graph contains these levels and solves for the quantiles by bisection in double precision,
between bounds that certainly enclose them.
"""

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto
from scipy.special import ndtr, ndtri

from calipers.distributions import HALF_NORMAL, Support, TargetMap
from calipers.onnx._graph import Graph

HALVINGS = 44  # of a bracket about ten scales wide, down to 1e-12 of a scale

# Hart's rational function for the normal distribution, accurate to 1e-15 up to ``_FAR``, where a
# continued fraction takes over (West, 2005).
_FAR = 7.07106781186547
_ABOVE = (
    3.52624965998911e-02,
    0.700383064443688,
    6.37396220353165,
    33.912866078383,
    112.079291497871,
    221.213596169931,
    220.206867912376,
)
_BELOW = (
    8.83883476483184e-02,
    1.75566716318264,
    16.064177579207,
    86.7807322029461,
    296.564248779674,
    637.333633378831,
    793.826512519948,
    440.413735824752,
)
_TINY = 1e-300


class Parts(NamedTuple):
    """Names of the parameters of split normals in a graph, and of their weights unless equal.

    Weights sum to 1 along the first axis, which mixtures are taken over.
    """

    loc: str
    left: str
    right: str
    weight: str = ""


def density_mean(graph: Graph, parts: Parts) -> str:
    """Means of split normals, or of their mixtures if they have weights."""
    loc, left, right, weight = parts
    mean = graph("Add", loc, graph("Mul", graph("Sub", right, left), (2 / np.pi) ** 0.5))
    return _total(graph, graph("Mul", weight, mean)) if weight else mean


def _total(graph: Graph, values: str) -> str:
    return graph("ReduceSum", values, graph.integers(0), keepdims=0)


def _mean(graph: Graph, values: str, weight: str) -> str:
    """Mean over members, weighted unless ``weight`` is empty."""
    return _total(graph, graph("Mul", weight, values)) if weight else graph.mean(values)


def width_steps(graph: Graph, edges: Any, parts: Parts) -> str:
    """Index, (rows,), of the step between ``edges`` that each mixture is on.

    Edges are logarithms of standard deviations; ``parts`` are of shape (members, 1, rows).
    """
    loc, left, right, weight = parts
    difference = graph("Sub", right, left)
    square = graph("Mul", difference, difference)
    within = graph("Mul", square, 1.0 - 2.0 / np.pi)
    within = _mean(graph, graph("Add", within, graph("Mul", left, right)), weight)
    means = density_mean(graph, Parts(loc, left, right))
    off = graph("Sub", means, graph.unsqueezed(_mean(graph, means, weight), 0))
    variance = graph("Add", within, _mean(graph, graph("Mul", off, off), weight))
    width = graph("Mul", graph("Log", graph("Max", variance, _TINY)), 0.5)
    width = graph("Reshape", width, graph.integers(-1, 1))
    beyond = graph("GreaterOrEqual", width, edges)
    return graph(
        "ReduceSum", graph("Cast", beyond, to=TensorProto.INT64), graph.integers(1), keepdims=0
    )


def lower_quantile(graph: Graph, score: Any, parts: Parts, step: str | None = None) -> str:
    """Quantiles of mixtures, (levels, rows), at levels given as normal scores.

    Scores broadcast against (levels, rows); with ``step``, the index of the step that each row is
    on, they are of shape (levels, steps). Parts are of shape (members, levels or 1, rows).
    """
    loc, left, right, _ = parts
    level = ndtr(np.asarray(score, dtype=np.float64))

    def by_row(table: Any) -> str:
        return graph.constant(table) if step is None else graph("Gather", table, step, axis=1)

    below = graph("Mul", left, by_row(ndtri(level / 2)))
    above = graph("Mul", right, by_row(-ndtri((1 - level) / 2)))
    target = by_row(level)
    low = graph("ReduceMin", graph("Add", loc, below), axes=[0], keepdims=0)
    high = graph("ReduceMax", graph("Add", loc, above), axes=[0], keepdims=0)
    body, (least, most) = Graph("calipers/body/"), ("calipers/least", "calipers/most")
    middle = body("Mul", body("Add", least, most), 0.5)
    short = body("Less", _mixture_cdf(body, middle, parts), target)
    results = [body("Where", short, middle, least), body("Where", short, most, middle)]
    low, high = graph.repeat(HALVINGS, {least: low, most: high}, body, results)
    return graph("Mul", graph("Add", low, high), 0.5)


def upper_quantile(graph: Graph, score: Any, parts: Parts, step: str | None = None) -> str:
    """The same for upper tails: by the mirror image, so that small tails keep their digits."""
    mirrored = Parts(graph("Neg", parts.loc), parts.right, parts.left, parts.weight)
    return graph("Neg", lower_quantile(graph, -np.asarray(score), mirrored, step))


def _mixture_cdf(graph: Graph, x: str, parts: Parts) -> str:
    loc, left, right, weight = parts
    distance = graph("Sub", x, loc)
    is_left = graph("Less", distance, 0.0)
    scale = graph("Where", is_left, left, right)
    z = graph("Div", graph("Abs", distance), graph("Max", scale, _TINY))
    tail = _normal_tail(graph, graph("Min", z, 38.0))
    both = graph("Max", graph("Add", left, right), _TINY)
    mass = graph("Mul", graph("Div", graph("Add", scale, scale), both), tail)
    cdf = graph("Where", is_left, mass, graph("Sub", 1.0, mass))
    return _mean(graph, cdf, weight)


def _normal_tail(graph: Graph, z: str) -> str:
    """P(Z > z) of a standard normal Z, for z from 0 to 38."""
    square = graph("Mul", graph("Mul", z, z), -0.5)
    near = graph("Div", graph.polynomial(z, _ABOVE), graph.polynomial(z, _BELOW))
    far = graph("Add", z, 0.65)
    for number in (4.0, 3.0, 2.0, 1.0):
        far = graph("Add", z, graph("Div", number, far))
    far = graph("Div", (2 * np.pi) ** -0.5, far)
    ratio = graph("Where", graph("Less", z, _FAR), near, far)
    return graph("Mul", graph("Exp", square), ratio)


def observed(graph: Graph, latent: str, support: Support) -> str:
    """The observable values for latent values of any shape, see ``Support.observe``."""
    value = _through_knots(graph, latent, support) if support.latent else latent
    if support.step:
        place = graph("Div", graph("Sub", value, support.origin), support.step)
        place = graph("Ceil", graph("Sub", place, 0.5))
        value = graph("Add", support.origin, graph("Mul", place, support.step))
        if not support.values:
            unit = 10.0**support.decimals
            value = graph("Div", graph("Round", graph("Mul", value, unit)), unit)
    return clipped(graph, value, support)


def in_own_unit(graph: Graph, value: str, scale: TargetMap | None) -> str:
    """Values in the unit of the target, see ``TargetMap.back``."""
    if scale is None:
        return value
    result = graph("Exp", value)
    if scale.kind == "asinh":
        result = graph("Sub", result, graph("Exp", graph("Neg", value)))
    unit = scale.unit if scale.kind == "log" else 0.5 * scale.unit
    return graph("Mul", result, unit)


def mapped_mean(graph: Graph, scale: TargetMap, parts: Parts) -> str:
    """Means, in the unit of the target, of split normals on a scale or of their mixtures."""
    weight = parts.weight
    nodes, masses = (row.reshape(-1, *(1,) * (3 if weight else 2)) for row in HALF_NORMAL)
    loc, left, right = (graph.unsqueezed(part, 0) for part in parts[:3])
    sides = []
    for sign, width in ((-1.0, left), (1.0, right)):
        value = graph("Add", loc, graph("Mul", width, sign * nodes))
        value = graph("Max", value, scale.low)
        value = graph("Min", value, scale.high)
        value = graph("Mul", in_own_unit(graph, value, scale), masses)
        total = graph("ReduceSum", value, graph.integers(0), keepdims=1)
        sides.append(graph("Mul", total, width))
    both = graph("Div", graph("Add", *sides), graph("Add", left, right))
    mean = graph("Squeeze", both, graph.integers(0))
    return _total(graph, graph("Mul", weight, mean)) if weight else mean


def clipped(graph: Graph, value: str, support: Support) -> str:
    """Values clipped to the bounds of the support."""
    if support.low is not None:
        value = graph("Max", value, support.low)
    if support.high is not None:
        value = graph("Min", value, support.high)
    return value


def _through_knots(graph: Graph, value: str, support: Support) -> str:
    """The piecewise-linear map of a support, as a sum to which each knot adds a change of slope."""
    latent, target = np.array(support.latent), np.array(support.observed)
    slopes = np.concatenate([[1.0], np.diff(target) / np.diff(latent), [1.0]])
    total = graph("Add", value, target[0] - latent[0])
    for knot, change in zip(latent, np.diff(slopes), strict=True):
        beyond = graph("Max", graph("Sub", value, knot), 0.0)
        total = graph("Add", total, graph("Mul", beyond, change))
    return total
