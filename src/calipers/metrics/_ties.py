"""Coverage where targets have mass on single values: a tie with a bound counts in part."""

import numpy as np
from numpy.typing import ArrayLike

from calipers._checks import FloatArray, fraction, numbers


def shared_coverage(cdf_below: ArrayLike, cdf: ArrayLike, coverage: ArrayLike) -> FloatArray:
    r"""Part of each target that lies within the central interval of a coverage.

    An interval whose bounds are values with a mass of their own holds more than it promises, since
    it cannot end in the middle of an atom. Shared out, a target y counts by the part of
    :math:`[F(y-), F(y)]` that lies in :math:`[\alpha/2, 1 - \alpha/2]`: all or nothing where it has
    no mass, and on average exactly the coverage if the predictions are right.

    Parameters
    ----------
    cdf_below, cdf : array-like of shape (n_samples,)
        Distribution functions just below and at the targets, ``dist.cdf_below(y)`` and
        ``dist.cdf(y)``.
    coverage : float or array-like of shape (k, 1)
        Nominal coverages.

    Returns
    -------
    array of shape (n_samples,) or (k, n_samples)
        Between 0 and 1.

    Examples
    --------
    Two tosses of a fair coin, heads and tails, and a target without mass:

    >>> shared_coverage([0.0, 0.5, 0.2], [0.5, 1.0, 0.2], 0.5)
    array([0.5, 0.5, 0. ])
    """
    below, upto = numbers("cdf_below", cdf_below), numbers("cdf", cdf)
    tail = 0.5 * (1.0 - fraction("coverage", coverage))
    mass, held = upto - below, np.minimum(upto, 1.0 - tail) - np.maximum(below, tail)
    inside = (tail <= upto) & (upto <= 1.0 - tail)
    return np.where(mass > 0, np.maximum(held, 0.0) / np.where(mass > 0, mass, 1.0), inside)
