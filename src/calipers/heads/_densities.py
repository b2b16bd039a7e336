"""Heads of networks that predict a density."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from calipers.heads._head import (
    Array,
    Head,
    columns,
    length,
    onnx_length,
    onnx_shares,
    shares,
)

_MEAN_OFFSET = (2 / jnp.pi) ** 0.5  # from mode to mean, per difference of the scales
_HALVINGS = 10  # of the bracket of a quantile that is recorded


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
    """Mode of a split normal and its scales on either side; of several, and their shares.

    Parameters
    ----------
    components : int
        How many split normals a network predicts. With more than one, raw outputs and fields come
        component by component: mode, scales and share.
    """

    name = "split normal"
    size = 3
    fields = split_normal = ("loc", "left_scale", "right_scale")
    lengths = ("left_scale", "right_scale")
    around_point = "centred"

    def __init__(self, components: int = 1) -> None:
        if components == 1:
            return
        one = type(self)
        names = [[f"{name}_{k}" for name in (*one.fields, "share")] for k in range(components)]
        own: dict[str, Any] = {
            "components": components,
            "size": 4 * components,
            "fields": tuple(name for part in names for name in part),
            "split_normal": tuple(name for part in names for name in part[:3]),
            "lengths": tuple(name for part in names for name in part[1:3]),
            "shares": tuple(part[3] for part in names),
        }
        vars(self).update(own)

    def with_components(self, count: int) -> Head:
        return self if count == self.components else type(self)(count)

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        if self.components == 1:
            loc, left, right = columns(raw)
            return loc, length(left), length(right)
        parts = columns(raw)
        share = shares(jnp.stack(parts[3::4]))
        return tuple(
            value
            for k in range(self.components)
            for value in (
                parts[4 * k],
                length(parts[4 * k + 1]),
                length(parts[4 * k + 2]),
                share[k],
            )
        )

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        tail = (1 - coverage) / 2
        if self.components == 1:
            loc, left, right = parameters
            return _quantile(tail, *parameters), loc, _quantile((1 + coverage) / 2, *parameters)
        loc, left, right, share = (jnp.stack(parameters[i::4]) for i in range(4))
        point = jnp.sum(share * (loc + _MEAN_OFFSET * (right - left)), axis=0)
        upper = -_mixture_quantile(tail, -loc, right, left, share)
        return _mixture_quantile(tail, loc, left, right, share), point, upper

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        if self.components == 1:
            loc, left, right = raw
            return [loc, onnx_length(graph, left), onnx_length(graph, right)]
        share = onnx_shares(graph, raw[3::4])
        return [
            value
            for k in range(self.components)
            for value in (
                raw[4 * k],
                onnx_length(graph, raw[4 * k + 1]),
                onnx_length(graph, raw[4 * k + 2]),
                share[k],
            )
        ]


class SplitNormalByMean(SplitNormalByMode):
    """The same, given by its mean in place of its mode.

    Of several components, the first raw output is the mean of all of them, and the places of the
    others are relative to the first one's mode.
    """

    name = "centred"
    point_at = 0

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        mean, *found = super().parameters(raw)
        if self.components == 1:
            left, right = found
            return mean - _MEAN_OFFSET * (right - left), left, right
        places = (0.0, *found[3::4])
        scales_and_share = zip(found[0::4], found[1::4], found[2::4], strict=True)
        parts = [(*part, place) for part, place in zip(scales_and_share, places, strict=True)]
        centre = sum(
            share * (place + _MEAN_OFFSET * (right - left)) for left, right, share, place in parts
        )
        return tuple(
            value
            for left, right, share, place in parts
            for value in (mean - centre + place, left, right, share)
        )

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        found = super().onnx(graph, *raw)
        if self.components == 1:
            mean, left, right = found
            offset = graph("Mul", graph("Sub", right, left), graph.single(_MEAN_OFFSET))
            return [graph("Sub", mean, offset), left, right]
        mean, found[0] = found[0], graph("Sub", found[0], found[0])
        parts = [found[i : i + 4] for i in range(0, len(found), 4)]
        centre = None
        for place, left, right, share in parts:
            offset = graph("Mul", graph("Sub", right, left), graph.single(_MEAN_OFFSET))
            term = graph("Mul", share, graph("Add", place, offset))
            centre = term if centre is None else graph("Add", centre, term)
        start = graph("Sub", mean, centre)
        return [v for place, *rest in parts for v in (graph("Add", start, place), *rest)]


def _quantile(p: Array, loc: Array, left: Array, right: Array) -> Array:
    """Quantile of a split normal."""
    below = loc + left * ndtri(jnp.minimum(p * (left + right) / (2 * left), 0.5))
    above = loc - right * ndtri(jnp.minimum((1 - p) * (left + right) / (2 * right), 0.5))
    return jnp.where(p * (left + right) < left, below, above)


def _mixture_quantile(p: Array, loc: Array, left: Array, right: Array, share: Array) -> Array:
    """Lower quantile of a mixture over the first axis, to a thousandth of its components' range.

    It is for the record of a training, which has one for every batch.
    """
    own = _quantile(p, loc, left, right)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        z = (middle - loc) / jnp.where(middle < loc, left, right)
        tail = 2 * ndtr(-jnp.abs(z)) / (left + right)
        mass = jnp.where(z < 0, left * tail, 1 - right * tail)
        short = jnp.sum(share * mass, axis=0) < p
        return jnp.where(short, middle, ends[0]), jnp.where(short, ends[1], middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (own.min(axis=0), own.max(axis=0)))
    return (low + high) / 2
