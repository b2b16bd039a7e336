"""Highest density regions of every distribution that a model can predict."""

from functools import partial

import joblib
import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm
from tests.distributions import _predicted

from calipers.calibration import CalibratedMixture, Calibration
from calipers.calibration._level_map import KnotMap
from calipers.distributions import (
    Distribution,
    ObservedDistribution,
    SplitNormal,
    SplitNormalMixture,
    Support,
    TargetMap,
    TransformedMixture,
)

COVERAGES = np.array([[0.1], [0.5], [0.9]])
LEVELS = ndtri((np.arange(2000) + 0.5) / 2000)  # scores of a model that is right


WIDE = {"rows": 8, "spread": 2.0, "widest": 1.5}
mixture = partial(_predicted.mixture, **WIDE)
calibrated = partial(_predicted.calibrated, **WIDE)


def humps(*places, scale=1.0):
    return SplitNormalMixture(SplitNormal(np.array(places)[:, None], scale, scale))


def line(start, slope):
    """A calibration that moves and stretches normal scores."""
    return KnotMap.through(np.array([-1.0, 1.0]), start + slope * np.array([-1.0, 1.0]), 10**6)


CONTINUOUS = _predicted.continuous(**WIDE) | {
    "mixture": mixture(),
    "weighted": CalibratedMixture(
        mixture(), Calibration.from_scores(LEVELS[::10] - 0.3), local=np.linspace(0.1, 3.0, 8)
    ),
}
OBSERVED = _predicted.observed(**WIDE) | {
    "often 0.5": ObservedDistribution(
        calibrated(),
        Support(latent=(-1.0, 0.3, 1.1, 2.0), observed=(-0.8, 0.5, 0.5, 1.6), atoms=(0.5,)),
    ),
}
EXAMPLES = CONTINUOUS | OBSERVED


def mass_of(dist, lower, upper):
    """Mass of the intervals with their ends, of which no two overlap."""
    there = ~np.isnan(lower)
    assert (there == ~np.isnan(upper)).all()
    assert (upper[there] >= lower[there]).all()
    assert (lower[1:][there[1:]] > upper[:-1][there[1:]]).all()
    below, upto = (np.where(there, x, 0.0) for x in (lower, upper))
    each = dist.cdf(upto) - getattr(dist, "cdf_below", dist.cdf)(below)
    return np.where(there, each, 0.0).sum(axis=0)


def contained(x, lower, upper):
    return ((lower[:, None] <= x) & (x <= upper[:, None])).any(axis=0)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_it_holds_its_mass_where_the_density_is_highest(name):
    """The density is that with a straight line in place of the map of the calibration."""
    dist = CONTINUOUS[name]
    lower, upper = dist.hdr(COVERAGES)
    assert lower.shape[1:] == (3, 8)
    np.testing.assert_allclose(mass_of(dist, lower, upper), COVERAGES + np.zeros(8), atol=1e-10)
    order = dist._straightened
    ends = order.logpdf(np.where(np.isnan([lower, upper]), lower[0], [lower, upper]))
    level = ends.max(axis=(0, 1))
    np.testing.assert_allclose(ends, level + np.zeros_like(ends), atol=1e-9)
    x = dist.ppf(np.linspace(1e-4, 1 - 1e-4, 2001)[:, None, None])
    height, inside = order.logpdf(x), contained(x, lower, upper)
    assert not (inside & (height < level - 1e-6)).any()
    assert not (~inside & (height > level + 1e-6)).any()


@pytest.mark.parametrize("members", [1, 4, 40])
def test_without_calibration_it_is_the_exact_one(members):
    dist = mixture(rows=60, members=members, spread=4.0)
    neutral = ObservedDistribution(CalibratedMixture(dist, line(0.0, 1.0)), Support())
    for coverage in (0.01, 0.5, 0.99):
        exact = dist.hdr(coverage)
        np.testing.assert_allclose(Distribution.hdr(dist, coverage), exact, atol=1e-6)
        np.testing.assert_allclose(neutral.hdr(coverage), exact, atol=1e-6)


def test_a_moved_and_stretched_normal_by_hand():
    dist = CalibratedMixture(humps(3.0, scale=2.0), line(0.5, 1.5))
    distance = 3.0 * norm.ppf(0.9)
    np.testing.assert_allclose(dist.hdr(0.8), [[[4.0 - distance]], [[4.0 + distance]]], rtol=1e-9)


def test_one_interval_for_each_mode_and_not_for_each_row():
    """Calibrated on 100 rows, whose scores are 0.1 apart or less."""
    scores = np.random.default_rng(0).normal(0.2, 1.2, 100)
    for places in ([0.0, 0.5], [-9.0, 9.0], [-20.0, 0.0, 20.0]):
        dist = CalibratedMixture(humps(*places), Calibration.from_scores(scores))
        modes = len(humps(*places).modes())
        for coverage in (0.5, 0.8, 0.9):
            lower, upper = dist.hdr(coverage)
            assert np.isfinite(lower).all()
            assert len(lower) == modes
            assert mass_of(dist, lower, upper)[0] == pytest.approx(coverage, abs=1e-10)


