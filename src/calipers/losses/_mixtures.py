r"""Losses that score a mixture of split normals.

Components stand along the first axis of their parameters: ``share``, ``loc``, ``left_scale`` and
``right_scale`` have the shape (components, n_samples), and the shares of a row add up to 1. With
one component of share 1 the losses are those of a single split normal.
"""

from itertools import combinations
from math import pi, sqrt

import numpy as np
from array_api_compat import array_namespace

from calipers._checks import require_same_shape
from calipers.losses._rows import Array, rows, special_functions, weighted_mean

_NODES = [
    (float(x + 1) / 2, float(w) / 2)
    for x, w in zip(*np.polynomial.legendre.leggauss(8), strict=True)
]


def mixture_nll(
    share: Array,
    loc: Array,
    left_scale: Array,
    right_scale: Array,
    target: Array,
    *,
    weight: Array | None = None,
) -> Array:
    r"""Negative log-likelihood of a mixture of split normals, without its constant.

    .. math:: - \frac{1}{n} \sum_i \log \sum_k
              \frac{2 w_{ki}}{\sigma_{1ki} + \sigma_{2ki}} \exp(-z_{ki}^2 / 2)

    Parameters
    ----------
    share, loc, left_scale, right_scale : arrays of shape (components, n_samples)
        Share of each component (positive, of sum 1), its mode and its scales (positive).
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
    Two equal components that are the same one:

    >>> import numpy as np
    >>> half, zero, one = np.full((2, 1), 0.5), np.zeros((2, 1)), np.ones((2, 1))
    >>> round(float(mixture_nll(half, zero, one, one, np.array([2.0]))), 6)
    2.0
    """
    weight, target, share, loc, left_scale, right_scale = _rows(
        weight, target, share=share, loc=loc, left_scale=left_scale, right_scale=right_scale
    )
    xp = array_namespace(target)
    z = (target - loc) / xp.where(target >= loc, right_scale, left_scale)
    each = xp.log(share) - xp.log((left_scale + right_scale) / 2) - z**2 / 2
    top = xp.max(each, axis=0)
    return weighted_mean(-top - xp.log(xp.sum(xp.exp(each - top), axis=0)), weight)


def mixture_crps(
    share: Array,
    loc: Array,
    left_scale: Array,
    right_scale: Array,
    target: Array,
    *,
    weight: Array | None = None,
) -> Array:
    r"""Continuous ranked probability score of a mixture of split normals, in closed form.

    .. math:: \sum_k w_k E|X_k - y| - \frac12 \sum_{k,l} w_k w_l E|X_k - X_l|

    with the distance of two different split normals by Owen's T function, which is computed to
    1e-9; see ``calipers.distributions`` for the formula.

    Parameters
    ----------
    share, loc, left_scale, right_scale, target, weight
        As for ``mixture_nll``.

    Returns
    -------
    scalar array
        The loss, in the unit of the target.

    Examples
    --------
    Two equal components that are the same one, at the mode, (sqrt(2) - 1) / sqrt(pi):

    >>> import numpy as np
    >>> half, zero, one = np.full((2, 1), 0.5), np.zeros((2, 1)), np.ones((2, 1))
    >>> round(float(mixture_crps(half, zero, one, one, np.zeros(1))), 6)
    0.233695
    """
    weight, target, share, loc, left_scale, right_scale = _rows(
        weight, target, share=share, loc=loc, left_scale=left_scale, right_scale=right_scale
    )
    xp = array_namespace(target)
    total = left_scale + right_scale
    squares = left_scale**2 + right_scale**2
    cubes = left_scale**3 + right_scale**3
    own = sqrt(2 / pi) * squares / total - 2 * (sqrt(2) - 1) / sqrt(pi) * cubes / total**2
    distance = _expected_distance(loc, left_scale, right_scale, target)
    score = xp.sum(share * distance - share**2 * own, axis=0)
    pairs = list(combinations(range(loc.shape[0]), 2))
    if pairs:
        first, second = (
            [xp.stack([a[pair[side]] for pair in pairs]) for a in (share, loc, left_scale, right_scale)]
            for side in (0, 1)
        )
        apart = _mean_difference(*first[1:], *second[1:])
        score = score - xp.sum(first[0] * second[0] * apart, axis=0)
    return weighted_mean(score, weight)


