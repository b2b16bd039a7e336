"""Intervals that heads give for the record of a training, against the exact distributions."""

import jax.numpy as jnp
import numpy as np
import pytest

from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.heads import HEADS


@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.95, 0.99, 0.999])
def test_intervals_of_split_normals(coverage):
    rng = np.random.default_rng(0)
    loc, left, right = rng.normal(size=500), *np.exp(rng.normal(scale=1.5, size=(2, 500)))
    lower, point, upper = HEADS["split normal"].interval(loc, left, right, coverage=coverage)
    exact = SplitNormal(loc, left, right).interval(coverage)
    np.testing.assert_array_equal(point, loc)
    np.testing.assert_allclose((lower - loc) / left, (exact[0] - loc) / left, atol=2e-4)
    np.testing.assert_allclose((upper - loc) / right, (exact[1] - loc) / right, atol=2e-4)


def test_intervals_of_several_components():
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=(3, 200)), np.exp(rng.normal(size=(3, 200)))
    share = rng.dirichlet(np.ones(3), size=200).T
    parameters = np.stack([loc, scale, share], axis=1).reshape(9, 200)
    head = HEADS["split normal"].with_components(3)
    lower, point, upper = head.interval(*jnp.asarray(parameters), coverage=0.9)
    exact = SplitNormalMixture(SplitNormal(loc, scale, scale), share)
    np.testing.assert_allclose(point, exact.mean, rtol=1e-5, atol=1e-6)
    ends = SplitNormal(loc, scale, scale).interval(0.9)  # of each component
    for found, quantile, own in zip((lower, upper), exact.interval(0.9), ends, strict=True):
        assert np.all(np.abs(found - quantile) < np.ptp(own, axis=0) / 1000)
