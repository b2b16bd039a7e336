"""The split normal against reference values, and its behaviour as a value object."""

import mpmath
import numpy as np
import pytest
from scipy import stats

from calipers.distributions import SplitNormal

mpmath.mp.dps = 40


def exact_cdf(x, loc, left, right):
    """P(X <= x) in forty digits."""
    x, loc, left, right = map(mpmath.mpf, (x, loc, left, right))
    share = left / (left + right)
    if x < loc:
        return share * mpmath.erfc((loc - x) / (mpmath.sqrt(2) * left))
    return share + (1 - share) * mpmath.erf((x - loc) / (mpmath.sqrt(2) * right))


def test_equal_scales_are_the_normal_distribution():
    x, p = np.linspace(-30, 30, 61), np.array([1e-300, 1e-9, 0.2, 0.5, 0.9])
    ours, theirs = SplitNormal(1.0, 2.0, 2.0), stats.norm(1.0, 2.0)
    for method in ("pdf", "logpdf", "cdf", "sf"):
        np.testing.assert_allclose(getattr(ours, method)(x), getattr(theirs, method)(x), rtol=1e-12)
    for method in ("ppf", "isf"):
        np.testing.assert_allclose(getattr(ours, method)(p), getattr(theirs, method)(p), rtol=1e-12)
    assert (ours.mean, ours.var, ours.std) == (1, 4, 2)
    assert ours.mode == ours.median == 1
    np.testing.assert_allclose(ours.interval(0.9), theirs.interval(0.9), rtol=1e-14)
    np.testing.assert_allclose(ours.hdi(0.9), theirs.interval(0.9), rtol=1e-14)


def test_crps_of_the_normal_distribution():
    """Closed form of Gneiting and Raftery (2007), equation 21."""
    y = np.linspace(-4, 4, 33)
    form = y * (2 * stats.norm.cdf(y) - 1) + 2 * stats.norm.pdf(y) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(SplitNormal(0.0, 1.0, 1.0).crps(y), form, rtol=1e-13)


def test_one_scale_of_zero_is_the_half_normal_distribution():
    x = np.linspace(-1, 5, 25)
    ours, theirs = SplitNormal(0.0, 0.0, 2.0), stats.halfnorm(0.0, 2.0)
    for method in ("pdf", "cdf", "sf"):
        np.testing.assert_allclose(getattr(ours, method)(x), getattr(theirs, method)(x), rtol=1e-13)
    np.testing.assert_allclose([ours.mean, ours.var], theirs.stats("mv"))


def test_point_mass():
    point = SplitNormal(3.0, 0.0, 0.0)
    x = [2.9, 3.0, 3.1]
    np.testing.assert_array_equal(point.cdf(x), [0, 1, 1])
    np.testing.assert_array_equal(point.sf(x), [1, 0, 0])
    np.testing.assert_array_equal(point.pdf(x), [0, np.inf, 0])
    np.testing.assert_array_equal(point.logpdf(x), [-np.inf, np.inf, -np.inf])
    np.testing.assert_array_equal(point.ppf([0, 0.3, 1]), 3)
    assert (point.mean, point.var, point.std) == (3, 0, 0)


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1.0, 1e-8), (1e-8, 1.0), (3.0, 40.0)])
def test_tails_keep_twelve_digits_down_to_1e_300(scales):
    left, right = scales
    dist = SplitNormal(0.0, left, right)
    for x in np.concatenate([np.linspace(-36, 0, 37) * left, np.geomspace(1e-12, 36, 37) * right]):
        lower, upper = exact_cdf(x, 0, left, right), exact_cdf(-x, 0, right, left)
        if lower > 1e-300:
            assert abs(dist.cdf(x) / lower - 1) < 1e-12
        if upper > 1e-300:
            assert abs(dist.sf(x) / upper - 1) < 1e-12


def test_parameters_broadcast_and_results_follow():
    dist = SplitNormal(np.zeros((3, 1)), [1.0, 2.0], 1.0)
    assert dist.shape == dist.mean.shape == (3, 2)
    assert dist.cdf(0.5).shape == (3, 2)
    assert dist.ppf(np.full((5, 1, 1), 0.5)).shape == (5, 3, 2)
    assert dist.sample((7, 4), rng=np.random.default_rng(0)).shape == (7, 4, 3, 2)
    assert isinstance(SplitNormal(0.0, 1.0, 1.0).cdf(0.0), float)


def test_indexing_keeps_what_belongs_together():
    dist = SplitNormal.from_interval([[0, 1, 5]], [[1, 2, 3]], [[2, 4, 4]], 0.9)
    assert len(dist) == 1
    some = dist[:, [2, 0]]
    np.testing.assert_array_equal(some.loc, [[4, 1]])
    np.testing.assert_array_equal(some.repaired, [[True, False]])
    assert dist[0, 1].shape == ()


def test_is_a_value():
    dist = SplitNormal([0.0, 1.0], 1.0, 1.0)
    with pytest.raises(AttributeError):
        dist.loc = np.ones(2)
    with pytest.raises(ValueError, match="read-only"):
        dist.loc[0] = 7
    assert not dist.repaired.any()


def test_empty_arrays_stay_empty():
    dist = SplitNormal(np.empty(0), 1.0, 1.0)
    assert dist.cdf(0.0).shape == dist.ppf(0.5).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.nan, 1, 1), "loc must be finite, got nan$"),
        (([0, np.inf], 1, 1), r"loc must be finite, got inf at index \(1,\)"),
        ((0, -1, 1), "left_scale must be finite and not negative, got -1.0"),
        ((0, 1, [[1, 2], [3, np.nan]]), r"right_scale .* got nan at index \(1, 1\)"),
        ((0, np.inf, 1), "left_scale must be finite and not negative, got inf"),
        (([1, 2], [1, 2, 3], 1), r"must have shapes that broadcast, got \(2,\), \(3,\) and \(\)"),
    ],
)
def test_bad_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SplitNormal(*arguments)


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("ppf", [0.5, 1.1], r"p must be between 0 and 1, got 1.1 at index \(1,\)"),
        ("isf", -0.1, "q must be between 0 and 1, got -0.1"),
        ("ppf", np.nan, "p must be between 0 and 1, got nan"),
        ("cdf", np.nan, "x must not be NaN, got nan"),
        ("crps", np.inf, "y must be finite, got inf"),
        ("interval", 1.0, "coverage must be above 0 and below 1, got 1.0"),
        ("hdi", [0.5, 0.0], "coverage must be above 0 and below 1, got 0.0"),
    ],
)
def test_bad_arguments_are_refused(method, argument, message):
    with pytest.raises(ValueError, match=message):
        getattr(SplitNormal(0.0, 1.0, 1.0), method)(argument)
