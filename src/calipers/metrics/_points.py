"""Errors of point and quantile predictions."""

import math

import numpy as np
from numpy.typing import ArrayLike

from calipers import losses
from calipers.metrics._checks import fraction, rows


def mean_squared_error(
    point: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> float:
    """Mean squared error (MSE).

    Parameters
    ----------
    point, target : array-like of shape (n_samples,)
        Predictions and observations, in the same unit.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        In the square of the target's unit.

    Raises
    ------
    ValueError
        If shapes differ or values are not finite.

    Examples
    --------
    >>> mean_squared_error([1, 2], [1, 4])
    2.0
    """
    weights, predicted, observed = rows(weight, point=point, target=target)
    return float(losses.squared_error(predicted, observed, weight=weights))


def root_mean_squared_error(
    point: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> float:
    """Root of the mean squared error (RMSE).

    Parameters
    ----------
    point, target : array-like of shape (n_samples,)
        Predictions and observations, in the same unit.
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
    >>> root_mean_squared_error([0, 2], [1, 9])
    5.0
    """
    return math.sqrt(mean_squared_error(point, target, weight=weight))


def mean_absolute_error(
    point: ArrayLike, target: ArrayLike, *, weight: ArrayLike | None = None
) -> float:
    """Mean absolute error (MAE).

    Parameters
    ----------
    point, target : array-like of shape (n_samples,)
        Predictions and observations, in the same unit.
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
    >>> mean_absolute_error([1, 2], [1, 4])
    1.0
    """
    weights, predicted, observed = rows(weight, point=point, target=target)
    return float(np.average(abs(predicted - observed), weights=weights))


def pinball_loss(
    prediction: ArrayLike,
    target: ArrayLike,
    *,
    quantile: float,
    weight: ArrayLike | None = None,
) -> float:
    r"""Mean pinball loss of predicted quantiles.

    .. math:: \frac{1}{n} \sum_i q (y_i - \hat{q}_i)_+ + (1 - q) (\hat{q}_i - y_i)_+

    Parameters
    ----------
    prediction, target : array-like of shape (n_samples,)
        Predicted quantiles and observations, in the same unit.
    quantile : float
        Level q of the predicted quantile, above 0 and below 1.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        In the target's unit.

    Raises
    ------
    ValueError
        If shapes differ, values are not finite, or quantile is no fraction.

    Examples
    --------
    >>> pinball_loss([0, 0], [2, -2], quantile=0.75)
    1.0
    """
    level = float(fraction("quantile", quantile))
    weights, predicted, observed = rows(weight, prediction=prediction, target=target)
    return float(losses.pinball(predicted, observed, quantile=level, weight=weights))
