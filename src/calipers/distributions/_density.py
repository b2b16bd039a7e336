"""Log density of a mixture of split normals, its slope, levels and modes.

Logarithms are used because halfway between distant components a density is far below the smallest
float. Scales of zero, which have no finite density, are widened to a few ulps of their mode.
"""

from collections.abc import Callable

import numpy as np

from calipers._arrays import FloatArray, IntArray
from calipers._blocks import sum_members
from calipers.distributions import _formulas as formulas
from calipers.distributions._formulas import Members
from calipers.distributions._mixture_formulas import logpdf

# Scale that replaces zero, in ulps of the mode: narrow, but with a slope to follow.
MIN_ULPS = 4.0
# Number of widened scales within which a result is moved to the mode.
REACH = 40.0
# Offsets from the mode of a component, in scales, at which the slope is evaluated.
OFFSETS = (*np.arange(0.25, 3.01, 0.25), 3.5, 4.0, 5.0, 6.5, 9.0)
# Largest number of evaluations of a root.
MAX_STEPS = 200


def widened(members: Members) -> Members:
    """Replace scales of zero by a few ulps of the mode, so that densities are finite."""
    loc, left, right = members.parameters
    extent = np.maximum(np.abs(loc), np.maximum(left, right)).max(axis=0)
    least = np.maximum(MIN_ULPS * np.spacing(np.abs(loc)), np.maximum(1e-30 * extent, 1e-290))
    return members._replace(
        left=np.where(left == 0, least, left), right=np.where(right == 0, least, right)
    )


def settle(x: FloatArray, members: Members) -> FloatArray:
    """Move points that lie within a widened scale of zero back to its mode."""
    wide = widened(members)
    left = np.where(members.left == 0, wide.left, 0.0)
    right = np.where(members.right == 0, wide.right, 0.0)
    for mode, below, above in zip(members.loc, left, right, strict=True):
        x = np.where(np.abs(x - mode) <= REACH * np.where(x < mode, below, above), mode, x)
    return x


def log_slope(x: FloatArray, members: Members) -> FloatArray:
    """Slope of the logarithm of a density at one point per row; all scales are positive."""
    each = np.log(members.weights) + formulas.logpdf(x, *members.parameters)
    weight = np.exp(each - each.max(axis=0))
    scale = np.where(x < members.loc, members.left, members.right)
    return sum_members(weight * (members.loc - x) / scale / scale) / sum_members(weight)


def lowest_level(alpha: FloatArray, members: Members) -> FloatArray:
    """Logarithm of a density below which lies at most the mass alpha.

    At most half of that mass lies outside the components' quantiles, and at most half between them,
    where a density below alpha / (2 width) integrates to no more than alpha / 2.
    """
    tail = alpha / 4.0
    low, high = formulas.interval(tail, *members.parameters)
    return np.log(alpha / 2.0) - np.log(high.max(axis=0) - low.min(axis=0))


def ends_of_level(level: FloatArray, members: Members) -> tuple[FloatArray, FloatArray]:
    """Points beyond which the density is below the level, since every component is small enough."""
    loc, left, right, weights = members
    highest = np.log(weights) + formulas.logpdf(loc, loc, left, right)
    depth = np.sqrt(2.0 * np.maximum(highest + np.log(len(loc)) - level, 0.0))
    low: FloatArray = (loc - depth * left).min(axis=0)
    high: FloatArray = (loc + depth * right).max(axis=0)
    return low, high


def mixture_modes(members: Members) -> tuple[FloatArray]:
    """Modes of every row, shape (k, n), ascending and padded with NaN."""
    modes, _ = stationary_points(widened(members))
    return (np.array([settle(mode, members) for mode in modes]),)


