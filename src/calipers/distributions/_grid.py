"""Quantiles of mixtures at many normal scores, the same for all rows, by walking along the scores.

With the score s(x) of a point x, the inverse has the first derivative x' = phi(s) / f(x) and the
second x' (-s - x' f'(x) / f(x)). So one evaluation of the mixture leads from x to the quantile at a
nearby score with a third-order error: first to the next score, and from there, where the remaining
distance is small, to the quantile itself. Most scores thus need one evaluation, where an
independent search takes three or more. Evaluations are in single precision, in units of each row's
scale, which is fast and accurate to about 1e-7 of that scale.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from calipers._arrays import FloatArray, IntArray
from calipers.distributions._formulas import SQRT_2_OVER_PI, Members
from calipers.distributions._normal_scores import mixture_values
from calipers.distributions._quantile import Terms, mixture_terms

# Distance on the normal scale within which one more step is enough.
CLOSE = 5e-3
# Evaluations after which a row is passed to the general solver, which also solves scores below
# FAR_SCORE.
ATTEMPTS = 3
FAR_SCORE = -12.0
# Number of scores passed to the solver after which the whole row is, as with members far apart.
MAX_MISSES = 8
# Quantiles that the solver solves at a time.
BLOCK = 2**14
# Largest fraction of a step by which the second derivative may change it.
MAX_BEND = 0.75
# The formula for central normal scores is used for probabilities from _CENTRAL, the formula for
# tails while the root of the negative logarithm of the probability is at most _LAST_ROOT.
_CENTRAL, _LAST_ROOT = 0.075, 5.0
# Minimax polynomial for erfc(t) exp(t^2) (1 + 2 t) in (t - MAPPED) / (t + MAPPED), of relative
# error 7e-8; the highest power first.
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
    """Points, their scores, and the derivatives of the inverse there, the second over the first."""

    x: FloatArray
    score: FloatArray
    rate: FloatArray
    bend: FloatArray

    def towards(self, score: FloatArray) -> FloatArray:
        """Quantiles at a nearby score."""
        distance = score - self.score
        x = self.bend * distance
        x *= 0.5
        np.clip(x, -MAX_BEND, MAX_BEND, out=x)
        x += 1.0
        x *= self.rate
        x *= distance
        x += self.x
        return x

    def put(self, rows: IntArray, other: "Place") -> None:
        for old, new in zip(self, other, strict=True):
            old[rows] = new


def mixture_values_on_grid(z: FloatArray, members: Members, *, walk: bool = True) -> FloatArray:
    """Quantiles of every row, (k, n), at normal scores `z`, (k,) or (k, n).

    Scores are ascending, and each is below zero for all rows or for none; the closer they are to
    each other, the better the starting points. Accurate to 1e-6 of the row's scale where members
    are similar and scores 0.2 apart, to 1e-5 on the normal scale where members are far apart.
    Without `walk`, every quantile is solved independently and to rounding by `mixture_values`,
    which is slower except for few rows at many scores.
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
    mirrored = members.take(both).mirrored(np.arange(2 * count) >= count)
    x = _walk(depths, np.concatenate([middle, -middle]), mirrored)
    below, above = x[: len(sides[0]), :count], x[: len(sides[1]), count:]
    return np.concatenate([below[::-1], -above])


