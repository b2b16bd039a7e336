"""Capture of targets by intervals, width of the capturing intervals, and shortfall of coverage."""

from array_api_compat import array_namespace

from calipers._arrays import Array
from calipers.losses._rows import (
    Scalar,
    positive_part,
    rows,
    special_functions,
    weighted_mean,
)

# Keeps the width finite for a batch without captures; part of QD+ as published.
_COUNT_OFFSET = 0.001


def soft_capture(lower: Array, upper: Array, target: Array, *, softness: Scalar = 160.0) -> Array:
    r"""Differentiable capture of each target, near 1 inside its interval and near 0 outside.

    .. math:: k_i = \sigma(s (y_i - L_i)) \, \sigma(s (U_i - y_i))

    with the logistic function :math:`\sigma`; a smooth version of equation (k_i).

    Parameters
    ----------
    lower, upper, target : arrays of shape (n_samples,)
        Bounds and observations.
    softness : scalar, default 160
        Steepness s of the edges, per unit of the target; the default suits standardised targets.

    Returns
    -------
    array of shape (n_samples,)
        Between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> lower, upper = np.zeros(3), np.ones(3)
    >>> soft_capture(lower, upper, np.array([0.5, 1.0, 1.5])).round(3)
    array([1. , 0.5, 0. ])
    """
    _, lower, upper, target = rows(None, lower=lower, upper=upper, target=target)
    sigmoid = special_functions(target).expit
    return sigmoid(softness * (target - lower)) * sigmoid(softness * (upper - target))


def hard_capture(lower: Array, upper: Array, target: Array) -> Array:
    """Capture of each target, 1 where lower <= target <= upper, else 0, equation (k_i).

    Parameters
    ----------
    lower, upper, target : arrays of shape (n_samples,)
        Bounds and observations.

    Returns
    -------
    array of shape (n_samples,)
        Zeros and ones of the data's floating type. No gradient passes through them.

    Examples
    --------
    >>> import numpy as np
    >>> hard_capture(np.zeros(3), np.ones(3), np.array([0.5, 1.0, 1.5]))
    array([1., 1., 0.])
    """
    _, lower, upper, target = rows(None, lower=lower, upper=upper, target=target)
    inside = (lower <= target) & (target <= upper)
    return array_namespace(target).astype(inside, target.dtype)


def captured_width(
    lower: Array, upper: Array, capture: Array, *, weight: Array | None = None
) -> Array:
    r"""Mean width of the intervals that capture their target, equation (loss-mpiw).

    .. math:: \frac{\sum_i k_i (U_i - L_i)}{\sum_i k_i + 0.001}

    The offset, absent from the printed equation, keeps a batch without any capture finite.

    Parameters
    ----------
    lower, upper : arrays of shape (n_samples,)
        Bounds.
    capture : array of shape (n_samples,)
        Soft or hard capture k.
    weight : array of shape (n_samples,), optional
        Row weights; they multiply k in both sums.

    Examples
    --------
    >>> import numpy as np
    >>> lower, upper = np.array([0.0, 0.0]), np.array([1.0, 5.0])
    >>> round(float(captured_width(lower, upper, np.array([1.0, 0.0]))), 4)
    0.999
    """
    weight, lower, upper, capture = rows(weight, lower=lower, upper=upper, capture=capture)
    xp = array_namespace(capture)
    count = weight * capture
    return xp.sum(count * (upper - lower)) / (xp.sum(count) + _COUNT_OFFSET)


def coverage_shortfall(
    capture: Array, *, coverage: Scalar = 0.95, weight: Array | None = None
) -> Array:
    r"""Squared shortfall of coverage, 0 where there is enough, equation (loss-picp).

    .. math:: \max(0, (1 - \alpha) - \mathit{PICP})^2, \quad \mathit{PICP} = \frac{1}{n} \sum_i k_i

    Parameters
    ----------
    capture : array of shape (n_samples,)
        Soft or hard capture k.
    coverage : scalar, default 0.95
        Nominal probability :math:`1 - \alpha`.
    weight : array of shape (n_samples,), optional
        Row weights.

    Examples
    --------
    >>> import numpy as np
    >>> float(coverage_shortfall(np.array([1.0, 0.0]), coverage=0.75))
    0.0625
    """
    weight, capture = rows(weight, capture=capture)
    return positive_part(weighted_mean(coverage - capture, weight)) ** 2
