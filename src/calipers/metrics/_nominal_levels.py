"""Calibration curves: observed against nominal coverage at several levels."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from calipers._arrays import FloatArray
from calipers._checks import finite, fraction, numbers
from calipers.metrics._chance import shared_coverage
from calipers.metrics._intervals import coverage_rate
from calipers.metrics._weighted import weighted

_COVERAGES = tuple(k / 20 for k in range(1, 20))


class HasInterval(Protocol):
    """A distribution for each row, with a central interval."""

    def interval(self, coverage: float, /) -> tuple[ArrayLike, ArrayLike]:
        """Lower and upper bounds of the central interval of this coverage."""


class CalibrationCurve(NamedTuple):
    """Observed against nominal coverage."""

    #: (n_coverages,): Nominal coverage, and fraction of targets inside the intervals.
    nominal: FloatArray
    observed: FloatArray


def calibration_curve(
    y_true: ArrayLike,
    y_pred: HasInterval | ArrayLike,
    *,
    coverages: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationCurve:
    """Coverage rate of the intervals of several nominal coverages.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Targets.
    y_pred : object with ``interval(coverage)``, or array-like of shape (n_samples, 2, k)
        A distribution for each row, or the lower and upper bounds for each coverage. For a
        distribution with point masses, targets on a bound count in part, see ``shared_coverage``.
    coverages : array-like of shape (k,), optional
        Nominal coverages, by default 0.05, 0.1, ..., 0.95.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    CalibrationCurve
        ``nominal`` and ``observed``, each of shape (k,).

    Examples
    --------
    >>> from scipy.stats import norm
    >>> curve = calibration_curve([0.1, 2.1], norm([0, 0], [1, 2]), coverages=[0.5, 0.9])
    >>> curve.observed
    array([0.5, 1. ])
    """
    nominal = fraction("coverages", _COVERAGES if coverages is None else coverages)
    if nominal.ndim != 1 or nominal.size == 0:
        raise ValueError(f"coverages must be a list of at least one, got shape {nominal.shape}")
    if hasattr(y_pred, "cdf_below"):  # a distribution with point masses
        dist: Any = y_pred
        target = finite("y_true", y_true)
        below, at = dist.cdf_below(target), dist.cdf(target)
        named = {"y_true": target, "cdf_below": below, "cdf": at}
        weights, _, below, at = weighted(sample_weight, named)
        covered = shared_coverage(below, at, nominal[:, np.newaxis])
        return CalibrationCurve(nominal, np.average(covered, axis=1, weights=weights))
    observed = [
        coverage_rate(y_true, lower, upper, sample_weight=sample_weight)
        for lower, upper in _intervals(y_pred, nominal)
    ]
    return CalibrationCurve(nominal, np.array(observed))


def calibration_error(
    y_true: ArrayLike,
    y_pred: HasInterval | ArrayLike,
    *,
    coverages: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Mean absolute difference of observed and nominal coverage along ``calibration_curve``.

    Parameters
    ----------
    y_true, y_pred, coverages, sample_weight
        As for ``calibration_curve``.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> error = calibration_error([0.1, 2.1], norm([0, 0], [1, 2]), coverages=[0.5, 0.9])
    >>> round(error, 4)
    0.05
    """
    curve = calibration_curve(y_true, y_pred, coverages=coverages, sample_weight=sample_weight)
    return float(np.mean(abs(curve.observed - curve.nominal)))


def _intervals(
    y_pred: HasInterval | ArrayLike, coverages: FloatArray
) -> Iterator[tuple[ArrayLike, ArrayLike]]:
    """Yield the bounds for each coverage."""
    if hasattr(y_pred, "interval"):
        yield from (y_pred.interval(float(coverage)) for coverage in coverages)
        return
    bounds = numbers("y_pred", y_pred)
    if bounds.ndim != 3 or bounds.shape[1:] != (2, coverages.size):
        raise ValueError(
            "y_pred must be a distribution or have shape (n_samples, 2, n_coverages), "
            f"got shape {bounds.shape} for {coverages.size} coverages"
        )
    yield from ((bounds[:, 0, k], bounds[:, 1, k]) for k in range(coverages.size))
