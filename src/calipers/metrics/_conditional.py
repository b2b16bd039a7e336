"""Coverage where it may hide: an average can be right while every group is wrong."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers.metrics._rows import interval_rows


class GroupedCoverage(NamedTuple):
    """Coverage and width of the intervals within each group.

    Attributes
    ----------
    group : ndarray of shape (n_groups,)
        Sorted labels, or the numbers of the bins.
    coverage_rate, mean_width : ndarray of shape (n_groups,)
        Fraction of targets inside their interval (PICP), and mean width (MPIW).
    n_samples : ndarray of shape (n_groups,)
        Rows in each group, which say how far chance may take its rate.
    """

    group: NDArray[Any]
    coverage_rate: FloatArray
    mean_width: FloatArray
    n_samples: NDArray[np.intp]


def coverage_by_group(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    group: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> GroupedCoverage:
    """Coverage rate within groups of rows.

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    group : array-like of shape (n_samples,)
        Label of each row's group: numbers or strings.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights; they weigh rates and widths, not ``n_samples``.

    Returns
    -------
    GroupedCoverage
        One entry for each label that has a row of positive weight.

    Raises
    ------
    ValueError
        Also if labels cannot be sorted.

    Examples
    --------
    >>> result = coverage_by_group([0.5, 2, 0.1], [0, 0, 0], [1, 1, 1], ["a", "a", "b"])
    >>> dict(zip(result.group.tolist(), result.coverage_rate.tolist()))
    {'a': 0.5, 'b': 1.0}
    """
    try:
        labels, codes = np.unique(np.asarray(group), return_inverse=True)
    except TypeError as error:
        raise ValueError(f"group must hold labels of one kind: {error}") from None
    return _grouped(
        labels,
        *interval_rows(sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper, group=codes),
    )


def coverage_by_width(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    *,
    n_bins: int = 10,
    sample_weight: ArrayLike | None = None,
) -> GroupedCoverage:
    """Coverage rate among narrow intervals, wide ones, and those between.

    Intervals are binned by quantiles of their width. Equal widths share a bin, so there may be
    fewer bins than asked for.

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    n_bins : int, default 10
        Bins of about equal weight.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights; they weigh quantiles, rates and widths, not ``n_samples``.

    Returns
    -------
    GroupedCoverage
        One entry for each bin that is not empty, from narrow to wide; ``group`` numbers them
        from 0.

    Examples
    --------
    >>> result = coverage_by_width([2, 1, 3, 3], [0, 0, 0, 0], [1, 2, 8, 9], n_bins=2)
    >>> result.mean_width, result.coverage_rate
    (array([1.5, 8.5]), array([0.5, 1. ]))
    """
    weights, target, lower, upper = interval_rows(
        sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper
    )
    bins = _bins(upper - lower, n_bins, weights)
    return _grouped(np.arange(n_bins), weights, target, lower, upper, bins)


def coverage_by_value(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    value: ArrayLike,
    *,
    n_bins: int = 5,
    sample_weight: ArrayLike | None = None,
) -> GroupedCoverage:
    """Coverage rate where an input, or a prediction, is small, large and between.

    Rows are binned by quantiles of the value. Equal values share a bin, so there may be fewer bins
    than asked for.

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    value : array-like of shape (n_samples,)
        What to bin by: an input, the point estimate, time.
    n_bins : int, default 5
        Bins of about equal weight.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights; they weigh quantiles, rates and widths, not ``n_samples``.

    Returns
    -------
    GroupedCoverage
        One entry for each bin that is not empty; ``group`` is the median of its values.

    Examples
    --------
    >>> result = coverage_by_value([0.5, 0.2, 2, 0.1], [0] * 4, [1] * 4, [10, 20, 30, 40], n_bins=2)
    >>> dict(zip(result.group.tolist(), result.coverage_rate.tolist()))
    {15.0: 1.0, 35.0: 0.5}
    """
    weights, target, lower, upper, values = interval_rows(
        sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper, value=value
    )
    bins = _bins(values, n_bins, weights)
    middle = np.array([np.median(values[bins == i]) if i in bins else 0 for i in range(n_bins)])
    return _grouped(middle, weights, target, lower, upper, bins)


def _bins(values: FloatArray, n_bins: int, weights: FloatArray) -> NDArray[np.intp]:
    """Number of each value's bin; bins have about equal weight, and equal values share one."""
    if not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer, got {n_bins!r}")
    levels = np.arange(1, n_bins) / n_bins
    edges = np.quantile(values, levels, method="inverted_cdf", weights=weights)
    return np.searchsorted(edges, values)


def _grouped(
    labels: NDArray[Any],
    weight: FloatArray,
    target: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    code: NDArray[Any],
) -> GroupedCoverage:
    """Average over the rows of each label that has any; a code is the place of a label."""
    present, code, n_samples = np.unique(code, return_inverse=True, return_counts=True)
    inside = (lower <= target) & (target <= upper)
    total = np.bincount(code, weight)
    return GroupedCoverage(
        group=labels[present.astype(np.intp)],
        coverage_rate=np.bincount(code, weight * inside) / total,
        mean_width=np.bincount(code, weight * (upper - lower)) / total,
        n_samples=n_samples,
    )
