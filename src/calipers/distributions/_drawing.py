"""Predictive distributions as numbers to draw: a density on a grid, and the masses beside it."""

from dataclasses import replace
from typing import Any

import numpy as np

from calipers._checks import FloatArray
from calipers.distributions._observed import ObservedDistribution

_FAR = 1e-3  # mass beyond each end of a density
MOST_ATOMS = 64
"""Values of a lattice that are given one by one; of more, the density is drawn."""


def mean_density(dist: Any, places: int) -> FloatArray:
    """Places and the mean density around them, (rows, 2, places), but for the far tails.

    Means over cells, as differences of the distribution function: the jumps that calibration
    leaves in a density are neither missed nor magnified by where a place happens to be. Values that
    ``atoms`` lists have no part in it.
    """
    observed = isinstance(dist, ObservedDistribution)
    if observed and dist.support.step:
        smooth = ObservedDistribution(dist.latent, replace(dist.support, step=0.0))
        found = mean_density(smooth, places)
        found[:, 1] = np.where(_few(dist)[:, None], 0.0, found[:, 1])
        return found
    low, high = dist.ppf(np.array([[_FAR], [1 - _FAR]]))
    margin = 0.05 * (high - low)
    low, high = low - margin, high + margin
    if observed:
        low, high = np.clip(low, *dist.support.ends), np.clip(high, *dist.support.ends)
    edges = np.linspace(low, high, places + 1)
    width = np.diff(edges, axis=0)
    mass = (
        dist.cdf_below(edges[1:]) - dist.cdf(edges[:-1])
        if observed
        else np.diff(dist.cdf(edges), axis=0)
    )
    with np.errstate(divide="ignore", invalid="ignore"):  # a point mass has no width
        height = mass / width
    if observed:
        height = np.where(width > 0, np.maximum(height, 0.0), 0.0)
    return np.stack([(edges[:-1] + 0.5 * width).T, height.T], axis=1)


def atoms(dist: ObservedDistribution) -> FloatArray:
    """Values with a mass of their own, and their masses, (rows, 2, k), padded with NaN.

    Bounds, or the values of a lattice but for the far tails; none for rows with too many.
    """
    support, rows = dist.support, len(dist)
    if support.step:
        first = np.rint((dist.ppf(_FAR) - support.origin) / support.step)
        values = support.at(first + np.arange(MOST_ATOMS)[:, None])
        shown = _few(dist) & (values <= dist.ppf(1 - _FAR))
    else:
        values = np.repeat(np.array(support.ends)[:, None], rows, axis=1)
        shown = np.isfinite(values)
    mass = dist.pmf(np.where(shown, values, 0.0))
    return np.stack([np.where(shown, part, np.nan).T for part in (values, mass)], axis=1)


def _few(dist: ObservedDistribution) -> Any:
    """Which rows have few enough values to be listed."""
    low, high = dist.ppf(np.array([[_FAR], [1 - _FAR]]))
    return (high - low) / dist.support.step < MOST_ATOMS - 0.5
