"""The exact fit: its two conditions, its limits, and the paper's descent as a witness."""

import joblib
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import erf, erfc, erfinv

from calipers.distributions import SplitNormal

ALPHAS = [1e-6, 1e-4, 0.01, 0.05, 0.1, 0.32, 0.5, 0.9]


def misfit(dist, lower, upper, coverage):
    tail = (1 - coverage) / 2
    return max(np.abs(dist.cdf(lower) - tail).max(), np.abs(dist.sf(upper) - tail).max())


@pytest.mark.parametrize("alpha", ALPHAS)
def test_both_quantiles_are_met(alpha):
    ratio = np.geomspace(1e-12, 1e12, 5001)
    dist = SplitNormal.from_interval(-ratio, 0.0, 1.0, 1 - alpha)
    assert misfit(dist, -ratio, np.ones_like(ratio), 1 - alpha) < 5e-15


@given(
    st.floats(1e-6, 0.9),
    st.floats(-1e6, 1e6),
    st.floats(1e-6, 1e6),
    st.floats(1e-6, 1e6),
)
def test_both_quantiles_are_met_anywhere(alpha, point, below, above):
    lower, upper = point - below, point + above
    dist = SplitNormal.from_interval(lower, point, upper, 1 - alpha)
    assert misfit(dist, lower, upper, 1 - alpha) < 1e-12
    assert dist.mode == point
    assert not dist.repaired


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("unit", [1e-300, 1e-150, 1e150, 1e300])
def test_units_do_not_matter(alpha, unit):
    lower, upper = np.array([-0.5, -3.0, -1e-9]), np.array([2.0, 1.0, 1.0])
    small = SplitNormal.from_interval(lower, 0.0, upper, 1 - alpha)
    scaled = SplitNormal.from_interval(unit * lower, 0.0, unit * upper, 1 - alpha)
    np.testing.assert_allclose(scaled.left_scale, unit * small.left_scale, rtol=1e-14)
    np.testing.assert_allclose(scaled.right_scale, unit * small.right_scale, rtol=1e-14)
    assert misfit(scaled, unit * lower, unit * upper, 1 - alpha) < 1e-12


def test_subnormal_numbers_stay_finite():
    tiny = 5e-324
    dist = SplitNormal.from_interval([-tiny, -1.0, -tiny], 0.0, [tiny, tiny, 1.0], 0.95)
    assert np.isfinite(dist.left_scale).all()
    assert np.isfinite(dist.right_scale).all()
    assert np.isfinite(dist.cdf([-1.0, 0.0, 1.0])).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_point_on_a_bound(alpha):
    """The quantile at that bound is the mode, so alpha / 2 of the mass lies beyond it."""
    for lower, upper in ((0.0, 2.0), (-2.0, 0.0)):
        dist = SplitNormal.from_interval(lower, 0.0, upper, 1 - alpha)
        assert misfit(dist, lower, upper, 1 - alpha) < 1e-12
        assert min(dist.left_scale, dist.right_scale) > 0
        assert not dist.repaired
    near = SplitNormal.from_interval(-1e-14, 0.0, 2.0, 1 - alpha)
    at = SplitNormal.from_interval(0.0, 0.0, 2.0, 1 - alpha)
    np.testing.assert_allclose(near.left_scale, at.left_scale, rtol=1e-6)


def test_three_equal_numbers_are_a_point_mass():
    dist = SplitNormal.from_interval(2.0, 2.0, 2.0, 0.95)
    assert (dist.loc, dist.left_scale, dist.right_scale) == (2, 0, 0)


def test_disorder_is_repaired_by_sorting():
    given = np.array([[0, 1, 2], [1, 0, 2], [0, 2, 1], [2, 1, 0], [2, 0, 1], [1, 2, 0]], float)
    dist = SplitNormal.from_interval(*given.T, 0.9)
    np.testing.assert_array_equal(dist.repaired, [False, True, True, True, True, True])
    np.testing.assert_array_equal(dist.loc, 1)
    np.testing.assert_array_equal(dist.left_scale, dist.left_scale[0])
    np.testing.assert_array_equal(dist.right_scale, dist.right_scale[0])


@given(st.lists(st.floats(-10, 10), min_size=3, max_size=3), st.floats(0.1, 0.99))
def test_order_of_the_three_numbers_never_matters(numbers, coverage):
    first = SplitNormal.from_interval(*numbers, coverage)
    last = SplitNormal.from_interval(*sorted(numbers), coverage)
    assert first.loc == last.loc
    assert (first.left_scale, first.right_scale) == (last.left_scale, last.right_scale)
    assert first.repaired == (numbers != sorted(numbers))


