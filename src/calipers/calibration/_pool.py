r"""Scores that the whole ensemble would have had, from the few networks that did not see a row.

In cross-fitting a row is judged by the r networks of its own fold, while a new row is predicted by
all m = K r of them. The pool's mean is closer to the truth than the judges' and its mixture wider,
so that the judges' scores, taken as they are, make intervals that cover too often.

Model, for a row: a network's mean is the truth plus an error that all networks share, plus
:math:`\omega u_k` for its fold k, plus :math:`\tau u_{kj}` of its own, the u independent standard
normal. Then the mean of a fold has the variance :math:`M = \omega^2 + \tau^2 / r` about the common
part, the pool's mean :math:`M / K`, and going from judges to pool removes
:math:`\delta = M (1 - 1/K)` from the squared error, while the variance between the means in the
mixture grows from :math:`\tau^2 (1 - 1/r)` to :math:`\omega^2 (1 - 1/K) + \tau^2 (1 - 1/m)`.

What is needed of it is estimated so that a row's target cannot enter:

1. :math:`\tau_i^2` from the row's own judges. As r is small, it is drawn towards a multiple of the
   predicted noise variance :math:`s_i^2`, as far as the scatter of all rows says (Smyth, 2004), and
   scaled to the right sum.
2. :math:`M / \tau^2`, one number, from the folds that have seen each row: having seen it makes
   their differences smaller, but hardly the ratio of those between folds to those within.
3. The judges' squared errors in units of the pool's predictive variance v average to
   :math:`c^2 + \overline{\delta / v}`; the largest count only as far as in a normal distribution.
   A row's error then shrinks by :math:`c^2 v_i / (c^2 v_i + \delta_i)` in the square.
4. The pool itself is drawn: m means as the model has them, each with one of the judges' noise
   distributions. The score of the shrunken error in it is the row's score.

With one network per fold nothing can be said about :math:`\tau`, and the correction is refused.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammainc, ndtri, polygamma

from calipers.calibration._scores import normal_scores
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.distributions import _checks as checks
from calipers.distributions._checks import FloatArray

# Squared errors count up to this quantile; the factor is what that leaves of a normal variance.
WINSORISED = 0.98
_LIMIT = float(ndtri(0.5 + WINSORISED / 2)) ** 2
KEPT = float(gammainc(1.5, _LIMIT / 2)) + (1.0 - WINSORISED) * _LIMIT
# Never take away more than this part of the mean squared error.
MOST_REMOVED = 0.9
# Row variances of the networks below this part of the mean count as none.
NEGLIGIBLE = 1e-12


class Folds(NamedTuple):
    """Networks sorted by fold, and each row's own fold."""

    order: NDArray[np.intp]
    own: NDArray[np.intp]
    n_folds: int
    per_fold: int

    def grouped(self, values: FloatArray) -> FloatArray:
        """Values of shape (networks, n) as (folds, networks per fold, n)."""
        return values[self.order].reshape(self.n_folds, self.per_fold, -1)

    def judging(self, values: FloatArray) -> FloatArray:
        """Values of each row's own fold, of shape (networks per fold, n)."""
        return self.grouped(values)[self.own, :, np.arange(self.own.size)].T


def judging(
    components: SplitNormal, network_folds: ArrayLike, row_folds: ArrayLike
) -> SplitNormalMixture:
    """Mixture, for each row, of those networks that were trained without the row's fold.

    Parameters
    ----------
    components : SplitNormal of shape (networks, n)
        What every network predicts for every row.
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
    >>> judging(components, network_folds=[0, 1], row_folds=[1, 0]).mean
    array([2., 1.])
    """
    folds = _folds(components, network_folds, row_folds)
    parts = (components.loc, components.left_scale, components.right_scale)
    return SplitNormalMixture(SplitNormal(*(folds.judging(part) for part in parts)))


