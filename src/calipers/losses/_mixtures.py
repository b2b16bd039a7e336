r"""Losses for mixtures of normals.

Components are along the first axis of their parameters: ``share``, ``mean`` and ``scale`` have the
shape (components, n_samples), and the mixture weights ``share`` of a row add up to 1. Components
are symmetric: the mean distance of two split normals needs Owen's T function, which is slow in
training, and a mixture can already be skewed by its weights.
"""

from itertools import combinations
from math import pi, sqrt

from array_api_compat import array_namespace

from calipers._arrays import Array
from calipers._checks import require_same_shape
from calipers.losses._rows import rows, special_functions, weighted_mean


def mixture_nll(
    share: Array, mean: Array, scale: Array, target: Array, *, weight: Array | None = None
) -> Array:
    r"""Negative log-likelihood of a mixture of normals, without its constant.

    .. math:: - \frac{1}{n} \sum_i \log \sum_k \frac{w_{ki}}{\sigma_{ki}}
              \exp\left(-\frac{(y_i - \mu_{ki})^2}{2 \sigma_{ki}^2}\right)

    With one component it is ``normal_nll``.

    Parameters
    ----------
    share, mean, scale : arrays of shape (components, n_samples)
        Weight of each component (positive, of sum 1), its mean and its standard deviation
        (positive).
    target : array of shape (n_samples,)
        Observations.
    weight : array of shape (n_samples,), optional
        Row weights.

    Returns
    -------
    scalar array
        The loss; add :math:`\log \sqrt{2 \pi}` for the negative log-likelihood itself.

    Examples
    --------
    Two identical components:

    >>> import numpy as np
    >>> half, zero, one = np.full((2, 1), 0.5), np.zeros((2, 1)), np.ones((2, 1))
    >>> round(float(mixture_nll(half, zero, one, np.array([2.0]))), 6)
    2.0
    """
    weight, target, share, mean, scale = _rows(weight, target, share=share, mean=mean, scale=scale)
    xp = array_namespace(target)
    each = xp.log(share / scale) - ((target - mean) / scale) ** 2 / 2
    top = xp.max(each, axis=0)
    return weighted_mean(-top - xp.log(xp.sum(xp.exp(each - top), axis=0)), weight)


def mixture_crps(
    share: Array, mean: Array, scale: Array, target: Array, *, weight: Array | None = None
) -> Array:
    r"""Continuous ranked probability score of a mixture of normals, in closed form.

    .. math:: \sum_k w_k A(y - \mu_k, \sigma_k) - \frac12 \sum_{k,l} w_k w_l
              A\left(\mu_k - \mu_l, \sqrt{\sigma_k^2 + \sigma_l^2}\right)

    with :math:`A(m, s) = m (2 \Phi(m / s) - 1) + 2 s \varphi(m / s)`, the expected absolute value
    of a normal of mean m and standard deviation s (Grimit et al., 2006).

    Parameters
    ----------
    share, mean, scale, target, weight
        As for ``mixture_nll``.

    Returns
    -------
    scalar array
        The loss, in the unit of the target.

    Examples
    --------
    Two identical components, at the mean, (sqrt(2) - 1) / sqrt(pi):

    >>> import numpy as np
    >>> half, zero, one = np.full((2, 1), 0.5), np.zeros((2, 1)), np.ones((2, 1))
    >>> round(float(mixture_crps(half, zero, one, np.zeros(1))), 6)
    0.233695
    """
    weight, target, share, mean, scale = _rows(weight, target, share=share, mean=mean, scale=scale)
    xp = array_namespace(target)
    score = xp.sum(
        share * _expected_absolute(target - mean, scale) - share**2 * scale / sqrt(pi), axis=0
    )
    for k, j in combinations(range(mean.shape[0]), 2):
        joint_scale = xp.sqrt(scale[k, ...] ** 2 + scale[j, ...] ** 2)
        difference = _expected_absolute(mean[k, ...] - mean[j, ...], joint_scale)
        score = score - share[k, ...] * share[j, ...] * difference
    return weighted_mean(score, weight)


def _rows(weight: Array | None, target: Array, **components: Array) -> list[Array]:
    """Checked weights, targets and components, with ones in rows of weight 0."""
    xp = array_namespace(target, *components.values())
    require_same_shape(components)
    named = {
        f"{name}[{k}]": array[k, ...]
        for name, array in components.items()
        for k in range(array.shape[0])
    }
    weight, target, *flat = rows(weight, target=target, **named)
    count = len(flat) // len(components)
    return [weight, target, *(xp.stack(flat[i : i + count]) for i in range(0, len(flat), count))]


def _expected_absolute(mean: Array, scale: Array) -> Array:
    """E|X| of a normal X."""
    xp = array_namespace(mean)
    z = mean / scale
    density = xp.exp(-(z**2) / 2) / sqrt(2 * pi)
    return mean * special_functions(z).erf(z / sqrt(2)) + 2 * scale * density
