"""What was predicted on the way along a stream, and distributions that are moved."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from calipers import _checks as checks
from calipers._blocks import blockwise
from calipers._checks import FloatArray
from calipers.calibration._calibrated import CalibratedMixture
from calipers.calibration._corrected_rows import MixtureRows
from calipers.calibration._level_map import KnotMap
from calipers.calibration._tracking import NORMAL
from calipers.distributions import (
    SplitNormal,
    SplitNormalMixture,
    Support,
    TargetMap,
    mixture_values,
)

if TYPE_CHECKING:
    from calipers.calibration._online import AdaptiveCoverage

NetworkDistribution = SplitNormalMixture | CalibratedMixture


@dataclass(frozen=True, eq=False)
class Learned:
    """What a stream taught, and what was predicted on the way."""

    state: "AdaptiveCoverage"  #: For the rows that come next.
    #: Distributions of the rows, moved as they were before each target was known.
    dist: NetworkDistribution
    y: FloatArray  #: (n,): The targets.
    knots: FloatArray  #: (n, levels): Scores of the levels ``_tracking.LEVELS`` at each row.
    #: Values that the target can take, on which quantiles and intervals lie.
    support: Support = Support()  # noqa: RUF009 - a frozen value
    target_map: TargetMap | None = None  #: The scale of ``dist``, where it is not the target's own.

    @property
    def alarm(self) -> bool:
        """Whether rows have stopped being exchangeable, as far as the martingale tells."""
        return self.state.alarm.alarm

    def intervals(self, coverage: float) -> FloatArray:
        """Intervals as they were before each target was known, of shape (n, 2)."""
        tail = 0.5 * (1.0 - float(checks.coverage(coverage)))
        return self.quantiles([tail, 1.0 - tail])

    def quantiles(self, p: ArrayLike) -> FloatArray:
        """Quantiles as they were before each target was known, of shape (n, levels)."""
        levels = np.atleast_1d(checks.probability("p", p))
        maps = [KnotMap.through(NORMAL, row, 0) for row in self.knots]
        scores = np.array([own.to_score(ndtri(levels)) for own in maps])
        latent = np.stack([values_of_scores(self.dist, column) for column in scores.T], axis=1)
        own = latent if self.target_map is None else self.target_map.back(latent)
        return self.support.observe(own)

    def coverage(self, coverage: float) -> float:
        """Share of the targets inside their intervals."""
        lower, upper = self.intervals(coverage).T
        return float(np.mean((lower <= self.y) & (self.y <= upper)))


def shifted(dist: NetworkDistribution, by: FloatArray) -> NetworkDistribution:
    """Distributions moved along the axis of the target."""
    if isinstance(dist, CalibratedMixture):
        inner = shifted(dist.mixture, by)
        return CalibratedMixture(inner, dist.calibration, dist.row_weights, dist.unsupported)
    parts = dist.components
    moved = SplitNormal(parts.loc + by, parts.left_scale, parts.right_scale)
    return SplitNormalMixture(moved, dist.weights, per_network=dist.per_network)


def values_of_scores(dist: NetworkDistribution, scores: FloatArray) -> FloatArray:
    """The value of each row that has a score in its own distribution."""
    if isinstance(dist, CalibratedMixture):
        return dist._apply(MixtureRows.values, scores)
    of_block, members = dist.in_blocks(mixture_values)
    return blockwise(of_block, (scores,), members)


def median_and_scale(dist: NetworkDistribution) -> tuple[FloatArray, FloatArray]:
    """Median of each row, and half the distance of its quantiles at one standard deviation."""
    ends = [values_of_scores(dist, np.full(len(dist), v)) for v in (-1.0, 0.0, 1.0)]
    return ends[1], 0.5 * (ends[2] - ends[0])
