"""Coverage by simulation: strict calibration and its guarantee, ties, and covariate shift.

Bands are four standard errors of the simulated mean: a right method fails 1 run in 30,000. Seeds
are fixed, so that it is the same one every time.
"""

import numpy as np
import pytest
from scipy.special import ndtr

from calipers.calibration import CalibratedMixture, Calibration, normal_scores
from calipers.distributions import SplitNormal, SplitNormalMixture

RUNS = 1000


def not_below(values, bound):
    values = np.asarray(values)
    return values.mean() >= bound - 4.0 * values.std() / np.sqrt(values.size)


def not_above(values, bound):
    return not_below(-np.asarray(values), -bound)


def exact_coverages(n, alpha, strict):
    """Both one-sided and the two-sided coverage, given normal scores whose scale is wrong by 3."""
    rng = np.random.default_rng(n)
    for _ in range(RUNS):
        calibration = Calibration.from_scores(3.0 * rng.standard_normal(n) + 1.0, strict=strict)
        levels = [alpha / 2, alpha, 1 - alpha, 1 - alpha / 2]
        low, one_low, one_high, high = ndtr((calibration.score_of_level(levels) - 1.0) / 3.0)
        yield high - low, one_high, 1.0 - one_low


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "alpha"), [(19, 0.1), (39, 0.05), (50, 0.05), (50, 0.2), (300, 0.05)]
)
def test_strict_intervals_cover_at_least_and_hardly_more(n, alpha):
    both, upper, lower = np.transpose(list(exact_coverages(n, alpha, strict=True)))
    for coverage in (both, upper, lower):
        assert not_below(coverage, 1 - alpha)
        assert not_above(coverage, 1 - alpha + 2 / (n + 1) + 0.01 * alpha)


@pytest.mark.parametrize(("n", "alpha"), [(19, 0.1), (50, 0.05), (300, 0.05), (300, 0.5)])
def test_ordinary_intervals_cover_without_bias(n, alpha):
    """Exact at knots; between them the map is a straight line, hence the 0.004."""
    for coverage in np.transpose(list(exact_coverages(n, alpha, strict=False))):
        assert not_below(coverage, 1 - alpha - 0.004)
        assert not_above(coverage, 1 - alpha + 0.004)


@pytest.mark.long
@pytest.mark.parametrize("n", [19, 39, 50])
def test_strict_intervals_cover_scores_with_ties(n):
    rng = np.random.default_rng(n)
    inside = []
    for _ in range(RUNS):
        scores = rng.poisson(1.5, n + 200) - 1.0
        calibration = Calibration.from_scores(scores[:n], strict=True)
        low, high = calibration.score_of_level([0.05, 0.95])
        inside.append(np.mean((scores[n:] >= low) & (scores[n:] <= high)))
    assert not_below(inside, 0.9)


def test_the_guarantee_holds_for_a_bad_model_through_the_whole_chain():
    """A skewed target, a model with the wrong centre, scale and shape, 39 rows."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(300):
        x = rng.uniform(-1, 1, 39 + 100)
        y = np.exp(x) * rng.gamma(1.0, 1.0, x.size)
        model = SplitNormalMixture(SplitNormal([x, x + 1.0], 0.2, [[0.1], [0.4]]))
        calibration = Calibration.from_scores(normal_scores(model[:39], y[:39]), strict=True)
        lower, upper = CalibratedMixture(model[39:], calibration).interval(0.95)
        inside.append(np.mean((lower <= y[39:]) & (y[39:] <= upper)))
    assert not_below(inside, 0.95)
    assert not_above(inside, 0.95 + 2 / 40 + 0.001)


def shifted_coverage(rng, weighted):
    """New inputs are one standard deviation off, where the model is far too narrow."""
    n, new = 200, 50
    x = np.concatenate([rng.standard_normal(n), 1.0 + rng.standard_normal(new)])
    y = np.exp(0.7 * x) * rng.standard_normal(x.size)
    model = SplitNormalMixture(SplitNormal(np.zeros((1, x.size)), 1.0, 1.0))
    ratio = np.exp(x - 0.5) if weighted else np.ones_like(x)
    scores = normal_scores(model[:n], y[:n])
    calibration = Calibration.from_scores(scores, ratio[:n], strict=True)
    lower, upper = CalibratedMixture(model[n:], calibration, ratio[n:]).interval(0.9)
    return np.mean((lower <= y[n:]) & (y[n:] <= upper))


@pytest.mark.long
def test_weights_restore_coverage_under_covariate_shift():
    rng = np.random.default_rng(0)
    plain = [shifted_coverage(rng, weighted=False) for _ in range(200)]
    weighted = [shifted_coverage(rng, weighted=True) for _ in range(200)]
    assert np.mean(plain) < 0.82
    assert not_below(weighted, 0.9)
    assert not_above(weighted, 0.95)
