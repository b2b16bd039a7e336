"""Validation of a stored calibration before it is restored."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._schema import array_of, refuse, within

_MAX_SCORE = 1e100  # see ``calipers.distributions``
_MIN_STEP = 1e-13  # between levels of knots, since rows lighter than 1e-12 of the total are dropped


def check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that cannot be those of a ``Calibration``."""
    shape = array_of(arrays, "scores", "f").shape
    if len(shape) != 1 or not shape[0]:
        refuse("array 'scores'", "a list of at least one score", shape)
    scores, mass, share = (array_of(arrays, n, "f", shape) for n in ("scores", "mass", "share"))
    total, slope = (array_of(arrays, n, "f", ()) for n in ("total_weight", "tail_slope"))
    rows = int(array_of(arrays, "n_rows", "iu", ()))
    strict = bool(array_of(arrays, "strict", "b", ()))
    within("scores", scores, -_MAX_SCORE, _MAX_SCORE)
    within("tail_slope", slope, 1e-150, 1e150)
    if not rows:
        if shape != (1,):
            refuse("array 'scores'", "a single score where n_rows is 0", shape)
        within("total_weight", total, 0.0, 0.0)
        within("mass", mass, 0.0, 0.0)
        return
    within("total_weight", total, 1e-300, 1e300)
    within("n_rows", np.asarray(rows), 1, 2.0**53)
    for name in ("n_effective", "n_independent"):  # absent from older model folders
        if name in arrays:
            within(name, array_of(arrays, name, "f", ()), 0.5, rows)
    if (np.diff(scores) < 0).any():
        refuse("array 'scores'", "in ascending order", scores)
    lower, upper = (share == 1.0).sum(), (share == 0.0).sum()
    expected = [1.0, 0.5, 0.0] if strict else [0.5]
    sizes = [lower, 1, upper] if strict else [shape[0]]
    if sum(sizes) != shape[0] or not np.array_equal(share, np.repeat(expected, sizes)):
        refuse("array 'share'", f"of the values {expected} in this order", share)
    level = mass / total
    halves = [level[:lower], level[lower + 1 :]] if strict else [level]
    ends = (-1.0, 2.0) if strict else (0.0, 1.0)
    for levels in halves:
        if (np.diff(levels, prepend=ends[0], append=ends[1]) < _MIN_STEP).any():
            refuse("array 'mass'", "ascending, from 0 to the total weight", mass)
    within("mass", level, 0.0, 1.0 + 1e-9)