@pytest.mark.parametrize(("scores", "excess"), [(0.4 + 1.2 * LEVELS, 1e-3), (None, 0.1)])
def test_with_one_mode_it_is_hardly_wider_than_the_shortest_interval(scores, excess):
    """A shortest interval makes use of the jumps of the density, which are chance."""
    if scores is None:
        scores = np.random.default_rng(3).normal(0.4, 1.2, 300)
    dist = CalibratedMixture(mixture(rows=60, members=1), Calibration.from_scores(scores))
    for coverage in (0.5, 0.8, 0.95):
        (lower,), (upper,) = dist.hdr(coverage)
        low, high = dist.hdi(coverage)
        ratio = (upper - lower) / (high - low)
        assert ratio.min() > 1 - 1e-3
        assert ratio.max() < 1 + excess


def test_on_another_scale_the_density_is_that_of_the_targets_unit():
    dist = TransformedMixture(humps(0.5, scale=0.4), TargetMap("log", 3.0))
    (lower,), (upper,) = dist.hdr(0.8)
    np.testing.assert_allclose(dist.pdf(lower), dist.pdf(upper), rtol=1e-9)
    np.testing.assert_allclose(upper - lower, np.subtract(*dist.hdi(0.8)[::-1]), rtol=1e-4)
    assert upper < dist.interval(0.8)[1]


@pytest.mark.parametrize("name", OBSERVED)
def test_ends_are_values_of_the_target(name):
    dist = OBSERVED[name]
    lower, upper = dist.hdr(COVERAGES)
    assert (mass_of(dist, lower, upper) >= COVERAGES - 1e-10).all()
    assert dist.support.holds(lower[~np.isnan(lower)]).all()
    assert dist.support.holds(upper[~np.isnan(upper)]).all()


def test_point_masses_come_first():
    """The continuous part is one hump, with a fifth of its mass below zero."""
    dist = ObservedDistribution(humps(-4.0, 8.0, 8.0, 8.0, 8.0), Support(low=0.0))
    zero = float(dist.pmf(0.0)[0])
    np.testing.assert_array_equal(dist.hdr(0.1), [[[0.0]], [[0.0]]])
    lower, upper = dist.hdr(0.8)
    half = norm.ppf(0.5 + 0.5 * (0.8 - zero) / 0.8)
    np.testing.assert_allclose(lower[:, 0], [0.0, 8.0 - half], atol=1e-4)
    np.testing.assert_allclose(upper[:, 0], [0.0, 8.0 + half], atol=1e-4)


def test_a_point_mass_within_an_interval_has_none_of_its_own():
    knots = {"latent": (0.0, 0.9, 1.1), "observed": (0.0, 1.0, 1.0)}
    dist = ObservedDistribution(humps(0.0, 0.1), Support(low=-1.0, high=9.0, atoms=(1.0,), **knots))
    lower, upper = dist.hdr(0.9)  # -1 has mass and is an end, 1 is inside, 9 has hardly any
    assert lower.shape == (1, 1)
    assert lower == -1
    assert 1 < upper < 9
    assert dist.pmf(1.0)[0] > 0.05
    assert mass_of(dist, lower, upper)[0] == pytest.approx(0.9, abs=1e-10)


def test_where_a_valley_has_a_point_mass_its_mass_counts_once():
    knots = {"latent": (-4.0, -0.5, 0.5), "observed": (-3.5, 0.0, 0.0)}
    dist = ObservedDistribution(humps(-2.0, 2.0), Support(atoms=(0.0,), **knots))
    for coverage in (0.05, 0.7, 0.97):
        lower, upper = dist.hdr(coverage)
        assert mass_of(dist, lower, upper)[0] >= coverage - 1e-10
        assert ((lower <= 0) & (upper >= 0)).any()
    assert mass_of(dist, *dist.hdr(0.7))[0] == pytest.approx(0.7, abs=1e-10)
    assert len(dist.hdr(0.7)[0]) == 3
    assert len(dist.hdr(0.97)[0]) == 1


def test_a_small_mass_at_a_bound_is_a_tail():
    for place, count in ((2.0, 1), (1.5, 2)):  # 0.02 and 0.07 of the mass
        dist = ObservedDistribution(humps(place), Support(low=0.0))
        lower, upper = dist.hdr(0.8)
        assert len(lower) == count
        assert mass_of(dist, lower, upper)[0] == pytest.approx(0.8, abs=1e-10)
    often = Support(low=0.0, latent=(0.0, 0.1), observed=(0.0, 0.0))
    assert len(ObservedDistribution(humps(2.0), often).hdr(0.8)[0]) == 2
    lower, upper = ObservedDistribution(humps(2.0), Support(low=0.0)).hdr(0.99)
    assert lower == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_larger_region_contains_a_smaller_one(name):
    dist = EXAMPLES[name]
    x = dist.ppf(np.linspace(0.001, 0.999, 500)[:, None])
    inside = [contained(x, *dist.hdr(coverage)) for coverage in (0.05, 0.3, 0.6, 0.9, 0.99)]
    assert (np.diff(np.array(inside, int), axis=0) >= 0).all()


