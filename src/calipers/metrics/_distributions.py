"""Scores of predictive distributions, of any class that has the required method."""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from calipers._arrays import FloatArray
from calipers._checks import finite, numbers, refuse_where, require_same_shape
from calipers.metrics._weighted import weighted, weighted_average


class HasCrps(Protocol):
    """A distribution for each row, with a CRPS."""

    def crps(self, y: FloatArray, /) -> ArrayLike:
        """Continuous ranked probability score of each row."""


class HasLogpdf(Protocol):
    """A distribution for each row, with a log-density."""

    def logpdf(self, x: FloatArray, /) -> ArrayLike:
        """Logarithm of the density of each row."""


class HasCdf(Protocol):
    """A distribution for each row, with a distribution function."""

    def cdf(self, x: FloatArray, /) -> ArrayLike:
        """Probability, for each row, of values up to x."""


def crps(y_true: ArrayLike, dist: HasCrps, *, sample_weight: ArrayLike | None = None) -> float:
    r"""Mean continuous ranked probability score, in the target's unit; less is better.

    .. math:: \frac{1}{n} \sum_i \int (F_i(x) - 1\{x \ge y_i\})^2 dx

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Targets.
    dist : object with ``crps(y)``
        A distribution for each row.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Examples
    --------
    The CRPS of a point mass is its distance from the target:

    >>> class PointMass:
    ...     def crps(self, y):
    ...         return abs(y - 1)
    >>> crps([1, 4], PointMass())
    1.5
    """
    scores = _per_row("crps", dist, y_true)
    weights, kept = weighted(sample_weight, {"y_true": scores})
    return weighted_average(kept, weights)


def log_score(
    y_true: ArrayLike, dist: HasLogpdf, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Mean negative log-density of the targets, less is better.

    .. math:: -\frac{1}{n} \sum_i \log f_i(y_i)

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Targets.
    dist : object with ``logpdf(x)``
        A distribution for each row.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        Infinite if a target has density zero.

    Raises
    ------
    ValueError
        Also if a density is infinite, as at a point mass.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> round(log_score([0, 2], norm([0, 0], [1, 2])), 4)
    1.5155
    """
    densities = _per_row("logpdf", dist, y_true)
    refuse_where("dist.logpdf(y_true)", densities, np.isposinf(densities), "must not be infinite")
    weights, kept = weighted(sample_weight, {"y_true": densities})
    return -weighted_average(kept, weights)


def pit_values(
    y_true: ArrayLike, dist: HasCdf, *, rng: np.random.Generator | None = None
) -> FloatArray:
    """Probability integral transform: each distribution function at its target.

    For calibrated predictions the values are uniform between 0 and 1; ``pit_band`` gives the range
    in which the bars of their histogram vary by chance.

    Where a target has a point mass, the value lies between those just below and at the target: in
    the middle, or with ``rng`` at random, which makes the values of calibrated predictions uniform
    there too (randomised PIT).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Targets.
    dist : object with ``cdf(x)``
        A distribution for each row; one with ``cdf_below(x)`` may have point masses.
    rng : numpy.random.Generator, optional
        Draws the position within a point mass.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> pit_values([0, 2], norm([0, 0], [1, 2])).round(4)
    array([0.5   , 0.8413])
    """
    at = _per_row("cdf", dist, y_true)
    if not hasattr(dist, "cdf_below"):
        return at
    below = _per_row("cdf_below", dist, y_true)
    return below + (0.5 if rng is None else rng.random(at.shape)) * (at - below)


def _per_row(method: str, dist: object, y_true: ArrayLike) -> FloatArray:
    """Result of a method of ``dist`` at the targets, checked to be one number for each."""
    if not hasattr(dist, method):
        raise TypeError(
            f"dist must be a distribution with the method {method}, got {type(dist).__name__}; "
            "the order of arguments is y_true, dist"
        )
    target, name = finite("y_true", y_true), f"dist.{method}(y_true)"
    array = numbers(name, getattr(dist, method)(target))
    require_same_shape({"y_true": target, name: array})
    refuse_where(name, array, np.isnan(array), "must not be NaN")
    return array
