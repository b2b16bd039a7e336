"""Weighted sums over the components of a mixture.

Everywhere `x` has the shape (n,), the parameters (members, n) and the weights (members, 1), or
(members, n) where rows have their own. Members come network by network, `per_network` of each.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers.distributions import _formulas as formulas


def average(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean over the members."""
    return sum_members(weights * values)


def take_weights(weights: FloatArray, rows: NDArray[Any]) -> FloatArray:
    """Weights of some of the rows; those of one column are common to all."""
    return weights if weights.shape[1] == 1 else weights[:, rows]


def pdf(
    x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> FloatArray:
    """Density."""
    return average(formulas.pdf(x, loc, left, right), weights)


def logpdf(
    x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> FloatArray:
    """Logarithm of the density, summed relative to the largest component."""
    each = np.log(weights) + formulas.logpdf(x, loc, left, right)
    top: FloatArray = each.max(axis=0)
    return np.where(np.isinf(top), top, top + np.log(sum_members(np.exp(each - top))))


mixture_logpdf = logpdf  # its name outside of this module


def cdf(
    x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> FloatArray:
    """P(X <= x)."""
    return np.minimum(average(formulas.cdf(x, loc, left, right), weights), 1.0)


def sf(
    x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> FloatArray:
    """P(X > x)."""
    return np.minimum(average(formulas.sf(x, loc, left, right), weights), 1.0)


def mean(loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray) -> FloatArray:
    """Mean of the means."""
    return average(formulas.mean(loc, left, right), weights)


def aleatoric_var(
    loc: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
    *,
    per_network: int = 1,
) -> FloatArray:
    """Mean of the networks' variances."""
    within = average(formulas.var(left, right), weights)
    if per_network == 1:
        return within
    means = formulas.mean(loc, left, right)
    own, _ = _of_networks(means, weights, per_network)
    return within + average((means - np.repeat(own, per_network, axis=0)) ** 2, weights)


def epistemic_var(
    loc: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
    *,
    per_network: int = 1,
) -> FloatArray:
    """Variance of the networks' means."""
    means = formulas.mean(loc, left, right)
    if per_network > 1:
        means, weights = _of_networks(means, weights, per_network)
    return average((means - average(means, weights)) ** 2, weights)


def _of_networks(
    values: FloatArray, weights: FloatArray, per_network: int
) -> tuple[FloatArray, FloatArray]:
    """Weighted mean of each network's members, and the networks' weights."""

    def total(array: FloatArray) -> FloatArray:
        return sum_members(array.reshape(-1, per_network, array.shape[1]).swapaxes(0, 1))

    weight = total(weights)
    return total(weights * values) / weight, weight


def std(loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray) -> FloatArray:
    """Root of both variances, in units of the largest part lest the squares overflow."""
    within = formulas.std(left, right)
    means = formulas.mean(loc, left, right)
    between = np.abs(means - average(means, weights))
    unit: FloatArray = np.maximum(within, between).max(axis=0)
    squares = average((within / unit) ** 2 + (between / unit) ** 2, weights)
    return unit * np.sqrt(np.fmax(squares, 0.0))


def draw(
    uniform: FloatArray,
    normal: FloatArray,
    loc: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Turn a uniform number, which picks the side of a component, and a normal one into a draw."""
    ends = np.cumsum(weights, axis=0)
    pick = np.minimum((ends <= uniform).sum(axis=0), len(ends) - 1)
    place = pick, np.arange(pick.size)
    start, weight = (np.broadcast_to(a, loc.shape)[place] for a in (ends - weights, weights))
    chosen = (array[place] for array in (loc, left, right))
    return formulas.draw((uniform - start) / weight, normal, *chosen)
