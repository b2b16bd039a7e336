r"""Out-of-fold predictions, and simulated pools of networks none of which was trained on a row.

In cross-fitting, a row is predicted by the r networks trained without its fold, while a new row is
predicted by the pool of all m = K r networks. The mean of the pool is more accurate than the mean
of r networks and its mixture is wider, so that intervals from plain out-of-fold scores would cover
too often.

Model, for a row: the mean of network j of fold k is the truth plus an error that all networks
share, plus :math:`\omega u_k`, plus :math:`\tau u_{kj}`, with independent standard normal u. The
error of the fold's mean is then the noise, which is the error of a pool of any size, plus a
component of variance :math:`M = \omega^2 + \tau^2 / r`. So:

1. :math:`\tau^2` of each row is estimated from the networks that were not trained on it, with r - 1
   degrees of freedom, and from those that were. The latter are scaled to agree with the former over
   all rows, since training on a row makes networks differ less. The estimates are shrunk towards a
   constant multiple of the predicted variance, the more so the less the multiple varies over rows.
   :math:`M / \tau^2`, a single number, is estimated from the folds that were trained on each row:
   training on a row makes networks differ less, but hardly changes the ratio of the variance
   between folds to that within.
2. The noise is the error of the fold's mean with the second component removed by deconvolution
   (`deconvolved`). If an input of these rows is less accurate than that of new rows, the part of
   the squared error due to it, the surplus, is taken off the noise of each row by a factor. The
   predicted scales of a fold also have errors that a pool averages out; the variance of their
   logarithms is that among the r networks.
3. A pool is drawn around the target: K r networks whose means deviate from it by the noise and by
   newly drawn :math:`\omega u_k + \tau u_{kj}`, with scales that vary like those of the fold.

Over rows, the scores and widths of the drawn pools are distributed like those of the pool for new
rows. With one network per fold the disagreement cannot be estimated, and no pool can be drawn.

Networks with several components disagree in the weights of their modes rather than in location. If
whole networks were moved to other means, the pools would be too sharp in the middle, so that the
scores of moved networks are not used. Instead, the model above is applied to the target's normal
score in each network, in place of its distance from the mean in predicted standard deviations: the
level of a target in a pool is the mean of its levels in the networks, whatever their shapes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import polygamma

from calipers import _checks as checks
from calipers._arrays import BoolArray, FloatArray, IntArray
from calipers.calibration._calibrated import normal_scores
from calipers.calibration._deconvolution import mean_square, noise_of
from calipers.distributions import SplitNormal, SplitNormalMixture

# Variances below this fraction of the mean count as zero.
NEGLIGIBLE = 1e-12
# Upper limits of the ratio of the variance between folds to that within, and of disagreement and of
# the surplus as fractions of the squared errors.
MAX_RATIO, MAX_FRACTION = 2.0, 0.75
# Upper limit of the degrees of freedom of the mean over rows, as a prior of a row's disagreement.
MAX_PRIOR_FREEDOM = 15.0
# Upper limit of the variance of the logarithms of scales.
MAX_SCALE_VARIANCE = 1.0
# Scores of single networks are clipped to this in the model; the excess is added back afterwards.
MAX_SCORE = 5.0
# At least this many pools are drawn, but at most MAX_DRAWS for each row.
MIN_POOLS, MAX_DRAWS = 4000, 8


class Folds(NamedTuple):
    """Networks sorted by the fold they were trained without, and the fold of each row."""

    order: IntArray  # (networks,): sorts networks by fold
    row_fold: IntArray  # (n,): number of each row's fold
    n_folds: int
    per_fold: int  # networks

    def grouped(self, values: FloatArray) -> FloatArray:
        """Values of shape (members, n) as (folds, members per fold, n)."""
        each = len(values) // len(self.order)
        order = (self.order[:, None] * each + np.arange(each)).ravel()
        return values[order].reshape(self.n_folds, self.per_fold * each, -1)

    def out_of_fold(self, values: FloatArray) -> FloatArray:
        """Values of the networks not trained on each row, of shape (members per fold, n)."""
        return self.grouped(values)[self.row_fold, :, np.arange(self.row_fold.size)].T


def out_of_fold(
    components: SplitNormal | SplitNormalMixture, network_folds: ArrayLike, row_folds: ArrayLike
) -> SplitNormalMixture:
    """Mixture, for each row, of the networks that were trained without the row's fold.

    ``components`` holds the prediction of every network for every row: a split normal of shape
    (networks, n), or a mixture of shape (n,) where networks predict several components. Every fold
    must have the same number of networks.

    Examples
    --------
    >>> components = SplitNormal([[0.0, 1.0], [2.0, 3.0]], 1.0, 1.0)
    >>> out_of_fold(components, network_folds=[0, 1], row_folds=[1, 0]).mean
    array([2., 1.])
    """
    mixture = as_mixture(components)
    return held_out_networks(mixture, folds_of(mixture, network_folds, row_folds))


def as_mixture(components: SplitNormal | SplitNormalMixture) -> SplitNormalMixture:
    """A split normal per network as a mixture; a mixture is returned unchanged."""
    if isinstance(components, SplitNormalMixture):
        return components
    return SplitNormalMixture(components)


def held_out_networks(mixture: SplitNormalMixture, folds: Folds) -> SplitNormalMixture:
    """Mixture of the networks that were trained without each row's fold."""
    components, weights = mixture.components, mixture.weights
    parts = (components.loc, components.left_scale, components.right_scale)
    out_of_fold_weights = None
    if weights.ndim > 1 or np.any(weights != weights[0]):
        weights = weights if weights.ndim > 1 else weights[:, None]
        out_of_fold_weights = folds.out_of_fold(np.broadcast_to(weights, components.shape))
    return SplitNormalMixture(
        SplitNormal(*(folds.out_of_fold(part) for part in parts)),
        out_of_fold_weights,
        per_network=mixture.per_network,
    )


