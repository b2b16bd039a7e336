"""Mixtures and scores that every law runs on."""

import numpy as np
import pytest
from scipy.special import ndtri

from calipers.calibration import CalibratedMixture, Calibration
from calipers.distributions import SplitNormal, SplitNormalMixture

ROWS = 6


def make_mixture(seed=0, members=4, rows=ROWS):
    rng = np.random.default_rng(seed)
    loc = 10.0 + rng.standard_normal((members, rows))
    left, right = rng.uniform(0.3, 2.0, (2, members, rows))
    return SplitNormalMixture(SplitNormal(loc, left, right))


def make_scores(name):
    rng = np.random.default_rng(1)
    return {
        "one": np.array([0.3]),
        "two": np.array([-1.0, 2.0]),
        "all equal": np.full(30, 0.7),
        "normal": rng.standard_normal(300),
        "exact": ndtri(np.arange(1, 100) / 100),
        "wide and moved": 2.0 * rng.standard_normal(80) + 1.0,
        "heavy": rng.standard_t(2, 120),
        "ties": np.round(rng.standard_normal(60)),
        "outlier": np.append(rng.standard_normal(60), -50.0),
    }[name]


SCORES = [
    "one", "two", "all equal", "normal", "exact", "wide and moved", "heavy", "ties", "outlier"
]  # fmt: skip


@pytest.fixture(scope="session")
def mixture():
    return make_mixture()


@pytest.fixture(params=SCORES)
def scores(request):
    return make_scores(request.param)


@pytest.fixture(params=[False, True], ids=["ordinary", "strict"])
def calibration(request, scores):
    return Calibration.from_scores(scores, strict=request.param)


@pytest.fixture
def dist(mixture, calibration):
    return CalibratedMixture(mixture, calibration)
