"""Edges of a target's atoms on the latent scale, and latent values of its targets."""

from dataclasses import replace

import numpy as np

from calipers._checks import FloatArray
from calipers.distributions._distribution import Distribution
from calipers.distributions._support import Support

# Fraction of rows from which the mass of a value is matched: on a lattice, at a bound.
HEAVY, HEAVY_BOUND = 0.1, 0.01
# Distance of latent targets from the lower edge of their cell, as a fraction of the cell.
INSIDE = 1e-6
# Largest number of rows, and quantiles of each, that represent the distribution of all predictions.
MAX_ROWS, LEVELS = 2000, 50


def match_atoms(
    support: Support, dist: Distribution, y: FloatArray, weights: FloatArray | None = None
) -> Support:
    """Move the edges of heavy atoms so that predictions have the same mass there as targets.

    On average over rows, the mass of the latent distribution up to each edge becomes the fraction
    of targets there; the same is done at the deciles of the targets. Predictions are by networks
    that were not trained on the rows, and ``support`` has no knots.
    """
    weights = np.ones(len(y)) if weights is None else weights
    values = np.unique(y)
    if len(values) < 2:
        return support
    cumulative = np.cumsum(np.bincount(np.searchsorted(values, y), weights)) / weights.sum()
    mass = np.diff(cumulative, prepend=0.0)
    low, high = support.ends
    if support.step:
        heavy = mass >= HEAVY
    else:
        heavy = (mass >= HEAVY_BOUND) & ((values == low) | (values == high))
    if not heavy.any():
        return support
    chosen = heavy | np.append(heavy[1:], False)  # an atom has an edge below it and one above
    if not support.step:
        chosen = heavy & (values == low)
    chosen[np.searchsorted(cumulative, np.arange(1, 10) / 10)] = True
    edges, levels = values + 0.5 * support.step, cumulative.copy()
    if heavy[-1] and not support.step:  # an upper bound has its edge below it
        levels[-1], chosen[-1] = cumulative[-2], True
        chosen[-2] = False
    chosen &= (levels > 0) & (levels < 1)
    latent = _pooled_quantiles(dist, levels[chosen], weights)
    rising = np.flatnonzero(np.diff(latent, prepend=-np.inf) > 1e-9 * np.ptp(y))
    return replace(
        support,
        latent=tuple(latent[rising].tolist()),
        observed=tuple(edges[chosen][rising].tolist()),
    )


def _pooled_quantiles(dist: Distribution, levels: FloatArray, weights: FloatArray) -> FloatArray:
    """Quantiles of the pooled distribution of all rows' predictions."""
    rows = np.unique(np.linspace(0, len(weights) - 1, MAX_ROWS).astype(int))
    places = (np.arange(LEVELS) + 0.5) / LEVELS
    sample = dist[rows].ppf(places[:, None])
    each = np.broadcast_to(weights[rows], sample.shape)
    return np.asarray(
        np.quantile(sample.ravel(), levels, weights=each.ravel(), method="inverted_cdf")
    )


def latent_targets(
    support: Support, dist: Distribution, y: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Latent values of targets, drawn from the prediction within their cells.

    Calibration uses them like continuous targets: T of each is the target, and if the prediction is
    right, they have the predicted distribution.
    """
    low, high = support.lower_edge(y), support.upper_edge(y)
    uniform = rng.random(len(y))
    tied = np.flatnonzero(low < high)
    latent = np.where(low < high, 0.0, high)
    if tied.size:
        part, below, above = dist[tied], low[tied], high[tied]
        # Probabilities are taken from the tail in which the cell begins, where they are accurate.
        upper_tail = part.sf(below)
        flip = upper_tail < 0.5
        inner = np.where(flip, upper_tail, part.cdf(above))
        outer = np.where(flip, part.sf(above), part.cdf(below))
        level = np.maximum(outer + uniform[tied] * (inner - outer), 1e-300)
        value = np.where(flip, part.isf(level), part.ppf(level))
        start = np.where(np.isfinite(below), below, 0.0)
        width = np.minimum(above - start, 1.0 + np.abs(start))
        inside = np.where(np.isfinite(below), start + INSIDE * width, below)  # open from below
        latent[tied] = np.clip(value, inside, above)
    return latent
