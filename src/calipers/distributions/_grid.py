"""Quantiles of mixtures at many normal scores, the same for all rows, by walking along the scores.

With the score s(x) of a point x, the inverse has the first derivative x' = phi(s) / f(x) and the
second x' (-s - x' f'(x) / f(x)). So one evaluation of the mixture leads from x to the quantile at a
score near by with an error of third order: to the next score, and there, where the distance left
is small, to the quantile itself. That is one evaluation for most scores, where a search that starts
from nothing takes three or more.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, ndtri

from calipers._checks import FloatArray
from calipers.distributions._formulas import SQRT_2_OVER_PI
from calipers.distributions._mixture_formulas import take_weights
from calipers.distributions._normal_scores import mixture_values
from calipers.distributions._quantile import IntArray, Terms, mixture_terms

# Distance on the normal scale from which one more step is enough.
CLOSE = 5e-3
# Evaluations after which a row is left to the general solver, which also has the far tails.
ATTEMPTS = 3
FAR = -30.0
# Scores at which a row may be left to it, before all of the row's are: members far apart.
MISSES = 8
# Quantiles that it solves for at a time.
BLOCK = 2**14
# Largest part of a step that the second derivative may add or take.
BEND = 0.75


class Place(NamedTuple):
    """Points, their scores, and the inverse's derivatives there, the second over the first."""

    x: FloatArray
    score: FloatArray
    rate: FloatArray
    bend: FloatArray

    def towards(self, score: FloatArray) -> FloatArray:
        """Quantiles at a score near by."""
        way = score - self.score
        return self.x + self.rate * way * (1.0 + np.clip(0.5 * self.bend * way, -BEND, BEND))

    def put(self, rows: IntArray, other: "Place") -> None:
        """Overwrite some of the rows."""
        for old, new in zip(self, other, strict=True):
            old[rows] = new


def mixture_values_on_grid(
    z: FloatArray, loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> FloatArray:
    """Quantiles of every row, (k, n), at each of some normal scores, (k,) or (k, n).

    Scores are ascending, and each is below zero for all rows or for none; the closer to each other,
    the better the start for each. Right to 1e-8 of the local scale where members are alike and
    scores 0.2 apart, to 1e-5 on the normal scale where members are far apart; not to rounding as
    `mixture_values` is.
    """
    z = np.broadcast_to(z.reshape(len(z), -1), (len(z), loc.shape[1]))
    middle = mixture_values(np.zeros(loc.shape[1]), loc, left, right, weights)
    lower = (z < 0).all(axis=1)
    below = _walk(z[lower][::-1], middle, loc, left, right, weights)
    above = _walk(-z[~lower], -middle, -loc, right, left, weights)
    return np.concatenate([below[::-1], -above])


def _walk(
    depths: FloatArray,
    median: FloatArray,
    loc: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Quantiles at scores that descend from zero."""
    terms = mixture_terms(loc, left, right, weights)
    here = _look(median, terms)
    found = np.empty((len(depths), median.size))
    far, misses = depths < FAR, np.zeros(median.size, dtype=np.intp)
    near = np.count_nonzero(~far.all(axis=1))
    for result, depth, beyond in zip(found[:near], depths[:near], far[:near], strict=True):
        here = _look(here.towards(depth), terms)
        skipped = beyond | (misses > MISSES)
        pending = _apart(here, depth, skipped)
        for _ in range(ATTEMPTS - 1):
            if pending.size:
                some = Place(*(array[pending] for array in here))
                here.put(pending, _look(some.towards(depth[pending]), terms.take(pending)))
                pending = _apart(here, depth, skipped)
        if pending.size:
            misses[pending] += 1
            x = mixture_values(
                depth[pending],
                loc[:, pending],
                left[:, pending],
                right[:, pending],
                take_weights(weights, pending),
            )
            here.put(pending, _look(x, terms.take(pending)))
        result[:] = here.towards(depth)
        if pending.size:
            result[pending] = x
    hard = far | (misses > MISSES)
    found[hard] = _solved(depths[hard], np.nonzero(hard)[1], loc, left, right, weights)
    return found


def _solved(
    z: FloatArray,
    rows: IntArray,
    loc: FloatArray,
    left: FloatArray,
    right: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Quantiles of some rows at a score each, by the general solver, many at a time."""
    x = np.empty(z.shape)
    for start in range(0, z.size, BLOCK):
        block = slice(start, start + BLOCK)
        of = rows[block]
        part = (loc[:, of], left[:, of], right[:, of], take_weights(weights, of))
        x[block] = mixture_values(z[block], *part)
    return x


def _apart(here: Place, depth: FloatArray, skipped: NDArray[np.bool_]) -> IntArray:
    """Rows that are not close to a score, or whose score is not a number, but for some."""
    return np.flatnonzero(~(np.abs(here.score - depth) < CLOSE) & ~skipped)


def _look(x: FloatArray, terms: Terms) -> Place:
    """Evaluate mixtures at one point each."""
    t = x - terms.loc
    left = t < 0
    below_all = bool(left.all())  # as in most of a tail, where half of the work is for nothing
    rate = terms.left_rate if below_all else np.where(left, terms.left_rate, terms.right_rate)
    t *= rate
    density = np.square(t)
    np.negative(density, out=density)
    np.exp(density, out=density)
    density *= terms.height
    total = density.sum(axis=0)
    mass = erfc(np.abs(t))
    if below_all:
        mass *= terms.below
    else:
        mass = np.where(left, terms.below * mass, terms.below + terms.above * (1.0 - mass))
    score = ndtri(mass.sum(axis=0))
    t *= rate
    t *= density
    slope = -2.0 * t.sum(axis=0) / total
    first = 0.5 * SQRT_2_OVER_PI * np.exp(-0.5 * score * score) / total
    return Place(x, score, first, -score - slope * first)
