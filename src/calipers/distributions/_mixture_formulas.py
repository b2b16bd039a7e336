"""Mixture formulas as weighted sums over the components, at one value for each row."""

import numpy as np

from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers.distributions import _formulas as formulas
from calipers.distributions._members import Members


def average(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean over the members."""
    return sum_members(weights * values)


def pdf(x: FloatArray, members: Members) -> FloatArray:
    """Density."""
    return average(formulas.pdf(x, *members.parameters), members.weights)


def logpdf(x: FloatArray, members: Members) -> FloatArray:
    """Log density, summed relative to the largest component."""
    each = np.log(members.weights) + formulas.logpdf(x, *members.parameters)
    top: FloatArray = each.max(axis=0)
    return np.where(np.isinf(top), top, top + np.log(sum_members(np.exp(each - top))))


mixture_logpdf = logpdf  # its name outside this module


def cdf(x: FloatArray, members: Members) -> FloatArray:
    """P(X <= x)."""
    return np.minimum(average(formulas.cdf(x, *members.parameters), members.weights), 1.0)


def sf(x: FloatArray, members: Members) -> FloatArray:
    """P(X > x)."""
    return np.minimum(average(formulas.sf(x, *members.parameters), members.weights), 1.0)


def mean(members: Members) -> FloatArray:
    """Weighted mean of the members' means."""
    return average(formulas.mean(*members.parameters), members.weights)


def aleatoric_var(members: Members, *, per_network: int = 1) -> FloatArray:
    """Mean of the networks' variances."""
    within = average(formulas.var(members.left, members.right), members.weights)
    if per_network == 1:
        return within
    means = formulas.mean(*members.parameters)
    centres, _ = _by_network(means, members.weights, per_network)
    between = (means - np.repeat(centres, per_network, axis=0)) ** 2
    return within + average(between, members.weights)


def epistemic_var(members: Members, *, per_network: int = 1) -> FloatArray:
    """Variance of the networks' means."""
    means, weights = formulas.mean(*members.parameters), members.weights
    if per_network > 1:
        means, weights = _by_network(means, weights, per_network)
    return average((means - average(means, weights)) ** 2, weights)


def _by_network(
    values: FloatArray, weights: FloatArray, per_network: int
) -> tuple[FloatArray, FloatArray]:
    """Weighted mean of each network's members, and the networks' weights."""

    def total(array: FloatArray) -> FloatArray:
        return sum_members(array.reshape(-1, per_network, array.shape[1]).swapaxes(0, 1))

    weight = total(weights)
    return total(weights * values) / weight, weight


def std(members: Members) -> FloatArray:
    """Root of the total variance, in units of the largest term so that squares do not overflow."""
    within = formulas.std(members.left, members.right)
    means = formulas.mean(*members.parameters)
    between = np.abs(means - average(means, members.weights))
    unit: FloatArray = np.maximum(within, between).max(axis=0)
    squares = average((within / unit) ** 2 + (between / unit) ** 2, members.weights)
    return unit * np.sqrt(np.fmax(squares, 0.0))


def draw(uniform: FloatArray, normal: FloatArray, members: Members) -> FloatArray:
    """A draw from a uniform number, which selects the side of a component, and a normal one."""
    weights, ends = members.weights, np.cumsum(members.weights, axis=0)
    pick = np.minimum((ends <= uniform).sum(axis=0), len(ends) - 1)
    place = pick, np.arange(pick.size)
    shape = members.loc.shape
    start, weight = (np.broadcast_to(a, shape)[place] for a in (ends - weights, weights))
    chosen = (array[place] for array in members.parameters)
    return formulas.draw((uniform - start) / weight, normal, *chosen)
