"""Distributions on another scale: quantiles exactly, moments and scores by other computations."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import lognorm

from calipers.calibration import CalibratedMixture, Calibration, normal_scores
from calipers.distributions import (
    ObservedDistribution,
    SplitNormal,
    SplitNormalMixture,
    Support,
    TargetMap,
    TransformedMixture,
)

KINDS = ["log", "asinh"]


def mixtures(rng, rows=20):
    parts = SplitNormal(rng.normal(size=(6, rows)), *np.exp(rng.normal(-1.5, 0.3, (2, 6, rows))))
    return SplitNormalMixture(parts, rng.dirichlet(np.ones(6), rows).T, per_network=3)


@given(st.sampled_from(KINDS), st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_maps_go_there_and_back(kind, y, unit):
    one = TargetMap(kind, unit)
    assert one.back(one.forward(y)) == pytest.approx(y, rel=1e-9)
    step = 1e-6 * y
    slope = (one.forward(y + step) - one.forward(y - step)) / (2 * step)
    assert np.exp(one.log_slope(y)) == pytest.approx(float(slope), rel=1e-3)


def test_an_unknown_scale_is_refused_instead_of_taken_for_asinh():
    with pytest.raises(ValueError, match=r"scale must be one of \['log', 'asinh'\], got 'sqrt'"):
        TargetMap("sqrt", 1.0)


def test_a_logarithm_of_a_normal_is_scipys():
    dist = TransformedMixture(
        SplitNormalMixture(SplitNormal([[0.5]], 0.4, 0.4)), TargetMap("log", 3.0)
    )
    exact = lognorm(0.4, scale=3 * np.exp(0.5))
    x, p = np.array([0.5, 3.0, 9.0]), np.array([0.01, 0.5, 0.9])
    for method, argument in (("pdf", x), ("logpdf", x), ("cdf", x), ("sf", x), ("ppf", p)):
        np.testing.assert_allclose(
            getattr(dist, method)(argument), getattr(exact, method)(argument)
        )
    np.testing.assert_allclose(dist.mean, exact.mean(), rtol=1e-4)
    np.testing.assert_allclose(dist.var, exact.var(), rtol=1e-3)
    np.testing.assert_allclose(dist.target_map.mean(dist.latent), exact.mean(), rtol=1e-7)
    assert dist.pdf([-1.0])[0] == 0
    assert dist.cdf([-1.0])[0] == 0


@pytest.mark.parametrize("support", [None, Support(low=0.0), Support(low=0.0, step=1.0)])
def test_a_wide_component_does_not_ruin_the_score(support):
    parts = SplitNormal([[3.0], [3.0]], [[0.5], [20.0]], [[0.5], [20.0]])
    latent = SplitNormalMixture(parts, [0.99, 0.01], per_network=2)
    targets = TargetMap("asinh", 1.0, low=0.0, high=6.0)
    dist = TransformedMixture(latent, targets)
    dist = dist if support is None else ObservedDistribution(dist, support)
    draws = dist.sample(400_000, rng=np.random.default_rng(0))[:, 0]
    assert draws.max() > 1e9
    draws = np.clip(draws, 0.0, targets.back(6.0))
    for y in (10.0, 1000.0):
        away = np.abs(draws - y).mean() - 0.5 * np.abs(draws - draws[::-1]).mean()
        assert dist.crps([y])[0] == pytest.approx(away, rel=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_agrees_with_draws(kind):
    rng = np.random.default_rng(0)
    dist = TransformedMixture(mixtures(rng), TargetMap(kind, 2.0))
    draws = dist.sample(40_000, rng=rng)
    y = dist.median + 0.3
    error = 5 * draws.std(axis=0) / 200  # 5 standard errors: fails once in 10^5 runs
    assert (np.abs(dist.mean - draws.mean(axis=0)) < error).all()
    assert (np.abs(draws.std(axis=0) / dist.std - 1) < 0.2).all()
    same = Calibration.without_rows()  # leaves levels as they are
    summed = TransformedMixture(CalibratedMixture(dist.latent, same), dist.target_map)
    np.testing.assert_allclose(summed.mean / dist.std, dist.mean / dist.std, atol=0.01)
    np.testing.assert_allclose(summed.std, dist.std, rtol=0.05)
    away = np.abs(draws - y).mean(axis=0) - 0.5 * np.abs(draws - draws[::-1]).mean(axis=0)
    assert (np.abs(dist.crps(y) - away) < 2 * error).all()
    equal = SplitNormalMixture(dist.components, per_network=3)
    dist = TransformedMixture(equal, dist.target_map)
    np.testing.assert_allclose(dist.aleatoric_var + dist.epistemic_var, dist.var, rtol=1e-9)


def test_scores_do_not_depend_on_the_scale():
    rng = np.random.default_rng(1)
    latent = mixtures(rng)
    z = rng.normal(size=20)
    scale = TargetMap("asinh", 5.0)
    wanted = normal_scores(latent, z)
    found = normal_scores(TransformedMixture(latent, scale), scale.back(z))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    calibrated = CalibratedMixture(latent, Calibration.from_scores(rng.normal(size=200) * 1.5))
    dist = TransformedMixture(calibrated, scale)
    for bound, inner in zip(dist.interval(0.8), calibrated.interval(0.8), strict=True):
        np.testing.assert_array_equal(bound, scale.back(inner))
    np.testing.assert_allclose(dist.cdf(dist.ppf(0.3)), 0.3, rtol=1e-9)
    assert len(dist[3:5]) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_means_stay_near_what_was_seen(kind):
    y = np.exp(np.random.default_rng(2).normal(size=500))
    scale = TargetMap.learn(kind, y)
    wild = SplitNormalMixture(SplitNormal([[0.0, 9.0]], 1.0, [[30.0, 1.0]]))
    ordinary = SplitNormalMixture(SplitNormal([[1.0]], 0.1, 0.1))
    for latent in (wild, CalibratedMixture(wild, Calibration.without_rows())):
        dist = TransformedMixture(latent, scale)
        assert (dist.mean < 10 * y.max()).all()
        assert np.isfinite(dist.std).all()
        assert (dist.ppf(0.999) > 100 * y.max()).all()  # quantiles have no limit
    free = TransformedMixture(ordinary, TargetMap(kind, scale.unit))
    np.testing.assert_allclose(TransformedMixture(ordinary, scale).mean, free.mean, rtol=1e-6)


def test_extreme_units_and_tiny_scales():
    y = np.exp(np.random.default_rng(0).normal(0, 1, 100))
    assert (np.diff(TargetMap.learn("log", 1e90 * y).back([-300.0, -200.0, -100.0])) > 0).all()
    for unit in (1e120, 1e-120):
        with pytest.raises(ValueError, match="median size from 1e-100 to 1e\\+100"):
            TargetMap.learn("asinh", unit * y)
    latent = SplitNormalMixture(SplitNormal(np.array([[0.3], [0.3000000001]]), 1e-9, 1e-9))
    assert TransformedMixture(latent, TargetMap.learn("log", [1e3, 2e3, 3e3])).aleatoric_var >= 0


def test_logarithms_need_positive_targets():
    with pytest.raises(ValueError, match="scale='log' needs positive targets, got 0 in row 1"):
        TargetMap.learn("log", [1.0, 0.0])
    assert TargetMap.learn("asinh", [-1.0, 0.0, 3.0]).unit == 2.0
