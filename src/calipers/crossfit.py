"""Cross-fitting: which rows each network trains on, and what it predicts for the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold

from calipers._checks import FloatArray, IntArray
from calipers.calibration import (
    CALIBRATIONS,
    CalibratedMixture,
    Calibration,
    Calibrator,
    WidthCalibration,
    effective_number,
    evened,
    log_width,
    normal_scores,
    out_of_fold,
    unseen_pools,
)
from calipers.distributions import (
    ObservedDistribution,
    SplitNormalMixture,
    Support,
    TargetMap,
    TransformedMixture,
    latent_targets,
    match_atoms,
)
from calipers.ensemble import Ensemble

# With fewer rows than this none is set aside to stop a training. Without, a network learns some
# dozen rows by heart and promises intervals of almost no width.
_FEWEST_TO_STOP = 5


class Fold(NamedTuple):
    """Rows that networks train on, and rows that are held out of them."""

    train: IntArray
    held_out: IntArray


def make_folds(
    cv: Any, rows: IntArray, X: Any, y: Any, groups: Any, n_networks: int, seed: int
) -> list[Fold]:
    """Folds of some rows, each for the same number of networks.

    Parameters
    ----------
    cv : int, splitter or None
        Number of shuffled folds, which keep groups together where there are any; or any
        scikit-learn splitter; or None for one fold in which all rows train and none is held out.
        Where rows are fewer than folds, as many folds as there can be.
    rows : array of int
        Rows to use.
    X, y, groups : arrays
        The data of all rows; ``groups`` may be None.
    n_networks : int
        Networks to spread over the folds.
    seed : int
        Seeds the shuffle.

    Raises
    ------
    ValueError
        If there are fewer groups than folds, or if networks cannot be spread evenly.
    """
    if cv is None or len(rows) < 2:
        return [Fold(rows, rows[:0])]
    chosen = None if groups is None else groups[rows]
    if isinstance(cv, Integral):
        count = len(rows) if chosen is None else len(np.unique(chosen))
        if chosen is not None and count < int(cv):
            raise ValueError(f"groups has {count} distinct values, too few for cv={cv} folds")
        kind = KFold if chosen is None else GroupKFold
        most = next(k for k in range(min(int(cv), count), 0, -1) if n_networks % k == 0)
        if most == 1:
            return [Fold(rows, rows[:0])]
        cv = kind(n_splits=most, shuffle=True, random_state=seed)
    folds = [Fold(rows[a], rows[b]) for a, b in cv.split(X[rows], y[rows], chosen)]
    empty = [number for number, fold in enumerate(folds) if not fold.train.size]
    if empty or not folds:
        what = f"no rows to train on in fold {empty[0]}" if empty else "no folds"
        raise ValueError(f"cv={cv!r} leaves {what} of {len(rows)} rows: choose another splitter")
    if n_networks % len(folds):
        raise ValueError(
            f"n_networks must be a multiple of the {len(folds)} folds of cv, got {n_networks}"
        )
    return folds


def leave_rows_out(folds: Sequence[Fold], n_rows: int | None = None) -> bool:
    """Whether networks have seen less than all rows but their own fold's, as in time order.

    ``n_rows`` is how many rows there are where each fold may have a copy of them all, one after
    the other.

    ``TimeSeriesSplit`` trains its first networks on the oldest rows alone. They tell how far off
    a model is that knows the past only, but a pool is better made of networks that know all rows.

    Examples
    --------
    >>> from sklearn.model_selection import KFold, TimeSeriesSplit
    >>> y = np.zeros(12)
    >>> folds = [[Fold(*s) for s in cv(3).split(y)] for cv in (KFold, TimeSeriesSplit)]
    >>> [leave_rows_out(each) for each in folds]
    [False, True]
    """
    each = [np.unique(as_given(np.concatenate(fold), n_rows)) for fold in folds]
    return min(map(len, each)) < len(np.unique(np.concatenate(each)))


def as_given(rows: IntArray, n_rows: int | None) -> IntArray:
    """Numbers of rows before each fold had a copy of its own."""
    return rows if n_rows is None else rows % n_rows


def set_aside(rows: IntArray, fraction: float, groups: Any, seed: int) -> tuple[IntArray, IntArray]:
    """Rows that train, and rows that tell when to stop; whole groups where there are any."""
    if len(rows) < _FEWEST_TO_STOP:
        return rows, rows[:0]
    rng = np.random.default_rng(seed)
    labels = (
        np.arange(len(rows)) if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    )
    kinds = rng.permutation(labels.max() + 1)
    held = np.isin(labels, kinds[: int(np.ceil(fraction * len(kinds)))])
    return (rows, rows[:0]) if held.all() else (rows[~held], rows[held])


def out_of_fold_points(points: FloatArray, folds: Sequence[Fold], fold_of: IntArray) -> FloatArray:
    """Each row's mean point over the networks that have not seen it; over all where there is none.

    Points are of shape (networks, rows); ``fold_of`` says which fold each network was trained in.

    Examples
    --------
    >>> folds = [Fold(np.array([1]), np.array([0])), Fold(np.array([0]), np.array([1]))]
    >>> out_of_fold_points(np.array([[1.0, 2.0], [3.0, 4.0]]), folds, np.array([0, 1]))
    array([1., 4.])
    """
    total, count = np.zeros((2, points.shape[1]))
    for number, fold in enumerate(folds):
        own = points[fold_of == number]
        total[fold.held_out] += own[:, fold.held_out].sum(axis=0)
        count[fold.held_out] += len(own)
    return np.where(count > 0, total / np.maximum(count, 1), points.mean(axis=0))


@dataclass(frozen=True, eq=False, repr=False)
class OutOfFold:
    """What networks that have not seen a training row predict for it.

    Arrays have the rows that ``fit`` was given, in their order, with NaN for rows that were not
    held out: those of weight 0, and those that a splitter never holds out. A row that is held out
    of several folds has the prediction of the first of them.
    """

    point: FloatArray  #: (n_samples,): Mean of the points of the networks that have not seen a row.
    coverage: float  #: Coverage of ``interval`` where none is asked.
    rows: IntArray  #: The rows that were held out, in ascending order.
    #: Their distributions before calibration; None for networks that predict points alone.
    dist: SplitNormalMixture | None = None
    #: Their targets and weights, the targets on the scale of ``dist``, latent ones where the target
    #: cannot take every value.
    target: FloatArray | None = None
    weights: FloatArray | None = None
    #: Values that the target can take.
    support: Support = Support()  # noqa: RUF009 - a frozen value
    #: The scale on which ``dist`` and ``target`` are, where it is not the target's own.
    target_map: TargetMap | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.rows):,} of {len(self.point):,} rows held out>"

    @cached_property
    def calibrated(self) -> CalibratedMixture | TransformedMixture | ObservedDistribution:
        """Distributions of ``rows``, calibrated among themselves.

        Fewer networks speak for these than for a new row, so that the calibration of the model,
        which is for all of them together, would make the intervals too narrow.
        """
        scale, own = self.target_map, self._on_network_scale
        latent = own if scale is None else TransformedMixture(own, scale)
        return latent if self.support.is_line else ObservedDistribution(latent, self.support)

    @property
    def levels(self) -> FloatArray:
        """Level of the target of each of ``rows`` in its calibrated distribution."""
        return np.asarray(self._on_network_scale.cdf(np.asarray(self.target)))

    @cached_property
    def _on_network_scale(self) -> CalibratedMixture:
        if self.dist is None or self.target is None:
            raise ValueError("networks that predict points alone have no intervals")
        scores = normal_scores(self.dist, self.target)
        return CalibratedMixture(self.dist, Calibration.from_scores(scores, self.weights))

    def interval(self, coverage: float | None = None) -> FloatArray:
        """Lower and upper bounds, of shape (n_samples, 2), for one coverage.

        Over all rows they hold the share of targets that they promise by construction. They show
        where a model is wide, and which rows it misses; rows that had no part in training measure
        it.
        """
        bounds = np.full((len(self.point), 2), np.nan)
        level = self.coverage if coverage is None else coverage
        bounds[self.rows] = np.stack(self.calibrated.interval(level), axis=1)
        return bounds

    def of_rows(self, count: int) -> "OutOfFold":
        """The same for ``count`` rows of which these are copies, one after another."""
        if count == len(self.point):
            return self
        rows, first = np.unique(self.rows % count, return_index=True)
        point = np.full(count, np.nan)
        point[rows] = self.point[self.rows[first]]
        own = {name: getattr(self, name) for name in ("dist", "target", "weights")}
        taken: dict[str, Any] = {k: None if v is None else v[first] for k, v in own.items()}
        return replace(self, point=point, rows=rows, **taken)

    @classmethod
    def of_points(
        cls, points: FloatArray, folds: Sequence[Fold], fold_of: IntArray, coverage: float
    ) -> "OutOfFold | None":
        """Points alone, of networks that were trained in some folds; None without rows."""
        rows = np.unique(np.concatenate([fold.held_out for fold in folds]))
        found = np.full(points.shape[1], np.nan)
        found[rows] = out_of_fold_points(points, folds, fold_of)[rows]
        return cls(found, coverage, rows) if rows.size else None


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
    n_rows: int | None = None,
) -> tuple[tuple[Calibrator, ...], OutOfFold | None]:
    """Calibrations by each row's score under the networks that have not seen it.

    ``fold_of`` is the fold of each network, ``kind`` a key of ``CALIBRATIONS``. Rows of a group
    count as one in what coverage is supported, as several scores of a row do; ``n_rows`` is how
    many rows there are where folds have copies of their own. The seed is that of the scores of
    targets that have a mass of their own, see ``latent_targets``. Where no row was
    held out, the calibration supports no coverage; otherwise the predictions that calibrations are
    made of come with them, with the ensemble's support matched to them.
    """
    held_out = [fold.held_out for fold in folds]
    rows = np.concatenate(held_out)
    if not rows.size:
        return (Calibration.without_rows(),), None
    row_folds = np.repeat(np.arange(len(folds)), [len(part) for part in held_out])
    mixture = ensemble.mixture(X[rows])
    if len(mixture.components) != len(fold_of) * mixture.per_network:
        raise ValueError(
            f"aggregation={ensemble.aggregation!r} does not keep the networks apart, so that none "
            "is known to be out of fold: set cv=None, and conformalize on held-out rows"
        )
    alone = out_of_fold(mixture, fold_of, row_folds)
    own = None if weights is None else weights[rows]
    target, support = y[rows], ensemble.support
    if not support.is_line:
        in_own_unit = ensemble.on_own_scale(alone)
        support = match_atoms(support, in_own_unit, target, own)
        target = latent_targets(support, in_own_unit, target, np.random.default_rng(seed))
    scale = ensemble.target_map
    target = target if scale is None else scale.forward(target)
    units, unit = None, as_given(rows, n_rows)
    if groups is not None or len(np.unique(unit)) < len(unit):
        units = unit = unit if groups is None else groups[rows]
    by_width = None
    # In a single fold all networks are out of fold; networks that left rows out tell nothing of
    # how networks differ that have seen a row.
    if len(fold_of) >= 2 * len(folds) > 2 and not leave_rows_out(folds, n_rows):
        with joblib.parallel_config("threading", n_jobs=ensemble.n_jobs):
            pools = unseen_pools(mixture, target, fold_of, row_folds)
        scores = pools.scores
        if kind == WidthCalibration.kind:
            worth = effective_number(np.ones(len(rows)) if own is None else own, units)
            # What a drawn pool disagrees by says nothing of its row's error: rows are as wide as
            # pools are, in the order of what networks that have not seen them predict.
            width = log_width(pools.dist)
            order = np.lexsort((width, log_width(alone)[pools.row]))
            width[order] = np.sort(width)
            by_width, scores = evened(width, scores, int(worth), unit[pools.row])
        scores = scores.reshape(-1, len(rows))
    else:
        scores = normal_scores(alone, target)
        if kind == WidthCalibration.kind and len(folds) == 1 and units is None and own is None:
            by_width, scores = evened(log_width(alone), scores, len(rows), rows)
    once, first = np.unique(rows, return_index=True)
    dist, point = alone[first], np.full(len(y), np.nan)
    means = dist.mean if scale is None else scale.mean(dist)
    point[once] = ensemble.within_bounds(means)
    kept = OutOfFold(
        point,
        ensemble.coverage,
        once,
        dist,
        target[first],
        None if own is None else own[first],
        support,
        scale,
    )
    last: Any = Calibration if kind == WidthCalibration.kind else CALIBRATIONS[kind]
    options = {} if units is None else {"units": units}
    found: Calibrator = last.from_scores(scores, own, **options)
    return (found,) if by_width is None else (by_width, found), kept
