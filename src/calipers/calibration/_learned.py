"""Result of online learning from a stream, and the shifting of distributions that it needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from calipers import _checks as checks, distributions
from calipers._arrays import FloatArray
from calipers.calibration._calibrated import CalibratedMixture
from calipers.calibration._level_map import KnotMap, MixtureRows
from calipers.calibration._tracking import NORMAL

if TYPE_CHECKING:
    from calipers.calibration._online import AdaptiveCoverage

NetworkDistribution = distributions.SplitNormalMixture | CalibratedMixture


@dataclass(frozen=True, eq=False)
class Learned:
    """State after a stream of rows, and the predictions made along the way."""

    state: "AdaptiveCoverage"  #: State that predicts the next rows.
    #: Distributions of the rows, with the shift that was predicted before each target was known.
    dist: NetworkDistribution
    y: FloatArray  #: (n,): The targets.
    knots: FloatArray  #: (n, levels): Scores of the levels ``_tracking.LEVELS`` for each row.
    #: Values that the target could take as far as was known when each row was predicted, to which
    #: its quantiles and intervals are rounded; empty if that is every number for all rows.
    supports: Sequence[distributions.Support] = ()
    target_map: distributions.TargetMap | None = (
        None  #: Transformation of the target to the scale of ``dist``.
    )

    @property
    def alarm(self) -> bool:
        """Whether the test martingale has rejected exchangeability."""
        return self.state.alarm.alarm

    def intervals(self, coverage: float) -> FloatArray:
        """Intervals as predicted before each target was known, of shape (n, 2)."""
        tail = 0.5 * (1.0 - float(checks.coverage(coverage)))
        return self.quantiles([tail, 1.0 - tail])

    def quantiles(self, p: ArrayLike) -> FloatArray:
        """Quantiles as predicted before each target was known, of shape (n, levels)."""
        levels = ndtri(np.atleast_1d(checks.probability("p", p)))
        scores = np.array([KnotMap.through(NORMAL, row, 0).to_score(levels) for row in self.knots])
        values = np.stack([values_of_scores(self.dist, column) for column in scores.T], axis=1)
        if self.target_map is not None:
            values = self.target_map.back(values)
        for rows, support in distributions.support_runs(self.supports):
            values[rows] = support.observe(values[rows])
        return values

    def coverage(self, coverage: float) -> float:
        """Fraction of the targets inside their intervals."""
        lower, upper = self.intervals(coverage).T
        return float(np.mean((lower <= self.y) & (self.y <= upper)))


def shifted(dist: NetworkDistribution, by: FloatArray) -> NetworkDistribution:
    """Distributions with their location moved by ``by``."""
    if isinstance(dist, CalibratedMixture):
        return replace(dist, mixture=shifted(dist.mixture, by))
    parts = dist.components
    moved = distributions.SplitNormal(parts.loc + by, parts.left_scale, parts.right_scale)
    return distributions.SplitNormalMixture(moved, dist.weights, per_network=dist.per_network)


def values_of_scores(dist: NetworkDistribution, scores: FloatArray) -> FloatArray:
    """Value of each row that has the given normal score in its distribution."""
    calibrated = isinstance(dist, CalibratedMixture)
    return dist.apply(MixtureRows.values if calibrated else distributions.mixture_values, scores)


def median_and_scale(dist: NetworkDistribution) -> tuple[FloatArray, FloatArray]:
    """Median of each row, and half the distance between its quantiles at normal scores -1 and 1.

    The distance is positive, so that it can be divided by.
    """
    low, median, high = (values_of_scores(dist, np.full(len(dist), v)) for v in (-1.0, 0.0, 1.0))
    return median, np.maximum(0.5 * (high - low), np.finfo(float).tiny)
