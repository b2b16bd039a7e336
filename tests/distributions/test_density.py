"""Modes, shortest intervals and highest density regions against brute force."""

import numpy as np
import pytest

from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.distributions._density import find_crossings


def several_modes(rng, rows):
    loc = rng.normal(size=(4, rows)) * 4
    left, right = np.exp(rng.normal(size=(2, 4, rows)))
    return SplitNormalMixture(SplitNormal(loc, left, right), rng.uniform(0.1, 1, 4))


def test_modes_by_brute_force(rng):
    """A fine grid has the same peaks, but for those that hardly rise above their surroundings."""
    mixture = several_modes(rng, 60)
    x = np.linspace(-20, 20, 40_001)
    modes = mixture.modes()
    for row in range(60):
        density = mixture[row].pdf(x)
        inner = density[1:-1]
        peaks = x[1:-1][(inner > density[:-2]) & (inner >= density[2:])]
        found = modes[:, row][~np.isnan(modes[:, row])]
        assert np.all(np.diff(found) > 0)
        if len(found) != len(peaks):
            assert len(found) < len(peaks)
            peaks = peaks[np.abs(peaks[:, None] - found).min(axis=1) < 2e-3]
        np.testing.assert_allclose(found, peaks, atol=2e-3)


def test_modes_of_far_components_and_point_masses():
    far = SplitNormalMixture(SplitNormal([0.0, 1e6, -1e9], 1.0, [1.0, 2.0, 3.0]))
    np.testing.assert_allclose(far.modes(), [-1e9, 0, 1e6], atol=1e-9)
    coin = SplitNormalMixture(SplitNormal([5.0, 0.0], 0.0, 0.0))
    np.testing.assert_array_equal(coin.modes(), [0, 5])
    jump = SplitNormalMixture(SplitNormal([0.0, 3.0], [1.0, 0.0], [1.0, 1.0]))
    np.testing.assert_array_equal(jump.modes(), [0, 3])


@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.8, 0.99])
def test_shortest_interval_by_brute_force(rng, coverage):
    mixture = several_modes(rng, 40)
    lower, upper = mixture.hdi(coverage)
    np.testing.assert_allclose(mixture.cdf(upper) - mixture.cdf(lower), coverage, atol=1e-11)
    below = np.linspace(0, 1, 1003)[1:-1, None] * (1 - coverage)
    widths = mixture.isf(1 - coverage - below) - mixture.ppf(below)
    assert np.all(upper - lower <= widths.min(axis=0) * (1 + 1e-10))


def test_shortest_interval_around_jumps_and_atoms():
    half = SplitNormalMixture(SplitNormal([2.0], 0.0, 1.0))
    lower, upper = half.hdi(0.9)
    assert lower == 2
    assert half.sf(upper) == pytest.approx(0.1, rel=1e-12)
    atom = SplitNormalMixture(SplitNormal([0.0, 4.0], [0.0, 1.0], [0.0, 1.0]), [3.0, 1.0])
    np.testing.assert_array_equal(atom.hdi(0.5), [0, 0])
    coins = SplitNormalMixture(SplitNormal([0.0, 1.0, 5.0], 0.0, 0.0))
    np.testing.assert_array_equal(coins.hdi(0.6), [0, 1])


@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.8, 0.99])
def test_highest_density_region_by_brute_force(rng, coverage):
    mixture = several_modes(rng, 40)
    lower, upper = mixture.hdr(coverage)
    there = ~np.isnan(lower)
    np.testing.assert_array_equal(there, ~np.isnan(upper))
    a, b = np.where(there, lower, 0), np.where(there, upper, 0)
    mass = np.where(there, mixture.cdf(b) - mixture.cdf(a), 0).sum(axis=0)
    np.testing.assert_allclose(mass, coverage, atol=1e-8)
    # One level at all ends, and a grid holds this mass above the same level.
    level = mixture.logpdf(lower[0])
    for end in (a, b):
        np.testing.assert_allclose(np.where(there, mixture.logpdf(end) - level, 0), 0, atol=1e-6)
    x = np.linspace(-60, 60, 24_001)[:, None]
    density = mixture.pdf(x)
    length = np.sum(density >= np.exp(level), axis=0) * 0.005
    np.testing.assert_allclose(np.nansum(upper - lower, axis=0), length, atol=0.05)
    assert np.all(
        np.nansum(upper - lower, axis=0) <= np.subtract(*mixture.hdi(coverage)[::-1]) + 1e-6
    )


def test_regions_join_when_the_valley_is_high():
    parts = SplitNormal([[0.0, 0.0], [2.5, 20.0]], 1.0, 1.0)
    lower, upper = SplitNormalMixture(parts).hdr(0.95)
    assert lower.shape == (2, 2)
    np.testing.assert_array_equal(np.isnan(lower), [[False, False], [True, False]])
    assert upper[0, 0] - lower[0, 0] < 7


def test_region_of_one_mode_is_the_shortest_interval(rng):
    one = SplitNormalMixture(SplitNormal(rng.normal(size=(2, 30)) * 0.2, 1.0, 2.0))
    np.testing.assert_allclose(np.squeeze(one.hdr(0.9), axis=1), one.hdi(0.9), rtol=1e-6)


def test_roots_where_a_function_jumps_or_keeps_its_sign():
    def steps(x, which):
        return np.where(which == 0, np.where(x < 0.3, -1.0, 2.0), x + 1)

    with np.errstate(all="ignore"):
        before, after = find_crossings(steps, np.zeros(2), np.ones(2))
        backwards, _ = find_crossings(steps, np.ones(2), np.zeros(2))
    assert before[0] < 0.3 <= after[0] < 0.3 + 1e-15
    assert before[1] == after[1] == 0
    assert 0.3 <= backwards[0] < 0.3 + 1e-15
