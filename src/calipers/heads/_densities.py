"""Heads of networks that predict a density."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from calipers._arrays import Array
from calipers.heads._head import (
    MIN_SCALE,
    Arithmetic,
    Head,
    length,
    mixture_weights,
    raw_columns,
)

_MEAN_OFFSET = (2 / jnp.pi) ** 0.5  # from mode to mean, per difference of the scales
# Of each component, if there are several; the share is its weight.
_FIELDS = ("loc", "scale", "share")
_UNIT = math.log(2)  # softplus of a raw output of 0
_HALVINGS = 10  # bisection steps for a quantile in the training history


class Normal(Arithmetic):
    """Mean and standard deviation of a normal."""

    name = "normal"
    size = 2
    fields = ("mean", "scale")
    split_normal = ("mean", "scale", "scale")
    lengths = ("scale",)
    locations = (0,)
    point_at = 0
    around_point = "normal"

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        mean, scale = raw_columns(raw)
        return mean, length(scale)

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        mean, scale = parameters
        half_width = scale * ndtri((1 + coverage) / 2)
        return mean - half_width, mean, mean + half_width


class SplitNormalByMode(Arithmetic):
    """Mode and scales of a split normal, or a mixture of several normals.

    A single component can be skewed. A mixture is skewed by its weights, so each of its
    components has one scale, for which the CRPS is fast to compute. Raw outputs and fields of a
    mixture are ordered by component: mode, scale and weight. The raw mode of the first component is
    the mean of the mixture and its raw scale the unit of the others, whose locations and scales are
    relative to it, so that a network learns the mean only once.
    """

    name = "split normal"
    size = 3
    fields = split_normal = ("loc", "left_scale", "right_scale")
    lengths = ("left_scale", "right_scale")
    locations = (0,)
    around_point = "centred"

    def __init__(self, components: int = 1) -> None:
        if components == 1:
            return
        names = [tuple(f"{name}_{k}" for name in _FIELDS) for k in range(components)]
        vars(self).update(
            components=components,
            size=len(_FIELDS) * components,
            fields=sum(names, ()),
            split_normal=sum(((loc, scale, scale) for loc, scale, _ in names), ()),
            lengths=tuple(scale for _, scale, _ in names),
            shares=tuple(weight for *_, weight in names),
        )

    def with_components(self, count: int) -> Head:
        return self if count == self.components else type(self)(count)

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        if self.components == 1:
            loc, left, right = raw_columns(raw)
            return loc, length(left), length(right)
        (mean, *offsets), (unit, *ratios), raw_weights = _grouped(raw_columns(raw))
        unit, weights = length(unit), mixture_weights(raw_weights)
        offsets = [unit * offset for offset in offsets]
        first = mean - sum(w * offset for w, offset in zip(weights[1:], offsets, strict=True))
        scales = (unit * length(ratio) / _UNIT + MIN_SCALE for ratio in ratios)
        return _flat([first, *(first + offset for offset in offsets)], [unit, *scales], weights)

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        tail = (1 - coverage) / 2
        if self.components == 1:
            lower, upper = _quantile(jnp.stack([tail, 1 - tail])[:, None], *parameters)
            return lower, parameters[0], upper
        loc, scale, weight = (jnp.stack(part) for part in _grouped(parameters))
        upper = -_mixture_quantile(tail, -loc, scale, weight)
        return _mixture_quantile(tail, loc, scale, weight), jnp.sum(weight * loc, axis=0), upper


class SplitNormalByMean(SplitNormalByMode):
    """``SplitNormalByMode`` with the mean in place of the mode, as a mixture always has."""

    name = "centred"
    point_at = 0

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        parameters = super().parameters(raw)
        if self.components > 1:
            return parameters
        mean, left, right = parameters
        return mean - _MEAN_OFFSET * (right - left), left, right


def _grouped(parts: Sequence[Any]) -> list[Sequence[Any]]:
    """Modes, scales and weights of several components, from values ordered by component."""
    return [parts[i :: len(_FIELDS)] for i in range(len(_FIELDS))]


def _flat(*parts: Sequence[Any]) -> tuple[Any, ...]:
    """Values ordered by component: the inverse of ``_grouped``."""
    return tuple(value for component in zip(*parts, strict=True) for value in component)


def _quantile(p: Array, loc: Array, left: Array, right: Array) -> Array:
    """Quantile of a split normal, accurate enough for the training history.

    Both sides share one inverse error function, which is a large part of a program and of its
    compilation.
    """
    below = p * (left + right) < left
    scale = jnp.where(below, left, right)
    tail = jnp.where(below, p, 1 - p) * (left + right) / (2 * scale)
    score = math.sqrt(2) * jax.lax.erf_inv(2 * tail - 1)  # negative
    return loc + jnp.where(below, score, -score) * scale


def _mixture_quantile(p: Array, loc: Array, scale: Array, weight: Array) -> Array:
    """Lower quantile of a mixture over the first axis, to a thousandth of its components' range.

    It is for the training history, where it is recorded once per batch.
    """
    quantiles = loc + scale * ndtri(p)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        too_low = jnp.sum(weight * ndtr((middle - loc) / scale), axis=0) < p
        return jnp.where(too_low, middle, ends[0]), jnp.where(too_low, ends[1], middle)

    ends = quantiles.min(axis=0), quantiles.max(axis=0)
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, ends)
    return (low + high) / 2
