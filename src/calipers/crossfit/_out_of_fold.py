"""Out-of-fold predictions: those of networks that were not trained on the row."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from calipers._arrays import FloatArray, IntArray
from calipers.calibration import CalibratedMixture, Calibration, normal_scores
from calipers.crossfit._folds import Fold
from calipers.distributions import (
    Distribution,
    ObservedDistribution,
    SplitNormalMixture,
    Support,
    TargetMap,
    on_target_scale,
)


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
