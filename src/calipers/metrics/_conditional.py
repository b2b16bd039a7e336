"""Conditional coverage: marginal coverage can be right while it is wrong in every group."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import FloatArray
from calipers.metrics._weighted import interval_rows, weighted_average

_GRID = 2.0**20  # parts of a mean weight in which slabs are searched


class GroupedCoverage(NamedTuple):
    """Coverage and width of the intervals within each group."""

    #: (n_groups,): Sorted labels, bin numbers, or the median value of each bin.
    group: NDArray[Any]
    #: (n_groups,): Fraction of targets inside their interval (PICP), and mean width (MPIW).
    coverage_rate: FloatArray
    mean_width: FloatArray
    #: (n_groups,): Number of rows in each group, which decides how much its rate varies by chance.
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
        Sample weights; they apply to rates and widths, not to ``n_samples``.

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
    """Coverage rate of narrow to wide intervals.

    Intervals are binned by quantiles of their width. Equal widths share a bin, so there may be
    fewer bins than requested.

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    n_bins : int, default 10
        Number of bins, of about equal weight.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights; they apply to quantiles, rates and widths, not to ``n_samples``.

    Returns
    -------
    GroupedCoverage
        One entry for each nonempty bin, from narrow to wide; ``group`` is the bin number, from 0.

    Examples
    --------
    >>> result = coverage_by_width([2, 1, 3, 3], [0, 0, 0, 0], [1, 2, 8, 9], n_bins=2)
    >>> result.mean_width, result.coverage_rate
    (array([1.5, 8.5]), array([0.5, 1. ]))
    """
    weights, target, lower, upper = interval_rows(
        sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper
    )
    bins = quantile_bins(upper - lower, n_bins, weights)
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
    """Coverage rate by bins of an input, a prediction or another value.

    Rows are binned by quantiles of the value. Equal values share a bin, so there may be fewer bins
    than requested.

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    value : array-like of shape (n_samples,)
        Value to bin by, such as an input, the point estimate, or time.
    n_bins : int, default 5
        Number of bins, of about equal weight.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights; they apply to quantiles, rates and widths, not to ``n_samples``.

    Returns
    -------
    GroupedCoverage
        One entry for each nonempty bin; ``group`` is the median of its values.

    Examples
    --------
    >>> result = coverage_by_value([0.5, 0.2, 2, 0.1], [0] * 4, [1] * 4, [10, 20, 30, 40], n_bins=2)
    >>> dict(zip(result.group.tolist(), result.coverage_rate.tolist()))
    {15.0: 1.0, 35.0: 0.5}
    """
    weights, target, lower, upper, values = interval_rows(
        sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper, value=value
    )
    bins = quantile_bins(values, n_bins, weights)
    medians = np.array([np.median(values[bins == i]) if i in bins else 0 for i in range(n_bins)])
    return _grouped(medians, weights, target, lower, upper, bins)


def quantile_bins(
    values: FloatArray, n_bins: int, weights: FloatArray | None = None
) -> NDArray[np.intp]:
    """Bin number of each value; bins have about equal weight, and equal values share a bin."""
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
    """Average over the rows of each label that has any; ``code`` is the index of a row's label."""
    present, code, n_samples = np.unique(code, return_inverse=True, return_counts=True)
    inside = (lower <= target) & (target <= upper)
    total = np.bincount(code, weight)
    return GroupedCoverage(
        group=labels[present.astype(np.intp)],
        coverage_rate=np.bincount(code, weight * inside) / total,
        mean_width=np.bincount(code, weight * (upper - lower)) / total,
        n_samples=n_samples,
    )


def worst_slab_coverage(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    X: ArrayLike,
    *,
    share: float = 0.1,
    n_directions: int = 200,
    random_state: int = 0,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Coverage rate in the slab of inputs where it is lowest.

    A slab holds the rows between two parallel hyperplanes. The slab is selected on one half of the
    rows, over random directions, and its coverage measured on the other half, so that the search
    does not bias the result (Cauchois, Gupta and Duchi, 2021).

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    X : array-like of shape (n_samples, n_features)
        Numeric inputs.
    share : float, default 0.1
        Minimum fraction of the rows in a slab, by weight.
    n_directions : int, default 200
        Number of random directions.
    random_state : int, default 0
        Seed of the directions and of the split into halves.
    sample_weight : array-like of shape (n_samples,), optional
        Sample weights.

    Returns
    -------
    float
        Close to the marginal coverage if no slab is worse.

    Examples
    --------
    >>> X = np.linspace(0, 1, 1000)[:, None]
    >>> y = np.where(X[:, 0] > 0.8, 3.0, 0.0)
    >>> worst_slab_coverage(y, y * 0 - 1, y * 0 + 1, X)
    0.0
    """
    weights, target, lower, upper = interval_rows(
        sample_weight, y_true=y_true, y_lower=y_lower, y_upper=y_upper
    )
    inputs, rows = np.asarray(X, np.float64), np.size(y_true)
    if inputs.ndim != 2 or len(inputs) != rows:
        raise ValueError(f"X must have {rows} rows and two dimensions, got shape {inputs.shape}")
    if sample_weight is not None:
        inputs = inputs[np.ravel(sample_weight) > 0]
    if not 0 < share <= 0.5:
        raise ValueError(f"share must be above 0 and at most 0.5, got {share}")
    inputs = inputs - np.average(inputs, axis=0, weights=weights)
    scale = np.sqrt(np.average(inputs**2, axis=0, weights=weights))
    inputs = inputs / np.where(scale > 0, scale, 1.0)
    inside = (lower <= target) & (target <= upper)
    rng = np.random.default_rng(random_state)
    search = rng.permutation(len(target)) < len(target) // 2  # the other half is for measurement
    directions = rng.standard_normal((n_directions, inputs.shape[1]))
    return _lowest_rate(inputs, directions, inside, weights, search, share)


def _lowest_rate(
    inputs: FloatArray,
    directions: FloatArray,
    inside: NDArray[np.bool_],
    weights: FloatArray,
    search: NDArray[np.bool_],
    share: float,
) -> float:
    """Coverage of the worst slab of the rows in ``search``, measured on the others."""
    rows, relative = np.count_nonzero(search), weights[search]
    if rows:  # sums on the grid are exact, so that equal weights find the slab that none find
        relative = np.round(relative / relative.mean() * _GRID) / _GRID
    worst, result = np.inf, weighted_average(inside[~search], weights[~search])
    for direction in directions:
        projection = inputs @ direction
        order = np.argsort(projection[search])
        ordered = projection[search][order]
        held = np.concatenate([[0.0], np.cumsum(relative[order])])
        covered = np.concatenate([[0.0], np.cumsum((inside[search] * relative)[order])])
        for size in {max(1, int(np.ceil(times * share * rows))) for times in (1, 2, 4)}:
            ends = np.searchsorted(held, held + size)  # of the slab that starts at each row
            starts = np.flatnonzero(ends <= rows)
            ends = ends[starts]
            rates = (covered[ends] - covered[starts]) / (held[ends] - held[starts])
            if rates.size and rates.min() < worst:
                first = int(rates.argmin())
                low, high = ordered[starts[first]], ordered[ends[first] - 1]
                slab = (projection >= low) & (projection <= high) & ~search
                if slab.any():
                    worst = float(rates.min())
                    result = weighted_average(inside[slab], weights[slab])
    return result
