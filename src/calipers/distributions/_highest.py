"""Highest density regions of any distribution.

A calibrated density jumps at every calibration row, so the set where it exceeds a level is ragged.
Points are therefore ordered by a density in which a straight line replaces the calibration's map,
and the level is the one above which the calibrated distribution has the coverage. Between a valley
and a mode the density is monotone, so it crosses each level at most once there.

Point masses have no length and come first. The knots of a `Support` move mass as calibration does,
and do not change the order of continuous values.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import BoolArray, FloatArray, IntArray
from calipers._blocks import blockwise_ragged
from calipers.distributions._density import find_crossings
from calipers.distributions._regions import join

if TYPE_CHECKING:
    from calipers.distributions._distribution import Distribution
    from calipers.distributions._observed import ObservedDistribution

Intervals: TypeAlias = tuple[IntArray, FloatArray, FloatArray]
"""Row, lower bound and upper bound of each interval."""

# Rows that are processed at a time.
_BLOCK = 1024
# Largest numbers, in a row, of points between which there may be modes, and of lattice values.
_MAX_POINTS, _MAX_VALUES = 600, 1024
# Fractions of the mass outside, beyond each end of the values that are compared: of any values, and
# of a lattice.
_TAIL, _LATTICE_TAIL = 1e-15, 1e-3
# Masses from which on a value comes before continuous ones: one that many targets have, and a bound
# on which there may be nothing but a tail beyond it.
_MIN_ATOM, _MIN_BOUND = 0.01, 0.05
# Range of logarithms of densities, which are infinite at point masses and beyond a bound.
_LOWEST, _HIGHEST = -1e18, 700.0
# Half the distance between points whose heights give the sign of a slope, relative to the cell.
_STEP = 1e-3
# Rounding of a mass.
_SLACK = 1e-12


def highest_density_region(
    dist: "Distribution", coverage: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bounds of the intervals of each row, (k, ...), padded with NaN.

    Where the central interval is infinite because there are too few calibration rows, it is the
    only one.
    """
    flat = dist if dist.shape else dist[None]
    numbers: NDArray[Any] = np.arange(math.prod(flat.shape)).reshape(dist.shape)

    def of_block(coverage: FloatArray, number: IntArray) -> tuple[FloatArray, FloatArray]:
        part = flat[np.unravel_index(number, flat.shape)]
        bounded = part._is_bounded(coverage)
        rows, others = np.flatnonzero(bounded), np.flatnonzero(~bounded)
        row, *ends = part[rows]._highest(coverage[rows])
        low, high = map(np.append, ends, part[others].interval(coverage[others]))
        row = np.append(rows[row], others)
        order = np.lexsort((low, row))
        return join(row[order], low[order], high[order], coverage.size)

    lower, upper = blockwise_ragged(of_block, (coverage, numbers), (), outputs=2, block_rows=_BLOCK)
    return lower, upper


class Peaks(NamedTuple):
    """Modes with the valleys before and after them, shape (peaks,) each, in ascending order."""

    row: IntArray
    before: FloatArray
    mode: FloatArray
    after: FloatArray


def find_peaks(dist: "Distribution", first: FloatArray, last: FloatArray) -> Peaks:
    """Peaks of the density of each row between the points `first` and `last`."""
    points = dist._landmarks()
    points = np.sort(np.where((points > first) & (points < last), points, last), axis=0)
    points = points[:: math.ceil(len(points) / _MAX_POINTS)]
    points = np.concatenate([first[None], points, last[None]])
    heights = dist.logpdf(points)
    ends = np.ones((1, first.size), bool)
    rises = np.concatenate([ends, heights[1:] > heights[:-1], ~ends])
    row, at = np.nonzero((rises[1:] != rises[:-1]).T)
    left = points[np.maximum(at - 1, 0), row]
    right = points[np.minimum(at + 1, len(points) - 1), row]
    step = _STEP * (right - left)

    def slope(x: FloatArray, which: IntArray) -> FloatArray:
        part = dist[row[which]]
        return part.logpdf(x + step[which]) - part.logpdf(x - step[which])

    # Modes and valleys alternate, and every row begins and ends with a mode.
    order = np.arange(row.size) - np.searchsorted(row, row)
    is_mode = order % 2 == 0
    found = np.stack([points[at, row], *find_crossings(slope, left, right)])
    best = np.argmax(np.where(is_mode, 1.0, -1.0) * dist[row].logpdf(found), axis=0)
    turns = np.take_along_axis(found, best[None], axis=0)[0]
    before = np.where(order > 0, np.roll(turns, 1), first[row])
    after = np.where(np.roll(order, -1) > 0, np.roll(turns, -1), last[row])
    return Peaks(row[is_mode], before[is_mode], turns[is_mode], after[is_mode])


