"""How much calibration rows are worth, which decides what coverage they support."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers import _checks as checks
from calipers._checks import FloatArray

# 1 - 0.9 is a little less than 0.1: levels this close to a limit count as being on it.
ROUNDING = 1e-9


def rows_needed(coverage: float) -> int:
    """Count the rows of equal weight that a central interval of this coverage takes.

    >>> rows_needed(0.95)
    39
    """
    alpha = 1.0 - float(checks.coverage(coverage))
    return math.ceil(2.0 / alpha * (1.0 - ROUNDING) - 1.0)


def effective_number(weights: FloatArray, units: ArrayLike | None = None) -> float:
    r"""Number of independent rows of equal weight that some rows are worth.

    Kish's effective size, :math:`(\sum_u W_u)^2 / \sum_u W_u^2`, over units u of total weight
    :math:`W_u`. A unit is what is independent of the others: a group of rows that belong together,
    or a row that was scored several times. So groups count as groups however many rows they have.

    >>> effective_number(np.ones(6)), effective_number(np.ones(6), [0, 0, 0, 1, 1, 1])
    (6.0, 2.0)
    >>> round(effective_number(np.array([9.0, 1.0])), 2)
    1.22
    """
    share = weights / weights.max()
    if units is not None:
        labels = np.asarray(units)
        if labels.shape != weights.shape:
            raise ValueError(
                f"units must be one label per score, shape {weights.shape}, got {labels.shape}"
            )
        share = np.bincount(np.unique(labels, return_inverse=True)[1], share)
    number = float(share.sum() ** 2 / (share**2).sum())
    whole = round(number)  # equal weights are worth their number, whatever rounding does
    return float(whole) if abs(number - whole) <= 1e-9 * whole else number


def independent_number(scores: FloatArray, weights: FloatArray, units: ArrayLike) -> float:
    r"""Number of independent rows that scores are worth, as far as their quantiles go.

    Kish's effective size of the rows over the design effect :math:`1 + (m - 1) \rho` (Kish, 1965),
    where m is what units have of rows on average, and :math:`\rho` the correlation of two scores of
    a unit: of the scores or of their absolute values, whichever is larger, since units may differ
    by where they are or by how far they scatter. It lies between the number of units, if scores of
    a unit are all the same, and that of rows, if they have nothing in common.

    >>> units, one = np.repeat(np.arange(50), 4), np.ones(200)
    >>> rng = np.random.default_rng(0)
    >>> round(independent_number(rng.standard_normal(200), one, units))
    172
    >>> round(independent_number(rng.standard_normal(50)[units], one, units))
    50
    """
    groups, rows = effective_number(weights, units), effective_number(weights)
    place = np.unique(np.asarray(units), return_inverse=True)[1]
    size = np.bincount(place).astype(np.float64)
    if not 1 < len(size) < len(place):
        return groups
    common = 0.0
    for values in (scores, np.abs(scores)):
        each = np.atleast_2d(values)
        parts = [_variances(part - part.mean(), place, size) for part in map(_drawn_in, each)]
        between, within = np.mean(parts, axis=0)
        common = max(common, between / max(between + within, 1e-300))
    return float(np.clip(rows / (1.0 + (rows / groups - 1.0) * common), groups, rows))


def _drawn_in(values: FloatArray) -> FloatArray:
    """Values with those far out at the end of what is ordinary, so that no single one decides."""
    middle = np.median(values)
    reach = 6.0 * float(np.median(np.abs(values - middle))) / 0.6745
    return np.clip(values, middle - reach, middle + reach) if reach else values


def _variances(values: FloatArray, place: NDArray[np.intp], size: FloatArray) -> FloatArray:
    """Variance between and within units, by the analysis of variance of one factor."""
    n, units = len(values), len(size)
    explained = float((np.bincount(place, values) ** 2 / size).sum())
    within = ((values**2).sum() - explained) / (n - units)
    rows = (n - (size**2).sum() / n) / (units - 1)
    return np.array([max(explained / (units - 1) - within, 0.0) / rows, within])


def worth(calibration: Any) -> str:
    """What the rows of a calibration are worth, where that is less than their number, in words."""
    number = getattr(calibration, "n_effective", calibration.n_rows)
    if number >= calibration.n_rows - 0.5:
        return ""
    return f" and worth {number:.4g} independent ones"
