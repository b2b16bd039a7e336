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
# Probability from which a normal score has the formula of the middle, and the root of the negative
# logarithm of one up to which it has that of the tail.
_MIDDLE, _LAST_ROOT = 0.075, 5.0
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
    room = np.empty((7, terms.loc.size), np.float32)  # used again at every place
    here = _look(np.zeros(median.size), terms, room)
    found = np.empty((len(depths), median.size))
    far, misses = depths < FAR, np.zeros(median.size, dtype=np.intp)
    near = np.count_nonzero(~far.all(axis=1))
    for result, depth, beyond in zip(found[:near], depths[:near], far[:near], strict=True):
        here = _look(here.towards(depth), terms, room)
        skipped = beyond | (misses > MISSES)
        pending = _apart(here, depth, skipped)
        for _ in range(ATTEMPTS - 1):
            if pending.size:
                some = Place(*(array[pending] for array in here))
                x = some.towards(depth[pending])
                here.put(pending, _look(x, terms.take(pending), room))
                pending = _apart(here, depth, skipped)
        if pending.size:
            misses[pending] += 1
            x = mixture_values(depth[pending], members.take(pending))
            x = (x - median[pending]) / unit[pending]
            here.put(pending, _look(x, terms.take(pending), room))
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


def _look(x: FloatArray, terms: Terms, room: NDArray[np.float32]) -> Place:
    """Evaluate mixtures at one point each, rounded to single precision."""
    at = x.astype(np.float32)
    t, density, mass, own_rate, *rest = room[:, : terms.loc.size].reshape(-1, *terms.loc.shape)
    np.subtract(at, terms.loc, out=t)
    left = t < 0
    below_all = bool(left.all())  # as in most of a tail, where half of the work is for nothing
    rate = terms.left_rate
    if not below_all:
        rate = own_rate
        np.copyto(rate, terms.right_rate)
        np.putmask(rate, left, terms.left_rate)
    t *= rate
    np.multiply(t, t, out=density)
    np.negative(density, out=density)
    np.exp(density, out=density)
    upper_mass(np.abs(t, out=rest[0]), density, mass, *rest[1:])
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
    """Normal score of probabilities up to about one half, to 1e-7 of it (Wichura, 1988, AS 241).

    Twice as quick as SciPy's, which has all digits; probabilities below its range are left to it.
    """
    found, central = np.empty_like(p), p >= _MIDDLE
    if central.all():
        return _central_score(p)
    tail = ~central
    if central.any():
        found[central], found[tail] = _central_score(p[central]), _tail_score(p[tail])
        return found
    return _tail_score(p)


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
    found = _horner(r, -0.17023821103, -1.3067284816, -2.7568153900, -1.4234372777)
    found /= _horner(r, 0.12021132975, 0.73700164250, 1.0)
    if beyond.any():
        found[beyond] = ndtri(p[beyond])
    return found


def _horner(x: FloatArray, highest: float, *others: float) -> FloatArray:
    """A polynomial, the highest power first."""
    found = x * highest
    for coefficient in others[:-1]:
        found += coefficient
        found *= x
    found += others[-1]
    return found


def _sum(values: NDArray[Any]) -> FloatArray:
    """Sum over members, one after the other, so that company does not change it; overwrites."""
    total = values[0]
    for value in values[1:]:
        total += value
    return total.astype(np.float64)


def upper_mass(t: Any, gauss: Any, found: Any, u: Any, scale: Any) -> Any:
    """Complementary error function of `t` >= 0, given exp(-t^2), to a few 1e-7 of itself.

    It is written to `found`; the last two arrays are to work in.
    """
    np.subtract(t, MAPPED, out=u)
    np.add(t, MAPPED, out=scale)
    u /= scale
    np.multiply(POLYNOMIAL[0], u, out=found)
    for coefficient in POLYNOMIAL[1:-1]:
        found += coefficient
        found *= u
    found += POLYNOMIAL[-1]
    found *= gauss
    np.add(t, t, out=scale)
    scale += 1
    found /= scale
    return found
