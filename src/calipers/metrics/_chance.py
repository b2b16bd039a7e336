"""What chance alone does to a coverage rate: the yardstick for every rate that is shown."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from calipers.metrics._checks import FloatArray, fraction, numbers, refuse


def coverage_band(
    n_samples: ArrayLike, coverage: ArrayLike, *, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Range in which the coverage rate of honest intervals falls by chance.

    The central range of a binomial share; rows are taken to be independent.

    Parameters
    ----------
    n_samples : array-like of int
        Rows that the rate is of.
    coverage : array-like
        Nominal probability of the intervals; broadcasts against ``n_samples``.
    confidence : float, default 0.95
        Probability, at least, of a rate within the range.

    Returns
    -------
    low, high : ndarray
        Shares between 0 and 1, of the shape that the arguments broadcast to.

    Raises
    ------
    ValueError
        If there is no row, or a probability is no fraction.

    Examples
    --------
    >>> low, high = coverage_band([100, 10_000], 0.95)
    >>> low.round(3), high.round(3)
    (array([0.9  , 0.946]), array([0.99 , 0.954]))
    """
    rows = _counts(n_samples)
    tail = (1 - float(fraction("confidence", confidence))) / 2
    nominal = fraction("coverage", coverage)
    return (
        np.asarray(binom.ppf(tail, rows, nominal) / rows),
        np.asarray(binom.ppf(1 - tail, rows, nominal) / rows),
    )


def coverage_p_value(
    coverage_rate: ArrayLike, n_samples: ArrayLike, coverage: ArrayLike
) -> FloatArray:
    """How likely chance takes honest intervals at least as far from their nominal coverage.

    The exact binomial test, two-sided by doubling the smaller tail; rows are taken to be
    independent.

    Parameters
    ----------
    coverage_rate : array-like
        Fraction of targets inside their interval (PICP).
    n_samples : array-like of int
        Rows that the rate is of.
    coverage : array-like
        Nominal probability of the intervals.

    Returns
    -------
    ndarray
        Between 0 and 1, of the shape that the arguments broadcast to.

    Raises
    ------
    ValueError
        If there is no row, or a rate or probability is no fraction.

    Examples
    --------
    >>> coverage_p_value([0.95, 0.9], 100, 0.95).round(3)
    array([1.   , 0.056])
    """
    rows, rate = _counts(n_samples), numbers("coverage_rate", coverage_rate)
    refuse("coverage_rate", rate, ~((rate >= 0) & (rate <= 1)), "must be between 0 and 1")
    nominal, inside = fraction("coverage", coverage), np.rint(rate * rows)
    tails = binom.cdf(inside, rows, nominal), binom.sf(inside - 1, rows, nominal)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(*tails)))


def _counts(n_samples: ArrayLike) -> FloatArray:
    rows = numbers("n_samples", n_samples)
    bad = ~((rows >= 1) & (rows == np.rint(rows)))
    refuse("n_samples", rows, bad, "must be a whole number of rows, at least 1")
    return rows
