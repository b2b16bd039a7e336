"""Shortest intervals and highest density regions of mixtures of split normals.

A shortest interval has the same density at both ends, or an end where the density jumps. With one
smooth mode that is one equation with one solution. Otherwise there may be many: the interval is
moved along the row, with stops wherever one of its ends meets a characteristic point of a
component, such as its mode. Where the width has a minimum between two stops the equation is solved,
and the result is the shortest of all stops and solutions.

A highest density region is the set where the density exceeds a level, and its mass falls as the
level rises. Between a valley and a mode the density is monotone, so it crosses each level at most
once there.
"""

from typing import NamedTuple

import numpy as np

from calipers._arrays import FloatArray, IntArray
from calipers.distributions import (
    _density as density,
    _formulas as split_normal,
    _mixture_formulas as formulas,
)
from calipers.distributions._density import find_crossings
from calipers.distributions._formulas import Members

# Offsets of the stops from the mode of a component, in scales.
STOPS = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5])


class IntervalProblem(NamedTuple):
    """Mixtures, and the mass outside the interval of each, (n,)."""

    alpha: FloatArray
    members: Members

    def take(self, rows: IntArray) -> "IntervalProblem":
        return IntervalProblem(self.alpha[rows], self.members.take(rows))

    def upper_for(self, lower: FloatArray) -> FloatArray:
        """Upper ends of closed intervals from `lower`; infinite if too little mass lies above."""
        tail = self.alpha - formulas.cdf(np.nextafter(lower, -np.inf), self.members)
        return np.where(tail < 0, np.inf, formulas.isf(np.maximum(tail, 0.0), self.members))

    def lower_for(self, upper: FloatArray) -> FloatArray:
        """Lower ends of intervals up to `upper`; minus infinity if too little mass lies below."""
        tail = self.alpha - formulas.sf(upper, self.members)
        return np.where(tail < 0, -np.inf, formulas.ppf(np.maximum(tail, 0.0), self.members))


def shortest_interval(coverage: FloatArray, members: Members) -> tuple[FloatArray, FloatArray]:
    """Bounds of the shortest interval of each row that holds the mass `coverage`, shape (n,)."""
    problem = IntervalProblem(1.0 - coverage, members)
    (modes,) = density.mixture_modes(members)
    narrowest = np.minimum(members.left, members.right)
    simple = np.isnan(modes[1:]).all(axis=0) & (narrowest > 0).all(axis=0)
    bounds = np.empty((2, coverage.size))
    for rows, stops_of in ((np.flatnonzero(simple), _ends), (np.flatnonzero(~simple), _stops)):
        if rows.size:
            subset = problem.take(rows)
            bounds[:, rows] = _shortest(subset, *stops_of(subset))
    return bounds[0], bounds[1]


def _ends(problem: IntervalProblem) -> tuple[FloatArray, FloatArray]:
    """Bounds of the lowest and of the highest candidate interval, shape (2, n) each.

    A shortest interval ends no earlier than the quantile at its coverage, and is no wider than the
    central interval.
    """
    alpha, members = problem
    low, high = formulas.interval(alpha / 2.0, members)
    first = formulas.isf(alpha, members) - (high - low)
    lower = np.stack([first, formulas.ppf(alpha, members)])
    return lower, np.stack([problem.upper_for(x) for x in lower])


def _stops(problem: IntervalProblem) -> tuple[FloatArray, FloatArray]:
    """Bounds of intervals that have one end at a point of a component, ascending, (k, n) each."""
    steps = STOPS[:, None, None]
    loc, left, right = problem.members.parameters
    points = np.concatenate([loc - steps * left, loc + steps * right])
    points = points.reshape(-1, problem.alpha.size)
    (first, last), (first_end, last_end) = _ends(problem)
    lower = np.stack([first, last, *points, *(problem.lower_for(x) for x in points)])
    upper = np.stack([first_end, last_end, *(problem.upper_for(x) for x in points), *points])
    outside = (lower < first) | (lower > last)
    lower, upper = np.where(outside, first, lower), np.where(outside, first_end, upper)
    order = np.argsort(lower, axis=0)
    return np.take_along_axis(lower, order, axis=0), np.take_along_axis(upper, order, axis=0)


def _shortest(
    problem: IntervalProblem, lower: FloatArray, upper: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds of the shortest of the intervals, shape (k, n), and of those between them."""

    def tilt(a: FloatArray, b: FloatArray, members: Members) -> FloatArray:
        # The width falls where this is negative and grows where it is positive.
        return formulas.logpdf(a, members) - formulas.logpdf(b, members)

    def tilt_from(a: FloatArray, rows: IntArray) -> FloatArray:
        subset = problem.take(rows)
        return tilt(a, subset.upper_for(a), subset.members)

    falls = np.array([tilt(a, b, problem.members) < 0 for a, b in zip(lower, upper, strict=True)])
    cell, row = np.nonzero(falls[:-1] & ~falls[1:])
    ends = lower[cell, row], lower[cell + 1, row]
    begin, _ = find_crossings(lambda x, i: tilt_from(x, row[i]), *ends)
    end = problem.take(row).upper_for(begin)
    stop = (upper - lower).argmin(axis=0), np.arange(problem.alpha.size)
    best_lower, best_upper = lower[stop], upper[stop]
    width = best_upper - best_lower
    np.minimum.at(width, row, end - begin)
    shortest = end - begin <= width[row]
    best_lower[row[shortest]], best_upper[row[shortest]] = begin[shortest], end[shortest]
    return best_lower, best_upper


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
    return join(row, low, high, coverage.size)


def _edges(level: FloatArray, hills: Hills) -> tuple[FloatArray, FloatArray]:
    """Points where the density crosses a level before and after each mode, or the valleys."""
    low, high = density.ends_of_level(level, hills.members)

    def height(x: FloatArray, which: IntArray) -> FloatArray:
        return formulas.logpdf(x, hills.members.take(which)) - level[which]

    _, low = find_crossings(height, np.where(np.isinf(hills.before), low, hills.before), hills.mode)
    _, high = find_crossings(height, np.where(np.isinf(hills.after), high, hills.after), hills.mode)
    return low, high


def join(row: IntArray, low: FloatArray, high: FloatArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Join touching intervals of a row, and arrange the intervals with one column per row."""
    joined = (row[1:] == row[:-1]) & (low[1:] <= high[:-1])
    begins, ends = np.append(True, ~joined), np.append(~joined, True)
    row, low, high = row[begins], low[begins], high[ends]
    k = np.arange(row.size) - np.searchsorted(row, row)
    lower, upper = np.full((2, int(k.max()) + 1, n), np.nan)
    lower[k, row], upper[k, row] = low, high
    return lower, upper
