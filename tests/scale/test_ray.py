"""The Ray backend of joblib, where Ray is installed."""

import joblib
import numpy as np
import pytest

from calipers import IntervalRegressor

from .conftest import TINY

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # Ray's own warnings


def test_a_fit_on_ray_gives_the_same_bits(rows):
    from ray.util.joblib import register_ray

    settings = {"n_networks": 12, **TINY}
    expected = IntervalRegressor(**settings).fit(*rows)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with joblib.parallel_config(backend="ray"):
            found = IntervalRegressor(**settings).fit(*rows)
    finally:
        ray.shutdown()
    pairs = zip(found.ensemble_.bank.weights, expected.ensemble_.bank.weights, strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