@pytest.mark.parametrize("name", ["counts", "grades"])
def test_on_a_lattice_no_fewer_values_hold_the_mass(name):
    support = EXAMPLES[name].support
    dist = ObservedDistribution(mixture(rows=40, spread=4.0), support)
    values = np.unique(support.observe(np.arange(-2.0, 60.0, 0.25)))[:, None]
    mass = dist.pmf(values)
    for coverage in (0.3, 0.8, 0.95):
        chosen = contained(values, *dist.hdr(coverage))
        held = np.where(chosen, mass, 0.0).sum(axis=0)
        least = np.where(chosen, mass, np.inf).min(axis=0)
        assert (held >= coverage - 1e-10).all()
        assert (held - least < coverage).all()
        assert (least >= np.where(chosen, 0.0, mass).max(axis=0) - 1e-12).all()


def test_neighbours_on_a_lattice_are_one_interval():
    counts = Support(low=0.0, step=1.0)
    lower, upper = ObservedDistribution(humps(2.0, 9.0), counts).hdr(0.85)
    np.testing.assert_array_equal(lower[:, 0], [1, 8])
    np.testing.assert_array_equal(upper[:, 0], [3, 10])


def test_many_values_are_like_a_continuous_target():
    smooth = calibrated()
    cents = ObservedDistribution(smooth, Support(step=0.001, decimals=3))
    np.testing.assert_allclose(cents.hdr(0.8), smooth.hdr(0.8), atol=0.001)
    excess = mass_of(cents, *cents.hdr(0.8)) - 0.8
    assert excess.min() >= 0
    assert excess.max() < 0.005


def test_too_few_calibration_rows():
    few = CalibratedMixture(humps(-9.0, 9.0), Calibration.from_scores(np.linspace(-1, 1, 9)))
    coverage = np.array([[0.5], [0.9]])
    lower, upper = few.hdr(coverage)
    assert lower.shape == (2, 2, 1)
    assert np.isfinite([lower[:, 0], upper[:, 0]]).all()
    np.testing.assert_array_equal(lower[:, 1, 0], [-np.inf, np.nan])
    np.testing.assert_array_equal(upper[:, 1, 0], [np.inf, np.nan])
    grades = ObservedDistribution(few, Support(low=1.0, high=5.0))
    np.testing.assert_array_equal(grades.hdr(0.9), [[[1.0]], [[5.0]]])
    with pytest.raises(ValueError, match="needs at least 19 calibration rows"):
        CalibratedMixture(humps(0.0), few.calibration, unsupported="raise").hdr(0.9)
    with pytest.raises(ValueError, match="coverage must be above 0 and below 1"):
        few.hdr(1.0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_row_does_not_depend_on_others(name, monkeypatch):
    dist = EXAMPLES[name]
    whole = np.array(dist.hdr(0.8))
    alone = np.array(dist[3].hdr(0.8))  # a distribution of shape ()
    np.testing.assert_array_equal(alone, whole[:, : alone.shape[1], 3])
    assert np.isnan(whole[:, alone.shape[1] :, 3]).all()
    monkeypatch.setattr("calipers.distributions._highest._BLOCK", 3)
    with joblib.parallel_config("threading", n_jobs=2):
        np.testing.assert_array_equal(dist.hdr(0.8), whole)
    many = np.array(dist.hdr(np.array([[0.8], [0.5]])))
    np.testing.assert_array_equal(many[:, : whole.shape[1], 0], whole)
    square = np.array(dist[np.arange(8).reshape(2, 4)].hdr(0.8))
    np.testing.assert_array_equal(square.reshape(whole.shape), whole)


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_rows_have_no_intervals(name):
    assert EXAMPLES[name][:0].hdr(0.8)[0].shape == (0, 0)


def test_a_point_mass_is_an_interval():
    point = SplitNormalMixture(SplitNormal([[3.0]], 0.0, 0.0))
    dist = CalibratedMixture(point, Calibration.from_scores(LEVELS))
    np.testing.assert_array_equal(dist.hdr(0.5), [[[3.0]], [[3.0]]])
    for score in (1.0, 1e6):
        ends = CalibratedMixture(humps(3.0), line(score, 0.0)).hdr(0.5)
        np.testing.assert_allclose(ends, score + 3.0, rtol=1e-9)


def test_a_split_normal_has_its_shortest_interval():
    one = SplitNormal([0.0, 1.0], 1.0, 2.0)
    np.testing.assert_array_equal(np.squeeze(one.hdr([[0.5], [0.9]]), 1), one.hdi([[0.5], [0.9]]))
    assert SplitNormal(0.0, 1.0, 1.0).hdr(0.5)[0].shape == (1,)
