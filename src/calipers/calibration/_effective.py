"""How much calibration rows are worth, which decides what coverage they support."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calipers._checks import FloatArray


def effective_number(weights: FloatArray, units: ArrayLike | None = None) -> float:
    r"""Number of independent rows of equal weight that some rows are worth.

    Kish's effective size, :math:`(\sum_u W_u)^2 / \sum_u W_u^2`, over units u of total weight
    :math:`W_u`. A unit is what is independent of the others: a group of rows that belong together,
    or a row that was scored several times. So groups count as groups however many rows they have.

    Examples
    --------
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


def worth(calibration: Any) -> str:
    """What the rows of a calibration are worth, where that is less than their number, in words."""
    number = getattr(calibration, "n_effective", calibration.n_rows)
    if number >= calibration.n_rows - 0.5:
        return ""
    return f" and worth {number:.4g} independent ones"
