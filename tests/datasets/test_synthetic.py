"""The truth that each problem states, held against draws and against other computations.

Draws come from fixed seeds. For another seed, the chance that a right problem fails any one of the
tests that compare with draws is below 1e-5.
"""

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.datasets import make_friedman1

from calipers.datasets import FRIEDMAN, GAP, PROBLEMS, SKEWED, TOY, TWO_MODES

TWO_BUMPS = TWO_MODES.noise
problems = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
LEVELS = np.r_[1e-12, 1e-6, np.linspace(0.001, 0.999, 99), 1 - 1e-6]


def test_there_are_five():
    assert list(PROBLEMS) == ["toy", "skewed", "two_modes", "gap", "friedman"]


def test_quantile_inverts_cdf():
    quantiles = TWO_BUMPS.ppf(LEVELS)
    np.testing.assert_allclose(TWO_BUMPS.cdf(quantiles), LEVELS, rtol=1e-9, atol=0)
    assert (np.diff(quantiles) > 0).all()


def test_moments_agree_with_integrals_of_the_quantile_function():
    first, _ = integrate.quad(TWO_BUMPS.ppf, 0, 1, epsabs=1e-10)
    second, _ = integrate.quad(lambda p: TWO_BUMPS.ppf(p) ** 2, 0, 1, epsabs=1e-10, limit=200)
    assert TWO_BUMPS.mean() == pytest.approx(first, abs=1e-6)
    assert TWO_BUMPS.std() == pytest.approx(np.sqrt(second - first**2), abs=1e-6)


def test_two_bumps_are_logistic():
    z = np.linspace(-12, 12, 97)
    two = (stats.logistic(-4).cdf(z) + stats.logistic(4).cdf(z)) / 2
    np.testing.assert_allclose(TWO_BUMPS.cdf(z), two, rtol=1e-12)


def test_two_modes_has_two():
    z = np.linspace(-10, 10, 2001)
    density = np.gradient(TWO_BUMPS.cdf(z), z)
    inner = density[1:-1]
    peaks = z[1:-1][(inner > density[:-2]) & (inner > density[2:])]
    np.testing.assert_allclose(peaks, [-4, 4], atol=0.05)
    assert density[1000] < density.max() / 5


@problems
def test_probability_integral_transform_is_uniform(problem):
    X, y = problem.sample(50_000, random_state=1)
    assert stats.kstest(problem.cdf(X, y), "uniform").pvalue > 1e-6


@problems
@pytest.mark.parametrize("coverage", [0.5, 0.95])
def test_interval_covers_as_often_as_it_says(problem, coverage):
    X, y = problem.sample(50_000, random_state=2)
    lower, upper = problem.interval(X, coverage).T
    outside = np.array([(y < lower).sum(), (y > upper).sum()])
    tail = (1 - coverage) / 2
    allowed = 5 * np.sqrt(50_000 * tail * (1 - tail))  # five standard deviations: 6e-7
    assert (np.abs(outside - 50_000 * tail) < allowed).all()


@problems
def test_mean_and_std_given_x(problem):
    two = problem.draw_x(2, np.random.default_rng(2))
    x = np.repeat(two, 40_000, axis=0)
    noise = problem.noise.rvs(size=len(x), random_state=np.random.default_rng(3))
    y = problem.location(x) + problem.scale(x) * noise
    for half in (slice(0, 40_000), slice(40_000, None)):
        X = x[half][:1].reshape(1, problem.inputs)
        [mean], [std] = problem.mean(X), problem.std(X)
        assert abs(y[half].mean() - mean) < 5 * std / 200
        assert y[half].std() == pytest.approx(std, rel=0.03)


@problems
def test_truth_has_the_shapes_it_says(problem):
    X, y = problem.sample(7, random_state=0)
    assert X.shape == (7, problem.inputs)
    assert y.shape == problem.mean(X).shape == problem.std(X).shape == (7,)
    assert problem.cdf(X, y).shape == problem.quantile(X, 0.3).shape == (7,)
    assert problem.quantile(X, [0.1, 0.5, 0.9]).shape == (7, 3)
    assert problem.interval(X, 0.9).shape == (7, 2)
    np.testing.assert_array_equal(problem.quantile(X, [0.3])[:, 0], problem.quantile(X, 0.3))


@problems
def test_sample_depends_on_the_seed_alone(problem):
    X, y = problem.sample(5, random_state=0)
    X_again, y_again = problem.sample(5, np.random.default_rng(0))
    np.testing.assert_array_equal(X, X_again)
    np.testing.assert_array_equal(y, y_again)
    assert (problem.sample(5, random_state=1)[0] != X).all()


def test_toy_is_the_problem_of_the_first_figure():
    X = np.array([[-6.0], [0.0], [2.0]])
    np.testing.assert_allclose(TOY.mean(X), np.sin(X[:, 0]))
    np.testing.assert_allclose(TOY.std(X), [np.exp(0.9) - 1, 0, np.exp(0.3) - 1])
    # Bounds of the grey band at x = -6, read off the published figure's coordinates.
    np.testing.assert_allclose(TOY.interval(X, 0.95)[0], [-2.581, 3.140], atol=2e-3)
    x = TOY.sample(50_000, random_state=4)[0][:, 0]
    assert np.abs(x).max() <= 6
    assert stats.kstest(x, stats.truncnorm(-1, 1, scale=6).cdf).pvalue > 1e-6


def test_friedman_agrees_with_scikit_learn():
    X, y = make_friedman1(100, noise=0.0, random_state=0)
    np.testing.assert_allclose(FRIEDMAN.mean(X), y)
    np.testing.assert_allclose(FRIEDMAN.std(X), 0.5 + 2 * X[:, 5])


def test_toy_is_certain_at_zero():
    X = np.zeros((3, 1))
    np.testing.assert_array_equal(TOY.cdf(X, [-1e-9, 0.0, 1e-9]), [0, 1, 1])
    np.testing.assert_array_equal(TOY.interval(X, 0.95), np.zeros((3, 2)))


def test_inputs_lie_where_the_description_says():
    gap = np.abs(GAP.sample(20_000, random_state=5)[0][:, 0])
    assert stats.kstest(gap, stats.uniform(1, 3).cdf).pvalue > 1e-6
    for problem in (SKEWED, TWO_MODES):
        x = problem.sample(20_000, random_state=5)[0][:, 0]
        assert stats.kstest(x, stats.uniform(-4, 8).cdf).pvalue > 1e-6


@pytest.mark.parametrize("X", [[1.0, 2.0], [[1.0, 2.0]], 1.0])
def test_inputs_of_another_shape_are_refused(X):
    with pytest.raises(ValueError, match=r"shape \(n, 1\)"):
        TOY.mean(X)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, [0.5, 1.5], np.nan, [[0.5]]])
def test_levels_outside_0_to_1_are_refused(p):
    with pytest.raises(ValueError, match="between 0 and 1"):
        TOY.quantile([[1.0]], p)


def test_targets_of_another_length_are_refused():
    with pytest.raises(ValueError, match="one per row"):
        TOY.cdf([[1.0], [2.0]], [1.0])
