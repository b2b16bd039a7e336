"""From what networks predict, perhaps on another scale, to distributions of the target."""

from typing import TYPE_CHECKING

from calipers._arrays import FloatArray
from calipers.distributions._distribution import Distribution
from calipers.distributions._mixture import SplitNormalMixture
from calipers.distributions._observed import ObservedDistribution
from calipers.distributions._split_normal import SplitNormal
from calipers.distributions._support import Support
from calipers.distributions._transformed import TargetMap, TransformedMixture

if TYPE_CHECKING:
    from calipers.calibration import CalibratedMixture


def on_target_scale(
    dist: "SplitNormalMixture | CalibratedMixture",
    target_map: TargetMap | None,
    support: Support | None = None,
) -> Distribution:
    """Distributions of the target, restricted to the values that it can take if they are given."""
    latent = dist if target_map is None else TransformedMixture(dist, target_map)
    if support is None or support.is_line:
        return latent
    return ObservedDistribution(latent, support)


def mean_of(dist: SplitNormal | SplitNormalMixture, target_map: TargetMap | None) -> FloatArray:
    """Expectation of the target, before it is restricted to the values that it can take."""
    return dist.mean if target_map is None else target_map.mean(dist)
