"""Moments and the CRPS of any distribution, as sums over quantiles.

They are accurate to about a thousandth of a standard deviation, or a hundredth where modes are far
apart.
"""

import numpy as np
from scipy.special import ndtr

from calipers._arrays import FloatArray
from calipers._blocks import sum_members

SUM_SCORES = np.linspace(-6.0, 6.0, 193)
"""Normal scores of the quantiles that are summed."""

SUM_LEVELS = ndtr(SUM_SCORES)
"""Their levels."""

_WEIGHTS = np.exp(-0.5 * SUM_SCORES**2) / np.exp(-0.5 * SUM_SCORES**2).sum()


def _along(numbers: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Numbers of the grid along the first axis of the quantiles."""
    return numbers.reshape(-1, *(1,) * (quantiles.ndim - 1))


def _expected(values: FloatArray) -> FloatArray:
    """Mean over the grid, along the first axis."""
    return sum_members(_along(_WEIGHTS, values) * values)


def summed_moments(quantiles: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance from quantiles along the first axis."""
    mean = _expected(quantiles)
    return mean, _expected((quantiles - mean) ** 2)


def summed_crps(quantiles: FloatArray, y: FloatArray) -> FloatArray:
    """Score of `y` from quantiles along the first axis."""
    middle = 2.0 * _along(SUM_LEVELS, quantiles) - 1.0
    return _expected(np.abs(quantiles - y) - middle * quantiles)
