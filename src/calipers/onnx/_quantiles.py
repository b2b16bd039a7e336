"""The part of the graph that computes quantiles of mixtures of split normals.

At a given coverage, a calibrated interval is the pair of quantiles of the mixture at two levels
that calibration has determined, which are the same for every row or for all rows of similar width.
The graph contains these levels and solves for the quantiles by bisection in double precision,
between bounds that certainly enclose them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from calipers.distributions import HALF_NORMAL, Support, TargetMap
from calipers.onnx._graph import Graph, Value

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

    loc: Value
    left: Value
    right: Value
    weight: Value | None = None

    def log_width(self) -> Value:
        """Logarithm of the standard deviation, (rows, 1), of mixtures (members, 1, rows)."""
        loc, left, right, weight = self
        graph, difference = loc.graph, right - left
        within = difference * difference * (1.0 - 2.0 / np.pi) + left * right
        means = density_mean(graph, Parts(loc, left, right))
        off = means - graph.unsqueezed(_mean(graph, means, weight), 0)
        variance = _mean(graph, within, weight) + _mean(graph, off * off, weight)
        width = graph("Log", graph("Max", variance, _TINY)) * 0.5
        return graph("Reshape", width, graph.integers(-1, 1))


def density_mean(graph: Graph, parts: Parts) -> Value:
    """Means of split normals, or of their mixtures if they have weights."""
    loc, left, right, weight = parts
    mean = loc + (right - left) * (2 / np.pi) ** 0.5
    return graph.sum(weight * mean) if weight else mean


def _mean(graph: Graph, values: Value, weight: Value | None) -> Value:
    """Mean over members, weighted if there are weights."""
    return graph.sum(weight * values) if weight else graph.mean(values)


def lower_quantile(graph: Graph, score: ArrayLike, parts: Parts, step: str | None = None) -> Value:
    """Quantiles of mixtures, (levels, rows), at levels given as normal scores.

    Scores broadcast against (levels, rows); with ``step``, the index of the step that each row is
    on, they are of shape (levels, steps). Parts are of shape (members, levels or 1, rows).
    """
    loc, left, right, _ = parts
    level = ndtr(np.asarray(score, dtype=np.float64))

    def by_row(table: ArrayLike) -> Value:
        return graph.constant(table) if step is None else graph("Gather", table, step, axis=1)

    below, above = left * by_row(ndtri(level / 2)), right * by_row(-ndtri((1 - level) / 2))
    target = by_row(level)
    low = graph.reduced("ReduceMin", loc + below)
    high = graph.reduced("ReduceMax", loc + above)
    body = Graph("calipers/body/", graph.opset)
    least, most = Value("calipers/least", body), Value("calipers/most", body)
    middle = (least + most) * 0.5
    short = body("Less", _mixture_cdf(body, middle, parts), target)
    results = [body("Where", short, middle, least), body("Where", short, most, middle)]
    low, high = graph.repeat(HALVINGS, {least: low, most: high}, body, results)
    return (low + high) * 0.5


def upper_quantile(graph: Graph, score: ArrayLike, parts: Parts, step: str | None = None) -> Value:
    """Upper quantile, by the mirror image, so that small tails keep their digits."""
    mirrored = Parts(-parts.loc, parts.right, parts.left, parts.weight)
    return -lower_quantile(graph, -np.asarray(score), mirrored, step)


def _mixture_cdf(graph: Graph, x: Value, parts: Parts) -> Value:
    """Distribution function at ``x``, in a graph that may be within that of ``parts``."""
    loc, left, right = (Value(part, graph) for part in parts[:3])
    weight = parts.weight and Value(parts.weight, graph)
    distance = x - loc
    is_left = graph("Less", distance, 0.0)
    scale = graph("Where", is_left, left, right)
    z = graph("Abs", distance) / graph("Max", scale, _TINY)
    tail = _normal_tail(graph, graph("Min", z, 38.0))
    mass = (scale + scale) / graph("Max", left + right, _TINY) * tail
    return _mean(graph, graph("Where", is_left, mass, 1.0 - mass), weight)


def _normal_tail(graph: Graph, z: Value) -> Value:
    """P(Z > z) of a standard normal Z, for z from 0 to 38."""
    near = graph.polynomial(z, _ABOVE) / graph.polynomial(z, _BELOW)
    far = z + 0.65
    for number in (4.0, 3.0, 2.0, 1.0):
        far = z + number / far
    ratio = graph("Where", graph("Less", z, _FAR), near, (2 * np.pi) ** -0.5 / far)
    return graph("Exp", z * z * -0.5) * ratio


def observed(graph: Graph, latent: Value, support: Support) -> Value:
    """The observable values for latent values of any shape, see ``Support.observe``."""
    value = _through_knots(graph, latent, support) if support.latent else latent
    if support.step:
        place = graph("Ceil", (value - support.origin) / support.step - 0.5)
        value = support.origin + place * support.step
        if not support.values:
            unit = 10.0**support.decimals
            value = graph("Round", value * unit) / unit
    return clipped(graph, value, support)


def in_own_unit(graph: Graph, value: Value, scale: TargetMap | None) -> Value:
    """Values in the unit of the target, see ``TargetMap.back``."""
    if scale is None:
        return value
    restored: Value = scale.formulas.onnx(graph, value, scale.unit)
    return restored


def mapped_mean(graph: Graph, scale: TargetMap, parts: Parts) -> Value:
    """Means, in the unit of the target, of split normals on a scale or of their mixtures."""
    weight = parts.weight
    nodes, masses = (row.reshape(-1, *(1,) * (3 if weight else 2)) for row in HALF_NORMAL)
    loc, left, right = (graph.unsqueezed(part, 0) for part in parts[:3])
    sides = []
    for sign, width in ((-1.0, left), (1.0, right)):
        value = graph("Min", graph("Max", loc + width * (sign * nodes), scale.low), scale.high)
        total = graph.sum(in_own_unit(graph, value, scale) * masses, keepdims=1)
        sides.append(total * width)
    mean = graph.squeezed((sides[0] + sides[1]) / (left + right), 0)
    return graph.sum(weight * mean) if weight else mean


def clipped(graph: Graph, value: Value, support: Support) -> Value:
    """Values clipped to the bounds of the support."""
    low, high = support.ends
    if np.isfinite(low):
        value = graph("Max", value, low)
    if np.isfinite(high):
        value = graph("Min", value, high)
    return value


def _through_knots(graph: Graph, value: Value, support: Support) -> Value:
    """The piecewise-linear map of a support, as a sum to which each knot adds a change of slope."""
    latent, target = np.array(support.latent), np.array(support.observed)
    slopes = np.concatenate([[1.0], np.diff(target) / np.diff(latent), [1.0]])
    total = value + (target[0] - latent[0])
    for knot, change in zip(latent, np.diff(slopes), strict=True):
        total = total + graph("Max", value - knot, 0.0) * change
    return total