def _walk(depths: FloatArray, median: FloatArray, members: Members) -> FloatArray:
    """Quantiles at scores that descend from zero."""
    loc, left, right, weights = members
    unit = np.maximum(np.abs(loc - median), left + right).max(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    parts = mixture_terms(Members((loc - median) / unit, left / unit, right / unit, weights))
    terms = Terms(*(cast(FloatArray, part.astype(np.float32)) for part in parts))
    buffer = np.empty((7, terms.loc.size), np.float32)  # reused in every evaluation
    here = _evaluate(np.zeros(median.size), terms, buffer)
    results = np.empty((len(depths), median.size))
    far, misses = depths < FAR_SCORE, np.zeros(median.size, dtype=np.intp)
    near = np.count_nonzero(~far.all(axis=1))
    for result, depth, beyond in zip(results[:near], depths[:near], far[:near], strict=True):
        here = _evaluate(here.towards(depth), terms, buffer)
        skipped = beyond | (misses > MAX_MISSES)
        pending = _not_close(here, depth, skipped)
        for _ in range(ATTEMPTS - 1):
            if pending.size:
                subset = Place(*(array[pending] for array in here))
                x = subset.towards(depth[pending])
                here.put(pending, _evaluate(x, terms.take(pending), buffer))
                pending = _not_close(here, depth, skipped)
        if pending.size:
            misses[pending] += 1
            x = mixture_values(depth[pending], members.take(pending))
            x = (x - median[pending]) / unit[pending]
            here.put(pending, _evaluate(x, terms.take(pending), buffer))
        result[:] = here.towards(depth)
        if pending.size:
            result[pending] = x
    results[:near] *= unit
    results[:near] += median
    hard = far | (misses > MAX_MISSES)
    results[hard] = _solved(depths[hard], np.nonzero(hard)[1], members)
    return results


def _solved(z: FloatArray, rows: IntArray, members: Members) -> FloatArray:
    """Quantiles of ``rows`` at a score each, by the general solver, many at a time."""
    x = np.empty(z.shape)
    for start in range(0, z.size, BLOCK):
        block = slice(start, start + BLOCK)
        x[block] = mixture_values(z[block], members.take(rows[block]))
    return x


def _not_close(here: Place, depth: FloatArray, skipped: NDArray[np.bool_]) -> IntArray:
    """Rows, except ``skipped``, that are not close to a score or whose score is NaN."""
    return np.flatnonzero(~(np.abs(here.score - depth) < CLOSE) & ~skipped)


def _evaluate(x: FloatArray, terms: Terms, buffer: NDArray[np.float32]) -> Place:
    """Evaluate mixtures at one point each, rounded to single precision."""
    at = x.astype(np.float32)
    t, density, mass, rates, *work = buffer[:, : terms.loc.size].reshape(-1, *terms.loc.shape)
    np.subtract(at, terms.loc, out=t)
    left = t < 0
    below_all = bool(left.all())  # as in most of a tail, where this saves half of the work
    rate = terms.left_rate
    if not below_all:
        rate = rates
        np.copyto(rate, terms.right_rate)
        np.putmask(rate, left, terms.left_rate)
    t *= rate
    np.multiply(t, t, out=density)
    np.negative(density, out=density)
    np.exp(density, out=density)
    upper_mass(np.abs(t, out=work[0]), density, mass, *work[1:])
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
        np.putmask(mass, left, t)
    score = _score(_sum(mass))
    first = 0.5 * SQRT_2_OVER_PI * np.exp(-0.5 * score * score) / total
    return Place(at.astype(np.float64), score, first, 2.0 * slope / total * first - score)


def _score(p: FloatArray) -> FloatArray:
    """Normal score of probabilities up to about 1/2, to a relative 1e-7 (Wichura, 1988, AS 241).

    Twice as fast as SciPy's function, which is exact and computes probabilities below the range.
    """
    central = p >= _CENTRAL
    if central.all():
        return _central_score(p)
    if not central.any():
        return _tail_score(p)
    score, tail = np.empty_like(p), ~central
    score[central], score[tail] = _central_score(p[central]), _tail_score(p[tail])
    return score


def _central_score(p: FloatArray) -> FloatArray:
    q = p - 0.5
    r = q * q
    np.subtract(0.180625, r, out=r)
    return (
        q
        * _horner(r, 59.109374720, 159.29113202, 50.434271938, 3.3871327179)
        / _horner(r, 67.187563600, 78.757757664, 17.895169469, 1.0)
    )


def _tail_score(p: FloatArray) -> FloatArray:
    r = -np.log(p)
    np.sqrt(r, out=r)
    beyond = ~(r <= _LAST_ROOT)
    r -= 1.6
    score = _horner(r, -0.17023821103, -1.3067284816, -2.7568153900, -1.4234372777)
    score /= _horner(r, 0.12021132975, 0.73700164250, 1.0)
    if beyond.any():
        score[beyond] = ndtri(p[beyond])
    return score


def _horner(x: FloatArray, highest: float, *others: float) -> FloatArray:
    """Polynomial with these coefficients, the highest power first."""
    value = x * highest
    for coefficient in others[:-1]:
        value += coefficient
        value *= x
    value += others[-1]
    return value


def _sum(values: NDArray[Any]) -> FloatArray:
    """Sum over members in order, so that it is independent of the other rows; overwrites values."""
    total = values[0]
    for value in values[1:]:
        total += value
    return total.astype(np.float64)


def upper_mass(
    t: NDArray[np.float32],
    gauss: NDArray[np.float32],
    out: NDArray[np.float32],
    u: NDArray[np.float32],
    scale: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Complementary error function of `t` >= 0, given exp(-t^2), to a relative few 1e-7.

    The result is written to `out`; the last two arrays are buffers.
    """
    np.subtract(t, MAPPED, out=u)
    np.add(t, MAPPED, out=scale)
    u /= scale
    np.multiply(POLYNOMIAL[0], u, out=out)
    for coefficient in POLYNOMIAL[1:-1]:
        out += coefficient
        out *= u
    out += POLYNOMIAL[-1]
    out *= gauss
    np.add(t, t, out=scale)
    scale += 1
    out /= scale
    return out
