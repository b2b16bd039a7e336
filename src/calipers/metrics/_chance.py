"""The effect of chance, and of ties with a bound, on coverage rates."""

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from calipers._arrays import FloatArray
from calipers._checks import fraction, numbers, refuse_where

_STEPS = 40  # of a calibration curve
_DRAWS = 2000  # simulated histograms, which show the variation by chance


def coverage_band(
    n_samples: ArrayLike, coverage: ArrayLike, *, confidence: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Range in which the coverage rate of calibrated intervals falls by chance.

    This is the central range of a binomial proportion; rows are assumed to be independent.

    Parameters
    ----------
    n_samples : array-like of int
        Number of rows.
    coverage : array-like
        Nominal probability of the intervals; broadcasts against ``n_samples``.
    confidence : float, default 0.95
        Minimum probability that the rate lies within the range.

    Returns
    -------
    low, high : ndarray
        Between 0 and 1, of the shape that the arguments broadcast to.

    Examples
    --------
    >>> low, high = coverage_band([100, 10_000], 0.95)
    >>> low.round(3), high.round(3)
    (array([0.9  , 0.946]), array([0.99 , 0.954]))
    """
    return _band(n_samples, fraction("coverage", coverage), confidence)


def pit_band(n_samples: int, n_bins: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Range in which the height of a bar in a histogram of uniform values falls by chance.

    For a histogram of ``pit_values`` scaled so that all bars would be 1 high if rows were
    distributed evenly; rows are assumed to be independent.

    Parameters
    ----------
    n_samples : int
        Number of rows.
    n_bins : int
        Number of bars, of equal width.
    confidence : float, default 0.95
        Minimum probability that a bar ends within the range.

    Returns
    -------
    low, high : float
        Heights.

    Examples
    --------
    >>> pit_band(100, 10)
    (0.5, 1.6)
    """
    low, high = _band(n_samples, 1 / _counts("n_bins", n_bins), confidence)
    return float(low) * n_bins, float(high) * n_bins


def curve_band(n_samples: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nominal coverages, and the range of the whole curve of coverage rates by chance.

    The curves of 19 of 20 calibrated models lie in the range.
    """
    nominal = np.arange(1, _STEPS) / _STEPS
    confidence = joint_confidence(n_samples, _STEPS, cumulative=True)
    return nominal, *coverage_band(n_samples, nominal, confidence=confidence)


@cache
def joint_confidence(n_samples: int, n_bins: int, *, cumulative: bool = False) -> float:
    """Confidence of each rate at which all rates of 19 of 20 calibrated models are in their range.

    The rates are the bars of a histogram for ``pit_band`` or, if ``cumulative``, the coverage rates
    at the levels between ``n_bins`` equal steps for ``coverage_band``. With 95% for each, every
    third calibrated model would have some rate outside.

    >>> round(joint_confidence(500, 40, cumulative=True), 3)
    0.995
    """
    nominal = np.full(n_bins, 1 / n_bins)
    draws = np.random.default_rng(0).multinomial(n_samples, nominal, _DRAWS)
    if cumulative:
        draws, nominal = draws.cumsum(axis=1)[:, :-1], nominal.cumsum()[:-1]
    p_values = coverage_p_value(draws / n_samples, n_samples, nominal).min(axis=1)
    return 1 - float(np.quantile(p_values, 0.05))


def coverage_p_value(
    coverage_rate: ArrayLike, n_samples: ArrayLike, coverage: ArrayLike
) -> FloatArray:
    """Probability that calibrated intervals miss their nominal coverage at least as much by chance.

    This is the exact binomial test, two-sided by doubling the smaller tail; rows are assumed to be
    independent.

    Parameters
    ----------
    coverage_rate : array-like
        Fraction of targets inside their interval (PICP).
    n_samples : array-like of int
        Number of rows.
    coverage : array-like
        Nominal probability of the intervals.

    Returns
    -------
    ndarray
        Between 0 and 1, of the shape that the arguments broadcast to.

    Examples
    --------
    >>> coverage_p_value([0.95, 0.9], 100, 0.95).round(3)
    array([1.   , 0.056])
    """
    rows, rate = _counts("n_samples", n_samples), numbers("coverage_rate", coverage_rate)
    refuse_where("coverage_rate", rate, ~((rate >= 0) & (rate <= 1)), "must be between 0 and 1")
    nominal, inside = fraction("coverage", coverage), np.rint(rate * rows)
    tails = binom.cdf(inside, rows, nominal), binom.sf(inside - 1, rows, nominal)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(*tails)))


def _band(
    n_samples: ArrayLike, probability: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Central range of a binomial proportion."""
    rows = _counts("n_samples", n_samples)
    tail = (1 - float(fraction("confidence", confidence))) / 2
    low, high = (np.asarray(binom.ppf(p, rows, probability) / rows) for p in (tail, 1 - tail))
    return low, high


def _counts(name: str, values: ArrayLike) -> FloatArray:
    array = numbers(name, values)
    bad = ~((array >= 1) & (array == np.rint(array)))
    refuse_where(name, array, bad, "must be a whole number, at least 1")
    return array


def shared_coverage(cdf_below: ArrayLike, cdf: ArrayLike, coverage: ArrayLike) -> FloatArray:
    r"""Fraction of each target that lies within the central interval of a coverage.

    An interval whose bounds have point masses covers more than its nominal coverage, since it
    cannot end in the middle of an atom. Here a target y counts by the fraction of
    :math:`[F(y-), F(y)]` that lies in :math:`[\alpha/2, 1 - \alpha/2]`: 0 or 1 where it has no
    mass, and on average exactly the coverage if the predictions are right.

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
    below, at = numbers("cdf_below", cdf_below), numbers("cdf", cdf)
    tail = 0.5 * (1.0 - fraction("coverage", coverage))
    mass, covered = at - below, np.minimum(at, 1.0 - tail) - np.maximum(below, tail)
    inside = (tail <= at) & (at <= 1.0 - tail)
    return np.where(mass > 0, np.maximum(covered, 0.0) / np.where(mass > 0, mass, 1.0), inside)
