"""Scores of whole predictive distributions, of any class that has the method asked for."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from calipers._checks import FloatArray, finite, numbers, refuse, require_same_shape
from calipers.metrics._weighted import average, weighted


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
    A sure prediction's score is its distance from the target:

    >>> class Sure:
    ...     def crps(self, y):
    ...         return abs(y - 1)
    >>> crps([1, 4], Sure())
    1.5
    """
    scores = _per_row("crps", dist, y_true)
    weights, kept = weighted(sample_weight, {"y_true": scores})
    return average(kept, weights)


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
        Infinite where a target was held to be impossible.

    Raises
    ------
    ValueError
        Also if a density is infinite, as that of a point mass.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> round(log_score([0, 2], norm([0, 0], [1, 2])), 4)
    1.5155
    """
    densities = _per_row("logpdf", dist, y_true)
    refuse("dist.logpdf(y_true)", densities, np.isposinf(densities), "must not be infinite")
    weights, kept = weighted(sample_weight, {"y_true": densities})
    return -average(kept, weights)


def pit_values(
    y_true: ArrayLike, dist: HasCdf, *, rng: np.random.Generator | None = None
) -> FloatArray:
    """Probability integral transform: each distribution function at its target.

    Where a target has a mass of its own, between the values just below it and at it: in the middle,
    or with ``rng`` at random, which makes the values of calibrated predictions uniform there too.

    For calibrated predictions the values are uniform between 0 and 1; ``pit_band`` says how far
    chance takes the bars of their histogram from that.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Targets.
    dist : object with ``cdf(x)``
        A distribution for each row; one with ``cdf_below(x)`` may have mass on single values.
    rng : numpy.random.Generator, optional
        Draws the place within the mass of a value.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> pit_values([0, 2], norm([0, 0], [1, 2])).round(4)
    array([0.5   , 0.8413])
    """
    upto = _per_row("cdf", dist, y_true)
    if not hasattr(dist, "cdf_below"):
        return upto
    below = _per_row("cdf_below", dist, y_true)
    return below + (0.5 if rng is None else rng.random(upto.shape)) * (upto - below)


def _per_row(method: str, dist: Any, y_true: ArrayLike) -> FloatArray:
    """Call a method of the distributions with the targets; it gives one number for each."""
    if not hasattr(dist, method):
        raise TypeError(
            f"dist must be a distribution with the method {method}, got {type(dist).__name__}; "
            "the order of arguments is y_true, dist"
        )
    target, name = finite("y_true", y_true), f"dist.{method}(y_true)"
    array = numbers(name, getattr(dist, method)(target))
    require_same_shape({"y_true": target, name: array})
    refuse(name, array, np.isnan(array), "must not be NaN")
    return array
