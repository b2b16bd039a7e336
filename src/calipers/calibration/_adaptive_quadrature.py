"""Moments and the CRPS of calibrated distributions, by adaptive quadrature of their cdf.

Between the values of the knots the integrands are smooth, and a Gauss-Kronrod pair of 3 and 7
points integrates them. Pieces on which the two rules disagree are halved until they agree to 1e-8
of the distribution's scale; the result is that of the Kronrod rule, which is more accurate still.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from calipers._checks import FloatArray, IntArray
from calipers.calibration._level_map import MixtureRows

# Rows integrated at a time: with about 50 pieces of 7 points each they take a few megabytes.
CHUNK = 64
# Level, on the normal scale, beyond which the tails contribute nothing.
END = 9.0
# Agreement required of the two rules, in units of the row's scale or of the piece's own integral.
TOLERANCE, RELATIVE = 1e-8, 1e-10
ROUNDS = 60
# Pieces of a row above which none is halved; a few dozen are usual. Where rounding errors make all
# of them disagree, halving would only double their number.
MAX_PIECES = 1024

# Abscissae and weights of the pair of rules (Kronrod, 1965), the positive half and zero.
_NODES = np.array([0.9604912687080202, 0.7745966692414834, 0.4342437493468026, 0.0])
_KRONROD = np.array([0.1046562260264673, 0.2684880898683334, 0.4013974147759622, 0.450916538658474])
_GAUSS = np.array([0.0, 5.0 / 9.0, 0.0, 8.0 / 9.0])
NODES = np.concatenate([-_NODES, _NODES[-2::-1]])
KRONROD, GAUSS = (np.concatenate([half, half[-2::-1]]) for half in (_KRONROD, _GAUSS))


def crps(rows: MixtureRows, y: FloatArray) -> FloatArray:
    """Score of `y`, the integral of (F(x) - 1[x >= y])^2, of shape (1, n)."""
    return _chunked(_crps, rows, y)


def mean_and_variance(rows: MixtureRows, y: FloatArray) -> FloatArray:
    """First two moments, from integrals of both tails about the median, of shape (2, n)."""
    return _chunked(_moments, rows, y)


def _chunked(
    function: Callable[[MixtureRows, FloatArray], FloatArray], rows: MixtureRows, y: FloatArray
) -> FloatArray:
    """Apply ``function`` to a few rows at a time, since each row needs many points."""
    parts = [np.arange(i, min(i + CHUNK, y.size)) for i in range(0, y.size, CHUNK)]
    return np.concatenate([function(rows.take(part), y[part]) for part in parts], axis=-1)


def _crps(rows: MixtureRows, y: FloatArray) -> FloatArray:
    breaks, scale = _breaks(rows, y)

    def integrand(x: FloatArray, row: IntArray) -> FloatArray:
        v = rows.take(row).levels(x)
        return ndtr(np.where(x < y[row], v, -v))[None] ** 2

    # Outside the pieces the distribution function is 0 or 1, and the integral is a distance.
    outside = np.maximum(breaks[0] - y, 0.0) + np.maximum(y - breaks[-1], 0.0)
    return outside + _integrate(integrand, breaks, TOLERANCE * scale[None])


def _moments(rows: MixtureRows, _: FloatArray) -> FloatArray:
    middle = rows.values(np.zeros(rows.members.n_rows))
    breaks, scale = _breaks(rows, middle)

    def integrand(x: FloatArray, row: IntArray) -> FloatArray:
        v = rows.take(row).levels(x)
        tail = np.copysign(ndtr(-np.abs(v)), x - middle[row])
        return np.stack([tail, 2.0 * tail * (x - middle[row])])

    first, second = _integrate(integrand, breaks, TOLERANCE * np.stack([scale, scale**2]))
    return np.stack([middle + first, np.maximum(second - first**2, 0.0)])


def _breaks(rows: MixtureRows, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends of the initial pieces, of shape (pieces + 1, n), and the scale of each row."""
    n = y.size
    ends = [rows.values(np.full(n, v)) for v in (-END, -1.0, 1.0, END)]
    at_knots = [
        rows._replace(maps=rows.maps[:k], local=rows.local[:k]).values(np.full(n, knot))
        for k, level_map in enumerate(rows.maps)
        for knot in level_map.scores
    ]
    inside = np.clip(np.stack([*at_knots, *ends[1:3], y]), ends[0], ends[3])
    return np.sort(np.stack([ends[0], *inside, ends[3]]), axis=0), ends[2] - ends[1]


def _integrate(
    integrand: Callable[[FloatArray, IntArray], FloatArray],
    breaks: FloatArray,
    tolerance: FloatArray,
) -> FloatArray:
    """Integrals of several functions, of shape (functions, n), over all pieces of each row."""
    result = np.zeros_like(tolerance)
    n = breaks.shape[1]
    low, high = breaks[:-1].ravel(), breaks[1:].ravel()
    row = np.tile(np.arange(n), len(breaks) - 1)
    for attempt in range(ROUNDS):
        centre, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        x = centre + half * NODES[:, None]
        values = integrand(x.ravel(), np.tile(row, len(NODES))).reshape(-1, len(NODES), row.size)
        kronrod, gauss = (half * np.tensordot(values, rule, (1, 0)) for rule in (KRONROD, GAUSS))
        allowed = np.maximum(tolerance[:, row], RELATIVE * np.abs(kronrod))
        done = (np.abs(kronrod - gauss) <= allowed).all(axis=0)
        done |= (attempt == ROUNDS - 1) | ~(low < centre) | ~(centre < high)
        done |= np.bincount(row, minlength=n)[row] > MAX_PIECES
        for total, part in zip(result, kronrod, strict=True):
            total += np.bincount(row[done], part[done], minlength=n)
        low, high, centre = (array[~done] for array in (low, high, centre))
        row = row[~done]
        if row.size == 0:
            break
        low, high = np.concatenate([low, centre]), np.concatenate([centre, high])
        row = np.concatenate([row, row])
    return result
