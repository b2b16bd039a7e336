"""Proper scores of point predictions, quantiles, intervals, normals and split normals."""

from math import pi, sqrt

from array_api_compat import array_namespace

from calipers._arrays import Array
from calipers.losses._rows import (
    Scalar,
    positive_part,
    rows,
    special_functions,
    weighted_mean,
)


def squared_error(point: Array, target: Array, *, weight: Array | None = None) -> Array:
    r"""Mean squared error, equation (loss-mse).

    .. math:: \frac{1}{n} \sum_i (\hat{y}_i - y_i)^2

    Parameters
    ----------
    point, target : arrays of shape (n_samples,)
        Predictions and observations.
    weight : array of shape (n_samples,), optional
        Row weights.

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
    r"""Pinball loss, whose expectation is smallest at a quantile of the target.

    .. math:: \frac{1}{n} \sum_i q (y_i - \hat{q}_i)_+ + (1 - q) (\hat{q}_i - y_i)_+

    Parameters
    ----------
    prediction, target : arrays of shape (n_samples,)
        Predicted quantiles and observations.
    quantile : scalar
        Level q of the predicted quantile, between 0 and 1.
    weight : array of shape (n_samples,), optional
        Row weights.

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
    r"""Interval score of Winkler (1972): width, plus a penalty for each target missed.

    .. math::
        \frac{1}{n} \sum_i (U_i - L_i)
        + \frac{2}{\alpha} \left[ (L_i - y_i)_+ + (y_i - U_i)_+ \right]

    with :math:`\alpha` = 1 - coverage. Its expectation is smallest at the quantiles
    :math:`\alpha / 2` and :math:`1 - \alpha / 2`.

    Parameters
    ----------
    lower, upper, target : arrays of shape (n_samples,)
        Bounds and observations.
    coverage : scalar, default 0.95
        Nominal probability of the interval, between 0 and 1.
    weight : array of shape (n_samples,), optional
        Row weights.

    See Also
    --------
    calipers.metrics.interval_score : The same of data; its first argument is the target.

    Examples
    --------
    A width of 2 each, and one target missed by 0.5 with a penalty of 2 / 0.5 per unit:

    >>> import numpy as np
    >>> lower, upper = np.array([0.0, 0.0]), np.array([2.0, 2.0])
    >>> float(interval_score(lower, upper, np.array([1.0, 2.5]), coverage=0.5))
    3.0
    """
    weight, lower, upper, target = rows(weight, lower=lower, upper=upper, target=target)
    missed_by = positive_part(lower - target) + positive_part(target - upper)
    return weighted_mean(upper - lower + 2 / (1 - coverage) * missed_by, weight)


def normal_nll(mean: Array, scale: Array, target: Array, *, weight: Array | None = None) -> Array:
    r"""Negative log-likelihood of a normal, without its constant; the loss of deep ensembles (MVE).

    .. math:: \frac{1}{n} \sum_i \log \sigma_i + \frac{(y_i - \mu_i)^2}{2 \sigma_i^2}

    Parameters
    ----------
    mean, scale, target : arrays of shape (n_samples,)
        Mean, standard deviation (positive) and observation of each row.
    weight : array of shape (n_samples,), optional
        Row weights.

    Returns
    -------
    scalar array
        The loss; add :math:`\log \sqrt{2 \pi}` for the negative log-likelihood itself.

    Examples
    --------
    >>> import numpy as np
    >>> float(normal_nll(np.array([0.0]), np.array([1.0]), np.array([2.0])))
    2.0
    """
    weight, mean, scale, target = rows(weight, mean=mean, scale=scale, target=target)
    log = array_namespace(scale).log
    return weighted_mean(log(scale) + ((target - mean) / scale) ** 2 / 2, weight)


