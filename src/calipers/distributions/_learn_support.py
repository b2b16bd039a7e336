"""Detection of the support of a target, the values it can take, and of the edges of its atoms.

Automatic assumptions are few, and cost little where they are wrong: a new row that is exchangeable
with n training rows falls outside their range with probability 2 / (n + 1), and no bound is placed
inside that range. A lattice adds the probability that a new row is not on it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import BoolArray, FloatArray
from calipers._text import digits
from calipers.distributions._distribution import Distribution
from calipers.distributions._support import Support

Bounds = Sequence[float | None] | str | None

# With fewer rows nothing is assumed.
MIN_ROWS = 50
# Mean number of rows per distinct value from which values are assumed to lie on a lattice.
REPEATS = 5.0
# Largest number of decimals of a lattice of decimal numbers.
MAX_DECIMALS = 6
# Largest number of a lattice in its last decimal, which leaves a bit of precision for its cells.
MAX_PLACES = 2.0**51
# Largest number of values of any other lattice, also as a multiple of the distinct values seen.
MAX_VALUES, GAPS = 1000, 4
# Tolerances of values on a lattice, as fractions of a step, in double and in single precision.
CLOSE, CLOSE_SINGLE = 1e-6, 1e-4
# An extreme value is a bound if it has at least this number and fraction of rows ...
ATOM_ROWS, ATOM_FRACTION = 10, 0.01
# ... and this many times the mean number of rows of the next values.
STANDS_OUT, NEIGHBOURS = 5.0, 20
# Largest number of values of a rating scale, whose first and last grade are bounds.
MAX_GRADES = 12
# Fraction of rows from which the mass of a value is matched: on a lattice, at a bound.
HEAVY, HEAVY_BOUND = 0.1, 0.01
# Least distance of knots on the latent scale, as a fraction of the range of the targets.
RISE = 1e-6
# Distance of latent targets from the lower edge of their cell, as a fraction of the cell.
INSIDE = 1e-6
# Largest number of rows, and quantiles of each, that represent the distribution of all predictions.
MAX_ROWS, LEVELS = 2000, 50


def learn_support(y: FloatArray, bounds: Bounds = "auto") -> Support:
    """Values that a target can take, from ``bounds`` and the training targets.

    Parameters
    ----------
    y : array of shape (n,)
        Targets.
    bounds : "auto", None or pair of float or None
        "auto" detects bounds, and a lattice or frequent values; a pair fixes the bounds and detects
        the rest; None allows every number.

    Raises
    ------
    ValueError
        If targets lie outside the given bounds.

    Examples
    --------
    >>> str(learn_support(np.arange(300.0) % 7))
    'integers from 0 to 6'
    >>> str(learn_support(np.linspace(0.5, 9.0, 100)))
    'non-negative numbers'
    >>> str(learn_support(np.append(np.linspace(-1.0, 1.0, 80), np.zeros(20))))
    'any number, often 0'
    >>> learn_support(np.array([3.0, -1.0]), (0, None))
    Traceback (most recent call last):
    ...
    ValueError: bounds=(0, None): y must not be below 0, got -1 in row 1 (from 0)
    """
    if bounds is None:
        return Support()
    y = y + 0.0  # without negative zeros
    given = given_support(bounds)
    if given.given:
        refuse_outside(y, given)
        return with_atoms(replace(_lattice(y), low=given.low, high=given.high, given=True), y)
    if len(y) < MIN_ROWS or y.min() == y.max():
        return Support()
    support = _lattice(y)
    low, high = (
        end if _is_atom(side, bool(support.step)) else None
        for end, side in ((float(y.min()), y), (float(y.max()), -y))
    )
    if low is None and y.min() >= 0:
        low = 0.0
        if support.step:  # the first value of the lattice from 0 on
            low = float(support.at(np.ceil(-support.origin / support.step - CLOSE)))
    return with_atoms(replace(support, low=low, high=high), y)


def given_support(bounds: Bounds) -> Support:
    """Support with the bounds that the user gives, and nothing else."""
    if bounds is None or isinstance(bounds, str):
        return Support()
    low, high = (None if end is None else float(end) + 0.0 for end in bounds)
    return Support(low, high, given=True)


def refuse_outside(
    y: FloatArray, support: Support, numbers: NDArray[np.integer] | None = None
) -> None:
    """Raise ValueError for targets outside the user's bounds, naming the first.

    ``numbers`` are the row numbers of the targets, if these are some of more rows.
    """
    low, high = support.bounds
    numbers = np.arange(len(y)) if numbers is None else numbers
    for word, end, wrong in (("below", low, y < low), ("above", high, y > high)):
        if wrong.any():
            first = np.flatnonzero(wrong)[np.argmin(numbers[wrong])]
            shown = tuple(None if e is None else round(e, 12) for e in (support.low, support.high))
            shown = tuple(int(e) if e is not None and e == int(e) else e for e in shown)
            more = f", and {wrong.sum() - 1:,} more" if wrong.sum() > 1 else ""
            raise ValueError(
                f"bounds={shown}: y must not be {word} {digits(end)}, got {digits(y[first])} "
                f"in row {numbers[first]} (from 0){more}"
            )


def _lattice(y: FloatArray) -> Support:
    """Lattice on which the targets lie, if its values repeat often enough."""
    distinct = np.unique(y)
    if len(y) < MIN_ROWS or len(distinct) < 2 or len(distinct) * REPEATS > len(y):
        return Support()
    largest = np.abs(distinct).max()
    if largest > MAX_PLACES:
        return Support()
    for decimals in range(MAX_DECIMALS + 1):
        if largest * 10.0**decimals > MAX_PLACES:
            break
        if (np.round(distinct, decimals) == distinct).all():
            units = np.rint(distinct * 10.0**decimals).astype(np.int64)
            step, origin = np.gcd.reduce(np.diff(units)), units[0]
            support = Support(
                step=float(step / 10.0**decimals),
                origin=float((origin % step) / 10.0**decimals),
                decimals=decimals,
            )
            return support if support.holds(distinct).all() else Support()
    single = distinct.astype(np.float32)
    return _single_lattice(single) if (single == distinct).all() else _any_lattice(distinct)


def _single_lattice(distinct: NDArray[np.float32]) -> Support:
    """Lattice of numbers that are decimal in single precision, but not in double."""
    exact = distinct.astype(np.float64)
    for decimals in range(1, MAX_DECIMALS + 1):
        if (np.round(exact, decimals).astype(np.float32) == distinct).all():
            units = np.rint(exact * 10.0**decimals).astype(np.int64)
            step = np.gcd.reduce(np.diff(units))
            if (units[-1] - units[0]) // step >= _max_values(len(distinct)):
                return Support()
            values = np.arange(units[0], units[-1] + 1, step) / 10.0**decimals
            values = values.astype(np.float32).astype(np.float64)
            size = float(step / 10.0**decimals)
            places = values[0] + size * np.arange(len(values))
            if np.abs(values - places).max() > CLOSE_SINGLE * size:
                return Support()
            return Support(step=size, origin=float(values[0]), values=tuple(values.tolist()))
    return _any_lattice(exact)


def _max_values(seen: int) -> int:
    """Largest number of steps of a lattice that is not decimal in double precision."""
    return min(MAX_VALUES, max(GAPS * seen, MAX_GRADES))


def _any_lattice(distinct: FloatArray) -> Support:
    """Lattice of ascending values that are not decimal numbers, such as standardised grades."""
    gaps, span = np.diff(distinct), distinct[-1] - distinct[0]
    step = gaps.min()
    for gap in gaps:  # Euclid's algorithm, for numbers that are inexact in their last bits
        remainder = gap
        while remainder > CLOSE * gaps.min():
            step, remainder = remainder, step % remainder
            remainder = min(remainder, abs(step - remainder))
    steps = round(span / step)
    if steps >= _max_values(len(distinct)):
        return Support()
    step = span / steps
    places = np.rint((distinct - distinct[0]) / step).astype(int)
    values = distinct[0] + step * np.arange(steps + 1)
    if np.abs(values[places] - distinct).max() > CLOSE * step:
        return Support()
    values[places] = distinct
    return Support(step=float(step), origin=float(distinct[0]), values=tuple(values.tolist()))


def _is_atom(y: FloatArray, lattice: bool) -> bool:
    """Whether the smallest value is a bound, where values are censored or a scale begins."""
    counts = np.unique(y, return_counts=True)[1]
    rows = counts[0]
    if rows < max(ATOM_ROWS, ATOM_FRACTION * len(y)):
        return False
    if lattice and len(counts) <= MAX_GRADES:  # a rating scale, unlike counts with a thinning tail
        return bool(rows >= 0.5 * counts.mean() or rows >= 5 * ATOM_FRACTION * len(y))
    return bool(rows >= STANDS_OUT * counts[1 : NEIGHBOURS + 1].mean())


def with_atoms(support: Support, y: FloatArray) -> Support:
    """Add the values that many targets have among others that differ, such as a profit of 0."""
    if support.step or len(y) < MIN_ROWS:
        return support
    values, counts = np.unique(y, return_counts=True)
    heavy = counts >= max(ATOM_ROWS, HEAVY * len(y))
    low, high = support.bounds
    found = []
    for place in np.flatnonzero(heavy & (values > low) & (values < high)).tolist():
        near = slice(max(place - NEIGHBOURS, 0), place + NEIGHBOURS + 1)
        others = counts[near][~heavy[near]]
        if others.size and counts[place] >= STANDS_OUT * others.mean():
            found.append(float(values[place]))
    return replace(support, atoms=tuple(found))


def match_atoms(
    support: Support, dist: Distribution, y: FloatArray, weights: FloatArray | None = None
) -> Support:
    """Move the edges of heavy atoms so that predictions have the same mass there as targets.

    On average over rows, the mass of the latent distribution up to each edge becomes the fraction
    of targets there; the same is done at the deciles of the targets. Values that no target has are
    no atoms. Predictions are by networks that were not trained on the rows, and ``support`` has no
    knots.
    """
    weights = np.ones(len(y)) if weights is None else weights
    values = np.unique(y)
    cumulative = np.cumsum(np.bincount(np.searchsorted(values, y), weights)) / weights.sum()
    mass = np.diff(cumulative, prepend=0.0)
    atoms = np.isin(values, support.atoms)
    support = replace(support, atoms=tuple(values[atoms].tolist()))
    heavy = atoms | (mass >= HEAVY_BOUND) & np.isin(values, support.ends)
    heavy = mass >= HEAVY if support.step else heavy
    if len(values) < 2 or not heavy.any():
        return support
    ends = heavy.copy()  # the values up to whose upper edge the mass is matched
    ends[np.searchsorted(cumulative, np.arange(1, 10) / 10)] = True
    edges = _lattice_edges if support.step else _atom_edges
    observed, levels = edges(support, values, cumulative, heavy, ends)
    outer = 1 / (len(y) + 1)  # probability of a new target beyond all of these
    latent = _pooled_quantiles(dist, np.clip(levels, outer, 1 - outer), weights)
    span = np.ptp(y)
    if observed[0] == observed[1]:  # a knot below, so that the atom is not the first
        latent, observed = (np.append(part[0] - span, part) for part in (latent, observed))
    shift = RISE * span * np.arange(len(latent))
    latent = np.maximum.accumulate(latent - shift) + shift
    return replace(support, latent=tuple(latent.tolist()), observed=tuple(observed.tolist()))


def _atom_edges(
    support: Support, values: FloatArray, cumulative: FloatArray, heavy: BoolArray, ends: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Edges of values, two of a heavy one, and the fraction of targets up to each."""
    ends = heavy | ends & (cumulative < 1)
    observed = np.append(values[heavy], values[ends])
    levels = np.append(np.append(0.0, cumulative)[:-1][heavy], cumulative[ends])
    order = np.lexsort((levels, observed))
    return observed[order], levels[order]


def _lattice_edges(
    support: Support, values: FloatArray, cumulative: FloatArray, heavy: BoolArray, ends: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Edges of cells, both of a heavy value, and the fraction of targets up to each."""
    places = np.rint((values - support.origin) / support.step)
    edges = np.unique(np.append(places[heavy] - 1, places[ends]))
    levels = np.append(0.0, cumulative)[np.searchsorted(places, edges, side="right")]
    return support.origin + (edges + 0.5) * support.step, levels


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
