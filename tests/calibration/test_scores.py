"""Normal scores: accurate where F has digits, finite and in order where it has none."""

import joblib
import numpy as np
import pytest
from scipy.special import ndtri

from calipers.calibration import CalibratedMixture, Calibration, normal_scores
from calipers.calibration._level_map import MixtureRows
from calipers.distributions import SplitNormal, SplitNormalMixture


def normal(loc=0.0, scale=1.0):
    return SplitNormalMixture(SplitNormal([[loc]], scale, scale))


def values_of(mixture, z):
    """Inverse of the scores, by way of a calibration that changes nothing."""
    neutral = CalibratedMixture(mixture, Calibration.from_scores([0.0]))
    return neutral.apply(MixtureRows.values, np.asarray(z, dtype=float))


def test_scores_are_the_normal_quantiles_of_the_distribution_function(mixture):
    y = np.linspace(5.0, 15.0, 40)[:, None]
    assert np.allclose(normal_scores(mixture, y), ndtri(mixture.cdf(y)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("far", [8.2, 8.3, 8.4, 9.0, 37.0, 38.6, 40.0, 1e3, 1e6, 1e9])
def test_one_normal_has_its_own_distances_beyond_the_saturation_of_floats(far):
    assert float(normal().cdf(9.0)[0]) == 1.0, "the trap: beyond 8.3 sigma F is 1"
    both = normal_scores(normal(3.0, 2.0), [3.0 - 2.0 * far, 3.0 + 2.0 * far])
    assert np.allclose(both, [-far, far], rtol=1e-12)


def test_far_rows_stay_finite_and_in_order(mixture):
    steps = np.logspace(-3, 7, 400)
    y = 10.0 + np.concatenate([-steps[::-1], steps])[:, None]
    z = normal_scores(mixture, y)
    assert np.isfinite(z).all()
    assert (np.diff(z, axis=0) > 0).all()


def test_no_seam_where_logarithms_take_over(mixture):
    z = np.linspace(-37.5, -35.5, 2001)[:, None] * np.ones(mixture.shape)
    x = values_of(mixture, z)
    assert (np.diff(x, axis=0) > 0).all()
    assert np.allclose(np.diff(x, axis=0), np.diff(x, axis=0)[:1], rtol=1e-2)


@pytest.mark.parametrize("z", [-1e6, -300.0, -37.0, -36.0, -5.0, 0.0, 2.0, 36.3, 45.0, 1e6])
def test_values_are_the_inverse_of_scores(mixture, z):
    x = values_of(mixture, np.full(mixture.shape, z))
    assert np.allclose(normal_scores(mixture, x), z, rtol=1e-9, atol=1e-9)


def test_far_scores_belong_to_the_widest_component():
    mixture = SplitNormalMixture(SplitNormal([[0.0], [0.0]], [[1.0], [5.0]], [[2.0], [0.1]]))
    below, above = normal_scores(mixture, [-5e4, 2e4])
    assert np.allclose([below, above], [-1e4, 1e4], rtol=1e-6)


def test_scales_of_zero_give_huge_finite_ordered_scores():
    point = SplitNormalMixture(SplitNormal([[1.0], [1.0]], 0.0, 0.0))
    z = normal_scores(point, [-1e300, -5.0, 0.5, 1.0, 1.5, 7.0, 1e300])
    assert np.isfinite(z).all()
    assert (np.diff(z) > 0).all()
    assert z[3] == 0.0
    half = SplitNormalMixture(SplitNormal([[1.0]], 0.0, 2.0))
    z = normal_scores(half, [-5.0, 0.5, 1.5, 7.0])
    assert np.isfinite(z).all()
    assert (np.diff(z) > 0).all()


def test_a_point_mass_among_others_has_the_middle_of_its_jump():
    mixture = SplitNormalMixture(SplitNormal([[0.0], [0.0]], [[0.0], [1.0]], [[0.0], [1.0]]))
    assert np.allclose(normal_scores(mixture, [-1e-9, 0.0, 1e-9]), [ndtri(0.25), 0, ndtri(0.75)])


def test_threads_do_not_matter():
    many = SplitNormalMixture(SplitNormal(np.zeros((3, 20_000)), 1.0, 2.0))
    y = np.random.default_rng(0).normal(0, 30, 20_000)
    with joblib.parallel_config("threading", n_jobs=2):
        found = normal_scores(many, y)
    assert np.array_equal(normal_scores(many, y), found)


def test_targets_must_be_finite(mixture):
    with pytest.raises(ValueError, match="y must be finite"):
        normal_scores(mixture, np.nan)
