"""Modes of a mixture of split normals, and the valleys between them.

All modes lie between the lowest and the highest mode of the components. There the sign of the
density's slope is looked up on a grid that follows every component's own scales, and each change
of sign is then solved for.
"""

import numpy as np

from calipers._checks import FloatArray
from calipers.distributions._density import (
    LogTerms,
    log_density,
    log_slope,
    log_terms,
    settle,
    widen,
)
from calipers.distributions._formulas import SQRT2
from calipers.distributions._roots import find_crossings

# Where, in scales from its mode, a component's slope is looked at.
OFFSETS = (*np.arange(0.25, 3.01, 0.25), 3.5, 4.0, 5.0, 6.5, 9.0)


def mixture_modes(
    loc: FloatArray, left: FloatArray, right: FloatArray, weights: FloatArray
) -> tuple[FloatArray]:
    """Modes of every row, shape (k, n), ascending and padded with NaN."""
    modes, _ = stationary_points(log_terms(loc, *widen(loc, left, right), weights))
    return (np.array([settle(mode, loc, left, right) for mode in modes]),)


def stationary_points(terms: LogTerms) -> tuple[FloatArray, FloatArray]:
    """Modes, (k, n), and valleys, (k + 1, n), of every row, ascending and padded with NaN.

    Valleys are to the left of each mode and, one further, to the right of the last: minus infinity
    first, then the minima between modes, then plus infinity.
    """
    points = _grid(terms)
    rising = np.array([log_slope(x, terms) > 0 for x in points])
    rising = np.concatenate([np.ones_like(rising[:1]), rising, np.zeros_like(rising[:1])]).T
    points = np.concatenate([points[:1], points, points[-1:]]).T
    row, cell = np.nonzero(rising[:, 1:] != rising[:, :-1])
    where = terms.take(row)
    before, after = find_crossings(
        lambda x, i: log_slope(x, where.take(i)), points[row, cell], points[row, cell + 1]
    )
    # Modes and valleys take turns, and every row begins and ends with a mode.
    order = np.arange(row.size) - np.searchsorted(row, row)
    is_mode = order % 2 == 0
    # Where the density jumps, the mode is on its upper side.
    is_higher = log_density(after, where) > log_density(before, where)
    roots = np.where(is_higher == is_mode, after, before)
    modes = np.full((int(order.max()) // 2 + 1, len(points)), np.nan)
    valleys = np.full((len(modes) + 1, len(points)), np.inf)
    valleys[0] = -np.inf
    modes[order[is_mode] // 2, row[is_mode]] = roots[is_mode]
    valleys[order[~is_mode] // 2 + 1, row[~is_mode]] = roots[~is_mode]
    return modes, valleys


def _grid(terms: LogTerms) -> FloatArray:
    """Points to look at, ascending, of shape (points, n), from the lowest to the highest loc."""
    low, high = terms.loc.min(axis=0), terms.loc.max(axis=0)
    steps = np.array(OFFSETS)[:, None, None] / SQRT2
    points = np.concatenate(
        [terms.loc[None], terms.loc - steps / terms.left_rate, terms.loc + steps / terms.right_rate]
    ).reshape(-1, low.size)
    inside = (points >= low) & (points <= high)
    points = np.sort(np.where(inside, points, high).T, axis=1).T
    return points[: inside.sum(axis=0).max()]