@given(st.floats(0.01, 0.99), st.floats(0.01, 100), st.floats(0.01, 100))
def test_mirror_image(coverage, below, above):
    one = SplitNormal.from_interval(-below, 0.0, above, coverage)
    other = SplitNormal.from_interval(-above, 0.0, below, coverage)
    assert (one.left_scale, one.right_scale) == (other.right_scale, other.left_scale)


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    lower, point, upper = np.sort(rng.normal(size=(3, 5, 30_001)), axis=0)
    one = SplitNormal.from_interval(lower, point, upper, 0.9)
    with joblib.parallel_config("threading", n_jobs=2):
        two = SplitNormal.from_interval(lower, point, upper, 0.9)
    np.testing.assert_array_equal(one.left_scale, two.left_scale)
    part = SplitNormal.from_interval(lower[:, 77:80], point[:, 77:80], upper[:, 77:80], 0.9)
    np.testing.assert_array_equal(one.left_scale[:, 77:80], part.left_scale)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, np.nan], 1, 2, 0.9), r"lower must be finite, got nan at index \(1,\)"),
        ((0, np.inf, 2, 0.9), "point must be finite, got inf"),
        ((0, 1, -np.inf, 0.9), "upper must be finite, got -inf"),
        ((0, 1, 2, 1.0), "coverage must be above 0 and below 1, got 1.0"),
        (
            (-1e308, [0.0, 1e308], 1e308, 0.1),
            "scale must be finite, but upper - lower is too large",
        ),
        (([0, 0], [1, 1, 1], 2, 0.9), "lower, point and upper must have shapes that broadcast"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SplitNormal.from_interval(*arguments)


def paper_loss(left_scale, right_scale, below, above, alpha):
    """Equation (split-normal-loss) and its gradient in both scales, for a mode at 0."""
    total = left_scale + right_scale
    t1, t2 = below / left_scale, above / right_scale
    tail1, tail2 = erfc(t1 / np.sqrt(2)), erfc(t2 / np.sqrt(2))
    bell1, bell2 = (np.sqrt(2 / np.pi) * np.exp(-(t**2) / 2) * t for t in (t1, t2))
    low = left_scale * tail1 / total - alpha / 2
    high = alpha / 2 - right_scale * tail2 / total
    gradient1 = low * (right_scale * tail1 / total + bell1) / total
    gradient1 += high * right_scale * tail2 / total**2
    gradient2 = -low * left_scale * tail1 / total**2
    gradient2 -= high * (left_scale * tail2 / total + bell2) / total
    return low**2 + high**2, 2 * gradient1, 2 * gradient2


def test_gradient_of_the_papers_loss():
    scales, step = np.array([0.7, 1.6]), 1e-6
    _, *gradient = paper_loss(*scales, 1.0, 2.5, 0.1)
    for i, slope in enumerate(gradient):
        move = step * np.eye(2)[i]
        rise = paper_loss(*(scales + move), 1.0, 2.5, 0.1)[0]
        fall = paper_loss(*(scales - move), 1.0, 2.5, 0.1)[0]
        assert slope == pytest.approx((rise - fall) / (2 * step), rel=1e-6)


def test_never_worse_than_the_papers_descent():
    """Gradient descent on the loss of the paper, from the initialisation of the paper."""
    alpha, rng = 0.05, np.random.default_rng(0)
    below, above = np.exp(rng.normal(size=(2, 200)) * 0.5)
    start = np.sqrt(2) * erfinv(1 - alpha)
    left, right = below / start, above / start
    rate = (below + above) ** 2
    for _ in range(3000):
        _, gradient1, gradient2 = paper_loss(left, right, below, above, alpha)
        left, right = left - rate * gradient1, right - rate * gradient2
    loss = paper_loss(left, right, below, above, alpha)[0]
    exact = SplitNormal.from_interval(-below, 0.0, above, 1 - alpha)
    best = paper_loss(exact.left_scale, exact.right_scale, below, above, alpha)[0]
    assert np.all(best <= loss + 1e-30)
    converged = loss < 1e-24
    assert converged.mean() > 0.9
    np.testing.assert_allclose(left[converged], exact.left_scale[converged], rtol=1e-9)
    np.testing.assert_allclose(right[converged], exact.right_scale[converged], rtol=1e-9)


def test_golden_numbers():
    """Symmetric: 1 / 1.959964, the normal quantile. Skewed: from the paper's formulas by hand."""
    even = SplitNormal.from_interval(-1.0, 0.0, 1.0, 0.95)
    np.testing.assert_allclose([even.left_scale, even.right_scale], 1 / 1.959963984540054)
    odd = SplitNormal.from_interval(-1.0, 0.0, 3.0, 0.95)
    total = odd.left_scale + odd.right_scale
    papers_cdf = odd.left_scale * (1 + erf(-1 / np.sqrt(2) / odd.left_scale)) / total
    assert papers_cdf == pytest.approx(0.025, abs=1e-15)
    papers_cdf = (odd.left_scale + odd.right_scale * erf(3 / np.sqrt(2) / odd.right_scale)) / total
    assert papers_cdf == pytest.approx(0.975, abs=1e-15)
