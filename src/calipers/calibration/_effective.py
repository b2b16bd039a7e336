"""Effective sample size of calibration rows, which decides what coverage they support."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers import _checks as checks
from calipers._arrays import FloatArray
from calipers._text import listed

# 1 - 0.9 is a little less than 0.1: levels this close to a limit count as being on it.
ROUNDING = 1e-9


def rows_needed(coverage: float) -> int:
    """Number of rows of equal weight that a central interval of this coverage needs.

    >>> rows_needed(0.95)
    39
    """
    alpha = 1.0 - float(checks.coverage(coverage))
    return math.ceil(2.0 / alpha * (1.0 - ROUNDING) - 1.0)


def effective_number(weights: FloatArray, units: ArrayLike | None = None) -> float:
    r"""Effective sample size: the equivalent number of independent rows of equal weight.

    Kish's effective sample size, :math:`(\sum_u W_u)^2 / \sum_u W_u^2`, over units u of total
    weight :math:`W_u`. Units are independent of each other: each is a group of rows that belong
    together, or a row that was scored several times. So a group counts once, however many rows it
    has.

    >>> effective_number(np.ones(6)), effective_number(np.ones(6), [0, 0, 0, 1, 1, 1])
    (6.0, 2.0)
    >>> round(effective_number(np.array([9.0, 1.0])), 2)
    1.22
    """
    relative = weights / weights.max()
    if units is not None:
        labels = np.asarray(units)
        if labels.shape != weights.shape:
            raise ValueError(
                f"units must be one label per score, shape {weights.shape}, got {labels.shape}"
            )
        relative = np.bincount(np.unique(labels, return_inverse=True)[1], relative)
    number = float(relative.sum() ** 2 / (relative**2).sum())
    whole = round(number)  # equal weights give exactly their number, in spite of rounding errors
    return float(whole) if abs(number - whole) <= 1e-9 * whole else number


def independent_number(scores: FloatArray, weights: FloatArray, units: ArrayLike) -> float:
    r"""Effective sample size of clustered scores, for the estimation of quantiles.

    Kish's effective sample size of the rows over the design effect :math:`1 + (m - 1) \rho` (Kish,
    1965), where m is the mean number of rows per unit and :math:`\rho` the intraclass correlation:
    that of the scores or of their absolute values, whichever is larger, since units may differ in
    location or in scale. The result lies between the number of units, if all scores of a unit are
    the same, and the number of rows, if they are independent.

    >>> units, one = np.repeat(np.arange(50), 4), np.ones(200)
    >>> rng = np.random.default_rng(0)
    >>> round(independent_number(rng.standard_normal(200), one, units))
    172
    >>> round(independent_number(rng.standard_normal(50)[units], one, units))
    50
    """
    groups, rows = effective_number(weights, units), effective_number(weights)
    code = np.unique(np.asarray(units), return_inverse=True)[1]
    size = np.bincount(code).astype(np.float64)
    if not 1 < len(size) < len(code):
        return groups
    correlation = 0.0
    for values in (scores, np.abs(scores)):
        draws = map(_clipped, np.atleast_2d(values))
        between, within = np.mean([_variances(d - d.mean(), code, size) for d in draws], axis=0)
        correlation = max(correlation, between / max(between + within, 1e-300))
    return float(np.clip(rows / (1.0 + (rows / groups - 1.0) * correlation), groups, rows))


def _clipped(values: FloatArray) -> FloatArray:
    """Values clipped to 6 robust standard deviations, so that no single one dominates."""
    median = np.median(values)
    reach = 6.0 * float(np.median(np.abs(values - median))) / 0.6745
    return np.clip(values, median - reach, median + reach) if reach else values


def _variances(values: FloatArray, code: NDArray[np.intp], size: FloatArray) -> FloatArray:
    """Variance between and within units, by one-way analysis of variance."""
    n, units = len(values), len(size)
    explained = float((np.bincount(code, values) ** 2 / size).sum())
    within = ((values**2).sum() - explained) / (n - units)
    rows = (n - (size**2).sum() / n) / (units - 1)
    return np.array([max(explained / (units - 1) - within, 0.0) / rows, within])


class HasRows(Protocol):
    """A calibration or a map, which may have ``n_effective``, the effective sample size."""

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""


class RowCount(NamedTuple):
    """Numbers of a calibration, where only these are known."""

    n_rows: int
    n_effective: float


def effective_rows(calibration: HasRows) -> float:
    """Effective sample size of a calibration; its number of rows if it has no other."""
    return getattr(calibration, "n_effective", calibration.n_rows)


def effective_note(calibration: HasRows) -> str:
    """Effective sample size of a calibration in words; empty if it is the number of rows."""
    number = effective_rows(calibration)
    if number >= calibration.n_rows - 0.5:
        return ""
    return f" (effective sample size {number:.4g})"


def infinite_reason(coverages: Sequence[float], calibration: HasRows) -> str:
    """Why intervals of these coverages are infinite, and which would be finite, in words."""
    which = listed(f"{100 * coverage:.4g}%" for coverage in coverages)
    needed = listed(f"{rows_needed(coverage):,}" for coverage in coverages)
    number = effective_rows(calibration)
    most = math.floor(1000 * (1.0 - 2.0 / (number + 1))) / 10
    return (
        f"intervals of {which} are infinite: it takes {needed} rows to calibrate them, and there "
        f"are {calibration.n_rows:,}{effective_note(calibration)}"
        f"{f'; those of up to {most:g}% are finite' if most > 0 else ''}"
    )
