"""Shortest intervals of mixtures of split normals.

A shortest interval has the same density at both ends, or an end where the density jumps. With one
smooth mode that leaves one equation with one solution. Otherwise there may be many: the interval
is slid along the row, stopping wherever one of its ends meets a point that stands for the shape
of a component, its mode among them; where the width has a minimum between two stops the equation
is solved, and of all stops and solutions the shortest is taken.
"""

from typing import NamedTuple

import numpy as np

from calipers.distributions import _mixture_formulas as formulas
from calipers.distributions._checks import FloatArray
from calipers.distributions._modes import mixture_modes
from calipers.distributions._quantile import mixture_interval, mixture_isf, mixture_ppf
from calipers.distributions._roots import IntArray, find_roots

# Where, in scales from its mode, a component stops the sliding interval.
STOPS = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5])


class Mixtures(NamedTuple):
    """Mixtures, of shape (members, n), and the mass to leave outside of an interval, (n,)."""

    alpha: FloatArray
    loc: FloatArray
    left: FloatArray
    right: FloatArray
    weights: FloatArray

    def take(self, rows: IntArray) -> "Mixtures":
        """Take some of the rows."""
        loc, left, right = self.loc[:, rows], self.left[:, rows], self.right[:, rows]
        return Mixtures(self.alpha[rows], loc, left, right, self.weights)

    def upper_for(self, lower: FloatArray) -> FloatArray:
        """Where closed intervals that begin at `lower` have to end."""
        before = np.nextafter(lower, -np.inf)
        rest = np.maximum(self.alpha - formulas.cdf(before, *self[1:]), 0.0)
        return mixture_isf(rest, *self[1:])

    def lower_for(self, upper: FloatArray) -> FloatArray:
        """Where intervals that end at `upper` have to begin."""
        rest = np.maximum(self.alpha - formulas.sf(upper, *self[1:]), 0.0)
        return mixture_ppf(rest, *self[1:])


def shortest_interval(
    coverage: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds of the shortest interval of each row that holds the mass `coverage`, shape (n,)."""
    every = Mixtures(1.0 - coverage, loc, left, right, weights)
    (modes,) = mixture_modes(loc, left, right, weights)
    simple = np.isnan(modes[1:]).all(axis=0) & (np.minimum(left, right) > 0).all(axis=0)
    lower = np.empty_like(coverage)
    for rows, stops_of in ((np.flatnonzero(simple), _ends), (np.flatnonzero(~simple), _stops)):
        if rows.size:
            some = every.take(rows)
            lower[rows] = _shortest(some, stops_of(some))
    return lower, every.upper_for(lower)


def _ends(some: Mixtures) -> FloatArray:
    """Lowest and highest place where a shortest interval may begin, shape (2, n).

    It ends no earlier than the quantile at its coverage, and is no wider than the central interval.
    """
    low, high = mixture_interval(some.alpha / 2.0, *some[1:])
    lowest = mixture_isf(some.alpha, *some[1:]) - (high - low)
    return np.stack([lowest, mixture_ppf(some.alpha, *some[1:])])


def _stops(some: Mixtures) -> FloatArray:
    """Places to begin at, ascending, shape (k, n), such that either end meets every component."""
    steps = STOPS[:, None, None]
    points = np.concatenate([some.loc - steps * some.left, some.loc + steps * some.right])
    points = points.reshape(-1, some.alpha.size)
    first, last = _ends(some)
    begins = np.concatenate([points, [some.lower_for(point) for point in points], [first, last]])
    return np.sort(np.clip(begins, first, last), axis=0)


def _shortest(some: Mixtures, stops: FloatArray) -> FloatArray:
    """Beginnings of the shortest of the intervals at the stops and between them."""

    def tilt(lower: FloatArray, upper: FloatArray, here: Mixtures) -> FloatArray:
        # The width falls where this is negative and grows where it is positive.
        return formulas.logpdf(lower, *here[1:]) - formulas.logpdf(upper, *here[1:])

    def tilt_from(lower: FloatArray, rows: IntArray) -> FloatArray:
        here = some.take(rows)
        return tilt(lower, here.upper_for(lower), here)

    ends = np.array([some.upper_for(stop) for stop in stops])
    falls = np.array([tilt(a, b, some) < 0 for a, b in zip(stops, ends, strict=True)])
    cell, row = np.nonzero(falls[:-1] & ~falls[1:])
    roots = find_roots(lambda x, i: tilt_from(x, row[i]), stops[cell, row], stops[cell + 1, row])
    best = (ends - stops).argmin(axis=0)
    every = np.arange(best.size)
    lower, width = stops[best, every], (ends - stops)[best, every]
    solved = some.take(row).upper_for(roots) - roots
    np.minimum.at(width, row, solved)
    shortest = solved <= width[row]
    lower[row[shortest]] = roots[shortest]
    return lower
