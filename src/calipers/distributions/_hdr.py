"""Highest density regions of mixtures of split normals.

The region is the set where the density exceeds a level, and its mass falls as the level rises.
Between a valley and a mode the density is monotone, so it crosses each level at most once there.
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
    widened,
)
from calipers.distributions._members import Members
from calipers.distributions._mixture_formulas import average
from calipers.distributions._roots import find_crossings, find_roots


class Hills(NamedTuple):
    """Modes with the valleys before and after them, shape (n,) each."""

    before: FloatArray
    mode: FloatArray
    after: FloatArray
    terms: LogTerms

    def take(self, which: IntArray) -> "Hills":
        """The subset ``which`` of the hills."""
        before, mode, after = self.before[which], self.mode[which], self.after[which]
        return Hills(before, mode, after, self.terms.take(which))


def density_region(coverage: FloatArray, members: Members) -> tuple[FloatArray, FloatArray]:
    """Bounds of all intervals of the highest density region, shape (k, n), padded with NaN."""
    wide = widened(members)
    terms = log_terms(wide)
    modes, valleys = stationary_points(terms)
    row, k = np.nonzero(~np.isnan(modes.T))
    hills = Hills(valleys[k, row], modes[k, row], valleys[k + 1, row], terms.take(row))
    each = wide.take(row)

    def shortfall(level: FloatArray, rows: IntArray) -> FloatArray:
        which = np.flatnonzero(np.isin(row, rows))
        place = np.searchsorted(rows, row[which])
        low, high = _edges(level[place], hills.take(which))
        subset = each.take(which)
        inside = formulas.cdf(high, *subset.parameters) - formulas.cdf(low, *subset.parameters)
        mass = average(inside, subset.weights)
        return coverage[rows] - np.bincount(place, mass, minlength=rows.size)

    heights = log_density(hills.mode, hills.terms)
    top = np.full(coverage.size, -np.inf)
    np.maximum.at(top, row, heights)
    level = find_roots(shortfall, lowest_level(1.0 - coverage, *wide.parameters), top)
    above = np.flatnonzero(heights > level[row])
    row = row[above]
    parameters = members.take(row).parameters
    low, high = (settle(x, *parameters) for x in _edges(level[row], hills.take(above)))
    return _join(row, low, high, coverage.size)


def _edges(level: FloatArray, hills: Hills) -> tuple[FloatArray, FloatArray]:
    """Points where the density crosses a level before and after each mode, or the valleys."""
    low, high = ends_of_level(level, hills.terms)

    def height(x: FloatArray, which: IntArray) -> FloatArray:
        return log_density(x, hills.terms.take(which)) - level[which]

    _, low = find_crossings(height, np.where(np.isinf(hills.before), low, hills.before), hills.mode)
    _, high = find_crossings(height, np.where(np.isinf(hills.after), high, hills.after), hills.mode)
    return low, high


def _join(
    row: IntArray, low: FloatArray, high: FloatArray, n: int
) -> tuple[FloatArray, FloatArray]:
    """Join touching intervals of a row, and arrange the intervals with one column per row."""
    joined = (row[1:] == row[:-1]) & (low[1:] <= high[:-1])
    begins, ends = np.append(True, ~joined), np.append(~joined, True)
    row, low, high = row[begins], low[begins], high[ends]
    k = np.arange(row.size) - np.searchsorted(row, row)
    lower, upper = np.full((2, int(k.max()) + 1, n), np.nan)
    lower[k, row], upper[k, row] = low, high
    return lower, upper
