"""Quantiles of mixtures at many normal scores, the same for all rows, by walking along the scores.

With the score s(x) of a point x, the inverse has the first derivative x' = phi(s) / f(x) and the
second x' (-s - x' f'(x) / f(x)). So one evaluation of the mixture leads from x to the quantile at a
score near by with an error of third order: to the next score, and there, where the distance left
is small, to the quantile itself. That is one evaluation for most scores, where a search that starts
from nothing takes three or more.
"""

from typing import NamedTuple

import numpy as np
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
# Largest part of a step that the second derivative may add or take.
BEND = 0.75


class Place(NamedTuple):
    """Points, their scores, and the inverse's derivatives there, the second over the first."""

    x: FloatArray
    score: FloatArray
    rate: FloatArray
    bend: FloatArray

    def towards(self, score: float) -> FloatArray:
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
    """Quantiles of every row at each of some normal scores.

    Parameters
    ----------
    z : array of shape (k,)
        Normal scores, in ascending order; the closer to each other, the better the start for each.
    loc, left, right : array of shape (members, n)
        Parameters of the components.
    weights : array of shape (members, 1) or (members, n)
        Positive, of sum 1.

    Returns
    -------
    array of shape (k, n)
        Right to 1e-8 of the local scale where members are alike and scores 0.2 apart, to 1e-5 on
        the normal scale where members are far apart; not to rounding as `mixture_values` is.
    """
    middle = mixture_values(np.zeros(loc.shape[1]), loc, left, right, weights)
    below = _walk(z[z < 0][::-1], middle, loc, left, right, weights)
    above = _walk(-z[z >= 0], -middle, -loc, right, left, weights)
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
    for result, depth in zip(found, depths, strict=True):
        if depth < FAR:
            result[:] = mixture_values(np.full(median.size, depth), loc, left, right, weights)
            continue
        here = _look(here.towards(depth), terms)
        pending = _apart(here, depth)
        for _ in range(ATTEMPTS - 1):
            if pending.size:
                some = Place(*(array[pending] for array in here))
                here.put(pending, _look(some.towards(depth), terms.take(pending)))
                pending = _apart(here, depth)
        if pending.size:
            x = mixture_values(
                np.full(pending.size, depth),
                loc[:, pending],
                left[:, pending],
                right[:, pending],
                take_weights(weights, pending),
            )
            here.put(pending, _look(x, terms.take(pending)))
        result[:] = here.towards(depth)
        if pending.size:
            result[pending] = x
    return found


def _apart(here: Place, depth: float) -> IntArray:
    """Rows that are not close to a score, or whose score is not a number."""
    return np.flatnonzero(~(np.abs(here.score - depth) < CLOSE))


def _look(x: FloatArray, terms: Terms) -> Place:
    """Evaluate mixtures at one point each."""
    offset = x - terms.loc
    left = offset < 0
    rate = np.where(left, terms.left_rate, terms.right_rate)
    t = offset * rate
    density = terms.height * np.exp(-t * t)
    total = density.sum(axis=0)
    tail = erfc(np.abs(t))
    mass = np.where(left, terms.below * tail, terms.below + terms.above * (1.0 - tail))
    score = ndtri(mass.sum(axis=0))
    slope = -2.0 * (t * rate * density).sum(axis=0) / total
    first = 0.5 * SQRT_2_OVER_PI * np.exp(-0.5 * score * score) / total
    return Place(x, score, first, -score - slope * first)
