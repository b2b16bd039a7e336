"""Aggregations against hand-computed numbers, and their interface."""

import numpy as np
import pytest

from calipers.aggregation import AGGREGATIONS, Interval, normal, snm
from calipers.distributions import SplitNormal, SplitNormalMixture

LOWER = [[-1.0, 0.0], [-3.0, 0.0], [-2.0, 3.0]]
POINT = [[0.0, 2.0], [1.0, 2.0], [2.0, 5.0]]
UPPER = [[1.0, 4.0], [3.0, 4.0], [2.0, 7.0]]

# Column 0: the bounds have mean -2 and 2 and standard deviation 1; column 1: mean 1 and 5 and
# standard deviation sqrt(3). The quantile is 1.959963984540054.
BY_HAND = {
    "mean": ([-2, 1], [2, 5]),
    "std": ([-3.959963984540054, -2.394757203], [3.959963984540054, 8.394757203]),
    "sem": ([-3.131585734, -0.959963984540054], [3.131585734, 6.959963984540054]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_bounds_by_hand(name):
    bounds = AGGREGATIONS[name](LOWER, POINT, UPPER, coverage=0.95)
    assert isinstance(bounds, Interval)
    np.testing.assert_allclose(bounds.lower, BY_HAND[name][0], rtol=1e-9)
    np.testing.assert_allclose(bounds.upper, BY_HAND[name][1], rtol=1e-9)
    np.testing.assert_allclose(bounds.point, [1, 3])


@pytest.mark.parametrize(
    ("coverage", "quantile"), [(0.8, 1.2815515655446004), (0.5, 0.674489750196)]
)
def test_the_quantile_belongs_to_the_coverage(coverage, quantile):
    bounds = AGGREGATIONS["std"](LOWER, POINT, UPPER, coverage=coverage)
    np.testing.assert_allclose(bounds.lower[0], -2 - quantile, rtol=1e-11)


def test_none_leaves_members_as_they_are():
    bounds = AGGREGATIONS["none"](LOWER, POINT, UPPER, coverage=0.95)
    np.testing.assert_array_equal(bounds, [LOWER, POINT, UPPER])


@pytest.mark.parametrize("name", ["sem", "std", "mean"])
def test_one_member_keeps_its_bounds(name):
    bounds = AGGREGATIONS[name](LOWER[:1], POINT[:1], UPPER[:1], coverage=0.95)
    np.testing.assert_array_equal(bounds, [LOWER[0], POINT[0], UPPER[0]])


def test_snm_mixes_exact_fits():
    mixture = snm(LOWER, POINT, UPPER, coverage=0.9)
    assert isinstance(mixture, SplitNormalMixture)
    assert mixture.shape == (2,)
    exact = SplitNormal.from_interval(LOWER, POINT, UPPER, 0.9)
    np.testing.assert_array_equal(mixture.components.left_scale, exact.left_scale)
    alone = snm(LOWER[:1], POINT[:1], UPPER[:1], coverage=0.9)
    np.testing.assert_allclose(alone.interval(0.9), [LOWER[0], UPPER[0]], atol=1e-12)


def test_snm_marks_what_it_repaired():
    mixture = snm([[0.0], [2.0]], [[1.0], [1.0]], [[2.0], [0.0]], coverage=0.9)
    np.testing.assert_array_equal(mixture.components.repaired, [[False], [True]])


def test_normal_recovers_the_scale_of_normal_members():
    members = SplitNormal([[0.0], [1.0]], [[1.0], [3.0]], [[1.0], [3.0]])
    lower, upper = members.interval(0.95)
    mixture = normal(lower, members.mean, upper, coverage=0.95)
    np.testing.assert_allclose(mixture.components.left_scale, members.left_scale, rtol=1e-14)
    np.testing.assert_array_equal(mixture.components.loc, members.loc)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_bad_input_is_refused(name):
    aggregate = AGGREGATIONS[name]
    with pytest.raises(ValueError, match=r"point must be finite, got nan at index \(1, 0\)"):
        aggregate(LOWER, [[0, 2], [np.nan, 2], [2, 5]], UPPER, coverage=0.95)
    with pytest.raises(ValueError, match=r"one shape \(members, rows\) .* got \(3, 2\), \(3, 1\)"):
        aggregate(LOWER, [[0], [1], [2]], UPPER, coverage=0.95)
    with pytest.raises(ValueError, match="at least one member"):
        aggregate(*np.empty((3, 0, 2)), coverage=0.95)
    with pytest.raises(ValueError, match=r"coverage must be above 0 and below 1, got 1\.0"):
        aggregate(LOWER, POINT, UPPER, coverage=1.0)