def _rows(weight: Array | None, target: Array, **components: Array) -> list[Array]:
    """Checked weights, targets and components, harmless where the weight is 0."""
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


def _expected_distance(loc: Array, left: Array, right: Array, target: Array) -> Array:
    """E|X - y|."""
    xp = array_namespace(target)
    above = target >= loc
    scale, other = xp.where(above, right, left), xp.where(above, left, right)
    distance = xp.where(above, target - loc, loc - target)
    z = distance / scale
    density = xp.exp(-(z**2) / 2) / sqrt(2 * pi)
    excess = 4 * scale / (left + right) * (scale * density - distance * special_functions(z).ndtr(-z))
    return distance - sqrt(2 / pi) * (scale - other) + excess


def _mean_difference(
    loc1: Array, left1: Array, right1: Array, loc2: Array, left2: Array, right2: Array
) -> Array:
    """E|X1 - X2| of independent split normals, see ``calipers.distributions._crps``."""
    xp = array_namespace(loc1)
    swap = loc1 < loc2
    high_left, low_left = xp.where(swap, left2, left1), xp.where(swap, left1, left2)
    high_right, low_right = xp.where(swap, right2, right1), xp.where(swap, right1, right2)
    gap = xp.where(swap, loc2 - loc1, loc1 - loc2)
    # Three ways in which the lower can come out above: p towards the other, s towards or away.
    p = xp.stack([high_left, high_left, low_right])
    s = xp.stack([low_right, low_left, high_right])
    rho = xp.sqrt(p**2 + s**2)
    d, ratio = gap / rho, s / p
    tails = owens_t(xp.concat([d, d[:1, ...]]), xp.concat([ratio, 1 / ratio[:1, ...]]))
    special = special_functions(gap)
    line = xp.exp(-(d**2) / 2) * rho
    near, far = special.erf(d * ratio / sqrt(2)), special.erf(d[0, ...] / ratio[0, ...] / sqrt(2))
    axis = s * special.erfc(gap / p / sqrt(2))
    facing = high_left * special.erfc(gap / low_right / sqrt(2)) + axis[0, ...]
    both = facing + line[0, ...] * (near[0, ...] + far)
    both = sqrt(2 / pi) * both - 4 * gap * (tails[0, ...] + tails[3, ...])
    one = sqrt(2 / pi) * (line * (1 - near) - axis)[1:, ...]
    one = one - gap * (special.erfc(d / sqrt(2))[1:, ...] - 4 * tails[1:3, ...])
    high, low = high_left + high_right, low_left + low_right
    below, above = high_left / high, low_right / low
    negative = below * above * both + below * (1 - above) * one[0, ...]
    negative = negative + (1 - below) * above * one[1, ...]
    mean = gap + sqrt(2 / pi) * ((high_right - high_left) - (low_right - low_left))
    return mean + 2 * negative


def owens_t(h: Array, a: Array) -> Array:
    r"""Owen's T function for h not negative and a positive, to 1e-9.

    .. math:: T(h, a) = \frac{1}{2 \pi} \int_0^a \frac{\exp(-h^2 (1 + x^2) / 2)}{1 + x^2} dx

    by eight Gauss-Legendre points, after a is brought below 1.
    """
    xp = array_namespace(h)
    ndtr = special_functions(h).ndtr
    small = a <= 1
    slope, height = xp.where(small, a, 1 / a), xp.where(small, h, a * h)
    total = xp.zeros_like(h)
    for x, w in _NODES:
        reach = 1 + (slope * x) ** 2
        total = total + w * xp.exp(-(height**2) * reach / 2) / reach
    total = total * slope / (2 * pi)
    first, second = ndtr(-h), ndtr(-a * h)
    return xp.where(small, total, (first + second) / 2 - first * second - total)
