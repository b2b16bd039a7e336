"""From the scale of networks to the values that a target can take, as a graph."""

import numpy as np

from calipers.distributions import HALF_NORMAL, Support, TargetMap
from calipers.onnx._graph import Graph


def observed(graph: Graph, latent: str, support: Support) -> str:
    """What is observed of latent values of any shape, see ``Support.observe``."""
    value = latent
    if support.latent:
        value = _through_knots(graph, value, support)
    if support.step:
        step, origin = graph.constant(support.step), graph.constant(support.origin)
        place = graph("Div", graph("Sub", value, origin), step)
        place = graph("Ceil", graph("Sub", place, graph.constant(0.5)))
        value = graph("Add", origin, graph("Mul", place, step))
        if not support.values:
            unit = graph.constant(10.0**support.decimals)
            value = graph("Div", graph("Round", graph("Mul", value, unit)), unit)
    return clipped(graph, value, support)


def in_own_unit(graph: Graph, value: str, scale: TargetMap | None) -> str:
    """Values in the target's unit, see ``TargetMap.back``."""
    if scale is None:
        return value
    up = graph("Exp", value)
    if scale.kind == "asinh":
        up = graph("Sub", up, graph("Exp", graph("Neg", value)))
    unit = scale.unit if scale.kind == "log" else 0.5 * scale.unit
    return graph("Mul", up, graph.constant(unit))


def mapped_mean(
    graph: Graph, scale: TargetMap, loc: str, left: str, right: str, share: str = ""
) -> str:
    """Means of split normals on a scale, or of mixtures over a first axis, in the target's unit."""
    scores, parts = (row.reshape(-1, *(1,) * (3 if share else 2)) for row in HALF_NORMAL)
    loc, left, right = (graph.unsqueezed(part, 0) for part in (loc, left, right))
    sides = []
    for sign, wide in ((-1.0, left), (1.0, right)):
        value = graph("Add", loc, graph("Mul", wide, graph.constant(sign * scores)))
        value = graph("Max", value, graph.constant(scale.low))
        value = graph("Min", value, graph.constant(scale.high))
        value = graph("Mul", in_own_unit(graph, value, scale), graph.constant(parts))
        total = graph("ReduceSum", value, graph.integers(0), keepdims=1)
        sides.append(graph("Mul", total, wide))
    both = graph("Div", graph("Add", *sides), graph("Add", left, right))
    mean = graph("Squeeze", both, graph.integers(0))
    if not share:
        return mean
    return graph("ReduceSum", graph("Mul", share, mean), graph.integers(0), keepdims=0)


def clipped(graph: Graph, value: str, support: Support) -> str:
    """Values within the bounds."""
    if support.low is not None:
        value = graph("Max", value, graph.constant(support.low))
    if support.high is not None:
        value = graph("Min", value, graph.constant(support.high))
    return value


def _through_knots(graph: Graph, value: str, support: Support) -> str:
    """A piecewise linear map as a sum: each knot changes the slope from there on."""
    latent, target = np.array(support.latent), np.array(support.observed)
    slopes = np.concatenate([[1.0], np.diff(target) / np.diff(latent), [1.0]])
    total = graph("Add", value, graph.constant(target[0] - latent[0]))
    for knot, change in zip(latent, np.diff(slopes), strict=True):
        beyond = graph("Max", graph("Sub", value, graph.constant(knot)), graph.constant(0.0))
        total = graph("Add", total, graph("Mul", beyond, graph.constant(change)))
    return total
