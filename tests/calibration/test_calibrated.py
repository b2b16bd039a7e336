"""Corrected distributions are distributions, and their methods agree."""

import joblib
import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import kstest

from calipers.calibration import CalibratedMixture, Calibration, normal_scores
from calipers.calibration._level_map import MixtureRows
from calipers.distributions import SplitNormal, SplitNormalMixture

LEVELS = np.concatenate([np.logspace(-12, -2, 20), np.linspace(0.02, 0.98, 60)])[:, None]


def test_quantiles_never_cross_and_cdf_is_their_inverse(dist):
    lower, upper = dist.ppf(LEVELS), dist.isf(LEVELS)
    assert (np.diff(lower, axis=0) > 0).all()
    assert (np.diff(upper, axis=0) < 0).all()
    assert (np.abs(dist.cdf(lower) - LEVELS) <= 1e-6 * LEVELS).all()
    assert (np.abs(dist.sf(upper) - LEVELS) <= 1e-6 * LEVELS).all()


def test_interval_is_the_pair_of_quantiles_where_rows_support_it(dist):
    coverage = np.array([0.1, 0.3, 0.5, 0.8, 0.95, 0.999])[:, None]
    lower, upper = dist.interval(coverage)
    good = dist.calibration.supports((1 - coverage) / 2)[:, 0]
    assert np.allclose(lower[good], dist.ppf((1 - coverage[good]) / 2))
    assert np.allclose(upper[good], dist.ppf((1 + coverage[good]) / 2))
    assert np.isneginf(lower[~good]).all()
    assert np.isposinf(upper[~good]).all()


def ends(dist):
    """Places where the integrands of one row may bend."""
    knots = dist.calibration.level_of_score(dist.calibration.scores)
    inner = dist.ppf(knots[:, None])[:, 0]
    outer = [dist.ppf(1e-16)[0], *dist.mixture.components.loc[:, 0], dist.isf(1e-16)[0]]
    return np.unique([*inner, *outer])


