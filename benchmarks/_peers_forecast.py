"""Forecasts of the compared methods, and the ways to turn them into intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from _peers_data import DENSE_LEVELS, normal_crps, quantile_crps, sample_crps


@dataclass(frozen=True, eq=False)
class Forecast:
    """Prediction of a method for the test rows.

    Attributes
    ----------
    point : ndarray of shape (n_test,)
    interval : callable
        From a coverage to lower and upper bounds.
    crps : callable or None
        From targets to their CRPS, if the method predicts a whole distribution.
    shared : callable or None
        From targets and a coverage to the coverage rate with ties shared out, if distributions
        have mass on single values.
    """

    point: np.ndarray
    interval: Callable
    crps: Callable | None = None
    shared: Callable | None = None


def tails(coverage):
    """Levels of the two bounds of a central interval."""
    return (1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0


def fixed(point, lower, upper):
    """Forecast of a method that must be fitted again for another coverage."""
    return Forecast(point, lambda coverage: (lower, upper))


def normal(mean, scale):
    """Forecast of normal distributions."""
    from scipy.stats import norm

    def interval(coverage):
        half = norm.ppf(tails(coverage)[1]) * scale
        return mean - half, mean + half

    return Forecast(mean, interval, lambda target: normal_crps(mean, scale, target))


def conformal_quantile(scores, coverage):
    """Score of rank ceil((n + 1) coverage); infinite if there are too few scores."""
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
    return np.sort(scores)[rank - 1] if rank <= len(scores) else math.inf


def symmetric(point, scale, scores):
    """Point plus or minus a conformal quantile of out-of-fold scores, times a scale.

    The quantiles behind the CRPS are the bounds of the nested central intervals; where the rows
    do not support a level, the largest score stands in for infinity.
    """

    def interval(coverage):
        half = conformal_quantile(scores, coverage) * scale
        return point - half, point + half

    def crps(target):
        top = np.max(scores)
        central = [min(conformal_quantile(scores, abs(2 * q - 1)), top) for q in DENSE_LEVELS]
        signed = np.sign(DENSE_LEVELS - 0.5) * central
        return quantile_crps(point[:, None] + np.outer(scale, signed), target)

    return Forecast(point, interval, crps)


def quantile_bounds(levels, quantiles):
    """From a coverage to bounds, interpolated between quantiles of each row.

    Parameters
    ----------
    levels : ndarray of shape (n_levels,)
        Increasing.
    quantiles : ndarray of shape (n_rows, n_levels)
    """

    def bounds(coverage):
        places = np.interp(tails(coverage), levels, np.arange(len(levels)))
        below = np.minimum(places.astype(int), len(levels) - 2)
        share = places - below
        return (quantiles[:, below] * (1 - share) + quantiles[:, below + 1] * share).T

    return bounds


def sample_bounds(samples):
    """From a coverage to bounds, quantiles of each row's draws."""
    return lambda coverage: np.quantile(samples, tails(coverage), axis=1)


def of_quantiles(levels, quantiles, correct=None):
    """Forecast of a method that predicts quantiles at many levels.

    The CRPS takes the outermost quantiles for those beyond. `correct` is as in :func:`of_samples`.
    """
    dense = np.stack([np.interp(DENSE_LEVELS, levels, row) for row in quantiles])
    bounds = quantile_bounds(levels, quantiles)
    point = np.stack([np.interp(0.5, levels, row) for row in quantiles])
    interval = correct(bounds) if correct else bounds
    return Forecast(point, interval, lambda target: quantile_crps(dense, target))


def of_samples(samples, correct=None):
    """Forecast of a method that draws; the point is the mean of the draws.

    `correct` maps bounds, as a function of the coverage, to corrected ones (:func:`conformal`).
    """
    bounds = sample_bounds(samples)
    interval = correct(bounds) if correct else bounds
    return Forecast(samples.mean(axis=1), interval, lambda target: sample_crps(samples, target))


def conformal(held_bounds, y):
    """The correction of CQR: both bounds moved by the conformal quantile of held-out errors.

    Parameters
    ----------
    held_bounds : callable
        From a coverage to bounds of rows that their model has not seen.
    y : ndarray
        Targets of these rows.
    """

    def correct(bounds):
        def interval(coverage):
            low, high = held_bounds(coverage)
            shift = conformal_quantile(np.maximum(low - y, y - high), coverage)
            lower, upper = bounds(coverage)
            return lower - shift, upper + shift

        return interval

    return correct
