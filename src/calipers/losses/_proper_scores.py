"""Scores of a point, a quantile and an interval, also the formulas behind the metrics."""

from calipers.losses._rows import Array, Scalar, positive_part, rows, weighted_mean


def squared_error(point: Array, target: Array, *, weight: Array | None = None) -> Array:
    r"""Mean squared error, equation (loss-mse).

    .. math:: \frac{1}{n} \sum_i (\hat{y}_i - y_i)^2

    Parameters
    ----------
    point, target : arrays of shape (n_samples,)
        Predictions and observations.
    weight : array of shape (n_samples,), optional
        Row weights.

    Returns
    -------
    scalar array
        The loss.

    Examples
    --------
    >>> import numpy as np
    >>> float(squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])))
    2.0
    """
    weight, point, target = rows(weight, point=point, target=target)
    return weighted_mean((point - target) ** 2, weight)


def pinball(
    prediction: Array, target: Array, *, quantile: Scalar, weight: Array | None = None
) -> Array:
    r"""Pinball loss, least in expectation at a quantile of the target.

    .. math:: \frac{1}{n} \sum_i q (y_i - \hat{q}_i)_+ + (1 - q) (\hat{q}_i - y_i)_+

    Parameters
    ----------
    prediction, target : arrays of shape (n_samples,)
        Predicted quantiles and observations.
    quantile : scalar
        Level q of the predicted quantile, between 0 and 1.
    weight : array of shape (n_samples,), optional
        Row weights.

    Returns
    -------
    scalar array
        The loss.

    Examples
    --------
    >>> import numpy as np
    >>> float(pinball(np.array([0.0, 0.0]), np.array([2.0, -2.0]), quantile=0.75))
    1.0
    """
    weight, prediction, target = rows(weight, prediction=prediction, target=target)
    under = positive_part(target - prediction)
    over = positive_part(prediction - target)
    return weighted_mean(quantile * under + (1 - quantile) * over, weight)


def interval_score(
    lower: Array,
    upper: Array,
    target: Array,
    *,
    coverage: Scalar = 0.95,
    weight: Array | None = None,
) -> Array:
    r"""Interval score of Winkler (1972): width, plus a price for each target missed.

    .. math::
        \frac{1}{n} \sum_i (U_i - L_i)
        + \frac{2}{\alpha} \left[ (L_i - y_i)_+ + (y_i - U_i)_+ \right]

    with :math:`\alpha` = 1 - coverage. It is least in expectation at the quantiles
    :math:`\alpha / 2` and :math:`1 - \alpha / 2`.

    Parameters
    ----------
    lower, upper, target : arrays of shape (n_samples,)
        Bounds and observations.
    coverage : scalar, default 0.95
        Nominal probability of the interval, between 0 and 1.
    weight : array of shape (n_samples,), optional
        Row weights.

    Returns
    -------
    scalar array
        The loss.

    Examples
    --------
    A width of 2 each, and one target missed by 0.5 at a price of 2 / 0.5 per unit:

    >>> import numpy as np
    >>> lower, upper = np.array([0.0, 0.0]), np.array([2.0, 2.0])
    >>> float(interval_score(lower, upper, np.array([1.0, 2.5]), coverage=0.5))
    3.0
    """
    weight, lower, upper, target = rows(weight, lower=lower, upper=upper, target=target)
    missed_by = positive_part(lower - target) + positive_part(target - upper)
    return weighted_mean(upper - lower + 2 / (1 - coverage) * missed_by, weight)
