r"""Scores that the whole ensemble would have had, from the few networks that did not see a row.

In cross-fitting a row is held out of the r networks of its own fold, which predict it, while a new
row is predicted by all m = K r of them. The pool's mean is closer to the truth than the mean of
these r and its mixture wider, so that out-of-fold scores, taken as they are, make intervals that
cover too often.

Model, for a row: a network's mean is the truth plus an error that all networks share, plus
:math:`\omega u_k` for its fold k, plus :math:`\tau u_{kj}` of its own, the u independent with
mean 0 and variance 1. Two steps lead from one network to the pool, and each takes from the expected
squared error what it adds to the variance of the mixture:

- from one network to the r of a fold, :math:`\tau^2 (1 - 1/r)`;
- from these to the pool, :math:`M (1 - 1/K)` with :math:`M = \omega^2 + \tau^2 / r`.

The first step can be watched: rows have scores by single networks and by all of their fold. So the
second is taken to do the same once more, :math:`f = (M / \tau^2) (1 - 1/K) / (1 - 1/r)` times as
much of it, at every quantile q of the scores. What grows by equal amounts is :math:`1 / q^2`, the
mixture's variance in units of the squared error, to first order in what passes from one to the
other:

.. math:: q_{pool}^{-2} = q_r^{-2} + f \, (q_r^{-2} - q_1^{-2})

Quantiles are taken about the median. Those far out tell most of a network that is sure of itself
where it should not be, and are few. So :math:`q_r^2 / (q_1^2 + q_r^2)`, the mean over a fold's
networks, is taken to be a straight line in the normal quantile of the level, fitted with weights by
how well a quantile is known, and of its slope, which a few rows decide, one half.

:math:`M / \tau^2`, one number, comes from the folds that have seen each row: having seen it makes
their differences smaller, but hardly the ratio of those between folds to those within.

With one network per fold there is no first step to watch, and the correction is refused.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from calipers import _checks as checks
from calipers._checks import FloatArray
from calipers.calibration._scores import normal_scores
from calipers.distributions import SplitNormal, SplitNormalMixture

# Variances below this part of the mean count as none.
NEGLIGIBLE = 1e-12
# So much of a slope is believed ...
SLOPE = 0.5
# ... and folds are not believed to differ by more than this times as much as their networks.
LARGEST_RATIO = 2.0


class Folds(NamedTuple):
    """Networks sorted by fold, and each row's own fold."""

    order: NDArray[np.intp]
    own: NDArray[np.intp]
    n_folds: int
    per_fold: int

    def grouped(self, values: FloatArray) -> FloatArray:
        """Values of shape (members, n) as (folds, members per fold, n)."""
        each = len(values) // len(self.order)
        order = (self.order[:, None] * each + np.arange(each)).ravel()
        return values[order].reshape(self.n_folds, self.per_fold * each, -1)

    def out_of_fold(self, values: FloatArray) -> FloatArray:
        """Values of each row's own fold, of shape (members per fold, n)."""
        return self.grouped(values)[self.own, :, np.arange(self.own.size)].T


def out_of_fold(
    components: SplitNormal | SplitNormalMixture, network_folds: ArrayLike, row_folds: ArrayLike
) -> SplitNormalMixture:
    """Mixture, for each row, of those networks that were trained without the row's fold.

    Parameters
    ----------
    components : SplitNormal of shape (networks, n) or SplitNormalMixture of shape (n,)
        What every network predicts for every row: one split normal, or several with weights.
    network_folds : array-like of shape (networks,)
        The fold that each network was trained without; as many networks for each.
    row_folds : array-like of shape (n,)
        The fold that each row is in.

    Raises
    ------
    ValueError
        If shapes do not fit, folds differ in their number of networks, or a row's has none.

    Examples
    --------
    >>> components = SplitNormal([[0.0, 1.0], [2.0, 3.0]], 1.0, 1.0)
    >>> out_of_fold(components, network_folds=[0, 1], row_folds=[1, 0]).mean
    array([2., 1.])
    """
    mixture = _mixture(components)
    return _held_out(mixture, _folds(mixture, network_folds, row_folds))


def pooled_scores(
    components: SplitNormal | SplitNormalMixture,
    y: ArrayLike,
    network_folds: ArrayLike,
    row_folds: ArrayLike,
    *,
    n_jobs: int = 1,
) -> FloatArray:
    """Normal scores of rows, as those of a pool of networks none of which has seen them.

    Parameters
    ----------
    components : SplitNormal of shape (networks, n) or SplitNormalMixture of shape (n,)
        What every network predicts for every row, those that have seen it included.
    y : array-like of shape (n,)
        Targets.
    network_folds : array-like of shape (networks,)
        The fold that each network was trained without; the same number of networks, two or more,
        for each of two or more folds.
    row_folds : array-like of shape (n,)
        The fold that each row is in.
    n_jobs : int
        Number of threads, -1 for all cores.

    Returns
    -------
    array of shape (n,)
        For every row; rows rank as by their out-of-fold scores.

    Raises
    ------
    ValueError
        If shapes do not fit, folds differ in their number of networks, or have fewer than two.

    Notes
    -----
    The module says how. Assumed are errors of the networks that are independent given what they
    share; with two folds, also that folds differ by their networks alone. The result holds on
    average over rows, it is no guarantee.

    Examples
    --------
    Two networks of wildly different opinion are out of fold, ten predict:

    >>> rng = np.random.default_rng(0)
    >>> components = SplitNormal(rng.standard_normal((10, 500)), 1.0, 1.0)
    >>> y, row_folds = rng.standard_normal(500), np.arange(500) % 5
    >>> network_folds = np.repeat(np.arange(5), 2)
    >>> scores = normal_scores(out_of_fold(components, network_folds, row_folds), y)
    >>> pooled = pooled_scores(components, y, network_folds, row_folds)
    >>> round(float(scores.std()), 2), round(float(pooled.std()), 2)
    (1.07, 0.92)
    """
    mixture = _mixture(components)
    folds = _folds(mixture, network_folds, row_folds)
    if folds.n_folds < 2 or folds.per_fold < 2:
        raise ValueError(
            "pooled scores need at least 2 folds of at least 2 networks, got "
            f"{folds.n_folds} of {folds.per_fold}; use normal_scores of out_of_fold(...) instead"
        )
    target = checks.finite("y", y)
    held_out = _held_out(mixture, folds)
    each = held_out.by_network
    alone = SplitNormalMixture(each[None]) if isinstance(each, SplitNormal) else each
    further = _fold_ratio(mixture.by_network.mean, folds, each.var.mean(axis=0))
    further *= (1.0 - 1.0 / folds.n_folds) / (1.0 - 1.0 / folds.per_fold)
    together = normal_scores(held_out, target, n_jobs)
    return _extrapolated(normal_scores(alone, target, n_jobs), together, further)


