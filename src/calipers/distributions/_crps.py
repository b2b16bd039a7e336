r"""Continuous ranked probability score of a mixture of split normals, in closed form.

.. math:: \mathrm{CRPS} = \sum_i w_i E|X_i - y| - \frac12 \sum_{i,j} w_i w_j E|X_i - X_j|

The second sum needs the mean distance of two different split normals. Each is its mode plus a half
normal distance to one side or the other, so that the difference of the two, the one with the
higher mode first, is D = gap + a U + b V with U and V half normal and a, b of either sign. The
region D < 0 is a part of a quadrant cut off by a straight line: its probability is given by Owen's
T function, and by the divergence theorem the expectation of -D over it adds only densities and
error functions.
"""

import numpy as np
from scipy.special import erf, erfc, owens_t

from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers.distributions import _formulas as formulas
from calipers.distributions._formulas import SQRT2, SQRT_2_OVER_PI
from calipers.distributions._members import Members


def mixture_crps(y: FloatArray, members: Members) -> FloatArray:
    """CRPS of `y`, shape (n,), in each row's mixture."""
    loc, left, right, weights = members
    score = sum_members(
        weights * formulas.expected_distance(y, loc, left, right)
        - weights**2 * formulas.half_mean_difference(left, right)
    )
    for i in range(len(loc)):
        for j in range(i):
            difference = mean_difference(loc[i], left[i], right[i], loc[j], left[j], right[j])
            score -= weights[i] * weights[j] * difference
    return score


def mean_difference(
    loc1: FloatArray,
    left1: FloatArray,
    right1: FloatArray,
    loc2: FloatArray,
    left2: FloatArray,
    right2: FloatArray,
) -> FloatArray:
    """E|X1 - X2| of two independent split normals.

    >>> zero, one = np.zeros(1), np.ones(1)
    >>> mean_difference(zero, one, one, zero, one, one) * np.sqrt(np.pi) / 2
    array([1.])
    """
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
