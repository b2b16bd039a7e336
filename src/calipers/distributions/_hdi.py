"""Shortest intervals and highest density regions of mixtures of split normals.

Between a valley and a mode the density is monotone, so each level is crossed there once. A
shortest interval begins on a rising stretch and ends on a falling one, with the same density at
both ends; for every such pair of stretches its mass falls as the level rises, which leaves one
monotone equation to solve. All pairs are solved and the shortest interval is taken. The highest
density region is everything above a single level. Scales of zero are first widened to a few ulps
of their mode, and ends found there are put back on it.
"""

from typing import NamedTuple

import numpy as np

from calipers.distributions import _formulas as formulas
from calipers.distributions._checks import FloatArray
from calipers.distributions._mixture_formulas import average
from calipers.distributions._modes import (
    LogTerms,
    log_density,
    log_terms,
    settle,
    stationary_points,
    widen,
)
from calipers.distributions._roots import IntArray, find_roots


class Stretches(NamedTuple):
    """Pairs of a rising stretch of the density and a falling one further right, shape (n,) each.

    The density rises from `before` to `first`, a mode, and falls from `last`, a mode, to `after`.
    """

    before: FloatArray
    first: FloatArray
    last: FloatArray
    after: FloatArray
    terms: LogTerms

    def take(self, which: IntArray) -> "Stretches":
        """Take some of the pairs."""
        before, first, last, after = (a[which] for a in self[:4])
        return Stretches(before, first, last, after, self.terms.take(which))


def shortest_interval(
    coverage: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds of the shortest interval of each row that holds the mass `coverage`, shape (n,)."""
    components = (loc, *widen(loc, left, right))
    terms = log_terms(*components, weights)
    modes, valleys = stationary_points(terms)
    i, j, row = _pairs(modes)
    pairs = Stretches(
        valleys[i, row], modes[i, row], modes[j, row], valleys[j + 1, row], terms.take(row)
    )
    alpha = (1.0 - coverage)[row]
    each = tuple(a[:, row] for a in components)

    def excess(level: FloatArray, which: IntArray) -> FloatArray:
        low, high = _edges(level, pairs.take(which))
        some = [a[:, which] for a in each]
        outside = formulas.cdf(low, *some) + formulas.sf(high, *some)
        return average(outside, weights) - alpha[which]

    bottom = np.maximum(_floor(alpha, *each), np.maximum(*_valley_levels(pairs)))
    top = np.minimum(log_density(pairs.first, pairs.terms), log_density(pairs.last, pairs.terms))
    level = find_roots(excess, bottom, np.maximum(top, bottom))
    low, high = _edges(level, pairs)
    holds = (bottom <= top) & (excess(level, np.arange(row.size)) <= 0)
    width = np.where(holds, high - low, np.inf)
    order = np.lexsort((width, row))
    best = order[np.searchsorted(row[order], np.arange(coverage.size))]
    return settle(low[best], loc, left, right), settle(high[best], loc, left, right)


def density_region(
    coverage: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds, shape (k, n) and padded with NaN, of all intervals where the density is highest."""
    components = (loc, *widen(loc, left, right))
    terms = log_terms(*components, weights)
    modes, valleys = stationary_points(terms)
    row, k = np.nonzero(~np.isnan(modes.T))
    hills = Stretches(
        valleys[k, row], modes[k, row], modes[k, row], valleys[k + 1, row], terms.take(row)
    )
    each = tuple(a[:, row] for a in components)

    def shortfall(level: FloatArray, rows: IntArray) -> FloatArray:
        which = np.flatnonzero(np.isin(row, rows))
        place = np.searchsorted(rows, row[which])
        low, high = _edges(level[place], hills.take(which))
        some = [a[:, which] for a in each]
        mass = average(formulas.cdf(high, *some) - formulas.cdf(low, *some), weights)
        return coverage[rows] - np.bincount(place, mass, minlength=rows.size)

    heights = log_density(hills.first, hills.terms)
    top = np.full(coverage.size, -np.inf)
    np.maximum.at(top, row, heights)
    level = find_roots(shortfall, _floor(1.0 - coverage, *components), top)
    above = np.flatnonzero(heights > level[row])
    row = row[above]
    low, high = (
        settle(x, loc[:, row], left[:, row], right[:, row])
        for x in _edges(level[row], hills.take(above))
    )
    return _join(row, low, high, coverage.size)


def _pairs(modes: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """List every pair of modes: the earlier one, the later one (or the same), and the row."""
    i, j = np.triu_indices(len(modes))
    pair, row = np.nonzero(~np.isnan(modes[j]))
    return i[pair], j[pair], row


def _floor(alpha: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray) -> FloatArray:
    """Give a level, as a logarithm, below which lies no more than the mass alpha.

    Half of it may lie outside of the components' quantiles, and half of it between them, where
    a density below alpha / (2 width) adds up to no more than that.
    """
    tail = alpha / 4.0
    width: FloatArray = formulas.isf(tail, loc, left, right).max(axis=0)
    width = width - formulas.ppf(tail, loc, left, right).min(axis=0)
    return np.log(alpha / 2.0) - np.log(width)


def _edges(level: FloatArray, stretches: Stretches) -> tuple[FloatArray, FloatArray]:
    """Where the density crosses a level on the rising and on the falling stretch."""
    before, first, last, after, terms = stretches
    # Past these points every component contributes less than its part of the level.
    depth = np.sqrt(np.maximum(terms.log_height + np.log(len(terms.loc)) - level, 0.0))
    left_end = (terms.loc - depth / terms.left_rate).min(axis=0)
    right_end = (terms.loc + depth / terms.right_rate).max(axis=0)

    def height(x: FloatArray, which: IntArray) -> FloatArray:
        return log_density(x, terms.take(which)) - level[which]

    return (
        find_roots(height, np.where(np.isinf(before), left_end, before), first),
        find_roots(height, np.where(np.isinf(after), right_end, after), last),
    )


def _valley_levels(stretches: Stretches) -> tuple[FloatArray, FloatArray]:
    """Logarithmic density at the feet of both stretches; minus infinity at infinity."""
    before, after = (
        np.where(np.isinf(x), -np.inf, log_density(np.where(np.isinf(x), 0.0, x), stretches.terms))
        for x in (stretches.before, stretches.after)
    )
    return before, after


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