def _mixture(components: SplitNormal | SplitNormalMixture) -> SplitNormalMixture:
    """Networks of one split normal each as a mixture; a mixture as it is."""
    if isinstance(components, SplitNormalMixture):
        return components
    return SplitNormalMixture(components)


def _held_out(mixture: SplitNormalMixture, folds: Folds) -> SplitNormalMixture:
    """Mixture of the networks of each row's own fold."""
    components, weights = mixture.components, mixture.weights
    parts = (components.loc, components.left_scale, components.right_scale)
    own = None
    if weights.ndim > 1 or np.any(weights != weights[0]):
        wide = weights if weights.ndim > 1 else weights[:, None]
        own = folds.out_of_fold(np.broadcast_to(wide, components.shape))
    return SplitNormalMixture(
        SplitNormal(*(folds.out_of_fold(part) for part in parts)),
        own,
        per_network=mixture.per_network,
    )


def _extrapolated(alone: FloatArray, together: FloatArray, further: float) -> FloatArray:
    """Scores as they would be `further` times the way on from `alone`, in rows, to `together`."""
    n = together.size
    level = np.arange(1, n + 1) / (n + 1)
    depth = np.abs(ndtri(level))
    order = np.argsort(together, kind="stable")
    median = np.median(together)
    own = together[order] - median
    before = np.sort(alone, axis=1) - np.median(alone, axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = 1.0 / (1.0 + (before / own) ** 2)
    shares[np.isnan(shares)] = 0.5  # both are at their medians
    line = _line(depth, shares.mean(axis=0), _certainty(level, depth))
    share = np.clip(line, 0.0, 0.5)
    scores = np.empty(n)
    growth = 1.0 + further * (1.0 - 2.0 * share) / (1.0 - share)  # of one over the square
    scores[order] = median + np.sort(own / np.sqrt(growth))
    return scores


def _certainty(level: FloatArray, depth: FloatArray) -> FloatArray:
    """One over the relative variance of a normal sample's quantiles, but for a factor."""
    density = np.exp(-0.5 * depth**2)
    return (depth * density) ** 2 / (level * (1.0 - level))


def _line(x: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
    """Straight line through points with half its slope, or none where there are too few."""
    total = max(weight.sum(), np.finfo(float).tiny)
    centre, height = (weight * x).sum() / total, (weight * y).sum() / total
    spread = (weight * (x - centre) ** 2).sum()
    slope = (weight * (x - centre) * y).sum() / spread if spread > NEGLIGIBLE * total else 0.0
    return height + SLOPE * slope * (x - centre)


def _folds(mixture: SplitNormalMixture, network_folds: ArrayLike, row_folds: ArrayLike) -> Folds:
    of_networks, of_rows = np.asarray(network_folds), np.asarray(row_folds)
    shape = (len(mixture.components) // mixture.per_network, *mixture.shape)
    if (*of_networks.shape, *of_rows.shape) != shape or len(shape) != 2:
        raise ValueError(
            f"network_folds and row_folds must fit components of shape {shape}, "
            f"got {of_networks.shape} and {of_rows.shape}"
        )
    names, counts = np.unique(of_networks, return_counts=True)
    if counts.min() != counts.max():
        raise ValueError(f"every fold must have as many networks, got {counts.tolist()}")
    strange = np.setdiff1d(of_rows, names)
    if strange.size:
        raise ValueError(f"no network was trained without fold {strange[0]!r} of row_folds")
    order = np.argsort(of_networks, kind="stable")
    return Folds(order, np.searchsorted(names, of_rows), len(names), int(counts[0]))


def _fold_ratio(network_means: FloatArray, folds: Folds, variance: FloatArray) -> float:
    """Variance between the means of folds over that within folds, of folds that saw each row."""
    least = 1.0 / folds.per_fold
    if folds.n_folds < 3:
        return least
    grouped = folds.grouped(network_means)
    seen = np.arange(folds.n_folds)[:, None] != folds.own
    means = grouped.mean(axis=1)
    centre = (means * seen).sum(axis=0) / (folds.n_folds - 1)
    between = (seen * (means - centre) ** 2).sum(axis=0) / (folds.n_folds - 2)
    within = (seen * grouped.var(axis=1, ddof=1)).sum(axis=0) / (folds.n_folds - 1)
    unit = np.maximum(variance, NEGLIGIBLE * (variance + within).mean())
    if not unit.min() > 0:
        return least
    total = float((within / unit).sum())
    ratio = float((between / unit).sum()) / total if total > 0 else least
    return min(max(ratio, least), LARGEST_RATIO)