def pooled_scores(
    components: SplitNormal,
    y: ArrayLike,
    network_folds: ArrayLike,
    row_folds: ArrayLike,
    *,
    rng: np.random.Generator,
    n_jobs: int = 1,
) -> FloatArray:
    """Normal scores of rows, as those of a pool of networks none of which has seen them.

    Parameters
    ----------
    components : SplitNormal of shape (networks, n)
        What every network predicts for every row, those that have seen it included.
    y : array-like of shape (n,)
        Targets.
    network_folds : array-like of shape (networks,)
        The fold that each network was trained without; the same number of networks, two or more,
        for each of two or more folds.
    row_folds : array-like of shape (n,)
        The fold that each row is in.
    rng : numpy.random.Generator
        Draws the means of the pool.
    n_jobs : int
        Number of threads, -1 for all cores.

    Returns
    -------
    array of shape (n,)

    Raises
    ------
    ValueError
        If shapes do not fit, folds differ in their number of networks, or have fewer than two.

    Notes
    -----
    The module says how. Assumed are errors of the networks that are independent given what they
    share, and roughly normal; with two folds, also that folds differ by their networks alone. The
    result holds on average over rows, it is no guarantee.

    Examples
    --------
    Two networks of wildly different opinion judge, ten predict:

    >>> rng = np.random.default_rng(0)
    >>> components = SplitNormal(rng.standard_normal((10, 500)), 1.0, 1.0)
    >>> y, row_folds = rng.standard_normal(500), np.arange(500) % 5
    >>> network_folds = np.repeat(np.arange(5), 2)
    >>> judged = normal_scores(judging(components, network_folds, row_folds), y)
    >>> pooled = pooled_scores(components, y, network_folds, row_folds, rng=rng)
    >>> round(float(judged.std()), 2), round(float(pooled.std()), 2)
    (1.07, 0.81)
    """
    folds = _folds(components, network_folds, row_folds)
    if folds.n_folds < 2 or folds.per_fold < 2:
        raise ValueError(
            "pooled scores need at least 2 folds of at least 2 networks, got "
            f"{folds.n_folds} of {folds.per_fold}; use normal_scores of judging(...) instead"
        )
    target = checks.finite("y", y)
    judges = judging(components, network_folds, row_folds)
    parts = judges.components
    means, noise = parts.mean, parts.var.mean(axis=0)
    raw = means.var(axis=0, ddof=1)
    unit = np.maximum(noise, NEGLIGIBLE * (noise + raw).mean())
    if not raw.sum() > 0 or not unit.min() > 0:
        return normal_scores(judges, target, n_jobs)
    within = _moderated(raw, unit, folds.per_fold - 1)
    ratio = _fold_ratio(components, folds, unit)

    between = ratio - 1.0 / folds.per_fold
    pool = len(components)
    share = 1.0 - 1.0 / folds.n_folds
    spread = within * (1.0 - 1.0 / pool + between * share)
    error = _shrunken(target - means.mean(axis=0), unit + spread, ratio * within * share)
    shape = (folds.n_folds, folds.per_fold, target.size)
    drawn = rng.standard_normal(shape)
    drawn += math.sqrt(between) * rng.standard_normal((shape[0], 1, shape[2]))
    drawn -= drawn.mean(axis=(0, 1))
    tiled = [np.tile(a, (shape[0], 1)) for a in (parts.left_scale, parts.right_scale)]
    loc = np.sqrt(within) * drawn.reshape(pool, -1) + np.tile(parts.loc - means, (shape[0], 1))
    return normal_scores(SplitNormalMixture(SplitNormal(loc, *tiled)), error, n_jobs)


def _folds(components: SplitNormal, network_folds: ArrayLike, row_folds: ArrayLike) -> Folds:
    of_networks, of_rows = np.asarray(network_folds), np.asarray(row_folds)
    if (*of_networks.shape, *of_rows.shape) != components.shape or len(components.shape) != 2:
        raise ValueError(
            f"network_folds and row_folds must fit components of shape {components.shape}, "
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


def _moderated(raw: FloatArray, unit: FloatArray, freedom: int) -> FloatArray:
    """Variances of few values each, drawn towards a common multiple of `unit` (Smyth, 2004)."""
    logs = np.log(np.maximum(raw / unit, NEGLIGIBLE))
    excess = float(logs.var() - polygamma(1, freedom / 2))
    common = raw.sum() / unit.sum()
    prior = 2.0 * _inverse_trigamma(excess) if excess > 1e-3 else math.inf
    if prior < math.inf:
        shift = digamma(prior / 2) - math.log(prior / 2) - digamma(freedom / 2)
        common = math.exp(float(logs.mean() + shift + math.log(freedom / 2)))
    weight = 1.0 / (1.0 + freedom / prior)
    drawn = weight * common * unit + (1.0 - weight) * raw
    return np.asarray(drawn * ((raw / unit).sum() / (drawn / unit).sum()))


def _inverse_trigamma(value: float) -> float:
    """Solve trigamma(x) = value by Newton's steps on its reciprocal, which is convex."""
    x = 0.5 + 1.0 / value
    for _ in range(50):
        here = float(polygamma(1, x))
        x += here * (1.0 - here / value) / float(polygamma(2, x))
    return x


def _fold_ratio(components: SplitNormal, folds: Folds, unit: FloatArray) -> float:
    """Variance between the means of folds over that within folds, of folds that saw each row."""
    least = 1.0 / folds.per_fold
    if folds.n_folds < 3:
        return least
    grouped = folds.grouped(components.mean)
    seen = np.arange(folds.n_folds)[:, None] != folds.own
    means = grouped.mean(axis=1)
    centre = (means * seen).sum(axis=0) / (folds.n_folds - 1)
    between = (seen * (means - centre) ** 2).sum(axis=0) / (folds.n_folds - 2)
    within = (seen * grouped.var(axis=1, ddof=1)).sum(axis=0) / (folds.n_folds - 1)
    total = float((within / unit).sum())
    return max(float((between / unit).sum()) / total, least) if total > 0 else least


def _shrunken(error: FloatArray, variance: FloatArray, removed: FloatArray) -> FloatArray:
    """Errors of the judges, made as large as those of the pool."""
    squares = error**2 / variance
    mean = float(np.minimum(squares, np.quantile(squares, WINSORISED)).mean()) / KEPT
    common = max(mean - float((removed / variance).mean()), (1.0 - MOST_REMOVED) * mean)
    left = common * variance
    return np.asarray(error * np.sqrt(left / np.maximum(left + removed, np.finfo(float).tiny)))