def integral(function, breaks):
    """Gauss-Legendre with 20 points on every 32nd of every piece."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    fine = np.unique(np.linspace(breaks[:-1], breaks[1:], 33))
    half = np.diff(fine) / 2
    x = (fine[:-1] + half) + half * nodes[:, None]
    return float(weights @ function(x.reshape(-1, 1)).reshape(x.shape) @ half)


def test_density_integrates_to_one(dist):
    row = dist[:1]
    assert integral(row.pdf, ends(row)) == pytest.approx(1.0, abs=1e-6)
    assert np.allclose(np.log(row.pdf(ends(row)[:, None])), row.logpdf(ends(row)[:, None]))


def test_density_is_the_derivative_of_the_distribution_function(dist):
    x = np.array([8.123, 9.456, 10.789, 12.012])[:, None]
    step = 1e-6
    slope = (dist.normal_scores(x + step) - dist.normal_scores(x - step)) / (2 * step)
    v = dist.normal_scores(x)
    expected = np.log(slope) - v**2 / 2 - np.log(2 * np.pi) / 2
    assert np.quantile(np.abs(dist.logpdf(x) - expected), 0.9) < 1e-4


@pytest.mark.parametrize("y", [-40.0, 8.0, 10.4, 300.0])
def test_crps_is_the_integral_of_squares(dist, y):
    row = dist[:1]
    scale = float((row.ppf(0.84) - row.ppf(0.16))[0])
    breaks = np.unique([*ends(row), y])
    squares = integral(lambda x: np.where(x < y, row.cdf(x), row.sf(x)) ** 2, breaks)
    assert row.crps(y)[0] == pytest.approx(squares, abs=1e-6 * scale)


def test_moments_are_integrals_over_the_quantiles(dist):
    v = np.linspace(-9.0, 9.0, 40_001)
    row = dist[:1]
    x = row.apply(MixtureRows.values, v[:, None])[:, 0]
    weight = np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi) * (v[1] - v[0])
    mean = float(weight @ x)
    variance = float(weight @ (x - mean) ** 2)
    assert row.mean[0] == pytest.approx(mean, abs=1e-5 * np.sqrt(variance))
    assert row.var[0] == pytest.approx(variance, rel=1e-5)
    assert row.std[0] == pytest.approx(np.sqrt(variance), rel=1e-5)


def test_samples_have_the_distribution(dist):
    """Fails once in 10^6 rows by chance; the seed is fixed."""
    draws = dist.sample(2000, rng=np.random.default_rng(3))
    assert draws.shape == (2000, *dist.shape)
    levels = dist.cdf(draws)
    assert min(kstest(row, "uniform").pvalue for row in levels.T) > 1e-6


def test_a_neutral_calibration_changes_nothing(mixture):
    dist = CalibratedMixture(mixture, Calibration.from_scores([0.0]))
    x, y = np.linspace(5.0, 16.0, 30)[:, None], np.linspace(7.0, 13.0, len(mixture))
    assert np.allclose(dist.cdf(x), mixture.cdf(x), rtol=1e-10)
    assert np.allclose(dist.logpdf(x), mixture.logpdf(x), rtol=1e-10)
    assert np.allclose(dist.ppf(LEVELS), mixture.ppf(LEVELS), rtol=1e-10)
    assert np.allclose(dist.crps(y), mixture.crps(y), atol=1e-6)
    assert np.allclose(dist.mean, mixture.mean, atol=1e-6)
    assert np.allclose(dist.var, mixture.var, rtol=1e-6)
    assert np.allclose(dist.median, mixture.median)


def test_calibration_rows_have_uniform_levels(mixture):
    """After calibration the calibration rows have uniform levels, up to the thinning of knots."""
    rng = np.random.default_rng(0)
    y = 10.0 + 3.0 * rng.standard_t(4, 500)
    rows = mixture[np.arange(500) % len(mixture)]
    dist = CalibratedMixture(rows, Calibration.from_scores(normal_scores(rows, y)))
    assert np.abs(np.sort(dist.cdf(y)) - np.arange(1, 501) / 501).max() < 0.02


def test_a_corrected_distribution_can_be_corrected_again(mixture):
    first = CalibratedMixture(mixture, Calibration.from_scores(2.0 * ndtri(np.arange(1, 40) / 40)))
    second = Calibration.from_scores(0.5 * ndtri(np.arange(1, 100) / 100), strict=True)
    twice = CalibratedMixture(first, second)
    p = LEVELS[10:]
    assert np.allclose(twice.ppf(p), first.apply(MixtureRows.values, second.to_score(ndtri(p))))
    assert np.allclose(twice.cdf(twice.ppf(p)), p)
    x = np.linspace(8.0, 12.0, 7)[:, None]
    assert np.allclose(normal_scores(twice, x), second.from_score(normal_scores(first, x)))
    row = twice[:1]
    assert integral(row.pdf, np.linspace(row.ppf(1e-15)[0], row.isf(1e-15)[0], 400)) == (
        pytest.approx(1.0, abs=1e-4)
    )
    assert np.allclose(twice.aleatoric_var, mixture.aleatoric_var)


def test_members_variances_are_those_before_the_correction(dist, mixture):
    assert np.array_equal(dist.aleatoric_var, mixture.aleatoric_var)
    assert np.array_equal(dist.epistemic_var, mixture.epistemic_var)


def test_rows_can_be_taken(mixture):
    weights = np.linspace(0.5, 3.0, len(mixture))
    calibration = Calibration.from_scores(np.random.default_rng(0).standard_normal(200))
    dist = CalibratedMixture(mixture, calibration, local=weights)
    assert len(dist) == len(mixture)
    assert dist.shape == mixture.shape
    keep = np.array([4, 1])
    assert np.array_equal(dist[keep].ppf(0.9), dist.ppf(0.9)[keep])
    assert np.array_equal(dist[2:].crps(11.0), dist.crps(11.0)[2:])
    assert dist[0].ppf(0.9) == dist.ppf(0.9)[0]


def test_threads_do_not_matter():
    rows = 9000
    mixture = SplitNormalMixture(SplitNormal(np.zeros((2, rows)), 1.0, 2.0))
    dist = CalibratedMixture(mixture, Calibration.from_scores([-1.0, 0.0, 2.0]))
    p = np.random.default_rng(0).uniform(size=rows)
    with joblib.parallel_config("threading", n_jobs=2):
        found = dist.ppf(p)
    assert np.array_equal(dist.ppf(p), found)


def test_heavy_rows_lose_their_support_first(mixture):
    calibration = Calibration.from_scores(np.linspace(-2, 2, 100))
    weights = np.array([0.1, 1.0, 2.0, 3.0, 4.0, 90.0])
    dist = CalibratedMixture(mixture, calibration, local=weights)
    lower, upper = dist.interval(0.95)
    assert np.isfinite(lower).tolist() == [True, True, True, False, False, False]
    assert np.isfinite(upper).tolist() == [True, True, True, False, False, False]
    assert np.isfinite(dist.ppf(0.025)).all(), "the density keeps the model's tails"


def test_too_few_rows_raise_if_asked(mixture):
    calibration = Calibration.from_scores(np.linspace(-2, 2, 38))
    dist = CalibratedMixture(mixture, calibration, unsupported="raise")
    assert np.isfinite(dist.interval(0.9)).all()
    with pytest.raises(ValueError, match=r"coverage 0.95 needs at least 39 .* got 38"):
        dist.interval(0.95)
    with pytest.raises(ValueError, match="needs at least 199"):
        dist.interval([[0.5], [0.99]])


def test_bad_parameters_are_refused(mixture):
    calibration = Calibration.from_scores([0.0, 1.0])
    with pytest.raises(ValueError, match="unsupported must be 'inf' or 'raise', got 'clip'"):
        CalibratedMixture(mixture, calibration, unsupported="clip")
    with pytest.raises(ValueError, match=r"local must fit rows of shape \(6,\)"):
        CalibratedMixture(mixture, calibration, local=np.ones(4))
    with pytest.raises(ValueError, match="weight must be finite and not negative"):
        CalibratedMixture(mixture, calibration, local=np.array(-1.0)).ppf(0.5)


def test_an_outlier_a_million_sigma_away_is_honoured_and_finite(mixture):
    scores = np.append(np.random.default_rng(0).standard_normal(38), 1e6)
    strict = CalibratedMixture(mixture, Calibration.from_scores(scores, strict=True))
    _, upper = strict.interval(0.95)
    assert np.isfinite(upper).all()
    assert (upper > 1e5).all(), "39 rows: the highest score is the bound"
    assert (strict.interval(0.8)[1] < 100).all(), "and other levels do not feel it"
    assert np.isfinite(strict.crps(10.0)).all()
