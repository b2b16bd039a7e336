"""Knots of a calibration: the scores that it keeps, and the levels of these scores.

With the row's own weight w and calibration weights of sum W, knot k has the level

    p_k = (mass_k + share_k w) / (W + w).

For a score of weight w_k, with the weight W_before below it, mass is W_before + w_k / 2 and share
1/2: with unit weights the level is k / (n + 1). Strict knots give each score the level nearest to
one half for which it is a valid quantile: in the lower half mass W_before + w_k and share 1, in the
upper half W_before and 0, with the median between them. Equal scores are merged into one of their
total weight.

The sorted scores are a rough quantile function, whose derivative is useless as a density, since
each gap rests on a single score. So neighbours share a knot, few of them in the tails and more in
the middle. Ordinary knots take the mean of their scores, strict knots the outermost score, which is
conservative.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from calipers._arrays import FloatArray, IntArray
from calipers._schema import array_of, refuse, within

# Rows that share a knot: at most this fraction of the rows further out (ordinary, strict) ...
ORDINARY_FRACTION, STRICT_FRACTION = 1.0 / 3.0, 1.0 / 100.0
# ... and at most this multiple of n^(2/3), so that the map follows any shape as n grows.
ORDINARY_CAP = 0.5
# Weights below this fraction of their sum count as zero.
NEGLIGIBLE = 1e-12
# Limits of stored maps: of scores, see ``calipers.distributions``, and between levels of knots.
_MAX_SCORE, _MIN_STEP = 1e100, 1e-13


class Knots(NamedTuple):
    """Scores in ascending order and the terms of their levels, each of shape (knots,)."""

    scores: FloatArray
    mass: FloatArray
    share: FloatArray


def merged(scores: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distinct scores in ascending order and the total weight of each.

    >>> merged(np.array([2.0, 1.0, 2.0]), np.ones(3))
    (array([1., 2.]), array([1., 2.]))
    """
    kept = weights > NEGLIGIBLE * weights.sum()
    distinct, where = np.unique(scores[kept], return_inverse=True)
    return distinct, np.bincount(where, weights[kept]).astype(np.float64)


def ordinary_knots(scores: FloatArray, weights: FloatArray) -> Knots:
    """Unbiased knots, from distinct scores in ascending order."""
    cap = max(1, int(ORDINARY_CAP * len(scores) ** (2 / 3)))
    starts = _group_starts(len(scores), ORDINARY_FRACTION, cap)
    weight = np.add.reduceat(weights, starts)
    mean = np.add.reduceat(weights * scores, starts) / weight
    mass = np.cumsum(weight) - 0.5 * weight
    return Knots(mean, mass, np.full(len(starts), 0.5))


def strict_knots(scores: FloatArray, weights: FloatArray) -> Knots:
    """Conservative knots, for every level but one half itself."""
    starts = _group_starts(len(scores), STRICT_FRACTION, len(scores))
    ends = np.append(starts[1:], len(scores)) - 1
    cumulative = np.cumsum(weights)
    half = 0.5 * cumulative[-1]
    median = scores[np.searchsorted(cumulative, half)]
    before = (cumulative - weights)[starts]
    low = (before < half) & (scores[starts] < median)
    high = (cumulative[ends] > half) & (scores[ends] > median)
    return Knots(
        np.concatenate([scores[starts][low], [median], scores[ends][high]]),
        np.concatenate([cumulative[ends][low], [half], before[high]]),
        np.repeat([1.0, 0.5, 0.0], [low.sum(), 1, high.sum()]),
    )


def tail_slope(scores: FloatArray, weights: FloatArray) -> float:
    """Scale of the scores: half the distance between those at normal levels -1 and 1.

    >>> tail_slope(2.0 * ndtri(np.arange(1, 100) / 100), np.ones(99))
    2.0
    """
    mean = weights.mean()
    levels = ndtri((np.cumsum(weights) - 0.5 * weights + 0.5 * mean) / (weights.sum() + mean))
    low, high = max(-1.0, levels[0]), min(1.0, levels[-1])
    if not low < high:
        return 1.0
    first, last = np.interp([low, high], levels, scores)
    return float((last - first) / (high - low))


def _group_starts(n: int, fraction: float, cap: int) -> IntArray:
    """First indices of groups of neighbours, which grow from either end towards the middle.

    >>> _group_starts(20, 1 / 3, 3)
    array([ 0,  1,  2,  3,  4,  5,  7,  9, 11, 13, 15, 16, 17, 18, 19])
    """
    edges = [0]
    while edges[-1] < n / 2:
        rank = edges[-1] + 1
        edges.append(edges[-1] + max(1, min(int(rank * fraction), cap)))
    low = [edge for edge in edges if edge < n / 2]
    high = [n - edge for edge in reversed(edges) if edge and n - edge > low[-1]]
    return np.array(low + high)


def check_arrays(arrays: Mapping[str, ArrayLike]) -> None:
    """Refuse stored arrays that cannot be those of a ``Calibration``."""
    scores = array_of(arrays, "scores", "f", None, -_MAX_SCORE, _MAX_SCORE)
    shape = scores.shape
    if len(shape) != 1 or not shape[0]:
        refuse("array 'scores'", "a list of at least one score", shape)
    mass, share = (array_of(arrays, name, "f", shape) for name in ("mass", "share"))
    total = array_of(arrays, "total_weight", "f", ())
    array_of(arrays, "tail_slope", "f", (), 1e-150, 1e150)
    rows = int(array_of(arrays, "n_rows", "iu", (), 0, 2.0**53))
    strict = bool(array_of(arrays, "strict", "b", ()))
    if not rows:
        if shape != (1,):
            refuse("array 'scores'", "a single score where n_rows is 0", shape)
        within("total_weight", total, 0.0, 0.0)
        within("mass", mass, 0.0, 0.0)
        return
    within("total_weight", total, 1e-300, 1e300)
    for name in ("n_effective", "n_independent"):  # absent from older model folders
        if name in arrays:
            array_of(arrays, name, "f", (), 0.5, rows)
    if (np.diff(scores) < 0).any():
        refuse("array 'scores'", "in ascending order", scores)
    lower, upper = (share == 1.0).sum(), (share == 0.0).sum()
    expected = [1.0, 0.5, 0.0] if strict else [0.5]
    sizes = [lower, 1, upper] if strict else [shape[0]]
    if sum(sizes) != shape[0] or not np.array_equal(share, np.repeat(expected, sizes)):
        refuse("array 'share'", f"of the values {expected} in this order", share)
    level = mass / total
    halves = [level[:lower], level[lower + 1 :]] if strict else [level]
    ends = (-1.0, 2.0) if strict else (0.0, 1.0)
    for levels in halves:
        if (np.diff(levels, prepend=ends[0], append=ends[1]) < _MIN_STEP).any():
            refuse("array 'mass'", "ascending, from 0 to the total weight", mass)
    within("mass", level, 0.0, 1.0 + 1e-9)
