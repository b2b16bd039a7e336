"""Where the atoms of a target begin on the latent scale, and where its targets lie there."""

from dataclasses import replace

import numpy as np

from calipers._checks import FloatArray
from calipers.distributions._distribution import Distribution
from calipers.distributions._support import Support

# Share of rows from which on the mass of a value is matched to it: on a lattice, at a bound.
HEAVY, HEAVY_BOUND = 0.1, 0.01
# Part of a cell that latent targets stay away from its lower edge.
INSIDE = 1e-6
# Rows, and quantiles of each, that stand for the distribution of all predictions.
MOST_ROWS, LEVELS = 2000, 50


def match_atoms(
    support: Support, dist: Distribution, y: FloatArray, weights: FloatArray | None = None
) -> Support:
    """Move the edges of heavy atoms, so that predictions have the mass there that targets have.

    On average over rows, the latent distribution is made to put as much mass up to each edge as the
    share of targets there is, and as much between deciles of the targets beside. Predictions are by
    networks that have not seen the rows, the support is without knots.
    """
    own = np.ones(len(y)) if weights is None else weights
    values = np.unique(y)
    if len(values) < 2:
        return support
    upto = np.cumsum(np.bincount(np.searchsorted(values, y), own)) / own.sum()
    share = np.diff(upto, prepend=0.0)
    low, high = support.ends
    if support.step:
        heavy = share >= HEAVY
    else:
        heavy = (share >= HEAVY_BOUND) & ((values == low) | (values == high))
    if not heavy.any():
        return support
    chosen = heavy | np.append(heavy[1:], False)  # an atom has an edge below it and one above
    if not support.step:
        chosen = heavy & (values == low)
    chosen[np.searchsorted(upto, np.arange(1, 10) / 10)] = True
    edges, levels = values + 0.5 * support.step, upto.copy()
    if heavy[-1] and not support.step:  # up to the last value, but without it
        levels[-1], chosen[-1] = upto[-2], True
        chosen[-2] = False
    chosen &= (levels > 0) & (levels < 1)
    latent = _pooled_quantiles(dist, levels[chosen], own)
    rising = np.flatnonzero(np.diff(latent, prepend=-np.inf) > 1e-9 * np.ptp(y))
    return replace(
        support,
        latent=tuple(latent[rising].tolist()),
        observed=tuple(edges[chosen][rising].tolist()),
    )


def _pooled_quantiles(dist: Distribution, levels: FloatArray, weights: FloatArray) -> FloatArray:
    """Quantiles of the distribution of all rows' predictions together."""
    rows = np.unique(np.linspace(0, len(weights) - 1, MOST_ROWS).astype(int))
    places = (np.arange(LEVELS) + 0.5) / LEVELS
    sample = dist[rows].ppf(places[:, None])
    each = np.broadcast_to(weights[rows], sample.shape)
    return np.asarray(
        np.quantile(sample.ravel(), levels, weights=each.ravel(), method="inverted_cdf")
    )


def latent_targets(
    support: Support, dist: Distribution, y: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Latent values of targets, drawn from the prediction within their cells where these are wide.

    They are to calibration what continuous targets are: T of each is the target, and if the
    prediction is right, so is its distribution.
    """
    low, high = support.lower_edge(y), support.upper_edge(y)
    uniform = rng.random(len(y))
    tied = np.flatnonzero(low < high)
    found = np.where(low < high, 0.0, high)
    if tied.size:
        part, below, above = dist[tied], low[tied], high[tied]
        # The half in which the cell begins is measured from its own tail, which keeps its digits.
        flip = part.sf(below) < 0.5
        ends = [part.sf(above), part.sf(below)], [part.cdf(below), part.cdf(above)]
        inner, outer = (
            np.where(flip, a, b) for a, b in ((ends[0][1], ends[1][1]), (ends[0][0], ends[1][0]))
        )
        level = np.maximum(outer + uniform[tied] * (inner - outer), 1e-300)
        value = np.where(flip, part.isf(level), part.ppf(level))
        start = np.where(np.isfinite(below), below, 0.0)
        width = np.minimum(above - start, 1.0 + np.abs(start))
        inside = np.where(np.isfinite(below), start + INSIDE * width, below)  # open from below
        found[tied] = np.clip(value, inside, above)
    return found
