r"""Losses that score a whole predictive density, normal or split normal.

The split normal joins two halves of normals at their common mode, with weights proportional to
their scales: density :math:`\sqrt{2 / \pi} / (\sigma_1 + \sigma_2) \, \exp(-z^2 / 2)`, where
:math:`z = (y - \mu) / \sigma_1` to the left of the mode and :math:`(y - \mu) / \sigma_2` to the
right.
"""

from math import pi, sqrt

from array_api_compat import array_namespace

from calipers.losses._rows import Array, rows, special_functions, weighted_mean


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
    # Not abs: its slope at 0 is not that of either side, and the score is smooth there.
    distance = xp.where(right, target - loc, loc - target)
    z = distance / scale
    tail = distance * special_functions(z).ndtr(-z)
    density_drop = (1 - xp.exp(-(z**2) / 2)) / sqrt(2 * pi)

    total = left_scale + right_scale
    spread = left_scale * (left_scale / total) ** 2 + right_scale * (right_scale / total) ** 2
    return weighted_mean(
        distance
        - 4 * scale / total * (tail + scale * density_drop)
        + 2 * (sqrt(2) - 1) / sqrt(pi) * spread,
        weight,
    )
