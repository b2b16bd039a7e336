"""Cross-fitting: folds, the out-of-fold predictions of their networks, and calibration by them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Integral
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold, KFold

from calipers._arrays import FloatArray, IntArray
from calipers.calibration import (
    CALIBRATIONS,
    CalibratedMixture,
    Calibration,
    CalibrationRows,
    Calibrator,
    log_width,
    normal_scores,
    out_of_fold,
    pool_widths,
    unseen_pools,
)
from calipers.distributions import (
    Distribution,
    ObservedDistribution,
    SplitNormalMixture,
    Support,
    TargetMap,
    match_atoms,
    mean_of,
    on_target_scale,
)
from calipers.ensemble import Ensemble

__all__ = ["Fold", "OutOfFold", "calibrate"]

# With fewer rows, none is set aside for early stopping. Without early stopping, a network memorises
# a dozen rows or so and predicts intervals of almost no width.
_MIN_TO_STOP = 5


class Fold(NamedTuple):
    """Rows that networks train on, and rows that are held out."""

    train: IntArray
    held_out: IntArray


def make_folds(
    cv: Any,
    rows: IntArray,
    X: FloatArray,
    y: FloatArray,
    groups: IntArray | None,
    n_networks: int,
    seed: int,
) -> list[Fold]:
    """Split rows into folds, each for the same number of networks.

    Parameters
    ----------
    cv : int, splitter or None
        Number of shuffled folds, which keep groups together if there are any; or any scikit-learn
        splitter; or None for one fold that trains on all rows and holds none out. With fewer rows
        than folds, as many folds as possible.
    rows : array of int
        Rows to use.
    X, y, groups : arrays
        The data of all rows; ``groups`` may be None.
    n_networks : int
        Networks to distribute over the folds.
    seed : int
        Seeds the shuffle.

    Raises
    ------
    ValueError
        If there are fewer groups than folds, or if networks cannot be distributed evenly.
    """
    if cv is None or len(rows) < 2:
        return [Fold(rows, rows[:0])]
    labels = None if groups is None else groups[rows]
    if isinstance(cv, Integral):
        count = len(rows) if labels is None else len(np.unique(labels))
        if labels is not None and count < int(cv):
            raise ValueError(f"groups has {count} distinct values, too few for cv={cv} folds")
        kind = KFold if labels is None else GroupKFold
        most = next(k for k in range(min(int(cv), count), 0, -1) if n_networks % k == 0)
        if most == 1:
            return [Fold(rows, rows[:0])]
        cv = kind(n_splits=most, shuffle=True, random_state=seed)
    folds = [Fold(rows[a], rows[b]) for a, b in cv.split(X[rows], y[rows], labels)]
    empty = [number for number, fold in enumerate(folds) if not fold.train.size]
    if empty or not folds:
        what = f"no rows to train on in fold {empty[0]}" if empty else "no folds"
        raise ValueError(f"cv={cv!r} leaves {what} of {len(rows)} rows: choose another splitter")
    if n_networks % len(folds):
        raise ValueError(
            f"n_networks must be a multiple of the {len(folds)} folds of cv, got {n_networks}"
        )
    return folds


def leave_rows_out(folds: Sequence[Fold]) -> bool:
    """Whether some fold neither trains on nor holds out some of the rows, as in time order.

    ``TimeSeriesSplit`` trains its first networks on the oldest rows alone. They show the errors of
    a model that has only seen the past, but the networks that predict are better trained on all
    rows.

    Examples
    --------
    >>> from sklearn.model_selection import KFold, TimeSeriesSplit
    >>> y = np.zeros(12)
    >>> folds = [[Fold(*s) for s in cv(3).split(y)] for cv in (KFold, TimeSeriesSplit)]
    >>> [leave_rows_out(each) for each in folds]
    [False, True]
    """
    each = [np.unique(np.concatenate(fold)) for fold in folds]
    return min(map(len, each)) < len(np.unique(np.concatenate(each)))


def set_aside(
    rows: IntArray, fraction: float, groups: IntArray | None, seed: int
) -> tuple[IntArray, IntArray]:
    """Split rows into training and validation rows, without splitting groups if there are any."""
    if len(rows) < _MIN_TO_STOP:
        return rows, rows[:0]
    rng = np.random.default_rng(seed)
    labels = (
        np.arange(len(rows)) if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    )
    shuffled = rng.permutation(labels.max() + 1)
    held = np.isin(labels, shuffled[: int(np.ceil(fraction * len(shuffled)))])
    return (rows, rows[:0]) if held.all() else (rows[~held], rows[held])


def out_of_fold_points(points: ArrayLike, folds: Sequence[Fold], fold_of: IntArray) -> FloatArray:
    """Mean point prediction of each row by the networks that were not trained on it.

    ``points`` has shape (networks, rows), or (folds, networks, rows) if each fold has its own
    inputs; ``fold_of`` is the fold of each network. For a row that is never held out it is the mean
    over all networks, with the inputs of the first fold.

    Examples
    --------
    >>> folds = [Fold(np.array([1]), np.array([0])), Fold(np.array([0]), np.array([1]))]
    >>> out_of_fold_points(np.array([[1.0, 2.0], [3.0, 4.0]]), folds, np.array([0, 1]))
    array([1., 4.])
    """
    by_fold = np.broadcast_to(points, (len(folds), *np.shape(points)[-2:]))
    total, count = np.zeros((2, by_fold.shape[-1]))
    for number, fold in enumerate(folds):
        members = by_fold[number, fold_of == number]
        total[fold.held_out] += members[:, fold.held_out].sum(axis=0)
        count[fold.held_out] += len(members)
    return np.where(count > 0, total / np.maximum(count, 1), by_fold[0].mean(axis=0))


@dataclass(frozen=True, eq=False, repr=False)
class OutOfFold:
    """Predictions for the training rows by networks that were not trained on them.

    Arrays contain the rows of ``fit`` in their order, with NaN for rows that were not held out:
    those of weight 0, and those that a splitter never holds out. A row that is held out by several
    folds has the prediction of the first of them.
    """

    point: FloatArray  #: (n_samples,): Mean prediction of the networks not trained on the row.
    coverage: float  #: Default coverage of ``interval``.
    rows: IntArray  #: The rows that were held out, in ascending order.
    #: Their distributions before calibration; None for networks that predict points alone.
    dist: SplitNormalMixture | None = None
    #: Their targets and weights; targets are on the scale of ``dist``, and latent ones if the
    #: target cannot take every value.
    target: FloatArray | None = None
    weights: FloatArray | None = None
    #: Values that the target can take.
    support: Support = Support()  # noqa: RUF009 - a frozen value
    #: The scale of ``dist`` and ``target``, if it is not the target's own.
    target_map: TargetMap | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.rows):,} of {len(self.point):,} rows held out>"

    @cached_property
    def calibrated(self) -> Distribution:
        """Distributions of ``rows``, calibrated on these rows themselves.

        Fewer networks predict these rows than new ones, so that the calibration of the model, which
        is for all networks together, would make the intervals too narrow.
        """
        return on_target_scale(self._on_network_scale, self.target_map, self.support)

    @property
    def levels(self) -> tuple[FloatArray, FloatArray]:
        """Calibrated probabilities of values below the target of each of ``rows``, and up to it."""
        dist, latent = self.calibrated, np.asarray(self.target)
        if not isinstance(dist, ObservedDistribution):
            level = self._on_network_scale.cdf(latent)
            return level, level
        y = latent if self.target_map is None else self.target_map.back(latent)
        y = self.support.observe(y)
        return dist.cdf_below(y), dist.cdf(y)

    @cached_property
    def _on_network_scale(self) -> CalibratedMixture:
        if self.dist is None or self.target is None:
            raise ValueError("networks that predict points alone have no intervals")
        scores = normal_scores(self.dist, self.target)
        return CalibratedMixture(self.dist, Calibration.from_scores(scores, self.weights))

    def interval(self, coverage: float | None = None) -> FloatArray:
        """Lower and upper bounds, of shape (n_samples, 2), for one coverage.

        By construction, they contain the nominal fraction of all targets. They show where the
        intervals are wide, and which rows they miss; only rows that had no part in ``fit`` measure
        the model's coverage.
        """
        bounds = np.full((len(self.point), 2), np.nan)
        level = self.coverage if coverage is None else coverage
        bounds[self.rows] = np.stack(self.calibrated.interval(level), axis=1)
        return bounds

    @classmethod
    def of_points(
        cls, points: ArrayLike, folds: Sequence[Fold], fold_of: IntArray, coverage: float
    ) -> "OutOfFold | None":
        """Point predictions of networks trained in these folds; None if no row is held out.

        ``points`` are those of ``out_of_fold_points``.
        """
        rows = np.unique(np.concatenate([fold.held_out for fold in folds]))
        point = np.full(np.shape(points)[-1], np.nan)
        point[rows] = out_of_fold_points(points, folds, fold_of)[rows]
        return cls(point, coverage, rows) if rows.size else None


def calibrate(
    ensemble: Ensemble,
    folds: Sequence[Fold],
    fold_of: IntArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray | None,
    kind: str = "width",
    groups: NDArray[Any] | None = None,
    seed: int = 0,
) -> tuple[tuple[Calibrator, ...], OutOfFold | None]:
    """Calibrate by each row's score under the networks that were not trained on it.

    Returns the calibrations and the out-of-fold predictions that they are based on, whose support
    is that of the ensemble, with its atoms matched to them. If no row was held out, the calibration
    supports no coverage, and there are no predictions.

    ``fold_of`` is the fold of each network, ``kind`` a key of ``CALIBRATIONS``. ``X`` has shape
    (rows, inputs), or (folds, rows, inputs) if each fold has its own inputs. For the coverage that
    is supported, the rows of a group count as one, as do several scores of a row. ``seed`` draws
    the scores of targets with positive probability, see ``latent_targets``.
    """
    held_out = [fold.held_out for fold in folds]
    rows = np.concatenate(held_out)
    if not rows.size:
        return (Calibration.without_rows(),), None
    row_folds = np.repeat(np.arange(len(folds)), [len(part) for part in held_out])
    X = np.broadcast_to(X, (len(folds), *X.shape[-2:]))
    inputs = X[row_folds, rows]
    mixture = ensemble.mixture(inputs)
    if len(mixture.components) != len(fold_of) * mixture.per_network:
        raise ValueError(
            f"aggregation={ensemble.aggregation!r} merges the networks, so that those of a fold "
            "cannot be told apart: set cv=None, and conformalize on held-out rows"
        )
    dist = out_of_fold(mixture, fold_of, row_folds)
    row_weights = None if weights is None else weights[rows]
    support = ensemble.support
    if not support.is_line:
        support = match_atoms(support, ensemble.on_own_scale(dist), y[rows], row_weights)
    matched, rng = replace(ensemble, support=support), np.random.default_rng(seed)
    target = matched.latent_targets(dist, y[rows], rng)
    once, first = np.unique(rows, return_index=True)
    plain = groups is None and row_weights is None
    parts = (mixture, dist, target, folds, fold_of, row_folds)
    scores, log_widths = _scores(*parts, plain=plain, n_jobs=ensemble.n_jobs)
    unit = rows if groups is None else groups[rows]
    learned = CALIBRATIONS[kind].from_rows(
        CalibrationRows(scores, dist, inputs, unit, row_weights, log_widths=log_widths)
    )
    dist, point = dist[first], np.full(len(y), np.nan)
    point[once] = ensemble.within_bounds(mean_of(dist, ensemble.target_map))
    predictions = OutOfFold(
        point,
        ensemble.coverage,
        once,
        dist,
        target[first],
        None if row_weights is None else row_weights[first],
        support,
        ensemble.target_map,
    )
    return learned, predictions


def _scores(
    mixture: SplitNormalMixture,
    dist: SplitNormalMixture,
    target: FloatArray,
    folds: Sequence[Fold],
    fold_of: IntArray,
    row_folds: IntArray,
    *,
    plain: bool,
    n_jobs: int | None,
) -> tuple[FloatArray, Callable[[], FloatArray] | None]:
    """Return normal scores of held-out targets, and a function that returns their log widths.

    Where there are enough folds, each row has scores by pools of networks that were not trained on
    it. The function is None if calibration cannot depend on widths; ``plain`` says that rows have
    neither groups nor weights.
    """
    # Pools need, for each row, other folds that were trained on it: a single fold has none, and if
    # folds leave rows out, some other folds were not trained on the row.
    if len(fold_of) >= 2 * len(folds) > 2 and not leave_rows_out(folds):
        with joblib.parallel_config("threading", n_jobs=n_jobs):
            pools = unseen_pools(mixture, target, fold_of, row_folds)
        log_widths = partial(pool_widths, pools, mixture, fold_of, row_folds)
        return pools.scores.reshape(-1, len(target)), log_widths
    scores = normal_scores(dist, target)
    return scores, partial(log_width, dist) if len(folds) == 1 and plain else None
