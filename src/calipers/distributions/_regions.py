"""Highest density regions of mixtures of split normals.

A highest density region is the set where the density exceeds a level, and its mass falls as the
level rises. Between a valley and a mode the density is monotone, so it crosses each level at most
once there.
"""

from typing import NamedTuple

import numpy as np

from calipers._checks import FloatArray, IntArray
from calipers.distributions import (
    _density as density,
    _formulas as split_normal,
    _mixture_formulas as formulas,
)
from calipers.distributions._density import find_crossings
from calipers.distributions._formulas import Members


class Hills(NamedTuple):
    """Modes with the valleys before and after them, shape (n,) each."""

    before: FloatArray
    mode: FloatArray
    after: FloatArray
    members: Members

    def take(self, which: IntArray) -> "Hills":
        before, mode, after = self.before[which], self.mode[which], self.after[which]
        return Hills(before, mode, after, self.members.take(which))


def density_region(coverage: FloatArray, members: Members) -> tuple[FloatArray, FloatArray]:
    """Bounds of all intervals of the highest density region, shape (k, n), padded with NaN."""
    wide = density.widened(members)
    modes, valleys = density.stationary_points(wide)
    row, k = np.nonzero(~np.isnan(modes.T))
    hills = Hills(valleys[k, row], modes[k, row], valleys[k + 1, row], wide.take(row))

    def shortfall(level: FloatArray, rows: IntArray) -> FloatArray:
        which = np.flatnonzero(np.isin(row, rows))
        place = np.searchsorted(rows, row[which])
        subset = hills.take(which)
        low, high = _edges(level[place], subset)
        above, below = (split_normal.cdf(x, *subset.members.parameters) for x in (high, low))
        mass = formulas.average(above - below, subset.members.weights)
        return coverage[rows] - np.bincount(place, mass, minlength=rows.size)

    heights = formulas.logpdf(hills.mode, hills.members)
    top = np.full(coverage.size, -np.inf)
    np.maximum.at(top, row, heights)
    level, _ = find_crossings(shortfall, density.lowest_level(1.0 - coverage, wide), top)
    above = np.flatnonzero(heights > level[row])
    row = row[above]
    subset = members.take(row)
    low, high = (density.settle(x, subset) for x in _edges(level[row], hills.take(above)))
    return _join(row, low, high, coverage.size)


def _edges(level: FloatArray, hills: Hills) -> tuple[FloatArray, FloatArray]:
    """Points where the density crosses a level before and after each mode, or the valleys."""
    low, high = density.ends_of_level(level, hills.members)

    def height(x: FloatArray, which: IntArray) -> FloatArray:
        return formulas.logpdf(x, hills.members.take(which)) - level[which]

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
