"""Which values a target can take, from those that it has taken.

What is assumed without being told is little, and costs little where it is wrong: new rows that are
exchangeable with n training rows fall outside their range with probability 2 / (n + 1), and no
bound is put inside that range.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calipers._checks import FloatArray
from calipers.distributions._support import Support

Bounds = Sequence[float | None] | str | None

# Rows without which nothing is assumed.
FEWEST = 50
# Rows for each distinct value, on average, from which on values are taken to lie on a lattice.
REPEATS = 5.0
# Digits after the point within which a lattice of decimal numbers is looked for.
MOST_DECIMALS = 6
# Values of any other lattice, at most, and as a multiple of those that have been seen.
MOST_VALUES, GAPS = 1000, 4
# Parts of a step by which values may miss their places on it.
CLOSE, CLOSE_SINGLE = 1e-6, 1e-4  # in double and in single precision
# Rows at an end, and their share, that make it a bound ...
ATOM_ROWS, ATOM_SHARE = 10, 0.01
# ... and how many times as many they are as those of the values next to it.
STANDS_OUT, NEIGHBOURS = 5.0, 20
# Values up to which a lattice may be a scale with a first and a last grade.
MOST_GRADES = 12


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
        first = np.ceil(-found.origin / found.step - CLOSE) if found.step else 0.0
        low = float(found.at(first)) if found.step else 0.0  # no gap of the lattice
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
    single = distinct.astype(np.float32)
    return _single_lattice(single) if (single == distinct).all() else _any_lattice(distinct)


def _single_lattice(distinct: NDArray[np.float32]) -> Support:
    """Lattice of decimal numbers in single precision, which is not theirs in double."""
    exact = distinct.astype(np.float64)
    for decimals in range(1, MOST_DECIMALS + 1):
        if (np.round(exact, decimals).astype(np.float32) == distinct).all():
            units = np.rint(exact * 10.0**decimals).astype(np.int64)
            step = np.gcd.reduce(np.diff(units))
            if (units[-1] - units[0]) // step >= _most_values(len(distinct)):
                return Support()
            values = np.arange(units[0], units[-1] + 1, step) / 10.0**decimals
            values = values.astype(np.float32).astype(np.float64)
            size = float(step / 10.0**decimals)
            places = values[0] + size * np.arange(len(values))
            if np.abs(values - places).max() > CLOSE_SINGLE * size:
                return Support()
            return Support(step=size, origin=float(values[0]), values=tuple(values.tolist()))
    return _any_lattice(exact)


def _most_values(seen: int) -> int:
    """Steps of a lattice that is no decimal one in double precision, at most."""
    return min(MOST_VALUES, max(GAPS * seen, MOST_GRADES))


def _any_lattice(distinct: FloatArray) -> Support:
    """Lattice of rising values that are no decimal numbers, such as standardised grades."""
    gaps, span = np.diff(distinct), distinct[-1] - distinct[0]
    step = gaps.min()
    for gap in gaps:  # the greatest common divisor, of numbers that are off in their last bits
        rest = gap
        while rest > CLOSE * gaps.min():
            step, rest = rest, step % rest
            rest = min(rest, abs(step - rest))
    steps = round(span / step)
    if steps >= _most_values(len(distinct)):
        return Support()
    step = span / steps
    places = np.rint((distinct - distinct[0]) / step).astype(int)
    values = distinct[0] + step * np.arange(steps + 1)
    if np.abs(values[places] - distinct).max() > CLOSE * step:
        return Support()
    values[places] = distinct
    return Support(step=float(step), origin=float(distinct[0]), values=tuple(values.tolist()))


def _is_atom(y: FloatArray, lattice: bool) -> bool:
    """Whether the least value is one at which others have been cut off or begin."""
    counts = np.unique(y, return_counts=True)[1]
    rows = counts[0]
    if rows < max(ATOM_ROWS, ATOM_SHARE * len(y)):
        return False
    if lattice and len(counts) <= MOST_GRADES:  # of a scale, whereas the tail of counts thins out
        return bool(rows >= 0.5 * counts.mean() or rows >= 5 * ATOM_SHARE * len(y))
    return bool(rows >= STANDS_OUT * counts[1 : NEIGHBOURS + 1].mean())
