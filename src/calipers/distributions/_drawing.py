"""Predictive distributions as data for plots: a density on a grid, and point masses."""

from dataclasses import replace
from typing import Any

import numpy as np

from calipers._checks import FloatArray
from calipers.distributions._observed import ObservedDistribution

_TAIL = 1e-3  # mass beyond each end of a density
MAX_ATOMS = 64
"""Largest number of lattice values that are listed one by one; of more, the density is drawn."""


def mean_density(dist: Any, places: int) -> FloatArray:
    """Centres of cells and the mean density in each, (rows, 2, places), without the extreme tails.

    Densities are means over cells, from differences of the distribution function, so that the jumps
    that calibration causes in a density are neither missed nor magnified by the position of a
    centre. Values that ``atoms`` lists are excluded.
    """
    observed = isinstance(dist, ObservedDistribution)
    if observed and dist.support.step:
        smooth = ObservedDistribution(dist.latent, replace(dist.support, step=0.0))
        density = mean_density(smooth, places)
        density[:, 1] = np.where(_few_atoms(dist)[:, None], 0.0, density[:, 1])
        return density
    low, high = dist.ppf(np.array([[_TAIL], [1 - _TAIL]]))
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
    """Values with point masses, and their masses, (rows, 2, k), padded with NaN.

    These are bounds, or the values of a lattice without the extreme tails; rows with too many
    values have none.
    """
    support, rows = dist.support, len(dist)
    if support.step:
        first = np.rint((dist.ppf(_TAIL) - support.origin) / support.step)
        values = support.at(first + np.arange(MAX_ATOMS)[:, None])
        shown = _few_atoms(dist) & (values <= dist.ppf(1 - _TAIL))
    else:
        values = np.repeat(np.array(support.ends)[:, None], rows, axis=1)
        shown = np.isfinite(values)
    mass = dist.pmf(np.where(shown, values, 0.0))
    return np.stack([np.where(shown, part, np.nan).T for part in (values, mass)], axis=1)


def _few_atoms(dist: ObservedDistribution) -> Any:
    """Whether each row has few enough values to be listed."""
    low, high = dist.ppf(np.array([[_TAIL], [1 - _TAIL]]))
    return (high - low) / dist.support.step < MAX_ATOMS - 0.5
