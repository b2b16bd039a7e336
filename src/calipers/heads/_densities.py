"""Heads of networks that predict a density."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from calipers.heads._head import (
    SMALLEST_SCALE,
    Array,
    Head,
    columns,
    length,
    onnx_length,
    onnx_shares,
    shares,
)

_MEAN_OFFSET = (2 / jnp.pi) ** 0.5  # from mode to mean, per difference of the scales
_FIELDS = ("loc", "scale", "share")  # of each of several components
_UNIT = math.log(2)  # the length of a raw output of 0
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
    """Mode of a split normal and its scales on either side; or several normals and their shares.

    One component can lean. Several lean by their shares, so each of them has one scale, with which
    their CRPS is quickly computed. Raw outputs and fields of several come component by component:
    mode, scale and share. The first component's raw mode is the mean of all, its raw scale the unit
    of the others, whose places and scales are relative to it: what a network learns of the mean it
    learns once.
    """

    name = "split normal"
    size = 3
    fields = split_normal = ("loc", "left_scale", "right_scale")
    lengths = ("left_scale", "right_scale")
    around_point = "centred"

    def __init__(self, components: int = 1) -> None:
        if components == 1:
            return
        names = [tuple(f"{name}_{k}" for name in _FIELDS) for k in range(components)]
        own: dict[str, Any] = {
            "components": components,
            "size": len(_FIELDS) * components,
            "fields": sum(names, ()),
            "split_normal": sum(((loc, scale, scale) for loc, scale, _ in names), ()),
            "lengths": tuple(scale for _, scale, _ in names),
            "shares": tuple(share for *_, share in names),
        }
        vars(self).update(own)

    def with_components(self, count: int) -> Head:
        return self if count == self.components else type(self)(count)

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        if self.components == 1:
            loc, left, right = columns(raw)
            return loc, length(left), length(right)
        (mean, *places), (unit, *scales), share = _grouped(columns(raw))
        unit, share = length(unit), shares(share)
        places = [unit * place for place in places]
        first = mean - sum(w * place for w, place in zip(share[1:], places, strict=True))
        wide = (unit * length(one) / _UNIT + SMALLEST_SCALE for one in scales)
        return _flat([first, *(first + place for place in places)], [unit, *wide], share)

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        tail = (1 - coverage) / 2
        if self.components == 1:
            lower, upper = _quantile(jnp.stack([tail, 1 - tail])[:, None], *parameters)
            return lower, parameters[0], upper
        loc, scale, share = (jnp.stack(part) for part in _grouped(parameters))
        upper = -_mixture_quantile(tail, -loc, scale, share)
        return _mixture_quantile(tail, loc, scale, share), jnp.sum(share * loc, axis=0), upper

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        if self.components == 1:
            loc, left, right = raw
            return [loc, onnx_length(graph, left), onnx_length(graph, right)]
        (first, *places), (unit, *scales), share = _grouped(raw)
        unit, share = onnx_length(graph, unit), onnx_shares(graph, share)
        places = [graph("Mul", unit, place) for place in places]
        for w, place in zip(share[1:], places, strict=True):
            first = graph("Sub", first, graph("Mul", w, place))
        wide = [unit]
        for one in scales:
            times = graph("Div", onnx_length(graph, one), graph.single(_UNIT))
            wide.append(graph("Add", graph("Mul", unit, times), graph.single(SMALLEST_SCALE)))
        return list(_flat([first, *(graph("Add", first, place) for place in places)], wide, share))


class SplitNormalByMean(SplitNormalByMode):
    """The same, given by its mean in place of its mode, as several components always are."""

    name = "centred"
    point_at = 0

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        found = super().parameters(raw)
        if self.components > 1:
            return found
        mean, left, right = found
        return mean - _MEAN_OFFSET * (right - left), left, right

    def onnx(self, graph: Any, *raw: str) -> list[str]:
        found = super().onnx(graph, *raw)
        if self.components > 1:
            return found
        mean, left, right = found
        offset = graph("Mul", graph("Sub", right, left), graph.single(_MEAN_OFFSET))
        return [graph("Sub", mean, offset), left, right]


def _grouped(parts: Sequence[Any]) -> list[Sequence[Any]]:
    """Modes, scales and shares of several components, from one component after the other."""
    return [parts[i :: len(_FIELDS)] for i in range(len(_FIELDS))]


def _flat(*parts: Sequence[Any]) -> tuple[Any, ...]:
    """One component after the other: the inverse of ``_grouped``."""
    return tuple(value for component in zip(*parts, strict=True) for value in component)


def _quantile(p: Array, loc: Array, left: Array, right: Array) -> Array:
    """Quantile of a split normal, to the digits of a record of training.

    One error function for all: it is a large part of a program, and of its compilation.
    """
    below = p * (left + right) < left
    scale = jnp.where(below, left, right)
    share = jnp.where(below, p, 1 - p) * (left + right) / (2 * scale)
    score = math.sqrt(2) * jax.lax.erf_inv(2 * share - 1)  # negative
    return loc + jnp.where(below, score, -score) * scale


def _mixture_quantile(p: Array, loc: Array, scale: Array, share: Array) -> Array:
    """Lower quantile of a mixture over the first axis, to a thousandth of its components' range.

    It is for the record of a training, which has one for every batch.
    """
    own = loc + scale * ndtri(p)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        short = jnp.sum(share * ndtr((middle - loc) / scale), axis=0) < p
        return jnp.where(short, middle, ends[0]), jnp.where(short, ends[1], middle)

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (own.min(axis=0), own.max(axis=0)))
    return (low + high) / 2
