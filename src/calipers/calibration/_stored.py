"""What stored calibrations must look like, checked before one is made of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._schema import array_of, refuse, within

_FURTHEST = 1e100  # of scores, see ``calipers.distributions``
_LEAST_STEP = 1e-13  # between the levels of knots: lighter rows than 1e-12 of all are left out


def check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that are not those of a ``Calibration``."""
    count = array_of(arrays, "scores", "f").shape
    if len(count) != 1 or not count[0]:
        refuse("array 'scores'", "a list of at least one score", count)
    scores, mass, share = (array_of(arrays, n, "f", count) for n in ("scores", "mass", "share"))
    total, slope = (array_of(arrays, n, "f", ()) for n in ("total_weight", "tail_slope"))
    rows = int(array_of(arrays, "n_rows", "iu", ()))
    strict = bool(array_of(arrays, "strict", "b", ()))
    within("scores", scores, -_FURTHEST, _FURTHEST)
    within("tail_slope", slope, 1e-150, 1e150)
    if not rows:
        if count != (1,):
            refuse("array 'scores'", "of one score without rows", count)
        within("total_weight", total, 0.0, 0.0)
        within("mass", mass, 0.0, 0.0)
        return
    within("total_weight", total, 1e-300, 1e300)
    within("n_rows", np.asarray(rows), 1, 2.0**53)
    for name in ("n_effective", "n_independent"):  # which folders of before lack
        if name in arrays:
            within(name, array_of(arrays, name, "f", ()), 0.5, rows)
    if (np.diff(scores) < 0).any():
        refuse("array 'scores'", "in ascending order", scores)
    lower, upper = (share == 1.0).sum(), (share == 0.0).sum()
    expected = [1.0, 0.5, 0.0] if strict else [0.5]
    sizes = [lower, 1, upper] if strict else [count[0]]
    if sum(sizes) != count[0] or not np.array_equal(share, np.repeat(expected, sizes)):
        refuse("array 'share'", f"of the shares {expected} in this order", share)
    level = mass / total
    parts = [level[:lower], level[lower + 1 :]] if strict else [level]
    for part in parts:
        ends = np.concatenate([[0.0 if not strict else -1.0], part, [1.0 if not strict else 2.0]])
        if (np.diff(ends) < _LEAST_STEP).any():
            refuse("array 'mass'", "ascending, from 0 to the total weight", mass)
    within("mass", level, 0.0, 1.0 + 1e-9)
