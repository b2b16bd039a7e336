"""Laws that hold for every distribution of the table."""

import numpy as np
import pytest

from calipers.distributions import SplitNormal, SplitNormalMixture

LEVELS = np.concatenate(
    [10.0 ** -np.arange(1, 301, 13.0), np.linspace(0.01, 0.99, 57), [1 - 1e-12]]
)


def transformed(dist, factor, shift):
    if isinstance(dist, SplitNormalMixture):
        return SplitNormalMixture(transformed(dist.components, factor, shift), dist.weights)
    return SplitNormal(
        factor * dist.loc + shift, factor * dist.left_scale, factor * dist.right_scale
    )


def mirrored(dist):
    if isinstance(dist, SplitNormalMixture):
        return SplitNormalMixture(mirrored(dist.components), dist.weights)
    return SplitNormal(-dist.loc, dist.right_scale, dist.left_scale)


def test_density_integrates_to_one(example):
    assert example.expect(np.ones_like) == pytest.approx(1, abs=1e-12)


def test_logarithm_of_density(example):
    x = np.concatenate([np.linspace(-8, 8, 101), example.loc])
    np.testing.assert_allclose(np.exp(example.dist.logpdf(x)), example.dist.pdf(x), rtol=1e-9)


def test_logarithm_of_density_does_not_underflow(example):
    has_tail = np.any(example.left > 0)
    assert np.isfinite(example.dist.logpdf(-1e5)) == has_tail


@pytest.mark.parametrize("p", [0.003, 0.2, 0.5, 0.77, 0.999])
def test_distribution_function_is_the_integral_of_the_density(example, p):
    x = float(example.dist.ppf(p))
    mass = example.expect(lambda at: at <= x, breaks=[x])
    assert example.dist.cdf(x) == pytest.approx(mass, rel=1e-9)


def test_tails_add_up(example):
    x = np.concatenate([np.linspace(-60, 60, 301), example.loc])
    np.testing.assert_allclose(example.dist.cdf(x) + example.dist.sf(x), 1, rtol=1e-14)


def test_distribution_function_rises_from_0_to_1(example):
    x = np.concatenate([[-np.inf], np.linspace(-60, 60, 501), [np.inf]])
    assert np.all(np.diff(example.dist.cdf(x)) >= 0)
    np.testing.assert_array_equal(example.dist.cdf(x[[0, -1]]), [0, 1])


def test_quantiles_invert_both_tails(example, misses_quantile):
    assert np.max(misses_quantile(example.dist, LEVELS, example.dist.ppf(LEVELS))) <= 1e-12
    upper = example.dist.isf(LEVELS)
    assert np.max(misses_quantile(mirrored(example.dist), LEVELS, -upper)) <= 1e-12


def test_quantiles_at_0_and_1_are_the_ends_of_the_support(example):
    low = np.where(example.left > 0, -np.inf, example.loc).min()
    high = np.where(example.right > 0, np.inf, example.loc).max()
    assert (example.dist.ppf(0), example.dist.ppf(1)) == (low, high)
    assert (example.dist.isf(1), example.dist.isf(0)) == (low, high)


def test_mirror_image(example):
    flipped, x = mirrored(example.dist), np.linspace(-10, 10, 77)
    np.testing.assert_allclose(flipped.pdf(-x), example.dist.pdf(x), rtol=1e-12)
    np.testing.assert_allclose(flipped.ppf(0.3), -example.dist.isf(0.3), rtol=1e-12)


def test_moments_against_quadrature(example):
    mean = example.expect(lambda x: x)
    assert example.dist.mean == pytest.approx(mean, rel=1e-10, abs=1e-12)
    var = example.expect(lambda x: (x - mean) ** 2)
    assert example.dist.var == pytest.approx(var, rel=1e-8, abs=0)
    assert example.dist.std == pytest.approx(np.sqrt(var), rel=1e-8, abs=0)


def test_moments_against_sampling(example, rng):
    """Five standard errors: a correct sampler fails once in 1.7 million, and the seed is fixed."""
    n = 40_000
    x = example.dist.sample(n, rng=rng)
    assert x.shape == (n,)
    assert abs(x.mean() - example.dist.mean) <= 5 * example.dist.std / np.sqrt(n) + 1e-9
    for p in (0.1, 0.5, 0.9):
        q = example.dist.ppf(p)
        mass = example.dist.cdf(q)
        spread = 5 * np.sqrt(mass * (1 - mass) / n)
        # A sample on an atom is on it exactly.
        assert abs(np.mean(x <= q) - mass) <= spread + 1e-12


def test_central_interval_has_equal_tails(example, misses_quantile):
    coverage = np.array([0.01, 0.5, 0.8, 0.95, 1 - 1e-6])
    lower, upper = example.dist.interval(coverage)
    tail = (1 - coverage) / 2
    assert np.max(misses_quantile(example.dist, tail, lower)) <= 1e-12
    assert np.max(misses_quantile(mirrored(example.dist), tail, -upper)) <= 1e-12
    assert np.all(np.diff(lower) <= 0)
    assert np.all(np.diff(upper) >= 0)


@pytest.mark.long
def test_shortest_interval_holds_its_mass_and_is_no_wider(example):
    for coverage in (0.1, 0.5, 0.95):
        lower, upper = (float(bound) for bound in example.dist.hdi(coverage))
        mass = example.dist.cdf(upper) - example.dist.cdf(np.nextafter(lower, -np.inf))
        # One ulp of a bound may move the mass by the density times that ulp.
        ulp = np.spacing(max(abs(lower), abs(upper)))
        slack = 0 if example.has_atoms else ulp * np.max(example.dist.pdf(example.loc))
        assert mass >= coverage - 1e-9 - slack
        central = example.dist.interval(coverage)
        assert upper - lower <= (central[1] - central[0]) * (1 + 1e-9) + 4 * ulp


@pytest.mark.parametrize("y", [-70.0, -1.0, 0.0, 0.4, 3.0, 500.0])
def test_crps_is_the_integral_of_the_squared_error_of_cdf(example, y):
    def squared_error(x):
        return np.where(x < y, example.dist.cdf(x), example.dist.sf(x)) ** 2

    assert example.dist.crps(y) == pytest.approx(
        example.integrate(squared_error, [y]), rel=1e-9, abs=0
    )


@pytest.mark.parametrize(("factor", "shift"), [(3.0, 0.0), (1e-3, 2.0), (2.0**400, 0.0)])
def test_scaling_and_shifting_commute(example, factor, shift):
    dist, moved = example.dist, transformed(example.dist, factor, shift)
    p = np.array([1e-9, 0.3, 0.5, 0.9])
    size = factor * (np.max(np.abs(example.loc)) + example.dist.std + 1) + abs(shift)
    close = {"rtol": 1e-9, "atol": 1e-13 * size}
    np.testing.assert_allclose(moved.ppf(p), factor * dist.ppf(p) + shift, **close)
    np.testing.assert_allclose(moved.mean, factor * dist.mean + shift, **close)
    np.testing.assert_allclose(moved.std, factor * dist.std, **close)
    y = np.array([-1.0, 0.5])
    np.testing.assert_allclose(moved.crps(factor * y + shift), factor * dist.crps(y), **close)