def density_intervals(
    dist: "Distribution",
    coverage: FloatArray,
    gaps: Sequence[tuple[float, float, BoolArray]] = (),
) -> Intervals:
    """Intervals where the density exceeds the level at which they hold the coverage.

    Mass between the two ends of a gap does not count in the rows that have it.
    """
    order, tail = dist._straightened, _TAIL * (1.0 - coverage)
    peaks = find_peaks(order, dist.ppf(tail), dist.isf(tail))
    # Brackets of both ends of each interval, which shrink with the bracket of the level.
    outer, inner = np.stack([peaks.before, peaks.after]), np.stack([peaks.mode, peaks.mode])

    def mass(low: FloatArray, high: FloatArray, row: IntArray) -> FloatArray:
        part = dist[row]
        total = part.cdf(high) - part._below(low)
        for start, stop, exists in gaps:
            inside = part.cdf(np.clip(high, start, stop)) - part.cdf(np.clip(low, start, stop))
            total -= np.where(exists[row], inside, 0.0)
        return total

    def height(x: FloatArray, row: IntArray) -> FloatArray:
        return np.clip(order[row].logpdf(x), _LOWEST, _HIGHEST)

    def ends(level: FloatArray, which: IntArray) -> FloatArray:
        row, levels = np.tile(peaks.row[which], 2), np.tile(level, 2)
        brackets = outer[:, which].ravel(), inner[:, which].ravel()
        _, inside = find_crossings(lambda x, i: height(x, row[i]) - levels[i], *brackets)
        return inside.reshape(2, -1)

    def shortfall(level: FloatArray, rows: IntArray) -> FloatArray:
        which = np.flatnonzero(np.isin(peaks.row, rows))
        place = np.searchsorted(rows, peaks.row[which])
        bounds = ends(level[place], which)
        held = mass(bounds[0], bounds[1], peaks.row[which])
        missing = coverage[rows] - np.bincount(place, held, minlength=rows.size)
        high = missing[place] > 0
        inner[:, which[high]], outer[:, which[~high]] = bounds[:, high], bounds[:, ~high]
        return missing

    heights = height(np.stack([peaks.mode, peaks.before, peaks.after]), peaks.row)
    bottom, top = np.full(coverage.size, np.inf), np.full(coverage.size, -np.inf)
    np.minimum.at(bottom, peaks.row, heights.min(axis=0))
    np.maximum.at(top, peaks.row, heights[0])
    level, _ = find_crossings(shortfall, bottom, top)
    above = np.flatnonzero(heights[0] >= level[peaks.row])
    row = peaks.row[above]
    low, high = ends(level[row], above)
    return row, low, high


def observed_intervals(dist: "ObservedDistribution", coverage: FloatArray) -> Intervals:
    """Point masses, the largest first, and intervals of the continuous part for the rest."""
    support = dist.support
    if support.step:
        return _lattice_intervals(dist, coverage)
    values = np.array([x for x in (*support.ends, *support.atoms) if np.isfinite(x)])
    least = np.where(np.isin(values, support.observed), _MIN_ATOM, _MIN_BOUND)
    mass = dist.pmf(values[:, None])
    mass = np.where(mass >= least[:, None], mass, 0.0)
    alone, rest = _largest(mass, mass, coverage), coverage - mass.sum(axis=0)
    rows = np.flatnonzero(rest > _SLACK)
    edges = support.lower_edge(values), support.upper_edge(values)
    gaps = list(zip(*edges, mass[:, rows] > 0, strict=True))
    row, *ends = density_intervals(dist.latent[rows], rest[rows], gaps)
    row, (low, high) = rows[row], map(support.observe, ends)
    for value, of_value in zip(values, alone, strict=True):
        of_value[row[(low <= value) & (value <= high)]] = False
    which, others = np.nonzero(alone)
    atoms = values[which]
    return np.append(row, others), np.append(low, atoms), np.append(high, atoms)


def _lattice_intervals(dist: "ObservedDistribution", coverage: FloatArray) -> Intervals:
    """Runs of the values with most mass; where there are too many values, of a density."""
    support, tail = dist.support, _LATTICE_TAIL * (1.0 - coverage)
    first = dist.ppf(tail)
    last = np.rint((dist.isf(tail) - first) / support.step)
    few, many = np.flatnonzero(last < _MAX_VALUES), np.flatnonzero(last >= _MAX_VALUES)
    places = np.arange(last[few].max(initial=0.0) + 1)[:, None]
    values = support.at(np.rint((first[few] - support.origin) / support.step) + places)
    edges = np.concatenate([support.lower_edge(values[:1]), support.upper_edge(values)])
    latent, compared = dist.latent[few], places <= last[few]
    below, above = latent._straightened.cdf(edges), latent._straightened.sf(edges)
    order = np.where(below[:-1] < 0.5, np.diff(below, axis=0), -np.diff(above, axis=0))
    mass = np.where(compared, np.diff(latent.cdf(edges), axis=0), 0.0)
    chosen = _largest(np.where(compared, order, -1.0), mass, coverage[few])
    chosen = np.pad(chosen, ((1, 1), (0, 0)))
    row, begin = np.nonzero((chosen[1:] & ~chosen[:-1]).T)
    _, end = np.nonzero((chosen[:-1] & ~chosen[1:]).T)
    smooth = replace(dist, support=support.without(False, False, True))
    wide, *ends = observed_intervals(smooth[many], coverage[many])
    low, high = map(support.nearest, ends)
    return (
        np.append(few[row], many[wide]),
        np.append(values[begin, row], low),
        np.append(values[end - 1, row], high),
    )


def _largest(order: FloatArray, mass: FloatArray, coverage: FloatArray) -> BoolArray:
    """Which of the values, (k, n), together hold the mass, those first in descending order."""
    descending = np.argsort(-order, axis=0, kind="stable")
    held = np.take_along_axis(mass, descending, axis=0)
    needed = (np.cumsum(held, axis=0) - held < coverage - _SLACK) & (held > 0)
    chosen = np.empty(mass.shape, bool)
    np.put_along_axis(chosen, descending, needed, axis=0)
    return chosen
