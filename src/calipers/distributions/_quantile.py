"""Quantiles of a mixture of split normals, for many rows at once.

Both tails are solved as lower tails, the upper one on the mirror image of the mixture, so that a
probability of 1e-300 is accurate on either side. Nearly all rows need two or three of Halley's
steps on log F(x) = log q, starting from the normal distribution with the mixture's moments. The
others (distant or narrow components, jumps of F) are solved between brackets: a mixture's quantile
lies between the smallest and the largest of its components' quantiles.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfc, ndtri

from calipers._arrays import FloatArray, IntArray
from calipers._blocks import sum_members
from calipers.distributions import _formulas as formulas
from calipers.distributions._formulas import SQRT2, SQRT_2_OVER_PI, Members

FAST_STEPS = 4
# Every third step bisects, half of these by counting floats: 64 * 6 steps at most.
SAFE_STEPS = 400
# Halley's error is cubic: after a step of 1e-5 of the local scale only rounding errors remain.
SMALL_STEP = 1e-5
# Relative error of F at which a bracketed search stops.
TOLERANCE = 2e-13
# Densities below this have lost digits to gradual underflow.
TINY = 1e-290
# Largest error of a component's quantile, in ulps.
ROUNDING = 8.0


class Terms(NamedTuple):
    """Precomputed terms of a mixture, each of shape (members, n), the last one (1, n)."""

    loc: FloatArray
    left_rate: FloatArray
    right_rate: FloatArray
    below: FloatArray
    above: FloatArray
    height: FloatArray
    sharpest: FloatArray

    def take(self, rows: IntArray) -> "Terms":
        return Terms(*(a[:, rows] for a in self))


class PointValues(NamedTuple):
    """Values of a mixture at one point per row, each of shape (n,)."""

    cdf: FloatArray
    pdf: FloatArray
    log_slope: FloatArray
    stiffness: FloatArray


def ppf(p: FloatArray, members: Members) -> FloatArray:
    """Quantile at `p`, (n,), of each row's members, with weights of sum 1."""
    flip = p > 0.5
    x = lower_quantile(np.where(flip, 1.0 - p, p), members.mirrored(flip))
    return np.where(flip, -x, x)


def isf(q: FloatArray, members: Members) -> FloatArray:
    """Upper quantile at `q` of each row: the quantile of the mirror image."""
    return -ppf(q, members.mirrored(np.True_))


def interval(tail: FloatArray, members: Members) -> tuple[FloatArray, FloatArray]:
    """Quantiles with the mass `tail` below the one and above the other."""
    return ppf(tail, members), isf(tail, members)


def lower_quantile(q: FloatArray, members: Members) -> FloatArray:
    """Quantile at q <= 1/2: fast steps for all rows, then safe steps for those that need them."""
    terms, x = mixture_terms(members), _moment_start(q, members)
    pending = np.flatnonzero(q > 0)
    if pending.size < x.size:
        x[q == 0] = formulas.ppf(np.zeros(1), *members.parameters).min(axis=0)[q == 0]
    for _ in range(FAST_STEPS):
        if pending.size == 0:
            return x
        here = _evaluate(x[pending], terms if pending.size == x.size else terms.take(pending))
        step, small = _halley_step(here, q[pending])
        x[pending] += step
        pending = pending[~(small & np.isfinite(x[pending]))]
    if pending.size:
        quantiles = formulas.ppf(q[pending], *members.take(pending).parameters)
        x[pending] = _bracketed(x[pending], q[pending], quantiles, terms.take(pending))
    return x


def mixture_terms(members: Members) -> Terms:
    """Precompute the terms that evaluating mixtures needs."""
    loc, left, right, weights = members
    below, above = formulas.side_masses(left, right)
    height = weights * SQRT_2_OVER_PI / (left + right)
    left_rate, right_rate = 1.0 / (SQRT2 * left), 1.0 / (SQRT2 * right)
    return Terms(
        loc=loc,
        left_rate=left_rate,
        right_rate=right_rate,
        below=weights * below,
        above=weights * above,
        height=np.where(height < np.inf, height, 0.0),
        sharpest=np.maximum(left_rate, right_rate).max(axis=0, keepdims=True),
    )


