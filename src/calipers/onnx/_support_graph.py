"""The map from latent values to those that a target can take, as a graph."""

import numpy as np

from calipers.distributions import Support
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
