"""Closed forms of the split normal distribution, elementwise over float64 arrays of one shape.

With the mode m, the scales s1 to its left and s2 to its right, and the distance
t = |x - m| / (sqrt(2) s) in units of the scale on x's side, the density is

    f(x) = sqrt(2 / pi) / (s1 + s2) exp(-t^2),

and the mass to the left of the mode is r = s1 / (s1 + s2). A scale of zero leaves no mass on its
side, and two of them make a point mass; the limits of IEEE arithmetic then give the right results,
provided that 0/0, the distance from a point mass to itself, is taken as 0.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import erf, erfc, erfcinv, erfinv

from calipers._arrays import BoolArray, FloatArray, IntArray

SQRT2 = math.sqrt(2.0)
SQRT_PI = math.sqrt(math.pi)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


class Members(NamedTuple):
    """Split normals of the mixtures of n rows, network by network, each of shape (members, n)."""

    loc: FloatArray
    left: FloatArray
    right: FloatArray
    weights: FloatArray  # (members, n), or (members, 1) where they are common to all rows

    @property
    def n_rows(self) -> int:
        return self.loc.shape[1]

    @property
    def parameters(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.loc, self.left, self.right

    def take(self, rows: IntArray) -> "Members":
        weights = self.weights if self.weights.shape[1] == 1 else self.weights[:, rows]
        return Members(self.loc[:, rows], self.left[:, rows], self.right[:, rows], weights)

    def mirrored(self, flip: BoolArray | np.bool_) -> "Members":
        """Members with the rows marked by ``flip`` replaced by their mirror images."""
        loc, left, right = self.parameters
        if flip.all():
            return Members(-loc, right, left, self.weights)
        if not flip.any():
            return self
        sides = np.where(flip, right, left), np.where(flip, left, right)
        return Members(np.where(flip, -loc, loc), *sides, self.weights)


def side_masses(left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mass to the left and to the right of the mode; a point mass counts as left."""
    none = right == 0
    return (
        np.where(none, 1.0, 1.0 / (1.0 + right / left)),
        np.where(none, 0.0, 1.0 / (1.0 + left / right)),
    )


def distance(x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Distance t from the mode in units of sqrt(2) times the scale on that side."""
    t = np.abs(x - loc) / np.where(x < loc, left, right) / SQRT2
    return np.fmax(t, 0.0)


def pdf(x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Density; infinite at a point mass."""
    t = distance(x, loc, left, right)
    return np.where(t == np.inf, 0.0, SQRT_2_OVER_PI / (left + right) * np.exp(-t * t))


def logpdf(x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Logarithm of the density, which does not underflow."""
    t = distance(x, loc, left, right)
    return np.where(t == np.inf, -np.inf, np.log(SQRT_2_OVER_PI / (left + right)) - t * t)


def cdf(x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """P(X <= x): r erfc(t) below the mode, r + (1 - r) erf(t) above, 1 minus the tail far above."""
    t = distance(x, loc, left, right)
    below, above = side_masses(left, right)
    tail = erfc(t)
    upper = np.where(t < 0.5, below + above * erf(t), 1.0 - above * tail)
    return np.where(x < loc, below * tail, upper)


def sf(x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """P(X > x), accurate in the upper tail."""
    t = distance(x, loc, left, right)
    below, above = side_masses(left, right)
    tail = erfc(t)
    lower = np.where(t < 0.5, above + below * erf(t), 1.0 - below * tail)
    return np.where(x < loc, lower, above * tail)


def ppf(p: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Smallest x with P(X <= x) >= p, from the tail or the middle, whichever is more accurate."""
    below, above = side_masses(left, right)
    lower = p <= below
    tail = np.where(lower, p / below, (1.0 - p) / above)
    middle = ~lower & (tail > 0.5)
    central = erfinv(np.where(middle, (p - below) / above, 0.0))
    scale = np.where(lower, -left, right)
    # A side without mass has no extent, although 0 * inf is NaN.
    extent: FloatArray = np.abs(SQRT2 * scale * np.where(middle, central, erfcinv(tail)))
    return loc + np.copysign(np.fmax(extent, 0.0), scale)


def isf(q: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Largest x with P(X >= x) >= q: the quantile of the mirror image."""
    return -ppf(q, -loc, right, left)


def interval(
    tail: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Quantiles with the mass `tail` below the one and above the other."""
    return ppf(tail, loc, left, right), isf(tail, loc, left, right)


def hdi(
    coverage: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds at equal density: t = erfinv(coverage) on either side."""
    z = SQRT2 * erfinv(coverage)
    return loc - z * left, loc + z * right


def mean(loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """M + sqrt(2 / pi) (s2 - s1)."""
    return loc + SQRT_2_OVER_PI * (right - left)


def var(left: FloatArray, right: FloatArray) -> FloatArray:
    """(1 - 2 / pi) (s2 - s1)^2 + s1 s2."""
    return (1.0 - 2.0 / math.pi) * (right - left) ** 2 + left * right


def std(left: FloatArray, right: FloatArray) -> FloatArray:
    """Root of the variance, taken in units of the larger scale so that squares do not overflow."""
    unit = np.maximum(left, right)
    return unit * np.sqrt(np.fmax(var(left / unit, right / unit), 0.0))


def expected_distance(
    y: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray
) -> FloatArray:
    """E|X - y|: the outward distance of y from the mean, plus twice the mean excess beyond y."""
    t = distance(y, loc, left, right)
    below, above = side_masses(left, right)
    side = np.where(y < loc, below * left, above * right)
    excess = np.where(t == np.inf, 0.0, np.exp(-t * t) / SQRT_PI - t * erfc(t))
    outwards = np.where(y < loc, -1.0, 1.0) * (y - loc - SQRT_2_OVER_PI * (right - left))
    return outwards + 2.0 * SQRT2 * side * excess


def half_mean_difference(left: FloatArray, right: FloatArray) -> FloatArray:
    """E|X - X'| / 2 for independent copies X and X', which is the integral of F (1 - F)."""
    below, above = side_masses(left, right)
    shrink = 2.0 - SQRT2
    return SQRT_2_OVER_PI * (
        left * below * (1.0 - shrink * below) + right * above * (1.0 - shrink * above)
    )


def crps(y: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """E|X - y| - E|X - X'| / 2."""
    return expected_distance(y, loc, left, right) - half_mean_difference(left, right)


def draw(
    uniform: FloatArray, normal: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray
) -> FloatArray:
    """A draw from a uniform number, which selects the side, and a normal one."""
    below, _ = side_masses(left, right)
    scale: FloatArray = np.where(uniform < below, -left, right)
    return loc + scale * np.abs(normal)
