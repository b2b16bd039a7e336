"""Distributions of targets that cannot take every value, against samples and hand-made sums."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from calipers.calibration import CalibratedMixture, Calibration
from calipers.distributions import (
    ObservedDistribution,
    SplitNormal,
    SplitNormalMixture,
    Support,
    TargetMap,
    atoms,
    latent_targets,
    match_atoms,
    mean_density,
    on_target_scale,
)

SUPPORTS = {
    "counts": Support(low=0.0, step=1.0),
    "grades": Support(low=1.0, high=5.0, step=0.5, decimals=1),
    "standardised grades": Support(
        low=-0.7, high=2.3, step=0.75, origin=-0.7, values=(-0.7, 0.05, 0.8, 1.55, 2.3)
    ),
    "from zero": Support(low=0.0),
    "range": Support(low=0.0, high=2.0),
    "cap": Support(high=1.5),
    "moved edge": Support(low=0.0, latent=(0.4, 1.0, 2.0), observed=(0.0, 0.6, 2.0)),
    "moved counts": Support(low=0.0, step=1.0, latent=(0.2, 1.5), observed=(0.5, 1.5)),
    "counts from 0.5 on": Support(low=0.5, high=4.2, step=1.0),
    "often 0.5": Support(
        latent=(-1.0, 0.3, 1.1, 2.0), observed=(-0.8, 0.5, 0.5, 1.6), atoms=(0.5,)
    ),
    "capped, often 0.5": Support(
        high=2.0, latent=(0.2, 0.4, 1.1), observed=(0.3, 0.5, 0.5), atoms=(0.5,)
    ),
}


def latent(rows=6, seed=0):
    rng = np.random.default_rng(seed)
    members = SplitNormal(
        rng.normal(1, 1, (3, rows)), rng.uniform(0.3, 2, (3, rows)), rng.uniform(0.3, 2, (3, rows))
    )
    return SplitNormalMixture(members)


@pytest.fixture(params=SUPPORTS, scope="module")
def dist(request):
    return ObservedDistribution(latent(), SUPPORTS[request.param])


@pytest.fixture(scope="module")
def draws(dist):
    return dist.sample(200_000, rng=np.random.default_rng(1))


def test_samples_are_values_of_the_support(dist, draws):
    assert dist.support.holds(draws).all()


def test_moments_are_those_of_samples(dist, draws):
    mean, variance = dist.moments()
    error = np.sqrt(variance / len(draws)) + 1e-9
    assert (np.abs(mean - draws.mean(axis=0)) < 5 * error).all()  # fails once in a million rows
    assert_allclose(variance, draws.var(axis=0), rtol=0.03)
    assert_allclose(dist[2].mean, mean[2], rtol=1e-6)


def test_crps_is_the_mean_distance_less_half_the_spread(dist, draws):
    y = dist.support.observe(np.random.default_rng(2).normal(1, 1, (4, 6)))
    first, second = draws[: len(draws) // 2], draws[len(draws) // 2 :]
    near = np.stack([np.abs(first - row).mean(axis=0) for row in y])
    assert_allclose(dist.crps(y), near - 0.5 * np.abs(first - second).mean(axis=0), atol=0.012)


def test_crps_of_a_lattice_is_a_sum():
    dist = ObservedDistribution(latent(), SUPPORTS["counts"])
    x = np.arange(0.0, 60.0)
    steps = (dist.cdf(x[:, None]) - (x[:, None] >= 3.0)) ** 2
    assert_allclose(dist.crps(3.0), steps.sum(axis=0), rtol=1e-9)


def test_within_the_bounds_nothing_changes():
    far = SplitNormalMixture(SplitNormal([[50.0, 1.0]], 1.0, 2.0))
    dist = ObservedDistribution(far, Support(low=0.0))
    assert dist.crps(51.0)[0] == far.crps(51.0)[0]
    assert dist.var[0] == far.var[0]
    assert dist.mean[1] > far.mean[1]  # what lay below 0 lies at 0
    lower, upper = dist.interval(0.9)
    assert upper.tolist() == far.interval(0.9)[1].tolist()
    assert lower[0] == far.interval(0.9)[0][0]


def test_a_clipped_normal_by_hand():
    dist = ObservedDistribution(
        SplitNormalMixture(SplitNormal([[1.0]], 1.0, 1.0)), Support(low=0.0)
    )
    assert_allclose(dist.mean, norm.pdf(1) + norm.cdf(1), rtol=1e-6)
    assert_allclose(dist.pmf(0.0), norm.cdf(-1), rtol=1e-9)
    assert dist.pdf(-0.5) == dist.pdf(0.0) == 0
    assert_allclose(dist.pdf(0.5), norm.pdf(0.5, 1), rtol=1e-9)
    assert_allclose(dist.logpdf(0.0), norm.logcdf(-1), rtol=1e-9)


def test_cdf_pmf_and_quantiles_fit_together(dist):
    y = np.unique(dist.support.observe(np.linspace(-2, 6, 41)))[:, None]
    upto, below = dist.cdf(y), dist.cdf_below(y)
    assert_allclose(dist.pmf(y), upto - below, atol=1e-15)
    assert_allclose(dist.sf(y), 1 - upto, atol=1e-12)
    levels = np.linspace(0.03, 0.97, 23)[:, None]
    found = dist.ppf(levels)
    assert dist.support.holds(found).all()
    assert (dist.cdf(found) >= levels - 1e-9).all()
    assert (dist.cdf_below(found) <= levels + 1e-9).all()
    assert_allclose(dist.isf(1 - levels), found, atol=1e-9)


def test_intervals_hold_at_least_their_mass(dist):
    for coverage in (0.5, 0.9, 0.99):
        lower, upper = dist.interval(coverage)
        assert (dist.cdf(upper) - dist.cdf_below(lower) >= coverage - 1e-9).all()
        assert dist.support.holds(np.stack([lower, upper])).all()


def test_density_and_atoms_make_one(dist):
    density, masses = mean_density(dist, 400), atoms(dist)
    x, height = density[:, 0], density[:, 1]
    continuous = np.sum(height * (x[:, 1:2] - x[:, :1]), axis=1)
    assert_allclose(continuous + np.nansum(masses[:, 1], axis=1), 1.0, atol=0.004)
    low, high = dist.support.bounds
    assert (x >= low).all()
    assert (x <= high).all()
    assert (np.isnan(masses[:, 0]) | dist.support.holds(masses[:, 0])).all()


def test_a_fine_lattice_is_drawn_as_a_density():
    wide = SplitNormalMixture(SplitNormal([[500.0]], 100.0, 100.0))
    dist = ObservedDistribution(wide, Support(low=0.0, step=1.0))
    assert np.isnan(atoms(dist)).all()
    assert mean_density(dist, 50)[0, 1].max() > 0.003


def test_unsupported_coverages_reach_to_the_bounds():
    few = CalibratedMixture(latent(), Calibration.from_scores([-1.0, 0.0, 1.0]))
    lower, upper = ObservedDistribution(few, Support(low=0.0)).interval(0.95)
    assert (lower == 0).all()
    assert np.isinf(upper).all()


def test_edges_are_inverse_to_the_map(dist):
    y = np.unique(dist.support.observe(np.linspace(-2, 6, 101)))
    low, high = dist.support.lower_edge(y), dist.support.upper_edge(y)
    assert (low <= high).all()
    assert_allclose(dist.support.observe(high), y, atol=1e-12)
    inside = np.where(np.isinf(low), high - 1, 0.5 * (low + np.minimum(high, low + 1)))
    assert_allclose(dist.support.observe(inside), y, atol=1e-12)


def test_latent_targets_have_the_latent_distribution():
    """If predictions are right, scores of latent targets are standard normal, ties or not."""
    z = latent(rows=20_000)
    for support in (SUPPORTS["counts"], SUPPORTS["range"], SUPPORTS["moved edge"]):
        y = support.observe(z.sample(rng=np.random.default_rng(3)))
        found = latent_targets(support, z, y, np.random.default_rng(4))
        assert_allclose(support.observe(found), y, atol=1e-12)
        levels = z.cdf(found)
        # 1.95 / sqrt(n) is what Kolmogorov's distance exceeds once in a thousand times
        steps = np.arange(1, len(y) + 1) / len(y)
        assert np.abs(np.sort(levels) - steps).max() < 1.95 / len(y) ** 0.5


def test_latent_targets_far_out_are_finite_and_in_their_cells():
    z = SplitNormalMixture(SplitNormal(np.array([[0.0, 1e4, -1e4]]), 1.0, 1.0))
    support = Support(low=0.0, step=1.0)
    y = np.array([500.0, 0.0, 3.0])
    found = latent_targets(support, z, y, np.random.default_rng(0))
    assert np.isfinite(found).all()
    assert support.observe(found).tolist() == y.tolist()


def test_matched_atoms_have_the_mass_that_targets_have():
    z = latent(rows=4000)
    y = Support(low=0.0).observe(z.sample(rng=np.random.default_rng(5)))
    y[np.random.default_rng(6).random(len(y)) < 0.3] = 0.0  # more zeros than the latent says
    zeros = np.mean(y == 0)
    support = match_atoms(Support(low=0.0), z, y)
    assert abs(ObservedDistribution(z, Support(low=0.0)).pmf(0.0).mean() - zeros) > 0.1
    assert abs(ObservedDistribution(z, support).pmf(0.0).mean() - zeros) < 0.02
    counts = Support(low=0.0, step=1.0)
    whole = counts.observe(y)
    matched = ObservedDistribution(z, match_atoms(counts, z, whole))
    assert abs(matched.pmf(0.0).mean() - np.mean(whole == 0)) < 0.02


@pytest.mark.parametrize("below", [0.5, 0.03])  # the atom may be the first knot, or not
def test_a_frequent_value_between_others_has_its_mass(below):
    z = latent(rows=4000)
    y = z.sample(rng=np.random.default_rng(5))
    y += np.quantile(y, 0.5) - np.quantile(y, below)
    y[np.random.default_rng(6).random(len(y)) < 0.3] = 1.0
    support = match_atoms(Support(atoms=(1.0,)), z, y)
    dist = ObservedDistribution(z, support)
    assert abs(dist.pmf(1.0).mean() - np.mean(y == 1)) < 0.02
    assert abs(dist.cdf_below(1.0).mean() - np.mean(y < 1)) < 0.02
    places = np.linspace(-9, 9, 37)[:, None]
    assert (np.diff(dist.cdf(places), axis=0) >= 0).all()
    assert (dist.cdf(dist.ppf(0.01)) >= 0.01 - 1e-9).all()
    assert np.isfinite(support.latent).all()
    assert (np.diff(support.latent) > 0).all()


def test_without_heavy_atoms_edges_stay():
    z = latent(rows=500)
    y = np.abs(z.sample(rng=np.random.default_rng(0)))
    assert match_atoms(Support(low=0.0), z, y) == Support(low=0.0)


@pytest.mark.parametrize("step", [0.0, 1.0])
def test_moments_on_another_scale_end_where_those_of_the_scale_do(step):
    """A wide tail on a logarithmic scale would make a mean of numbers that nobody has seen."""
    wide = SplitNormalMixture(SplitNormal([[1.0, 1.0]], 1.0, [[1.0, 9.0]]))
    scale = TargetMap("asinh", 1.0, -1.0, 3.5)
    dist = on_target_scale(wide, scale, Support(low=0.0, step=step))
    largest = np.floor(scale.back(3.5)) if step else scale.back(3.5)
    draws = np.minimum(dist.sample(400_000, rng=np.random.default_rng(0)), largest)
    mean, variance = dist.moments()
    assert_allclose(mean, draws.mean(axis=0), rtol=0.02, atol=0.02)
    assert_allclose(variance, draws.var(axis=0), rtol=0.05)
    far = on_target_scale(wide, TargetMap("asinh", 1.0), Support(low=0.0, step=step))
    assert far.mean[1] > 1e3 * mean[1]
