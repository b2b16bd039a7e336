"""Which values a target can take, from those that it has taken; and where its atoms begin.

What is assumed without being told is little, and costs little where it is wrong: new rows that are
exchangeable with n training rows fall outside their range with probability 2 / (n + 1), and no
bound is put inside that range.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calipers._checks import FloatArray
from calipers.distributions._latent import Latent
from calipers.distributions._support import Support

Bounds = Sequence[float | None] | str | None

# Rows without which nothing is assumed.
FEWEST = 50
# Rows for each distinct value, on average, from which on values are taken to lie on a lattice.
REPEATS = 5.0
# Digits after the point within which a lattice is looked for.
MOST_DECIMALS = 6
# Rows at an end, and their share, that make it a bound ...
ATOM_ROWS, ATOM_SHARE = 10, 0.01
# ... and how many times as many they are as those of the values next to it.
STANDS_OUT, NEIGHBOURS = 5.0, 20
# Values up to which a lattice may be a scale with a first and a last grade.
MOST_GRADES = 12
# Share of rows on a value of a lattice from which on its mass is matched to that share.
HEAVY = 0.1
# Part of a cell that latent targets stay away from its lower edge.
INSIDE = 1e-6
# Rows, and quantiles of each, that stand for the distribution of all predictions.
MOST_ROWS, LEVELS = 2000, 50


def learn_support(y: FloatArray, bounds: Bounds = "auto") -> Support:
    """Values that a target can take, by the bounds given and by the targets of training.

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    bounds : "auto", None or pair of float or None
        "auto" looks for all there is; a pair fixes the bounds and looks for a lattice; None takes
        every number to be possible.

    Raises
    ------
    ValueError
        If targets lie outside of the bounds given.

    Examples
    --------
    >>> str(learn_support(np.arange(300.0) % 7))
    'whole numbers from 0 to 6'
    >>> str(learn_support(np.linspace(0.5, 9.0, 100)))
    'numbers from 0 on'
    >>> learn_support(np.array([3.0, -1.0]), (0, None))
    Traceback (most recent call last):
    ...
    ValueError: bounds=(0, None): y must not be below 0, got -1 in row 1 (from 0)
    """
    if bounds is None:
        return Support()
    if not isinstance(bounds, str):
        low, high = (None if end is None else float(end) for end in bounds)
        found = replace(_lattice(y), low=low, high=high, given=True)
        refuse_outside(y, found)
        return found
    if len(y) < FEWEST or y.min() == y.max():
        return Support()
    found = _lattice(y)
    low, high = (
        end if _is_atom(side, bool(found.step)) else None
        for end, side in ((float(y.min()), y), (float(y.max()), -y))
    )
    if low is None and y.min() >= 0:
        low = 0.0
    return replace(found, low=low, high=high)


def refuse_outside(y: FloatArray, support: Support) -> None:
    """Refuse targets outside of the bounds that a user has given, naming the first."""
    low, high = support.ends
    for word, end, wrong in (("below", low, y < low), ("above", high, y > high)):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            shown = tuple(None if e is None else round(e, 12) for e in (support.low, support.high))
            shown = tuple(int(e) if e is not None and e == int(e) else e for e in shown)
            more = f", and {wrong.sum() - 1:,} more" if wrong.sum() > 1 else ""
            raise ValueError(
                f"bounds={shown}: y must not be {word} {end:g}, got {y[row]:g} in row {row} "
                f"(from 0){more}"
            )


def _lattice(y: FloatArray) -> Support:
    """Lattice on which the targets lie, if they repeat its values often enough."""
    distinct = np.unique(y)
    if len(y) < FEWEST or len(distinct) < 2 or len(distinct) * REPEATS > len(y):
        return Support()
    if np.abs(distinct).max() > 1e12:
        return Support()
    for decimals in range(MOST_DECIMALS + 1):
        if (np.round(distinct, decimals) == distinct).all():
            units = np.rint(distinct * 10.0**decimals).astype(np.int64)
            step, origin = np.gcd.reduce(np.diff(units)), units[0]
            found = Support(
                step=float(step / 10.0**decimals),
                origin=float((origin % step) / 10.0**decimals),
                decimals=decimals,
            )
            return found if found.holds(distinct).all() else Support()
    return Support()


def _is_atom(y: FloatArray, lattice: bool) -> bool:
    """Whether the least value is one at which others have been cut off or begin."""
    counts = np.unique(y, return_counts=True)[1]
    rows = counts[0]
    if rows < max(ATOM_ROWS, ATOM_SHARE * len(y)):
        return False
    if lattice and len(counts) <= MOST_GRADES:  # of a scale, whereas the tail of counts thins out
        return bool(rows >= 0.5 * counts.mean() or rows >= 5 * ATOM_SHARE * len(y))
    return bool(rows >= STANDS_OUT * counts[1 : NEIGHBOURS + 1].mean())


def match_atoms(
    support: Support, dist: Latent, y: FloatArray, weights: FloatArray | None = None
) -> Support:
    """Move the edges of heavy atoms, so that predictions have the mass there that targets have.

    On average over rows, the latent distribution is made to put as much mass up to each edge as the
    share of targets there is, and as much between deciles of the targets beside.

    Parameters
    ----------
    support : Support
        Without knots.
    dist : Latent
        Predictions of rows by networks that have not seen them.
    y, weights : array of shape (n,)
        Their targets and weights.
    """
    own = np.ones(len(y)) if weights is None else weights
    values = np.unique(y)
    upto = np.cumsum(np.bincount(np.searchsorted(values, y), own)) / own.sum()
    share = np.diff(upto, prepend=0.0)
    low, high = support.ends
    if support.step:
        heavy = share >= HEAVY
    else:
        heavy = (share >= ATOM_SHARE) & ((values == low) | (values == high))
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


def _pooled_quantiles(dist: Latent, levels: FloatArray, weights: FloatArray) -> FloatArray:
    """Quantiles of the distribution of all rows' predictions together."""
    rows = np.unique(np.linspace(0, len(weights) - 1, MOST_ROWS).astype(int))
    places = (np.arange(LEVELS) + 0.5) / LEVELS
    sample = dist[rows].ppf(places[:, None])
    each = np.broadcast_to(weights[rows], sample.shape)
    return np.asarray(
        np.quantile(sample.ravel(), levels, weights=each.ravel(), method="inverted_cdf")
    )


def latent_targets(
    support: Support, dist: Latent, y: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Latent values of targets, drawn from the prediction within their cells where these are wide.

    They are to calibration what continuous targets are: T of each is the target, and if the
    prediction is right, so is its distribution.

    Parameters
    ----------
    support : Support
        The support.
    dist : Latent
        Predictions for the rows.
    y : array of shape (n,)
        Targets, all of the support.
    rng : numpy.random.Generator
        Draws one number for each row.
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
