"""Shortest intervals of any distribution, from its quantiles.

A calibrated density jumps at every calibration row, so there is no equation to solve, as there is
for mixtures (``_regions``). Lower bounds are tried on a grid, which is then refined around the
best. From half of the mass on, widths exceed the least one by less than 1e-4 of themselves on
average and 1e-2 at most; short intervals may miss a narrow peak between two calibration rows.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from calipers._arrays import FloatArray

if TYPE_CHECKING:
    from calipers.distributions._distribution import Distribution

# Cells of the grid of lower bounds, and of its refinements, each of two cells of the one before.
CELLS = (128, 16, 16)
# Largest number of intervals that are evaluated at a time.
_BLOCK = 2**20
# Rounding of a quantile, in units of probability.
_SLACK = 1e-12


def narrowest_interval(dist: "Distribution", coverage: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds of the shortest interval that holds this mass.

    Among equally short ones, it is the one with most mass. It is the central interval where that is
    infinite because there are too few calibration rows.
    """
    alpha = 1.0 - coverage
    central = dist.interval(coverage)
    bounded = dist._is_bounded(coverage)
    with np.errstate(invalid="ignore"):
        width = np.where(bounded, central[1] - central[0], 0.0)
    # A shortest interval ends no earlier than the quantile at its coverage, and is no wider than
    # the central one.
    least, most = dist.ppf(np.zeros(width.shape)), dist.ppf(np.broadcast_to(alpha, width.shape))
    low, high = dist.isf(alpha) - width, most
    lower, upper = np.where(bounded, central, most)
    for cells in CELLS:
        step = (high - low) / cells
        places = np.arange(cells + 1.0).reshape(-1, *(1,) * width.ndim)
        for part in np.array_split(places, math.ceil(places.size * width.size / _BLOCK) or 1):
            begin = dist._takes(np.clip(low + part * step, least, most))
            begin = np.concatenate([lower[None], begin])
            below = dist._below(begin)
            end = dist.isf(np.maximum(alpha - below, 0.0))
            size = np.where(below > alpha + _SLACK, np.inf, end - begin)
            best = np.lexsort((below - dist.cdf(end), size), axis=0)[:1]
            lower, upper = (np.take_along_axis(bound, best, 0)[0] for bound in (begin, end))
        low, high = lower - step, lower + step
    return np.where(bounded, lower, central[0]), np.where(bounded, upper, central[1])
