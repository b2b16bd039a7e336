"""Shortest intervals of every distribution that a model can predict, against brute force."""

import numpy as np
import pytest
from scipy.special import ndtri
from tests.distributions._predicted import calibrated, continuous, mixture, observed

from calipers.calibration import CalibratedMixture, Calibration
from calipers.distributions import (
    Distribution,
    ObservedDistribution,
    SplitNormal,
    SplitNormalMixture,
    Support,
)

COVERAGES = np.array([[0.1], [0.5], [0.9]])


EXAMPLES = continuous() | observed() | {"strict": calibrated(strict=True)}


def by_brute_force(dist, coverage, places=4001):
    """Width of the narrowest of many intervals that hold the mass."""
    tail = np.linspace(0, 1 - coverage[..., 0], places)[:, :, None]
    return np.min(dist.isf(1 - coverage - tail) - dist.ppf(tail), axis=0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_holds_its_mass_and_none_is_shorter(name):
    dist = EXAMPLES[name]
    lower, upper = dist.hdi(COVERAGES)
    assert lower.shape == (3, 5)
    below = getattr(dist, "cdf_below", dist.cdf)(lower)
    assert (dist.cdf(upper) - below >= COVERAGES - 1e-9).all()
    best = by_brute_force(dist, COVERAGES)
    # A short interval may miss the narrowest peak of a density with many jumps.
    assert (upper - lower <= best * (1 + np.array([[0.03], [1e-3], [1e-3]])) + 1e-9).all()
    central = np.subtract(*dist.interval(COVERAGES)[::-1])
    assert (upper - lower <= central * (1 + 1e-12)).all()
    if isinstance(dist, ObservedDistribution):
        assert dist.support.holds([lower, upper]).all()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_row_does_not_depend_on_others(name, monkeypatch):
    dist = EXAMPLES[name]
    whole = np.array(dist.hdi(0.8))
    monkeypatch.setattr("calipers.distributions._narrowest._BLOCK", 40)
    np.testing.assert_array_equal(dist.hdi(0.8), whole)
    np.testing.assert_array_equal(np.array(dist[3].hdi(0.8)), whole[:, 3])


def test_mixtures_agree_with_their_exact_form():
    for seed in range(3):
        dist = mixture(rows=40, seed=seed)
        for coverage in (0.1, 0.9):
            exact, found = dist.hdi(coverage), Distribution.hdi(dist, coverage)
            widths = [bounds[1] - bounds[0] for bounds in (found, exact)]
            np.testing.assert_allclose(*widths, rtol=1e-5)


@pytest.mark.parametrize("name", ["counts", "grades"])
def test_on_a_lattice_it_is_the_shortest_of_all(name):
    dist = EXAMPLES[name]
    values = dist.support.observe(np.arange(-2.0, 40.0, 0.25))
    values = np.unique(values)[:, None, None]
    mass = dist.cdf(values[None]) - dist.cdf_below(values[:, None])
    width = np.where(mass >= 0.8, values[None] - values[:, None], np.inf)
    lower, upper = dist.hdi(0.8)
    np.testing.assert_allclose(upper - lower, width.min(axis=(0, 1))[0])


def test_of_equal_widths_the_likeliest_is_taken():
    counts = ObservedDistribution(mixture(), Support(step=1.0))
    lower, upper = counts.hdi(0.7)
    mass = counts.cdf(upper) - counts.cdf_below(lower)
    for move in (-1, 1):
        assert (mass >= counts.cdf(upper + move) - counts.cdf_below(lower + move)).all()


def test_too_few_calibration_rows():
    few = CalibratedMixture(mixture(), Calibration.from_scores([-1.0, 0.0, 1.0], strict=True))
    assert np.isinf(few.hdi(0.9)).all()
    grades = ObservedDistribution(few, Support(low=1.0, high=5.0))
    np.testing.assert_array_equal(grades.hdi(0.9), [[1.0] * 5, [5.0] * 5])
    with pytest.raises(ValueError, match="needs at least 19 calibration rows"):
        CalibratedMixture(mixture(), few.calibration, unsupported="raise").hdi(0.9)
    with pytest.raises(ValueError, match="coverage must be above 0 and below 1"):
        few.hdi(1.0)


def test_a_point_mass_is_an_interval():
    point = SplitNormalMixture(SplitNormal([[3.0]], 0.0, 0.0))
    dist = CalibratedMixture(point, Calibration.from_scores(ndtri(np.arange(1, 100) / 100)))
    np.testing.assert_array_equal(dist.hdi(0.5), [[3.0], [3.0]])
