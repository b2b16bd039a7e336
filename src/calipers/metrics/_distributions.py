"""Scores of whole predictive distributions, of any class that has the method asked for."""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from calipers.metrics._checks import (
    FloatArray,
    finite,
    numbers,
    refuse,
    require_same_shape,
    weighed,
)


class HasCrps(Protocol):
    """A distribution for each row, with the CRPS of each."""

    def crps(self, y: FloatArray, /) -> ArrayLike:
        """Continuous ranked probability score of each row."""


class HasLogpdf(Protocol):
    """A distribution for each row, with the log-density of each."""

    def logpdf(self, x: FloatArray, /) -> ArrayLike:
        """Logarithm of the density of each row."""


class HasCdf(Protocol):
    """A distribution for each row, with the distribution function of each."""

    def cdf(self, x: FloatArray, /) -> ArrayLike:
        """Probability of each row up to x."""


def crps(dist: HasCrps, target: ArrayLike, *, weight: ArrayLike | None = None) -> float:
    r"""Mean continuous ranked probability score, less is better.

    .. math:: \frac{1}{n} \sum_i \int (F_i(x) - 1\{x \ge y_i\})^2 dx

    Parameters
    ----------
    dist : object with ``crps(y)``
        A distribution for each row.
    target : array-like of shape (n_samples,)
        Observations.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        In the target's unit.

    Raises
    ------
    ValueError
        If shapes differ or values are not finite.

    Examples
    --------
    A sure prediction's score is its distance from the target:

    >>> class Sure:
    ...     def crps(self, y):
    ...         return abs(y - 1)
    >>> crps(Sure(), [1, 4])
    1.5
    """
    observed = finite("target", target)
    scores = _per_row("dist.crps(target)", dist.crps(observed), observed)
    return _mean(scores, weight)


def log_score(dist: HasLogpdf, target: ArrayLike, *, weight: ArrayLike | None = None) -> float:
    r"""Mean negative log-density of the targets, less is better.

    .. math:: -\frac{1}{n} \sum_i \log f_i(y_i)

    Parameters
    ----------
    dist : object with ``logpdf(x)``
        A distribution for each row.
    target : array-like of shape (n_samples,)
        Observations.
    weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        Infinite where a target was held to be impossible.

    Raises
    ------
    ValueError
        If shapes differ, targets are not finite, or a density is infinite, as that of a point mass.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> round(log_score(norm([0, 0], [1, 2]), [0, 2]), 4)
    1.5155
    """
    observed = finite("target", target)
    name = "dist.logpdf(target)"
    densities = _per_row(name, dist.logpdf(observed), observed)
    refuse(name, densities, np.isposinf(densities), "must not be infinite")
    return -_mean(densities, weight)


def pit_values(dist: HasCdf, target: ArrayLike) -> FloatArray:
    """Probability integral transform: each distribution function at its target.

    For calibrated predictions the values are uniform between 0 and 1.

    Parameters
    ----------
    dist : object with ``cdf(x)``
        A distribution for each row.
    target : array-like of shape (n_samples,)
        Observations.

    Returns
    -------
    ndarray of shape (n_samples,)
        Between 0 and 1.

    Raises
    ------
    ValueError
        If shapes differ or targets are not finite.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> pit_values(norm([0, 0], [1, 2]), [0, 2]).round(4)
    array([0.5   , 0.8413])
    """
    observed = finite("target", target)
    return _per_row("dist.cdf(target)", dist.cdf(observed), observed)


def _per_row(name: str, values: ArrayLike, target: FloatArray) -> FloatArray:
    """Read what a distribution answered, one number for each target."""
    array = numbers(name, values)
    require_same_shape({"target": target, name: array})
    refuse(name, array, np.isnan(array), "must not be NaN")
    return array


def _mean(values: FloatArray, weight: ArrayLike | None) -> float:
    weights, kept = weighed(weight, {"target": values})
    return float(np.average(kept, weights=weights))
