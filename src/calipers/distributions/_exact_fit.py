"""Exact scales of the split normal with a given mode and a given central interval.

Quantiles L at alpha/2 and U at 1 - alpha/2 around the mode P require

    erf(t1) = c s / (alpha/2 + c s),    erf(t2) = c (1 - s) / (alpha/2 + c (1 - s)),

with the coverage c = 1 - alpha, the distances t1 = (P - L) / (sqrt(2) s1) and
t2 = (U - P) / (sqrt(2) s2), and one unknown s in [0, 1]: the mass c s lies between L and P, and
s1 / (s1 + s2) = alpha/2 + c s. By symmetry let s <= 1/2, the shorter side. The ratio of the shorter
to the longer side is then an explicit, increasing, analytic function of s, and so are the scales.
No equation has to be solved: these functions of s are tabulated once per coverage as functions of
that ratio, by piecewise polynomials so fine that their error is below the rounding of float64.
"""

from functools import lru_cache
from math import factorial

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.special import erfcinv, erfinv

from calipers._arrays import FloatArray
from calipers.distributions._formulas import SQRT2

# Measured for alpha from 1e-12 to 1 - 1e-9: both quantile conditions hold to 2e-15.
CELLS = 2048
DEGREE = 5


def fit_scales(
    left: FloatArray, right: FloatArray, coverage: float
) -> tuple[FloatArray, FloatArray]:
    """Scales for which [mode - left, mode + right] is the central interval of this coverage.

    If one distance is zero, the quantile at that bound is the mode itself and both scales are
    positive. If both are zero, so are the scales.

    >>> left_scale, right_scale = fit_scales(np.array([1.96]), np.array([1.96]), 0.95)
    >>> left_scale.round(3), right_scale.round(3)
    (array([1.]), array([1.]))
    """
    longer = np.maximum(left, right)
    ratio = np.fmax(np.minimum(left, right) / longer, 0.0)
    per_length, per_scale = _lookup(ratio, coverage)
    of_longer = per_length * longer
    of_shorter = np.where(ratio == 1.0, of_longer, per_scale * of_longer)
    swap = left < right
    return np.where(swap, of_shorter, of_longer), np.where(swap, of_longer, of_shorter)


def _lookup(ratio: FloatArray, coverage: float) -> tuple[FloatArray, FloatArray]:
    """Scale of the longer side per its length, and scale of the shorter side per that scale."""
    coordinate = _coordinate(ratio, coverage)
    cell = np.minimum(coordinate.astype(np.intp), CELLS - 1)
    within = coordinate - cell
    results = []
    for powers in scale_table(coverage):
        value = powers[0].take(cell)
        for coefficients in powers[1:]:
            value *= within
            value += coefficients.take(cell)
        results.append(value)
    return results[0], results[1]


def _coordinate(ratio: FloatArray, coverage: float) -> FloatArray:
    """Map [0, 1] to [0, CELLS], logarithmic where the ratio exceeds the mass of a tail."""
    tail = (1.0 - coverage) / 2.0
    return np.log1p(ratio / tail) * (CELLS / np.log1p(1.0 / tail))


@lru_cache(maxsize=32)
def scale_table(coverage: float) -> tuple[FloatArray, FloatArray]:
    """Polynomials that `SplitNormal.from_interval` evaluates, also for exported graphs.

    Both are functions of log1p(r / tail), scaled to [0, cells], where r is the ratio of the shorter
    to the longer distance from the mode and tail is (1 - coverage) / 2. They are coefficients
    within each cell, (powers, cells), the highest power first: of the longer side's scale per its
    length, and of the shorter side's scale per that scale.
    """
    tail = (1.0 - coverage) / 2.0
    s = tail * np.expm1(np.linspace(0.0, np.log1p(0.5 / tail), 2 * CELLS + 1))
    s[-1] = 0.5
    shorter, longer = coverage * s, coverage * (1.0 - s)
    t_shorter, t_longer = _distance(shorter, tail), _distance(longer, tail)
    per_scale = (tail + shorter) / (tail + longer)
    values = np.stack([1.0 / (SQRT2 * t_longer), per_scale], axis=1)
    explicit = make_interp_spline(
        _coordinate(per_scale * t_shorter / t_longer, coverage), values, 7
    )
    edges = np.arange(CELLS + 1.0)
    uniform = make_interp_spline(edges, explicit(edges), DEGREE)
    # The knots of the spline are the cells, except for a few at either end that share a polynomial.
    taylor = [uniform(edges[:-1], nu=n) / factorial(n) for n in range(DEGREE, -1, -1)]
    per_length, per_scale = np.moveaxis(np.array(taylor), 2, 0)
    return np.ascontiguousarray(per_length), np.ascontiguousarray(per_scale)


def _distance(inside: FloatArray, tail: float) -> FloatArray:
    """Solve erf(t) = inside / (tail + inside), by erf or erfc, whichever is more accurate."""
    mass = tail + inside
    return np.where(inside < tail, erfinv(inside / mass), erfcinv(tail / mass))
