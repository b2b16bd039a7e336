"""Weighted sums over the components of a mixture.

Everywhere `x` has the shape (n,), the parameters (members, n) and the weights (members, 1).
"""

import numpy as np

from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers.distributions import _formulas as formulas


def average(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean over the members."""
    return sum_members(weights * values)


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
    loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> FloatArray:
    """Mean of the variances."""
    return average(formulas.var(left, right), weights)


def epistemic_var(
    loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> FloatArray:
    """Variance of the means."""
    means = formulas.mean(loc, left, right)
    return average((means - average(means, weights)) ** 2, weights)


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
    ends = np.cumsum(weights)
    pick = np.minimum(np.searchsorted(ends, uniform, side="right"), len(ends) - 1)
    within = (uniform - (ends - weights[:, 0])[pick]) / weights[pick, 0]
    chosen = (array[pick, np.arange(pick.size)] for array in (loc, left, right))
    return formulas.draw(within, normal, *chosen)
