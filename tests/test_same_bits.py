"""A row's prediction has the same bits alone, in a small batch and in a large one.

That it has them in models of every kind is tested in ``serialization/test_forged.py``, which has
such models.
"""

from dataclasses import replace

import numpy as np
import pytest

from calipers import IntervalRegressor
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.networks import MLP
from calipers.prediction import Query

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.5, 2.5, (120, 3))
Y = X[:, 0] + RNG.normal(size=120)
FIRST = 35  # rows that are also predicted in small batches
ALL = Query(
    (0.95, 0.5),
    (0.1, 0.5),
    variance=True,
    variance_parts=True,
    density=5,
    members=True,
    at=Y,
)
MODELS = {
    "calibrated": {"cv": 5},
    "bounds": {"loss": "interval score", "cv": 5},
    "as the networks have it": {"loss": "normal", "cv": None},
    "sem": {"loss": "interval score", "aggregation": "sem", "cv": None},
    "std": {"loss": "interval score", "aggregation": "std", "cv": None},
}


@pytest.mark.long
@pytest.mark.parametrize("parameters", MODELS.values(), ids=MODELS.keys())
def test_bits_do_not_depend_on_the_batch(parameters):
    settings = {"n_networks": 20, "epochs": 2, "random_state": 0, "verbose": 0}
    network = MLP(hidden_layers=(8,), frequencies=0)
    model = IntervalRegressor(network=network, **settings, **parameters).fit(X, Y)
    has_all = model.ensemble_.gives_distribution
    whole = model.query(X, ALL if has_all else Query((0.95,)))
    for size in (1, 7):
        parts = [
            model.query(
                X[i : i + size], replace(ALL, at=Y[i : i + size]) if has_all else Query((0.95,))
            )
            for i in range(0, FIRST, size)
        ]
        for name, array in vars(whole).items():
            if array is not None and name not in ("coverages", "levels", "quantile_levels"):
                found = np.concatenate([getattr(part, name) for part in parts])
                np.testing.assert_array_equal(
                    found, array[:FIRST], err_msg=f"{name}, {size} at a time"
                )


@pytest.mark.long
@pytest.mark.parametrize("method", ["ppf", "isf", "crps", "logpdf", "cdf"])
def test_far_tails_too(method):
    loc = RNG.normal(0, 30, (20, 60))
    left, right = RNG.uniform(0.1, 5, (2, 20, 60))
    where = {"ppf": 1e-299, "isf": 1e-299}.get(method, RNG.normal(0, 300, 60))
    mixture = SplitNormalMixture(SplitNormal(loc, left, right))
    whole = getattr(mixture, method)(np.broadcast_to(where, 60))
    alone = [
        getattr(mixture[[i]], method)(np.broadcast_to(where, 60)[[i]])[0] for i in range(len(whole))
    ]
    np.testing.assert_array_equal(alone, whole)
