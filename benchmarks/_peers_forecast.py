"""What a method predicts, and the few ways in which intervals are made."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from _peers_data import DENSE_LEVELS, normal_crps, quantile_crps


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a method says about the test rows.

    Attributes
    ----------
    point : ndarray of shape (n_test,)
    interval : callable
        From a coverage to lower and upper bounds.
    crps : callable or None
        From targets to their CRPS, where the method defines a whole distribution.
    """

    point: np.ndarray
    interval: Callable
    crps: Callable | None = None


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
