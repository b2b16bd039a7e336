"""Highest density regions of mixtures of split normals.

The region is what lies above one level, and its mass falls as the level rises. Between a valley
and a mode the density is monotone, so each level is crossed there once.
"""

from typing import NamedTuple

import numpy as np

from calipers._checks import FloatArray, IntArray
from calipers.distributions import _formulas as formulas
from calipers.distributions._density import (
    LogTerms,
    ends_of_level,
    log_density,
    log_terms,
    lowest_level,
    settle,
    stationary_points,
    widen,
)
from calipers.distributions._mixture_formulas import average, take_weights
from calipers.distributions._roots import find_crossings, find_roots


class Hills(NamedTuple):
    """Modes with the valleys before and after them, shape (n,) each."""

    before: FloatArray
    mode: FloatArray
    after: FloatArray
    terms: LogTerms

    def take(self, which: IntArray) -> "Hills":
        """Take some of the hills."""
        before, mode, after = self.before[which], self.mode[which], self.after[which]
        return Hills(before, mode, after, self.terms.take(which))


def density_region(
    coverage: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds, shape (k, n) and padded with NaN, of all intervals where the density is highest."""
    components = (loc, *widen(loc, left, right))
    terms = log_terms(*components, weights)
    modes, valleys = stationary_points(terms)
    row, k = np.nonzero(~np.isnan(modes.T))
    hills = Hills(valleys[k, row], modes[k, row], valleys[k + 1, row], terms.take(row))
    each = tuple(a[:, row] for a in components)

    def shortfall(level: FloatArray, rows: IntArray) -> FloatArray:
        which = np.flatnonzero(np.isin(row, rows))
        place = np.searchsorted(rows, row[which])
        low, high = _edges(level[place], hills.take(which))
        some = [a[:, which] for a in each]
        own = take_weights(weights, row[which])
        mass = average(formulas.cdf(high, *some) - formulas.cdf(low, *some), own)
        return coverage[rows] - np.bincount(place, mass, minlength=rows.size)

    heights = log_density(hills.mode, hills.terms)
    top = np.full(coverage.size, -np.inf)
    np.maximum.at(top, row, heights)
    level = find_roots(shortfall, lowest_level(1.0 - coverage, *components), top)
    above = np.flatnonzero(heights > level[row])
    row = row[above]
    low, high = (
        settle(x, loc[:, row], left[:, row], right[:, row])
        for x in _edges(level[row], hills.take(above))
    )
    return _join(row, low, high, coverage.size)


def _edges(level: FloatArray, hills: Hills) -> tuple[FloatArray, FloatArray]:
    """Where the density crosses a level before and after each mode, at most at the valleys."""
    low, high = ends_of_level(level, hills.terms)

    def height(x: FloatArray, which: IntArray) -> FloatArray:
        return log_density(x, hills.terms.take(which)) - level[which]

    _, low = find_crossings(height, np.where(np.isinf(hills.before), low, hills.before), hills.mode)
    _, high = find_crossings(height, np.where(np.isinf(hills.after), high, hills.after), hills.mode)
    return low, high


def _join(
    row: IntArray, low: FloatArray, high: FloatArray, n: int
) -> tuple[FloatArray, FloatArray]:
    """Join intervals of a row that touch, and give every row its own column."""
    joined = (row[1:] == row[:-1]) & (low[1:] <= high[:-1])
    begins, ends = np.append(True, ~joined), np.append(~joined, True)
    row, low, high = row[begins], low[begins], high[ends]
    k = np.arange(row.size) - np.searchsorted(row, row)
    lower, upper = np.full((2, int(k.max()) + 1, n), np.nan)
    lower[k, row], upper[k, row] = low, high
    return lower, upper
