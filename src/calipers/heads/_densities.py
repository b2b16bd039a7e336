"""Heads of networks that predict a density."""

from typing import Any

import jax.numpy as jnp
from jax.scipy.special import ndtri

from calipers.heads._head import Array, Head, columns, length, onnx_length

_MEAN_OFFSET = (2 / jnp.pi) ** 0.5  # from mode to mean, per difference of the scales


class Normal(Head):
    """Mean and standard deviation of a normal."""

    name = "normal"
    size = 2
    fields = ("mean", "scale")
    split_normal = ("mean", "scale", "scale")
    lengths = ("scale",)
    point_at = 0
    around_point = "normal"

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        mean, scale = columns(raw)
        return mean, length(scale)

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        mean, scale = parameters
        half_width = scale * ndtri((1 + coverage) / 2)
        return mean - half_width, mean, mean + half_width

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        mean, scale = raw
        return [mean, onnx_length(graph, scale)]


class SplitNormalByMode(Head):
    """Mode of a split normal and its scales on either side."""

    name = "split normal"
    size = 3
    fields = split_normal = ("loc", "left_scale", "right_scale")
    lengths = ("left_scale", "right_scale")
    around_point = "centred"

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        loc, left, right = columns(raw)
        return loc, length(left), length(right)

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        loc, left, right = parameters

        def quantile(p: Array) -> Array:
            below = loc + left * ndtri(jnp.minimum(p * (left + right) / (2 * left), 0.5))
            above = loc - right * ndtri(jnp.minimum((1 - p) * (left + right) / (2 * right), 0.5))
            return jnp.where(p * (left + right) < left, below, above)

        return quantile((1 - coverage) / 2), loc, quantile((1 + coverage) / 2)

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        loc, left, right = raw
        return [loc, onnx_length(graph, left), onnx_length(graph, right)]


class SplitNormalByMean(SplitNormalByMode):
    """The same, given by its mean in place of its mode."""

    name = "centred"
    point_at = 0

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        mean, left, right = super().parameters(raw)
        return mean - _MEAN_OFFSET * (right - left), left, right

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        mean, left, right = super().onnx(graph, *raw)
        offset = graph("Mul", graph("Sub", right, left), graph.single(_MEAN_OFFSET))
        return [graph("Sub", mean, offset), left, right]
