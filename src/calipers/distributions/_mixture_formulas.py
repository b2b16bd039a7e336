"""Mixture formulas as weighted sums over the components, at one value for each row."""

import numpy as np
from scipy.special import erf, erfc, owens_t

from calipers._arrays import FloatArray
from calipers._blocks import sum_members
from calipers.distributions import _formulas as formulas
from calipers.distributions._formulas import SQRT2, SQRT_2_OVER_PI, Members
from calipers.distributions._quantile import interval as interval, isf as isf, ppf as ppf

Parameters = tuple[FloatArray, FloatArray, FloatArray]  # location and scales


def average(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean over the members."""
    return sum_members(weights * values)


def pdf(x: FloatArray, members: Members) -> FloatArray:
    return average(formulas.pdf(x, *members.parameters), members.weights)


def logpdf(x: FloatArray, members: Members) -> FloatArray:
    """Log density, summed relative to the largest component."""
    each = np.log(members.weights) + formulas.logpdf(x, *members.parameters)
    top: FloatArray = each.max(axis=0)
    return np.where(np.isinf(top), top, top + np.log(sum_members(np.exp(each - top))))


mixture_logpdf = logpdf  # its name outside this module


def cdf(x: FloatArray, members: Members) -> FloatArray:
    return np.minimum(average(formulas.cdf(x, *members.parameters), members.weights), 1.0)


def sf(x: FloatArray, members: Members) -> FloatArray:
    return np.minimum(average(formulas.sf(x, *members.parameters), members.weights), 1.0)


def mean(members: Members) -> FloatArray:
    return average(formulas.mean(*members.parameters), members.weights)


def aleatoric_var(members: Members, *, per_network: int = 1) -> FloatArray:
    within = average(formulas.var(members.left, members.right), members.weights)
    if per_network == 1:
        return within
    means = formulas.mean(*members.parameters)
    centres, _ = _by_network(means, members.weights, per_network)
    between = (means - np.repeat(centres, per_network, axis=0)) ** 2
    return within + average(between, members.weights)


def epistemic_var(members: Members, *, per_network: int = 1) -> FloatArray:
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


def crps(y: FloatArray, members: Members) -> FloatArray:
    r"""Continuous ranked probability score, in closed form.

    .. math:: \mathrm{CRPS} = \sum_i w_i E|X_i - y| - \frac12 \sum_{i,j} w_i w_j E|X_i - X_j|
    """
    loc, left, right, weights = members
    score = sum_members(
        weights * formulas.expected_distance(y, loc, left, right)
        - weights**2 * formulas.half_mean_difference(left, right)
    )
    parts = list(zip(loc, left, right, strict=True))
    for i in range(len(parts)):
        for j in range(i):
            score -= weights[i] * weights[j] * mean_difference(parts[i], parts[j])
    return score


def mean_difference(first: Parameters, second: Parameters) -> FloatArray:
    """E|X1 - X2| of two independent split normals.

    Each is its mode plus a half normal distance to one side or the other, so that the difference of
    the two, the one with the higher mode first, is D = gap + a U + b V with U and V half normal and
    a, b of either sign. The region D < 0 is a part of a quadrant cut off by a straight line: its
    probability is given by Owen's T function, and by the divergence theorem the expectation of -D
    over it adds only densities and error functions.

    >>> zero, one = np.zeros(1), np.ones(1)
    >>> mean_difference((zero, one, one), (zero, one, one)) * np.sqrt(np.pi) / 2
    array([1.])
    """
    (loc1, left1, right1), (loc2, left2, right2) = first, second
    swap = loc1 < loc2
    high_left, low_left = np.where(swap, left2, left1), np.where(swap, left1, left2)
    high_right, low_right = np.where(swap, right2, right1), np.where(swap, right1, right2)
    high_below, high_above = formulas.side_masses(high_left, high_right)
    low_below, low_above = formulas.side_masses(low_left, low_right)
    gap = np.abs(loc1 - loc2)
    negative = (
        high_below * low_above * _both_inwards(gap, high_left, low_right)
        + high_below * low_below * _one_inwards(gap, high_left, low_left)
        + high_above * low_above * _one_inwards(gap, low_right, high_right)
    )
    mean = gap + SQRT_2_OVER_PI * ((high_right - high_left) - (low_right - low_left))
    return mean + 2.0 * negative


def _both_inwards(gap: FloatArray, p: FloatArray, s: FloatArray) -> FloatArray:
    """E[(p U + s V - gap)+]: both values lie on the sides that face each other."""
    rho = np.hypot(p, s)
    d = _ratio(gap, rho)
    mass = 4.0 * (owens_t(d, _ratio(s, p)) + owens_t(d, _ratio(p, s)))
    line = np.exp(-0.5 * d * d) * (erf(_ratio(d * s, SQRT2 * p)) + erf(_ratio(d * p, SQRT2 * s)))
    axes = p * erfc(_ratio(gap, SQRT2 * s)) + s * erfc(_ratio(gap, SQRT2 * p))
    return SQRT_2_OVER_PI * (axes + rho * line) - gap * mass


def _one_inwards(gap: FloatArray, p: FloatArray, s: FloatArray) -> FloatArray:
    """E[(p U - s V - gap)+]: one value lies on the side that faces the other, which lies away."""
    rho = np.hypot(p, s)
    d = _ratio(gap, rho)
    mass = erfc(d / SQRT2) - 4.0 * owens_t(d, _ratio(s, p))
    line = np.exp(-0.5 * d * d) * erfc(_ratio(d * s, SQRT2 * p))
    axis = s * erfc(_ratio(gap, SQRT2 * p))
    return SQRT_2_OVER_PI * (rho * line - axis) - gap * mass


def _ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a / b for nonnegative numbers, with 0/0 = 0."""
    return np.fmax(a / b, 0.0)
