"""Density of a mixture of split normals as a landscape: its logarithm, slope and levels.

Logarithms, because halfway between far components a density is far below the smallest float.
Scales of zero, which have no density to speak of, are widened to a few ulps of their mode.
"""

from typing import NamedTuple

import numpy as np

from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers.distributions import _formulas as formulas
from calipers.distributions._formulas import SQRT2, SQRT_2_OVER_PI
from calipers.distributions._roots import IntArray

# What a scale of zero is widened to, in ulps of the mode: narrow, but with a slope to follow.
NARROWEST = 4.0
# Widened scales from a mode within which a result counts as being on it.
REACH = 40.0


class LogTerms(NamedTuple):
    """What evaluating a mixture's logarithmic density needs, each of shape (members, n)."""

    loc: FloatArray
    left_rate: FloatArray
    right_rate: FloatArray
    log_height: FloatArray

    def take(self, rows: IntArray) -> "LogTerms":
        """Take some of the rows."""
        return LogTerms(*(a[:, rows] for a in self))


def log_terms(
    loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> LogTerms:
    """Precompute the terms of components whose scales are positive."""
    height = np.log(weights) + np.log(SQRT_2_OVER_PI / (left + right))
    return LogTerms(loc, 1.0 / (SQRT2 * left), 1.0 / (SQRT2 * right), height)


def widen(loc: FloatArray, left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Replace scales of zero by a few ulps of the mode, so that densities are finite."""
    extent = np.maximum(np.abs(loc), np.maximum(left, right)).max(axis=0)
    least = np.maximum(NARROWEST * np.spacing(np.abs(loc)), np.maximum(1e-30 * extent, 1e-290))
    return np.where(left == 0, least, left), np.where(right == 0, least, right)


def settle(x: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Put ends that lie within a widened scale of zero back on the mode that it belongs to."""
    for m, s1, s2, wide1, wide2 in zip(loc, left, right, *widen(loc, left, right), strict=True):
        reach = REACH * np.where(
            x < m, np.where(s1 == 0, wide1, 0.0), np.where(s2 == 0, wide2, 0.0)
        )
        x = np.where(np.abs(x - m) <= reach, m, x)
    return x


def log_density(x: FloatArray, terms: LogTerms) -> FloatArray:
    """Logarithm of the mixture's density at one point per row."""
    offset = x - terms.loc
    t = offset * np.where(offset < 0, terms.left_rate, terms.right_rate)
    each = terms.log_height - t * t
    top: FloatArray = each.max(axis=0)
    rest = sum_members(np.exp(each - top))
    return top + np.log(rest)


def log_slope(x: FloatArray, terms: LogTerms) -> FloatArray:
    """Slope of the logarithm of the mixture's density at one point per row."""
    offset = x - terms.loc
    rate = np.where(offset < 0, terms.left_rate, terms.right_rate)
    t = offset * rate
    each = terms.log_height - t * t
    share = np.exp(each - each.max(axis=0))
    slope: FloatArray = -2.0 * sum_members(share * t * rate) / sum_members(share)
    return slope


def lowest_level(
    alpha: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray
) -> FloatArray:
    """Logarithm of a density below which lies no more than the mass alpha.

    Half of it may lie outside of the components' quantiles, and half of it between them, where
    a density below alpha / (2 width) adds up to no more than that.
    """
    tail = alpha / 4.0
    low = formulas.ppf(tail, loc, left, right).min(axis=0)
    high = formulas.isf(tail, loc, left, right).max(axis=0)
    level: FloatArray = np.log(alpha / 2.0) - np.log(high - low)
    return level


def ends_of_level(level: FloatArray, terms: LogTerms) -> tuple[FloatArray, FloatArray]:
    """Points past which every component contributes less than its part of a level."""
    depth = np.sqrt(np.maximum(terms.log_height + np.log(len(terms.loc)) - level, 0.0))
    low: FloatArray = (terms.loc - depth / terms.left_rate).min(axis=0)
    high: FloatArray = (terms.loc + depth / terms.right_rate).max(axis=0)
    return low, high
