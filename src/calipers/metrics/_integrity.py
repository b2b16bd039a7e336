"""Whether lower, point and upper come in that order."""

import numpy as np
from numpy.typing import ArrayLike

from calipers.metrics._checks import rows


def crossing_rate(lower: ArrayLike, upper: ArrayLike, *, weight: ArrayLike | None = None) -> float:
    """Fraction of intervals with lower above upper.

    Parameters
    ----------
    lower, upper : array-like of shape (n_samples,)
        Bounds.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        Between 0 and 1; 0 is as it should be.

    Raises
    ------
    ValueError
        If shapes differ or values are not finite.

    Examples
    --------
    >>> crossing_rate([0, 2], [1, 1])
    0.5
    """
    weights, low, high = rows(weight, lower=lower, upper=upper)
    return float(np.average(low > high, weights=weights))


def point_inside_rate(
    lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, weight: ArrayLike | None = None
) -> float:
    """Fraction of point estimates inside their own interval, bounds included.

    Parameters
    ----------
    lower, point, upper : array-like of shape (n_samples,)
        Bounds and point estimates.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        Between 0 and 1; 1 is as it should be.

    Raises
    ------
    ValueError
        If shapes differ or values are not finite.

    Examples
    --------
    >>> point_inside_rate([0, 0], [0.5, 2], [1, 1])
    0.5
    """
    weights, low, middle, high = rows(weight, lower=lower, point=point, upper=upper)
    return float(np.average((low <= middle) & (middle <= high), weights=weights))
