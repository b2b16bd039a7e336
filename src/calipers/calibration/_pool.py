r"""Pools of networks that have not seen a row, from the few networks that did not see it.

In cross-fitting a row is held out of the r networks of its own fold, which predict it, while a new
row is predicted by all m = K r of them. The pool's mean is closer to the truth than the mean of
these r and its mixture wider, so that out-of-fold scores, taken as they are, make intervals that
cover too often.

Model, for a row: a network's mean is the truth plus an error that all networks share, plus
:math:`\omega u_k` for its fold k, plus :math:`\tau u_{kj}` of its own, the u independent standard
normal. The error of the fold's mean is then what a pool of any size would miss the target by, its
noise, plus a part of variance :math:`M = \omega^2 + \tau^2 / r`. So:

1. :math:`\tau^2` of each row comes from networks that have not seen it, r - 1 degrees of freedom,
   and from those that have, scaled to agree with the first over all rows, since having seen a row
   makes differences smaller; and, so far as rows are alike in it, from the mean over rows in
   proportion to the predicted variance.
   :math:`M / \tau^2`, one number, comes from the folds that have seen each row: having seen it
   makes their differences smaller, but hardly the ratio of those between folds to those within.
2. Noise is the error of the fold's mean without the second part (`deconvolved`). The fold's
   predicted scales, too, have errors that a pool averages out; their logarithms differ by what
   the r networks show.
3. A pool is drawn around the target: K r networks whose means miss it by the noise and by fresh
   :math:`\omega u_k + \tau u_{kj}`, with scales that differ as the fold's do.

Drawn pools have the distribution, over rows, that the pool has for new rows: of their scores, and
of their width. With one network per fold there is no disagreement to see, and none can be drawn.

Networks of several components disagree in the shares of humps rather than in their place. Moved to
other means as wholes, pools would be too sharp in the middle, so that their scores are not used.
There the model is of the target's score in each network, which takes the place of its distance from
the mean in predicted standard deviations: the level of a target in a pool is the mean of its levels
in the networks, whatever their shapes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import polygamma

from calipers import _checks as checks
from calipers._checks import FloatArray
from calipers.calibration._deconvolution import mean_square, noise_of
from calipers.calibration._folds import Folds, as_mixture, folds_of, held_out_networks
from calipers.calibration._scores import normal_scores
from calipers.distributions import SplitNormal, SplitNormalMixture

# Variances below this part of the mean count as none.
NEGLIGIBLE = 1e-12
# Folds are not believed to differ by more than this times as much as their networks, nor is
# disagreement to be more than this share of the squared errors.
LARGEST_RATIO, LARGEST_SHARE = 2.0, 0.75
# Degrees of freedom, at most, that the mean over rows has beside a row's own disagreement.
COMMON = 15.0
# Scales are not believed to differ by more than this, as a variance of logarithms.
LARGEST_SCALE_VARIANCE = 1.0
# Scores of single networks count up to this; what is beyond is left as it is.
FARTHEST = 5.0
# Pools are drawn until there are so many, but at most so many for each row.
ENOUGH, MOST = 4000, 8


class UnseenPools(NamedTuple):
    """Pools drawn for rows."""

    dist: SplitNormalMixture  #: (draws * n,): The pools.
    row: NDArray[np.intp]  #: (draws * n,): The row that each is drawn for.
    scores: FloatArray  #: (draws * n,): Normal scores of the rows' targets.


def unseen_pools(
    components: SplitNormal | SplitNormalMixture,
    y: ArrayLike,
    network_folds: ArrayLike,
    row_folds: ArrayLike,
) -> UnseenPools:
    """Pools of networks none of which has seen the row, as new rows are predicted by.

    Components are what every network predicts for every row, those that have seen it included: a
    split normal of shape (networks, n), or a mixture of shape (n,). There are as many networks, two
    or more, for each of two or more folds. One pool is drawn for each of many rows, several for
    each of few, the same for the same arguments.

    The module says how. Assumed are errors of the networks that are independent given what they
    share; with two folds, also that folds differ by their networks alone. The result holds on
    average over rows, it is no guarantee.
    """
    mixture = as_mixture(components)
    folds = folds_of(mixture, network_folds, row_folds)
    if folds.n_folds < 2 or folds.per_fold < 2:
        raise ValueError(
            "pools need at least 2 folds of at least 2 networks, got "
            f"{folds.n_folds} of {folds.per_fold}; use normal_scores of out_of_fold(...) instead"
        )
    target = checks.finite("y", y)
    dist, row = _drawn(mixture, target, folds)
    if mixture.per_network == 1:
        return UnseenPools(dist, row, normal_scores(dist, target[row]))
    alone = normal_scores(held_out_networks(mixture, folds), target)
    beyond = alone - np.clip(alone, -FARTHEST, FARTHEST)
    own = np.clip(normal_scores(as_mixture(mixture.by_network), target), -FARTHEST, FARTHEST)
    none = np.zeros(target.size)
    drawn, again = _drawn(SplitNormalMixture(SplitNormal(-own, 1.0, 1.0)), none, folds)
    if row.size < again.size:  # where all networks predict the same
        dist = dist[again]
    return UnseenPools(dist, again, normal_scores(drawn, none[again]) + beyond[again])


def _drawn(
    mixture: SplitNormalMixture, target: FloatArray, folds: Folds
) -> tuple[SplitNormalMixture, NDArray[np.intp]]:
    """Pools around targets, and the row of each."""
    held_out = held_out_networks(mixture, folds)
    each, means = held_out.by_network, mixture.by_network.mean
    own = each.var.mean(axis=0)
    unit = np.maximum(own, NEGLIGIBLE * (own + each.mean.var(axis=0)).mean())
    if not unit.min() > 0:
        return held_out, np.arange(target.size)
    error = target - each.mean.mean(axis=0)
    tau2 = _disagreement(means, each.mean, folds, unit)
    most = (
        LARGEST_SHARE * mean_square(error / np.sqrt(unit)) / max((tau2 / unit).mean(), NEGLIGIBLE)
    )
    ratio = _fold_ratio(means, folds, unit)
    ratio = max(min(ratio, most), 1.0 / folds.per_fold)
    logs = np.log(np.maximum(each.std, np.finfo(float).tiny))
    phi2 = min(float(logs.var(axis=0, ddof=1).mean()), LARGEST_SCALE_VARIANCE)
    relative = phi2 / folds.per_fold * (1.0 - 1.0 / folds.n_folds)
    noise = noise_of(error, min(ratio, most) * tau2, unit, tau2, relative)
    draws = int(np.clip(-(-ENOUGH // target.size), 1, MOST))
    row = np.tile(np.arange(target.size), draws)
    rng = np.random.default_rng(0)  # part of the method: the same rows give the same pools
    between = np.sqrt(np.maximum(ratio - 1.0 / folds.per_fold, 0.0))
    apart = rng.standard_normal((folds.n_folds, folds.per_fold, row.size))
    apart += between * rng.standard_normal((folds.n_folds, 1, row.size))
    drawn = (target - noise)[row] + np.sqrt(tau2)[row] * apart.reshape(-1, row.size)
    factor = np.exp((logs.mean(axis=0) - logs)[:, row])
    factor = np.tile(factor, (folds.n_folds, 1))
    factor *= np.exp(np.sqrt(phi2) * rng.standard_normal(factor.shape))
    return _redrawn(held_out, drawn, factor, row, folds.n_folds), row


def _redrawn(
    held_out: SplitNormalMixture,
    means: FloatArray,
    factor: FloatArray,
    row: NDArray[np.intp],
    times: int,
) -> SplitNormalMixture:
    """Networks of some rows, so many times each, moved to other means and made wider by factors."""
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
    means: FloatArray, held_out: FloatArray, folds: Folds, unit: FloatArray
) -> FloatArray:
    """Variance of the means of networks of one fold, for each row, had none seen it."""
    own = held_out.var(axis=0, ddof=1)
    seen = np.arange(folds.n_folds)[:, None] != folds.own
    within = folds.grouped(means).var(axis=1, ddof=1)
    others = (seen * within).sum(axis=0) / (folds.n_folds - 1)
    total = (others / unit).sum()
    memory = (own / unit).sum() / total if total > 0 else 0.0
    own_freedom = folds.per_fold - 1.0
    freedom = own_freedom * folds.n_folds
    found = (own_freedom * own + (freedom - own_freedom) * memory * others) / freedom
    common = (found / unit).mean() * unit
    prior = _prior_freedom(found / unit, freedom)
    return (freedom * found + prior * common) / (freedom + prior)


def _prior_freedom(ratios: FloatArray, freedom: float) -> float:
    """Degrees of freedom that the mean over rows is worth beside a row's own variance.

    Logarithms of variances differ by their estimation, and more the more that rows differ; the rest
    is the variance of a prior (Smyth, 2004).
    """
    known = ratios[ratios > NEGLIGIBLE * ratios.mean()]
    if known.size < 2:
        return COMMON
    rest = float(np.log(known).var() - polygamma(1, 0.5 * freedom))
    low, high = 0.5, COMMON
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if polygamma(1, 0.5 * middle) > rest else (low, middle)
    return 0.5 * (low + high)


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
