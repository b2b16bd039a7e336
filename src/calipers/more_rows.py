"""Estimate what more rows would be worth, by a learning curve of two points.

The aleatoric part of the variance says little about what more rows would bring, since it contains
the effects of the inputs that networks have not learned. So the model is fitted again on a random
half of its rows, and the out-of-fold intervals of these rows are compared: how much narrower did
they become from half of the rows to all of them? Learning curves level off, so the next doubling
usually brings at most as much.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from calipers._estimator.row_checks import checked_target
from calipers.regressor import IntervalRegressor

__all__ = ["MoreRows", "worth_of_more_rows"]


_DRAWS = 500  # bootstrap samples of the rows, for the confidence interval of a ratio


@dataclass(frozen=True)
class MoreRows:
    """Ratios of the results on all rows to those on half of them, below 1 if more rows helped."""

    rows: int  #: Rows that the model was fitted on.
    coverage: float  #: Coverage of the intervals.
    width: float  #: Ratio of mean widths of out-of-fold intervals.
    #: Its 95% bootstrap confidence interval over the rows.
    width_range: tuple[float, float]
    rmse: float  #: Ratio of root mean squared errors of out-of-fold point predictions.

    def __str__(self) -> str:
        """What to expect from twice the rows, in a sentence.

        >>> str(MoreRows(400, 0.9, 0.92, (0.90, 0.94), 0.95))[:70]
        'From 200 to 400 rows, 90% intervals became 8% narrower (6% to 10%) and'
        >>> str(MoreRows(400, 0.9, 1.0, (0.98, 1.02), 1.0))[35:]
        ' did not become significantly narrower: expect little from more rows.'
        """
        start = f"From {self.rows // 2:,} to {self.rows:,} rows, {self.coverage:.0%} intervals"
        low, high = self.width_range
        if high >= 1:
            return f"{start} did not become significantly narrower: expect little from more rows."
        errors = f"{abs(1 - self.rmse):.0%} {'smaller' if self.rmse <= 1 else 'larger'}"
        return (
            f"{start} became {1 - self.width:.0%} narrower ({1 - high:.0%} to {1 - low:.0%}) and "
            f"errors {errors}: expect at most as much again from {2 * self.rows:,}."
        )


def worth_of_more_rows(
    model: IntervalRegressor,
    X: ArrayLike,
    y: Any,
    groups: ArrayLike | None = None,
    *,
    coverage: float | None = None,
    random_state: int = 0,
) -> MoreRows:
    """Measure the benefit of half of the rows, by another fit without them.

    Parameters
    ----------
    model : IntervalRegressor
        Fitted in this process with ``cv``, since saved models keep no out-of-fold predictions; it
        is not changed.
    X, y, groups : array-like
        The data it was fitted on, without weights.
    coverage : float, optional
        Coverage of the intervals; the model's own by default.
    random_state : int
        Seed of the draw of the half, which keeps groups together if there are any.

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
            f"X, y must be the {len(whole.point)} rows that the model was fitted on, got {len(y)}"
        )
    level = model.coverage if coverage is None else coverage
    labels = np.arange(len(y)) if groups is None else np.unique(groups, return_inverse=True)[1]
    shuffled = rng.permutation(int(labels.max()) + 1)
    rows = np.flatnonzero(np.isin(labels, shuffled[: (len(shuffled) + 1) // 2]))
    half_groups = None if groups is None else np.asarray(groups)[rows]
    target = checked_target(X, y)[rows]
    small = clone(model).set_params(verbose=0, warm_start=False, unsupported="raise")  # no warning
    half = small.fit(_safe_indexing(X, rows), target, groups=half_groups).out_of_fold_
    wide, narrow = np.ptp(half.interval(level), axis=1), np.ptp(whole.interval(level)[rows], axis=1)
    finite = np.isfinite(wide) & np.isfinite(narrow)
    if not finite.any():
        raise ValueError(f"half of the rows, {len(rows)}, are too few for intervals of {level:g}")
    wide, narrow = wide[finite], narrow[finite]
    draws = rng.integers(0, len(wide), (_DRAWS, len(wide)))
    ratios = narrow[draws].mean(axis=1) / wide[draws].mean(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    mse_half, mse_whole = (
        np.nanmean((point - target) ** 2) for point in (half.point, whole.point[rows])
    )
    return MoreRows(
        len(y),
        level,
        float(narrow.mean() / wide.mean()),
        (float(low), float(high)),
        float(np.sqrt(mse_whole / mse_half)),
    )
