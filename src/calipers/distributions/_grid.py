"""Quantiles of mixtures at many normal scores, the same for all rows, by walking along the scores.

With the score s(x) of a point x, the inverse has the first derivative x' = phi(s) / f(x) and the
second x' (-s - x' f'(x) / f(x)). So one evaluation of the mixture leads from x to the quantile at a
score near by with an error of third order: to the next score, and there, where the distance left
is small, to the quantile itself. That is one evaluation for most scores, where a search that starts
from nothing takes three or more. It is made in single precision, in a unit of each row's own, which
is quick, and off by some 1e-7 of the row's spread.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from calipers._checks import FloatArray
from calipers.distributions._formulas import SQRT_2_OVER_PI
from calipers.distributions._members import Members
from calipers.distributions._normal_scores import mixture_values
from calipers.distributions._quantile import IntArray, Terms, mixture_terms

# Distance on the normal scale from which one more step is enough.
CLOSE = 5e-3
# Evaluations after which a row is left to the general solver, which also has the far tails.
ATTEMPTS = 3
FAR = -12.0
# Scores at which a row may be left to it, before all of the row's are: members far apart.
MISSES = 8
# Quantiles that it solves for at a time.
BLOCK = 2**14
# Largest part of a step that the second derivative may add or take.
BEND = 0.75
# erfc(t) exp(t^2) (1 + 2 t) as a polynomial in (t - MAPPED) / (t + MAPPED), of the least largest
# relative error, 7e-8; the highest power first.
MAPPED = np.float32(2.4)
POLYNOMIAL = np.array(
    [
        0.000410790224,
        -0.000162566051,
        -0.00383425854,
        0.00440236945,
        0.024189037,
        -0.0960871739,
        0.161490193,
        -0.11125581,
        -0.118066183,
        1.26729269,
    ],
    np.float32,
)


class Place(NamedTuple):
    """Points, their scores, and the inverse's derivatives there, the second over the first."""

    x: FloatArray
    score: FloatArray
    rate: FloatArray
    bend: FloatArray

    def towards(self, score: FloatArray) -> FloatArray:
        """Quantiles at a score near by."""
        way = score - self.score
        turn = self.bend * way
        turn *= 0.5
        np.clip(turn, -BEND, BEND, out=turn)
        turn += 1.0
        turn *= self.rate
        turn *= way
        turn += self.x
        return turn

    def put(self, rows: IntArray, other: "Place") -> None:
        """Overwrite some of the rows."""
        for old, new in zip(self, other, strict=True):
            old[rows] = new


def mixture_values_on_grid(z: FloatArray, members: Members, *, walk: bool = True) -> FloatArray:
    """Quantiles of every row, (k, n), at each of some normal scores, (k,) or (k, n).

    Scores are ascending, and each is below zero for all rows or for none; the closer to each other,
    the better the start for each. Right to 1e-6 of the row's spread where members are alike and
    scores 0.2 apart, to 1e-5 on the normal scale where members are far apart. Without a `walk`
    every quantile is solved for by itself, to rounding as by `mixture_values`: slower, but not for
    few rows at many scores.
    """
    count = members.n_rows
    z = np.broadcast_to(z.reshape(len(z), -1), (len(z), count))
    if not walk:
        rows = np.tile(np.arange(count), len(z))
        return _solved(z.ravel(), rows, members).reshape(z.shape)
    middle, lower = mixture_values(np.zeros(count), members), (z < 0).all(axis=1)
    sides = z[lower][::-1], -z[~lower]  # the upper one is the lower one of the mirror image
    depths = np.zeros((max(map(len, sides)), 2 * count))
    for side, part in zip(sides, (depths[:, :count], depths[:, count:]), strict=True):
        part[: len(side)] = side
        part[len(side) :] = side[-1] if len(side) else 0.0
    both = np.tile(np.arange(count), 2)
    wide = members.take(both).mirrored(np.arange(2 * count) >= count)
    found = _walk(depths, np.concatenate([middle, -middle]), wide)
    below, above = found[: len(sides[0]), :count], found[: len(sides[1]), count:]
    return np.concatenate([below[::-1], -above])


def _walk(depths: FloatArray, median: FloatArray, members: Members) -> FloatArray:
    """Quantiles at scores that descend from zero."""
    loc, left, right, weights = members
    unit = np.maximum(np.abs(loc - median), left + right).max(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    parts = mixture_terms(Members((loc - median) / unit, left / unit, right / unit, weights))
    terms = Terms(*(cast(FloatArray, part.astype(np.float32)) for part in parts))
    here = _look(np.zeros(median.size), terms)
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
            x = mixture_values(depth[pending], members.take(pending))
            x = (x - median[pending]) / unit[pending]
            here.put(pending, _look(x, terms.take(pending)))
        result[:] = here.towards(depth)
        if pending.size:
            result[pending] = x
    found[:near] *= unit
    found[:near] += median
    hard = far | (misses > MISSES)
    found[hard] = _solved(depths[hard], np.nonzero(hard)[1], members)
    return found


def _solved(z: FloatArray, rows: IntArray, members: Members) -> FloatArray:
    """Quantiles of some rows at a score each, by the general solver, many at a time."""
    x = np.empty(z.shape)
    for start in range(0, z.size, BLOCK):
        block = slice(start, start + BLOCK)
        x[block] = mixture_values(z[block], members.take(rows[block]))
    return x


def _apart(here: Place, depth: FloatArray, skipped: NDArray[np.bool_]) -> IntArray:
    """Rows that are not close to a score, or whose score is not a number, but for some."""
    return np.flatnonzero(~(np.abs(here.score - depth) < CLOSE) & ~skipped)


def _look(x: FloatArray, terms: Terms) -> Place:
    """Evaluate mixtures at one point each, rounded to single precision."""
    at = x.astype(np.float32)
    t = at - terms.loc
    left = t < 0
    below_all = bool(left.all())  # as in most of a tail, where half of the work is for nothing
    rate = terms.left_rate if below_all else np.where(left, terms.left_rate, terms.right_rate)
    t *= rate
    density = t * t
    np.negative(density, out=density)
    np.exp(density, out=density)
    mass = upper_mass(np.abs(t), density)
    density *= terms.height
    t *= rate
    t *= density
    slope, total = _sum(t), _sum(density)
    if below_all:
        mass *= terms.below
    else:
        np.multiply(terms.below, mass, out=t)
        np.subtract(1, mass, out=mass)
        mass *= terms.above
        mass += terms.below
        mass = np.where(left, t, mass)
    score = ndtri(_sum(mass))
    first = 0.5 * SQRT_2_OVER_PI * np.exp(-0.5 * score * score) / total
    return Place(at.astype(np.float64), score, first, 2.0 * slope / total * first - score)


def _sum(values: NDArray[Any]) -> FloatArray:
    """Sum over members, one after the other, so that company does not change it; overwrites."""
    total = values[0]
    for value in values[1:]:
        total += value
    return total.astype(np.float64)


def upper_mass(t: NDArray[Any], gauss: NDArray[Any]) -> NDArray[Any]:
    """Complementary error function of `t` >= 0, given exp(-t^2), to a few 1e-7 of itself."""
    u, scale = t - MAPPED, t + MAPPED
    u /= scale
    found: NDArray[Any] = POLYNOMIAL[0] * u
    for coefficient in POLYNOMIAL[1:-1]:
        found += coefficient
        found *= u
    found += POLYNOMIAL[-1]
    found *= gauss
    np.add(t, t, out=scale)
    scale += 1
    found /= scale
    return found
