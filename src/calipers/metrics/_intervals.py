"""Measures of prediction intervals: how often they hold, and how wide they are."""

import math

import numpy as np
from numpy.typing import ArrayLike

from calipers import losses
from calipers.metrics._checks import finite, fraction, refuse, rows


def coverage_rate(
    lower: ArrayLike, upper: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> float:
    """Fraction of targets inside their interval, bounds included (PICP).

    Parameters
    ----------
    lower, upper, target : array-like of shape (n_samples,)
        Bounds and observations, in the same unit. Crossed bounds hold no target.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    ValueError
        If shapes differ or values are not finite.

    Examples
    --------
    >>> coverage_rate([0, 0], [1, 1], [0.5, 2])
    0.5
    """
    weights, low, high, observed = rows(weight, lower=lower, upper=upper, target=target)
    return float(np.average((low <= observed) & (observed <= high), weights=weights))


def mean_width(lower: ArrayLike, upper: ArrayLike, *, weight: ArrayLike | None = None) -> float:
    """Mean of upper minus lower (MPIW).

    Crossed bounds count as negative widths; see ``crossing_rate``.

    Parameters
    ----------
    lower, upper : array-like of shape (n_samples,)
        Bounds.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        In the target's unit.

    Raises
    ------
    ValueError
        If shapes differ or values are not finite.

    Examples
    --------
    >>> mean_width([0, 0], [1, 3])
    2.0
    """
    weights, low, high = rows(weight, lower=lower, upper=upper)
    return float(np.average(high - low, weights=weights))


def normalized_mean_width(
    lower: ArrayLike,
    upper: ArrayLike,
    target: ArrayLike,
    *,
    target_range: float | None = None,
    weight: ArrayLike | None = None,
) -> float:
    """Mean width in units of the target's range (NMPIW), equation (nmpiw).

    Parameters
    ----------
    lower, upper, target : array-like of shape (n_samples,)
        Bounds and observations, in the same unit.
    target_range : float, optional
        Range to divide by, such as that of a whole dataset; by default the largest target minus
        the smallest.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        Without unit.

    Raises
    ------
    ValueError
        If shapes differ, values are not finite, or the range is not positive.

    Examples
    --------
    >>> normalized_mean_width([0, 0], [1, 3], [0, 4])
    0.5
    """
    _, _, _, observed = rows(weight, lower=lower, upper=upper, target=target)
    if target_range is None:
        width_unit = float(np.ptp(observed))
        if width_unit == 0:
            raise ValueError(
                "target must vary, since its range is the unit of width, "
                f"got {float(observed[0])!r} only; pass target_range"
            )
    else:
        given = finite("target_range", target_range)
        refuse("target_range", given, given <= 0, "must be positive")
        width_unit = float(given)
    return mean_width(lower, upper, weight=weight) / width_unit


def coverage_width_criterion(
    lower: ArrayLike,
    upper: ArrayLike,
    target: ArrayLike,
    *,
    coverage: float = 0.95,
    penalty: float = 50.0,
    target_range: float | None = None,
    weight: ArrayLike | None = None,
) -> float:
    r"""Coverage width-based criterion (CWC) of Khosravi et al. (2011), less is better.

    .. math::
        \mathit{NMPIW} \left( 1 + 1\{\mathit{PICP} < \gamma\} \,
        e^{-\eta (\mathit{PICP} - \gamma)} \right)

    Parameters
    ----------
    lower, upper, target : array-like of shape (n_samples,)
        Bounds and observations, in the same unit.
    coverage : float, default 0.95
        Nominal probability :math:`\gamma`.
    penalty : float, default 50
        Severity :math:`\eta` towards missing coverage.
    target_range : float, optional
        Range to divide widths by; by default the largest target minus the smallest.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        Without unit.

    Raises
    ------
    ValueError
        If shapes differ, values are not finite, coverage is no fraction, penalty is negative, or
        the range is not positive.

    References
    ----------
    A. Khosravi, S. Nahavandi, D. Creighton, A. F. Atiya (2011). Lower upper bound estimation method
    for construction of neural network-based prediction intervals. IEEE Transactions on Neural
    Networks 22(3), 337-346.

    Examples
    --------
    A normalised width of 0.5 with half the targets inside, 0.5 * (1 + exp(10 * 0.4)):

    >>> cwc = coverage_width_criterion([0, 0], [1, 3], [0, 4], coverage=0.9, penalty=10)
    >>> round(cwc, 4)
    27.7991
    """
    nominal = float(fraction("coverage", coverage))
    severity = finite("penalty", penalty)
    refuse("penalty", severity, severity < 0, "must not be negative")
    width = normalized_mean_width(lower, upper, target, target_range=target_range, weight=weight)
    missing = nominal - coverage_rate(lower, upper, target, weight=weight)
    return width * (1 + math.exp(float(severity) * missing)) if missing > 0 else width


def interval_score(
    lower: ArrayLike,
    upper: ArrayLike,
    target: ArrayLike,
    *,
    coverage: float = 0.95,
    weight: ArrayLike | None = None,
) -> float:
    r"""Mean interval score of Winkler (1972), less is better.

    .. math::
        \frac{1}{n} \sum_i (U_i - L_i)
        + \frac{2}{\alpha} \left[ (L_i - y_i)_+ + (y_i - U_i)_+ \right],
        \quad \alpha = 1 - \mathit{coverage}

    Parameters
    ----------
    lower, upper, target : array-like of shape (n_samples,)
        Bounds and observations, in the same unit.
    coverage : float, default 0.95
        Nominal probability of the interval.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        In the target's unit.

    Raises
    ------
    ValueError
        If shapes differ, values are not finite, or coverage is no fraction.

    Examples
    --------
    >>> interval_score([0, 0], [2, 2], [1, 2.5], coverage=0.5)
    3.0
    """
    nominal = float(fraction("coverage", coverage))
    weights, low, high, observed = rows(weight, lower=lower, upper=upper, target=target)
    return float(losses.interval_score(low, high, observed, coverage=nominal, weight=weights))
