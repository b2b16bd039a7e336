"""Metrics for prediction intervals: coverage, width, scores that combine them, and crossings."""

import math

import numpy as np
from numpy.typing import ArrayLike

from calipers import losses
from calipers._checks import finite, fraction, refuse_where
from calipers.metrics._weighted import checked_rows, interval_rows, weighted_average


def coverage_rate(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Fraction of targets inside their interval, bounds included (PICP).

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit. Crossed bounds contain no target. With point
        predictions in place of targets, it is the fraction of them inside their own interval.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Examples
    --------
    >>> coverage_rate([0.5, 2], [0, 0], [1, 1])
    0.5
    """
    weights, target, lower, upper = interval_rows(
        sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper
    )
    return weighted_average((lower <= target) & (target <= upper), weights)


def mean_width(
    y_lower: ArrayLike, y_upper: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean of upper minus lower bound, in the target's unit (MPIW).

    Crossed bounds count as negative widths; see ``crossing_rate``.

    Parameters
    ----------
    y_lower, y_upper : array-like of shape (n_samples,)
        Bounds.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Examples
    --------
    >>> mean_width([0, 0], [1, 3])
    2.0
    """
    weights, lower, upper = interval_rows(sample_weight, y_lower=y_lower, y_upper=y_upper)
    return weighted_average(upper - lower, weights)


def normalized_mean_width(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    *,
    target_range: float | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean width in units of the target's range (NMPIW), equation (nmpiw).

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    target_range : float, optional
        Range to divide by, such as that of a whole dataset; by default the largest target minus
        the smallest.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Raises
    ------
    ValueError
        Also if the range is not positive.

    Examples
    --------
    >>> normalized_mean_width([0, 4], [0, 0], [1, 3])
    0.5
    """
    weights, target, lower, upper = interval_rows(
        sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper
    )
    if target_range is None:
        unit = np.asarray(np.ptp(target))
        if unit == 0:
            raise ValueError(
                "y_true must vary, since its range is the unit of width, "
                f"got {float(target[0])!r} only; pass target_range"
            )
    else:
        unit = finite("target_range", target_range)
        refuse_where("target_range", unit, unit <= 0, "must be positive")
    return weighted_average(upper - lower, weights) / float(unit)


def coverage_width_criterion(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    *,
    coverage: float,
    penalty: float = 50.0,
    target_range: float | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Coverage width-based criterion (CWC) of Khosravi et al. (2011), less is better.

    .. math::
        \mathit{NMPIW} \left( 1 + 1\{\mathit{PICP} < \gamma\} \,
        e^{-\eta (\mathit{PICP} - \gamma)} \right)

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    coverage : float
        Nominal probability :math:`\gamma` of the intervals.
    penalty : float, default 50
        Severity :math:`\eta` of the penalty for missing coverage.
    target_range : float, optional
        Range to divide widths by; by default the largest target minus the smallest.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Raises
    ------
    ValueError
        Also if coverage is not between 0 and 1, penalty is negative, or the range is not positive.

    References
    ----------
    A. Khosravi, S. Nahavandi, D. Creighton, A. F. Atiya (2011). Lower upper bound estimation method
    for construction of neural network-based prediction intervals. IEEE Transactions on Neural
    Networks 22(3), 337-346.

    Examples
    --------
    A normalised width of 0.5 with half the targets inside, 0.5 * (1 + exp(10 * 0.4)):

    >>> cwc = coverage_width_criterion([0, 4], [0, 0], [1, 3], coverage=0.9, penalty=10)
    >>> round(cwc, 4)
    27.7991
    """
    nominal = float(fraction("coverage", coverage))
    severity = finite("penalty", penalty)
    refuse_where("penalty", severity, severity < 0, "must not be negative")
    width = normalized_mean_width(
        y_true, y_lower, y_upper, target_range=target_range, sample_weight=sample_weight
    )
    missing = nominal - coverage_rate(y_true, y_lower, y_upper, sample_weight=sample_weight)
    return width * (1 + math.exp(float(severity) * missing)) if missing > 0 else width


def interval_score(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    *,
    coverage: float,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Mean interval score of Winkler (1972), in the target's unit; less is better.

    .. math::
        \frac{1}{n} \sum_i (U_i - L_i)
        + \frac{2}{\alpha} \left[ (L_i - y_i)_+ + (y_i - U_i)_+ \right],
        \quad \alpha = 1 - \mathit{coverage}

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    coverage : float
        Nominal probability of the intervals.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    See Also
    --------
    calipers.losses.interval_score : The same as a loss; outputs of networks come first, the target
        last.

    Examples
    --------
    >>> interval_score([1, 2.5], [0, 0], [2, 2], coverage=0.5)
    3.0
    """
    nominal = float(fraction("coverage", coverage))
    weights, target, lower, upper = interval_rows(
        sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper
    )
    return float(losses.interval_score(lower, upper, target, coverage=nominal, weight=weights))


def crossing_rate(
    y_lower: ArrayLike, y_upper: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Fraction of intervals whose lower bound is above the upper one; it should be 0.

    Parameters
    ----------
    y_lower, y_upper : array-like of shape (n_samples,)
        Bounds.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Examples
    --------
    >>> crossing_rate([0, 2], [1, 1])
    0.5
    """
    weights, lower, upper = checked_rows(sample_weight, y_lower=y_lower, y_upper=y_upper)
    return weighted_average(lower > upper, weights)