def folds_of(mixture: SplitNormalMixture, network_folds: ArrayLike, row_folds: ArrayLike) -> Folds:
    """Check the folds of networks and rows, and sort the networks by fold."""
    of_networks, of_rows = np.asarray(network_folds), np.asarray(row_folds)
    shape = (len(mixture.components) // mixture.per_network, *mixture.shape)
    if (*of_networks.shape, *of_rows.shape) != shape or len(shape) != 2:
        raise ValueError(
            f"network_folds and row_folds must fit components of shape {shape}, "
            f"got {of_networks.shape} and {of_rows.shape}"
        )
    names, counts = np.unique(of_networks, return_counts=True)
    if counts.min() != counts.max():
        raise ValueError(f"every fold must have the same number of networks, got {counts.tolist()}")
    unknown = np.setdiff1d(of_rows, names)
    if unknown.size:
        raise ValueError(f"no network was trained without fold {unknown[0]!r} of row_folds")
    order = np.argsort(of_networks, kind="stable")
    return Folds(order, np.searchsorted(names, of_rows), len(names), int(counts[0]))


class UnseenPools(NamedTuple):
    """Pools drawn for rows."""

    dist: SplitNormalMixture  #: (draws * n,): The pools.
    row: IntArray  #: (draws * n,): The row for which each pool is drawn.
    scores: FloatArray  #: (draws * n,): Normal scores of the rows' targets.


def unseen_pools(
    components: SplitNormal | SplitNormalMixture,
    y: ArrayLike,
    network_folds: ArrayLike,
    row_folds: ArrayLike,
    surplus: ArrayLike | None = None,
) -> UnseenPools:
    """Draw pools of networks none of which was trained on the row, like the pool for a new row.

    ``components`` holds the prediction of every network for every row, including rows it was
    trained on: a split normal of shape (networks, n), or a mixture of shape (n,). At least two
    folds are needed, with the same number of networks each, at least two. One pool is drawn per
    row, or several if there are few rows; the same arguments give the same pools.

    ``surplus`` is a variance by which the error of each row's points exceeds that of a new row,
    since they had a worse input.

    The module docstring describes the method. It assumes that the errors of networks are
    independent given the error they share, and, with two folds, that folds differ by their networks
    alone. The result holds on average over rows and is not guaranteed.
    """
    mixture = as_mixture(components)
    folds = folds_of(mixture, network_folds, row_folds)
    if folds.n_folds < 2 or folds.per_fold < 2:
        raise ValueError(
            "pools need at least 2 folds of at least 2 networks, got "
            f"{folds.n_folds} of {folds.per_fold}; use normal_scores of out_of_fold(...) instead"
        )
    target = checks.finite("y", y)
    surplus = np.zeros(target.size) if surplus is None else checks.finite("surplus", surplus)
    checks.require_same_shape({"y": target, "surplus": surplus})
    dist, row = _draw_pools(mixture, target, folds, surplus)
    if mixture.per_network == 1:
        return UnseenPools(dist, row, normal_scores(dist, target[row]))
    out_of_fold = normal_scores(held_out_networks(mixture, folds), target)
    excess = out_of_fold - np.clip(out_of_fold, -MAX_SCORE, MAX_SCORE)
    by_network = normal_scores(as_mixture(mixture.by_network), target)
    by_network = np.clip(by_network, -MAX_SCORE, MAX_SCORE)
    zeros = np.zeros(target.size)
    score_mixture = SplitNormalMixture(SplitNormal(-by_network, 1.0, 1.0))
    variance = held_out_networks(mixture, folds).by_network.var.mean(axis=0)
    relative = np.divide(surplus, variance, out=np.zeros(target.size), where=variance > 0)
    score_pools, score_row = _draw_pools(score_mixture, zeros, folds, relative)
    if row.size < score_row.size:  # all networks predict the same, so that no pools were drawn
        dist = dist[score_row]
    scores = normal_scores(score_pools, zeros[score_row]) + excess[score_row]
    return UnseenPools(dist, score_row, scores)


def _draw_pools(
    mixture: SplitNormalMixture, target: FloatArray, folds: Folds, surplus: FloatArray
) -> tuple[SplitNormalMixture, IntArray]:
    """Pools drawn around targets, and the row of each."""
    held_out = held_out_networks(mixture, folds)
    networks, means = held_out.by_network, mixture.by_network.mean
    unit = networks.var.mean(axis=0)
    unit = np.maximum(unit, NEGLIGIBLE * (unit + networks.mean.var(axis=0)).mean())
    if not unit.min() > 0:
        return held_out, np.arange(target.size)
    error = target - networks.mean.mean(axis=0)
    trained = np.arange(folds.n_folds)[:, None] != folds.row_fold
    grouped = folds.grouped(means)
    within = (trained * grouped.var(axis=1, ddof=1)).sum(axis=0) / (folds.n_folds - 1)
    tau2 = _disagreement(within, networks.mean, folds, unit)
    mean_tau2 = max((tau2 / unit).mean(), NEGLIGIBLE)
    size = mean_square(error / np.sqrt(unit))
    limit = MAX_FRACTION * size / mean_tau2
    ratio = min(_fold_ratio(grouped.mean(axis=1), trained, within, folds, unit), limit)
    ratio = max(ratio, 1.0 / folds.per_fold)
    logs = np.log(np.maximum(networks.std, np.finfo(float).tiny))
    phi2 = min(float(logs.var(axis=0, ddof=1).mean()), MAX_SCALE_VARIANCE)
    relative = phi2 / folds.per_fold * (1.0 - 1.0 / folds.n_folds)
    noise = noise_of(error, min(ratio, limit) * tau2, unit, tau2, relative)
    removed = surplus / np.maximum(size * unit, np.finfo(float).tiny)
    noise = noise * np.sqrt(1.0 - np.minimum(removed, MAX_FRACTION))
    draws = int(np.clip(-(-MIN_POOLS // target.size), 1, MAX_DRAWS))
    row = np.tile(np.arange(target.size), draws)
    rng = np.random.default_rng(0)  # part of the method: the same rows give the same pools
    between = np.sqrt(np.maximum(ratio - 1.0 / folds.per_fold, 0.0))
    deviation = rng.standard_normal((folds.n_folds, folds.per_fold, row.size))
    deviation += between * rng.standard_normal((folds.n_folds, 1, row.size))
    drawn = (target - noise)[row] + np.sqrt(tau2)[row] * deviation.reshape(-1, row.size)
    factor = np.exp((logs.mean(axis=0) - logs)[:, row])
    factor = np.tile(factor, (folds.n_folds, 1))
    factor *= np.exp(np.sqrt(phi2) * rng.standard_normal(factor.shape))
    return _moved(held_out, drawn, factor, row, folds.n_folds), row


def _moved(
    held_out: SplitNormalMixture,
    means: FloatArray,
    factor: FloatArray,
    row: IntArray,
    times: int,
) -> SplitNormalMixture:
    """Networks of the rows ``row``, repeated ``times`` each, moved to ``means`` and rescaled."""
    count, components = held_out.per_network, held_out.components

    def tiled(values: FloatArray) -> FloatArray:
        return np.tile(np.broadcast_to(values, components.shape)[:, row], (times, 1))

    means, factor = (np.repeat(values, count, axis=0) for values in (means, factor))
    off = components.loc - np.repeat(held_out.by_network.mean, count, axis=0)
    left, right = (factor * tiled(s) for s in (components.left_scale, components.right_scale))
    weights = held_out.weights if held_out.weights.ndim > 1 else held_out.weights[:, None]
    return SplitNormalMixture(
        SplitNormal(means + factor * tiled(off), left, right),
        None if count == 1 else tiled(weights),
        per_network=count,
    )


def _disagreement(
    seen: FloatArray, held_out: FloatArray, folds: Folds, unit: FloatArray
) -> FloatArray:
    """Variance, for each row, of the means of networks of a fold that was not trained on it.

    ``seen`` is that of networks of a fold that was.
    """
    unseen = held_out.var(axis=0, ddof=1)
    total = (seen / unit).sum()
    inflation = (unseen / unit).sum() / total if total > 0 else 0.0
    unseen_freedom = folds.per_fold - 1.0
    freedom = unseen_freedom * folds.n_folds
    variance = unseen_freedom * unseen + (freedom - unseen_freedom) * inflation * seen
    variance = variance / freedom
    common = (variance / unit).mean() * unit
    prior = _prior_freedom(variance / unit, freedom)
    return (freedom * variance + prior * common) / (freedom + prior)


def _prior_freedom(ratios: FloatArray, freedom: float) -> float:
    """Degrees of freedom of the prior that shrinks the variance of a row to the mean over rows.

    The variance of the logarithms of estimated variances is that of their estimation plus that of
    the prior, so the prior's is what remains (Smyth, 2004).
    """
    positive = ratios[ratios > NEGLIGIBLE * ratios.mean()]
    if positive.size < 2:
        return MAX_PRIOR_FREEDOM
    prior_variance = float(np.log(positive).var() - polygamma(1, 0.5 * freedom))
    low, high = 0.5, MAX_PRIOR_FREEDOM
    for _ in range(40):
        middle = 0.5 * (low + high)
        if polygamma(1, 0.5 * middle) > prior_variance:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _fold_ratio(
    means: FloatArray, trained: BoolArray, within: FloatArray, folds: Folds, variance: FloatArray
) -> float:
    """Ratio of the variance between folds to that within, over folds trained on each row."""
    least = 1.0 / folds.per_fold
    if folds.n_folds < 3:
        return least
    centre = (means * trained).sum(axis=0) / (folds.n_folds - 1)
    between = (trained * (means - centre) ** 2).sum(axis=0) / (folds.n_folds - 2)
    unit = np.maximum(variance, NEGLIGIBLE * (variance + within).mean())
    if not unit.min() > 0:
        return least
    total = float((within / unit).sum())
    ratio = float((between / unit).sum()) / total if total > 0 else least
    return min(max(ratio, least), MAX_RATIO)