def split_normal_nll(
    loc: Array, left_scale: Array, right_scale: Array, target: Array, *, weight: Array | None = None
) -> Array:
    r"""Negative log-likelihood of a split normal, without its constant.

    .. math:: \frac{1}{n} \sum_i \log \frac{\sigma_{1i} + \sigma_{2i}}{2} + \frac{z_i^2}{2}

    With equal scales it is ``normal_nll``.

    Parameters
    ----------
    loc, left_scale, right_scale, target : arrays of shape (n_samples,)
        Mode, scale of either side (positive) and observation of each row.
    weight : array of shape (n_samples,), optional
        Row weights.

    Returns
    -------
    scalar array
        The loss; add :math:`\log \sqrt{2 \pi}` for the negative log-likelihood itself.

    Examples
    --------
    >>> import numpy as np
    >>> loc, left, right = np.array([0.0]), np.array([0.5]), np.array([1.5])
    >>> float(split_normal_nll(loc, left, right, np.array([3.0])))
    2.0
    """
    weight, loc, left_scale, right_scale, target = rows(
        weight, loc=loc, left_scale=left_scale, right_scale=right_scale, target=target
    )
    xp = array_namespace(target)
    z = (target - loc) / xp.where(target >= loc, right_scale, left_scale)
    return weighted_mean(xp.log((left_scale + right_scale) / 2) + z**2 / 2, weight)


def split_normal_crps(
    loc: Array, left_scale: Array, right_scale: Array, target: Array, *, weight: Array | None = None
) -> Array:
    r"""Continuous ranked probability score of a split normal, in closed form.

    With :math:`d = |y - \mu|`, the scale :math:`\sigma` of the target's side, :math:`z = d /
    \sigma` and the masses :math:`m_j = \sigma_j / (\sigma_1 + \sigma_2)` of the sides, the integral
    of :math:`(F(x) - 1\{x \ge y\})^2` over x is

    .. math::
        d - 4 m \left[ d \, \Phi(-z) + \sigma (\varphi(0) - \varphi(z)) \right]
        + \frac{2 (\sqrt{2} - 1)}{\sqrt{\pi}} \left( m_1^2 \sigma_1 + m_2^2 \sigma_2 \right)

    where :math:`\Phi` and :math:`\varphi` are the standard normal's distribution and density. It
    follows from :math:`\int_{-\infty}^0 \Phi(t)^2 dt = (\sqrt{2} - 1) / (2 \sqrt{\pi})` and
    :math:`\int_0^z \Phi(-t) dt = z \Phi(-z) + \varphi(0) - \varphi(z)`.

    Parameters
    ----------
    loc, left_scale, right_scale, target, weight
        As for ``split_normal_nll``.

    Returns
    -------
    scalar array
        The loss, in the unit of the target.

    Examples
    --------
    With equal scales, at the mode, it is that of a normal, (sqrt(2) - 1) / sqrt(pi):

    >>> import numpy as np
    >>> zero, one = np.zeros(1), np.ones(1)
    >>> round(float(split_normal_crps(zero, one, one, zero)), 6)
    0.233695
    """
    weight, loc, left_scale, right_scale, target = rows(
        weight, loc=loc, left_scale=left_scale, right_scale=right_scale, target=target
    )
    xp = array_namespace(target)
    right = target >= loc
    scale = xp.where(right, right_scale, left_scale)
    # Not abs: its gradient at 0 is that of neither side, and the score is smooth there.
    distance = xp.where(right, target - loc, loc - target)
    z = distance / scale
    tail = distance * special_functions(z).ndtr(-z)
    density_drop = (1 - xp.exp(-(z**2) / 2)) / sqrt(2 * pi)

    total = left_scale + right_scale
    dispersion = left_scale * (left_scale / total) ** 2 + right_scale * (right_scale / total) ** 2
    return weighted_mean(
        distance
        - 4 * scale / total * (tail + scale * density_drop)
        + 2 * (sqrt(2) - 1) / sqrt(pi) * dispersion,
        weight,
    )
