"""Coverage where it may hide: an average can be right while every group is wrong."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers.metrics._weighted import interval_rows


class GroupedCoverage(NamedTuple):
    """Coverage and width of the intervals within each group."""

    group: NDArray[Any]  #: (n_groups,): Sorted labels, or the numbers of the bins.
    #: (n_groups,): Fraction of targets inside their interval (PICP), and mean width (MPIW).
    coverage_rate: FloatArray
    mean_width: FloatArray
    #: (n_groups,): Rows in each group, which say how far chance may take its rate.
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


def worst_slab_coverage(
    y_true: ArrayLike,
    y_lower: ArrayLike,
    y_upper: ArrayLike,
    X: ArrayLike,
    *,
    share: float = 0.1,
    n_directions: int = 200,
    random_state: int = 0,
) -> float:
    """Coverage rate in the slab of inputs where it is lowest.

    A slab holds the rows between two parallel planes, a share of them all. The slab is found on one
    half of the rows, over random directions, and measured on the other half, so that searching does
    not make it look worse than it is (Cauchois, Gupta and Duchi, 2021).

    Parameters
    ----------
    y_true, y_lower, y_upper : array-like of shape (n_samples,)
        Targets and bounds, in the same unit.
    X : array-like of shape (n_samples, n_features)
        Inputs, as numbers.
    share : float, default 0.1
        Share of the rows in a slab, at least.
    n_directions : int, default 200
        Directions that are tried.
    random_state : int, default 0
        Seeds directions and halves.

    Returns
    -------
    float
        Close to the coverage of all rows if no slab is worse.

    Examples
    --------
    >>> X = np.linspace(0, 1, 1000)[:, None]
    >>> y = np.where(X[:, 0] > 0.8, 3.0, 0.0)
    >>> worst_slab_coverage(y, y * 0 - 1, y * 0 + 1, X)
    0.0
    """
    _, target, lower, upper = interval_rows(None, y_true=y_true, y_lower=y_lower, y_upper=y_upper)
    inputs = np.asarray(X, np.float64)
    if inputs.ndim != 2 or len(inputs) != len(target):
        raise ValueError(f"X must have {len(target)} rows and columns, got {inputs.shape}")
    if not 0 < share <= 0.5:
        raise ValueError(f"share must lie above 0 and up to 0.5, got {share}")
    scale = inputs.std(axis=0)
    inputs = (inputs - inputs.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    inside = (lower <= target) & (target <= upper)
    rng = np.random.default_rng(random_state)
    chosen = rng.permutation(len(target)) < len(target) // 2
    worst, found = np.inf, float(inside[~chosen].mean())
    for direction in rng.standard_normal((n_directions, inputs.shape[1])):
        place = inputs @ direction
        order = np.sort(place[chosen])
        held = np.concatenate([[0], np.cumsum(inside[chosen][np.argsort(place[chosen])])])
        for size in {max(1, int(np.ceil(times * share * len(order)))) for times in (1, 2, 4)}:
            rates = (held[size:] - held[:-size]) / size
            if rates.size and rates.min() < worst:
                start = int(rates.argmin())
                own = (place >= order[start]) & (place <= order[start + size - 1]) & ~chosen
                if own.any():
                    worst, found = float(rates.min()), float(inside[own].mean())
    return found
