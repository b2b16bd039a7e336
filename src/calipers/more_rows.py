"""What more rows would be worth: a learning curve of two points, measured and not guessed.

The share of variance that networks put down to noise says little of what more rows would bring,
since a network that has not learnt a dependence takes it for noise. So the model is fitted again to
a random half of its rows, and the out-of-fold intervals of these rows are compared: by so much they
became narrower from half of the rows to all of them. Learning curves level off, so the next
doubling brings as much at most, as a rule.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from calipers.regressor import IntervalRegressor

__all__ = ["MoreRows", "worth_of_more_rows"]


_DRAWS = 500  # of the rows, for the range of a ratio


@dataclass(frozen=True)
class MoreRows:
    """Ratios of all rows to half of them, below 1 where more rows helped."""

    rows: int  #: Rows that the model was fitted on.
    coverage: float  #: Coverage of the intervals.
    width: float  #: Ratio of mean widths of out-of-fold intervals.
    #: Where it lies with 95% probability, as far as the choice of rows tells.
    width_range: tuple[float, float]
    rmse: float  #: Ratio of root mean squared errors of out-of-fold points.

    def __str__(self) -> str:
        """What to expect of twice the rows, in a sentence.

        >>> str(MoreRows(400, 0.9, 0.92, (0.90, 0.94), 0.95))[:70]
        'From 200 to 400 rows, 90% intervals became 8% narrower (6% to 10%) and'
        >>> str(MoreRows(400, 0.9, 1.0, (0.98, 1.02), 1.0))[35:]
        ' became no narrower beyond chance: expect little of more rows.'
        """
        start = f"From {self.rows // 2:,} to {self.rows:,} rows, {self.coverage:.0%} intervals"
        low, high = self.width_range
        if high >= 1:
            return f"{start} became no narrower beyond chance: expect little of more rows."
        errors = f"{abs(1 - self.rmse):.0%} {'smaller' if self.rmse <= 1 else 'larger'}"
        return (
            f"{start} became {1 - self.width:.0%} narrower ({1 - high:.0%} to {1 - low:.0%}) and "
            f"errors {errors}: expect up to as much again of {2 * self.rows:,}."
        )


def worth_of_more_rows(
    model: IntervalRegressor,
    X: Any,
    y: Any,
    groups: ArrayLike | None = None,
    *,
    coverage: float | None = None,
    random_state: int = 0,
) -> MoreRows:
    """Measure what the second half of the rows was worth, by one more fit to the first.

    Parameters
    ----------
    model : IntervalRegressor
        Fitted in this process with ``cv``, since saved models keep no out-of-fold predictions; left
        as it is.
    X, y, groups : array-like
        What it was fitted on, without weights.
    coverage : float, optional
        Coverage of the intervals; the model's own by default.
    random_state : int
        Draws the half; whole groups where there are any.

    Returns
    -------
    MoreRows
        Its text is a sentence: ``print(worth_of_more_rows(model, X, y))``.

    Raises
    ------
    ValueError
        If the rows are not those of the fit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, (300, 1))
    >>> y = np.sin(3 * X[:, 0]) + rng.normal(0, 0.1, 300)
    >>> model = IntervalRegressor(n_networks=5, epochs=10, random_state=0, verbose=0).fit(X, y)
    >>> worth_of_more_rows(model, X, y).rows
    300
    """
    whole, rng = model.out_of_fold_, np.random.default_rng(random_state)
    if len(y) != len(whole.point):
        raise ValueError(
            f"X, y must be what the model was fitted on, {len(whole.point)} rows, got {len(y)}"
        )
    level = model.coverage if coverage is None else coverage
    labels = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1]
    kinds = rng.permutation(int(labels.max()) + 1)
    half = np.flatnonzero(np.isin(labels, kinds[: (len(kinds) + 1) // 2]))
    part = None if groups is None else np.asarray(groups)[half]
    target = np.asarray(y, dtype=np.float64)[half]
    small = clone(model).set_params(verbose=0, warm_start=False, unsupported="raise")  # no warning
    found = small.fit(_safe_indexing(X, half), target, groups=part).out_of_fold_
    wide, narrow = (np.ptp(b, axis=1) for b in (found.interval(level), whole.interval(level)[half]))
    there = np.isfinite(wide) & np.isfinite(narrow)
    if not there.any():
        raise ValueError(f"half of the rows, {len(half)}, are too few for intervals of {level:g}")
    wide, narrow = wide[there], narrow[there]
    draws = rng.integers(0, len(wide), (_DRAWS, len(wide)))
    ratios = narrow[draws].mean(axis=1) / wide[draws].mean(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    errors = [np.nanmean((p - target) ** 2) for p in (found.point, whole.point[half])]
    return MoreRows(
        len(y),
        level,
        float(narrow.mean() / wide.mean()),
        (float(low), float(high)),
        float(np.sqrt(errors[1] / errors[0])),
    )