def stationary_points(members: Members) -> tuple[FloatArray, FloatArray]:
    """Modes, (k, n), and valleys, (k + 1, n), of every row, ascending and padded with NaN.

    The valleys are minus infinity, the minima between modes, and plus infinity, so that there is
    one to the left of each mode and one to the right of the last.
    """
    points = _grid(members)
    rising = np.array([log_slope(x, members) > 0 for x in points])
    rising = np.concatenate([np.ones_like(rising[:1]), rising, np.zeros_like(rising[:1])]).T
    points = np.concatenate([points[:1], points, points[-1:]]).T
    row, cell = np.nonzero(rising[:, 1:] != rising[:, :-1])
    where = members.take(row)
    before, after = find_crossings(
        lambda x, i: log_slope(x, where.take(i)), points[row, cell], points[row, cell + 1]
    )
    # Modes and valleys alternate, and every row begins and ends with a mode.
    order = np.arange(row.size) - np.searchsorted(row, row)
    is_mode = order % 2 == 0
    # Where the density jumps, the mode is on its upper side.
    is_higher = logpdf(after, where) > logpdf(before, where)
    roots = np.where(is_higher == is_mode, after, before)
    modes = np.full((int(order.max()) // 2 + 1, len(points)), np.nan)
    valleys = np.full((len(modes) + 1, len(points)), np.inf)
    valleys[0] = -np.inf
    modes[order[is_mode] // 2, row[is_mode]] = roots[is_mode]
    valleys[order[~is_mode] // 2 + 1, row[~is_mode]] = roots[~is_mode]
    return modes, valleys


def _grid(members: Members) -> FloatArray:
    """Points at which slopes are evaluated, (points, n), from the lowest loc to the highest."""
    loc, left, right = members.parameters
    low, high = loc.min(axis=0), loc.max(axis=0)
    steps = np.array(OFFSETS)[:, None, None]
    points = np.concatenate([loc[None], loc - steps * left, loc + steps * right])
    points = points.reshape(-1, low.size)
    inside = (points >= low) & (points <= high)
    points = np.sort(np.where(inside, points, high).T, axis=1).T
    return points[: inside.sum(axis=0).max()]


def find_crossings(
    function: Callable[[FloatArray, IntArray], FloatArray], low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Last points before and first points after functions change sign between two ends.

    ``function`` is called with points and the indices of their equations. "Before" is as seen from
    `low`. The two points are a few ulps apart, also where the function jumps; where the function
    has the same sign at both ends, both are the end at which it is closer to zero.

    The method is Chandrupatla's (1997): inverse quadratic interpolation where three points make
    that safe, bisection elsewhere. Equations that have converged are not evaluated any more.

    >>> squares = np.array([2.0, 9.0])
    >>> find_crossings(lambda x, i: x * x - squares[i], np.zeros(2), np.full(2, 10.0))[0]
    array([1.41421356, 3.        ])
    """
    pending = np.arange(low.size)
    # Points a (the newest), b (on the other side of the root) and c (the previous one), and values.
    points = np.stack([low, high, low])
    values = np.stack([function(low, pending), function(high, pending), np.zeros(low.size)])
    positive = values[0] > 0
    before = np.where(np.abs(values[0]) <= np.abs(values[1]), low, high)
    after = before.copy()
    fraction = np.full(low.size, 0.5)
    active = positive != (values[1] > 0)
    for _ in range(MAX_STEPS):
        pending, fraction = pending[active], fraction[active]
        (a, b, _), (fa, fb, _) = points[:, active], values[:, active]
        if pending.size == 0:
            break
        x = a + fraction * (b - a)
        fx = function(x, pending)
        same = (fx > 0) == (fa > 0)
        points = np.stack([x, np.where(same, b, a), np.where(same, a, b)])
        values = np.stack([fx, np.where(same, fb, fa), np.where(same, fa, fb)])
        is_before = (fx > 0) == positive[pending]
        before[pending] = np.where(is_before | (fx == 0), x, points[1])
        after[pending] = np.where(is_before & (fx != 0), points[1], x)
        resolution = 2.0 * np.spacing(np.abs(x)) / np.abs(points[1] - x)
        fraction = np.clip(_interpolate(points, values), resolution, 1.0 - resolution)
        active = (resolution < 0.5) & (fx != 0)
    return before, after


def _interpolate(points: FloatArray, values: FloatArray) -> FloatArray:
    """Next point, as a fraction of the way from a to b."""
    (a, b, c), (fa, fb, fc) = points, values
    xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
    safe = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
    first = fa / (fb - fa) * fc / (fb - fc)
    second = (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
    return np.where(safe, first + second, 0.5)
