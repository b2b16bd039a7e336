"""Examples of the distributions that a model can predict."""

import numpy as np
from scipy.special import ndtri

from calipers.calibration import AdaptiveCoverage, CalibratedMixture, Calibration
from calipers.distributions import (
    ObservedDistribution,
    SplitNormal,
    SplitNormalMixture,
    Support,
    TargetMap,
    TransformedMixture,
)


def mixture(rows=5, members=3, seed=0, spread=1.0, widest=2.0):
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.3, widest, (2, members, rows))
    return SplitNormalMixture(SplitNormal(rng.normal(1, spread, (members, rows)), *scales))


def calibrated(strict=False, **options):
    scores = 1.3 * np.random.default_rng(1).standard_normal(200) + 0.2
    return CalibratedMixture(mixture(**options), Calibration.from_scores(scores, strict=strict))


def adaptive(**options):
    dist = mixture(**options)
    online, rng = AdaptiveCoverage.start(base_rows=500), np.random.default_rng(2)
    for _ in range(5):
        online = online.learn(dist, rng.normal(1, 3, len(dist))).state
    return online.calibrated(dist)


def continuous(**options):
    """Calibrated distributions and those on another scale, with these options of `mixture`."""
    again = Calibration.from_scores(ndtri([0.2, 0.6, 0.9] * 9))
    near = mixture(**options | {"spread": 1.0})
    return {
        "calibrated": calibrated(**options),
        "again": CalibratedMixture(calibrated(**options), again),
        "adaptive": adaptive(**options),
        "transformed": TransformedMixture(near, TargetMap("log", 2.0)),
        "transformed and calibrated": TransformedMixture(
            calibrated(**options), TargetMap("asinh", 0.5)
        ),
    }


def observed(**options):
    """Distributions of targets that cannot take every value."""
    fine = TransformedMixture(calibrated(**options), TargetMap("log", 2.0))
    grades = Support(low=1.0, high=5.0, step=0.5, decimals=1)
    return {
        "from zero": ObservedDistribution(calibrated(**options), Support(low=0.0)),
        "range": ObservedDistribution(mixture(**options), Support(low=0.0, high=2.0)),
        "counts": ObservedDistribution(calibrated(**options), Support(low=0.0, step=1.0)),
        "grades": ObservedDistribution(mixture(**options), grades),
        "fine": ObservedDistribution(fine, Support(low=0.0, step=0.01, decimals=2)),
    }