def _evaluate(x: FloatArray, terms: Terms) -> PointValues:
    """Evaluate the cdf, the density, the slope of its logarithm and the steepest term."""
    offset = x - terms.loc
    rate = np.where(offset < 0, terms.left_rate, terms.right_rate)
    t = np.fmax(np.abs(offset) * rate, 0.0)
    steepness = t * rate
    density = terms.height * np.exp(-t * t)
    total = sum_members(density)
    mass = terms.below * erfc(t)
    right = np.nonzero(offset >= 0)
    mass[right] = terms.below[right] + terms.above[right] * erf(t[right])
    return PointValues(
        cdf=sum_members(mass),
        pdf=total,
        log_slope=sum_members(np.copysign(2.0 * steepness, -offset) * (density / total)),
        stiffness=steepness.max(axis=0) + terms.sharpest[0],
    )


def _moment_start(q: FloatArray, members: Members) -> FloatArray:
    """Quantile of the normal distribution that has the mixture's mean and variance."""
    means, weights = formulas.mean(*members.parameters), members.weights
    centre = sum_members(weights * means)
    variances = formulas.var(members.left, members.right)
    variance = sum_members(weights * (variances + (means - centre) ** 2))
    return centre + ndtri(q) * np.sqrt(variance)


def _halley_step(here: PointValues, q: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Third-order step towards log F(x) = log q, and whether it is small enough to be the last."""
    hazard = here.pdf / here.cdf
    newton = np.log(here.cdf / q) / hazard
    step = -newton / (1.0 - 0.5 * newton * (here.log_slope - hazard))
    small = np.abs(newton) * (here.stiffness + hazard) < SMALL_STEP
    return step, small & (here.pdf > TINY)


def _bracketed(x: FloatArray, q: FloatArray, quantiles: FloatArray, terms: Terms) -> FloatArray:
    """Halley steps within brackets, which end no wider than two neighbouring floats."""
    low, high = _brackets(q, quantiles, terms)
    result: FloatArray = high.copy()
    pending = np.flatnonzero(np.nextafter(low, np.inf) < high)
    for k in range(SAFE_STEPS):
        if pending.size == 0:
            break
        a, b, target = low[pending], high[pending], q[pending]
        middle = _middle_float(a, b) if k % 2 else 0.5 * a + 0.5 * b
        inside = (x[pending] > a) & (x[pending] < b) & (k % 3 != 2)
        at = np.where(inside, x[pending], middle)
        here = _evaluate(at, terms.take(pending))
        too_low = here.cdf < target
        low[pending], high[pending] = np.where(too_low, at, a), np.where(too_low, b, at)
        step, _ = _halley_step(here, target)
        neighbour = np.nextafter(at, np.where(too_low, np.inf, -np.inf))
        x[pending] = np.where(at + step == at, neighbour, at + step)
        hit = np.abs(here.cdf - target) <= TOLERANCE * target
        result[pending] = np.where(hit, at, high[pending])
        pending = pending[~hit & (np.nextafter(low[pending], np.inf) < high[pending])]
    return result


def _brackets(q: FloatArray, quantiles: FloatArray, terms: Terms) -> tuple[FloatArray, FloatArray]:
    """Points with F < q and F >= q, from the components' quantiles and narrowed by their modes.

    F bends and jumps at modes. A jump at the upper end is detected at the float below it.
    """
    low, high = quantiles.min(axis=0), quantiles.max(axis=0)
    low = low - ROUNDING * np.spacing(np.abs(low))
    high = high + ROUNDING * np.spacing(np.abs(high))

    def narrowed(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        too_low = _evaluate(at, terms).cdf < q
        return np.where(too_low & (at > low), at, low), np.where(~too_low & (at < high), at, high)

    for mode in terms.loc:
        low, high = narrowed(mode)
    return narrowed(np.nextafter(high, -np.inf))


def _middle_float(low: FloatArray, high: FloatArray) -> FloatArray:
    """The float halfway between two others in the count of floats, whatever their magnitudes."""
    a, b = _ordinal(low.view(np.int64)), _ordinal(high.view(np.int64))
    return _ordinal((a >> 1) + (b >> 1) + (a & b & 1)).view(np.float64)


def _ordinal(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert a float's bits to its rank among all floats, and back."""
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)
