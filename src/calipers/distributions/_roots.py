"""Bracketed root finding for many equations at once."""

from collections.abc import Callable

import numpy as np

from calipers._checks import FloatArray, IntArray

MAX_STEPS = 200


def find_roots(
    function: Callable[[FloatArray, IntArray], FloatArray], low: FloatArray, high: FloatArray
) -> FloatArray:
    """Points where functions change sign between two ends, to a few ulps.

    ``function`` is called with points and the indices of their equations. The result is the last
    point before the sign change as seen from `low`, also where the function jumps; where the
    function has the same sign at both ends, it is the end at which it is closer to zero.

    >>> squares = np.array([2.0, 9.0])
    >>> find_roots(lambda x, i: x * x - squares[i], np.zeros(2), np.full(2, 10.0))
    array([1.41421356, 3.        ])
    """
    return find_crossings(function, low, high)[0]


def find_crossings(
    function: Callable[[FloatArray, IntArray], FloatArray], low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Last points before and first points after the sign change, as in `find_roots`.

    The method is Chandrupatla's (1997): inverse quadratic interpolation where three points make
    that safe, bisection elsewhere. Equations that have converged are not evaluated any more.
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
