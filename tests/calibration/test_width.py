"""The correction by width: even coverage where widths are wrong, nothing where they are right."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from calipers import IntervalRegressor, load
from calipers.calibration import (
    CalibratedMixture,
    Calibration,
    CalibrationBy,
    UnseenPools,
    WidthCalibration,
    log_width,
    normal_scores,
    pool_widths,
)
from calipers.calibration._width import correct_by_width
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.storage import ModelFileError, read_model, write_model


def rows(rng, n, power):
    """Predicted scales, and targets whose scale is a power of them."""
    scale = np.exp(rng.uniform(-1, 1, n))
    dist = SplitNormalMixture(SplitNormal(np.zeros((1, n)), scale, scale))
    return dist, scale**power * rng.standard_normal(n)


def coverage_by_third(n, power, by_width, runs=20):
    rng, found = np.random.default_rng(0), []
    for _ in range(runs):
        dist, y = rows(rng, n, power)
        new, target = rows(rng, 3000, power)
        scores = normal_scores(dist, y)
        if by_width:
            first, scores = correct_by_width(log_width(dist), scores, n, np.arange(n))
            new = new if first is None else first.calibrated(new, None)
        lower, upper = CalibratedMixture(new, Calibration.from_scores(scores)).interval(0.9)
        third = np.argsort(np.argsort(new.components.std[0])) * 3 // 3000
        inside = (lower <= target) & (target <= upper)
        found.append([inside[third == k].mean() for k in range(3)])
    return np.mean(found, axis=0)


def test_coverage_becomes_even_where_widths_are_wrong():
    plain = coverage_by_third(1000, 1.5, by_width=False)
    even = coverage_by_third(1000, 1.5, by_width=True)
    assert plain[0] > 0.95
    assert plain[2] < 0.86
    assert np.abs(even - 0.9).max() < 0.025  # six standard errors


def test_coverage_over_all_rows_stays_nominal_where_few_rows_teach_the_factor():
    """The mean of 100 runs is outside the band by chance less than once in 30,000.

    The standard deviation of a run is 0.01. Scores divided by the factor that they themselves
    taught give 0.941.
    """
    rng, n, found = np.random.default_rng(0), 500, []
    at = np.linspace(-1, 1, 1000)
    for _ in range(100):
        width = rng.uniform(-1, 1, n)
        scores = np.exp(0.8 * np.sin(6 * width)) * rng.standard_normal(n)
        first, scores = correct_by_width(width, scores, n, np.arange(n))
        bounds = Calibration.from_scores(scores).score_of_level([0.025, 0.975])[:, None]
        inside = ndtr(bounds * first.stretch(first.steps(at)) / np.exp(0.8 * np.sin(6 * at)))
        found.append((inside[1] - inside[0]).mean())
    assert abs(np.mean(found) - 0.95) < 4.2 * 0.01 / 10


def test_a_group_is_corrected_by_other_groups():
    rng, n = np.random.default_rng(6), 1000
    dist, y = rows(rng, n, 1.6)
    width, scores, groups = log_width(dist), normal_scores(dist, y), np.repeat(np.arange(200), 5)
    before = correct_by_width(width, scores, n, groups)[1]
    scores[:5] *= 3.0  # its own rows are corrected as before, those of others are not
    after = correct_by_width(width, scores, n, groups)[1]
    np.testing.assert_allclose(after[:5], 3.0 * before[:5])
    others = groups % 10 != 0
    assert not np.allclose(after[others], before[others])


@pytest.mark.parametrize("n", [100, 300, 1000])
def test_little_is_done_where_widths_are_right(n):
    rng = np.random.default_rng(1)
    found = []
    for _ in range(40):
        dist, y = rows(rng, n, 1.0)
        first, _ = correct_by_width(log_width(dist), normal_scores(dist, y), n, np.arange(n))
        found.append(0.0 if first is None else np.abs(np.log(first.factor)).max())
    assert np.mean(np.array(found) == 0) > 0.6
    assert np.max(found) < 0.5
    assert np.abs(coverage_by_third(n, 1.0, by_width=True, runs=5) - 0.9).max() < 0.04


def deciles(scores_of, runs=20, n=1000):
    """Mean coverage of 95% intervals by deciles of width, of scores drawn by a function of rank."""
    rng, found = np.random.default_rng(7), []
    for _ in range(runs):
        width, new = rng.random(n), np.linspace(0, 1, 10_000, endpoint=False)
        scores, target = scores_of(rng, width), scores_of(rng, new)
        first, scores = correct_by_width(width, scores, n, np.arange(n))
        factor = 1.0 if first is None else first.stretch(first.steps(new))
        lower, upper = Calibration.from_scores(scores).score_of_level([0.025, 0.975])
        found.append((lower * factor <= target) & (target <= upper * factor))
    return np.mean(found, axis=0).reshape(10, -1).mean(axis=1)


def test_deciles_are_even_where_the_scale_jumps():
    """A walk that must be smooth gives 0.917 to 0.972."""
    even = deciles(lambda rng, u: np.where(u < 0.1, 0.55, 1.0) * rng.standard_normal(len(u)))
    assert np.abs(even - 0.95).max() < 0.028


def test_a_correction_of_the_bulk_that_is_wrong_in_the_tails_is_not_made():
    """Narrow predictions are mostly right and sometimes far off, as of grades in whole numbers.

    Divided by their mean size, their scores give 0.904 to 0.986; as they are, 0.930 to 0.968.
    """

    def grades(rng, u):
        base = rng.standard_normal(len(u))
        off = np.copysign(2.3 + 0.3 * rng.standard_normal(len(u)), base)
        return np.where(u < 0.4, np.where(rng.random(len(u)) < 0.1, off, 0.45 * base), base)

    assert np.abs(deciles(grades) - 0.95).max() < 0.03


def test_a_fold_of_wide_predictions_has_no_more_wide_rows_than_others():
    rng = np.random.default_rng(8)
    width, folds = rng.uniform(-1, 1, 500), np.arange(500) % 5
    of_fold = np.array([0.0, 0.0, 0.0, 0.0, 0.5])[:, None]
    scale = np.exp(width + of_fold).repeat(2, axis=0)
    mixture = SplitNormalMixture(SplitNormal(np.zeros((10, 500)), scale, scale))
    pools = UnseenPools(mixture, np.arange(500), np.zeros(500))
    found = pool_widths(pools, mixture, np.repeat(np.arange(5), 2), folds)
    assert np.corrcoef(np.argsort(np.argsort(found)), np.argsort(np.argsort(width)))[0, 1] > 0.999
    widest, truly_widest = (np.bincount(folds[np.argsort(w)[-100:]]) for w in (found, width))
    assert np.abs(widest - truly_widest).max() <= 3


def of_kinds(rng, n, true):
    """Rows of six kinds, each predicted with a width of its own, and their true scales."""
    kind = rng.integers(0, 6, n)
    scale = np.exp(np.linspace(-1, 1, 6))[kind]
    dist = SplitNormalMixture(SplitNormal(np.zeros((1, n)), scale, scale))
    return kind, dist, true[kind] * rng.standard_normal(n)


def test_the_order_of_rows_of_equal_width_does_not_matter():
    _, dist, scores = of_kinds(np.random.default_rng(4), 2000, np.ones(6))
    found = []
    for order in (np.arange(2000), np.argsort(np.abs(scores))):
        first = WidthCalibration.from_widths(log_width(dist[order]), scores[order], 2000)
        found.append(np.ones(6) if first is None else first.factor)
    np.testing.assert_allclose(*found)
    assert np.abs(np.log(found)).max() < 0.1


def test_equal_widths_have_one_factor_whatever_their_last_bits():
    true = np.array([0.5, 0.7, 1.0, 1.3, 1.6, 2.0])
    kind, dist, scores = of_kinds(np.random.default_rng(5), 2000, true)
    first = WidthCalibration.from_widths(log_width(dist), scores, 2000)
    for bits in (1.0, 1 - 1e-12, 1 + 1e-12):
        scale = dist.components.left_scale * bits
        again = SplitNormalMixture(SplitNormal(np.zeros((1, 2000)), scale, scale))
        factor = first.stretch(first.steps(log_width(again)))
        assert [np.ptp(factor[kind == k]) for k in range(6)] == [0.0] * 6
        found = np.array([factor[kind == k][0] for k in range(6)])
        np.testing.assert_allclose(found / found[2], true, rtol=0.2)


def test_all_methods_of_the_distribution_agree():
    rng = np.random.default_rng(2)
    dist, y = rows(rng, 1000, 1.6)
    first = WidthCalibration.from_widths(log_width(dist), normal_scores(dist, y), 1000)
    scores = first.from_score(normal_scores(dist, y), first.steps(log_width(dist)))
    corrected = CalibratedMixture(
        first.calibrated(dist[:50], None), Calibration.from_scores(scores)
    )
    p = np.array([0.001, 0.3, 0.97])[:, None]
    assert np.allclose(corrected.cdf(corrected.ppf(p)), p)
    at, step = y[:50] + 0.01, 1e-7
    slope = (corrected.cdf(at + step) - corrected.cdf(at - step)) / (2 * step)
    assert np.allclose(corrected.pdf(at), slope, rtol=1e-3, atol=1e-6)
    draws = corrected.sample(5000, rng=rng)
    assert np.allclose(corrected.std, draws.std(axis=0), rtol=0.1)
    assert np.allclose(corrected.crps(y[:50]), expected_crps(draws, y[:50]), rtol=0.1)


def test_it_says_how_far_it_moves_values():
    first = WidthCalibration(np.zeros(1), np.array([0.5, 2.0]), 300)
    assert first.reach(40.0) == 80.0
    maps = tuple(Calibration.from_scores(size * np.arange(-3.0, 4.0)) for size in (1.0, 2.0))
    by = CalibrationBy(None, maps, None)
    assert by.reach(40.0) == max(each.reach(40.0) for each in maps)


def expected_crps(draws, y):
    half = draws.shape[0] // 2
    apart = np.abs(draws[:half] - draws[half:]).mean(axis=0)
    return np.abs(draws - y).mean(axis=0) - 0.5 * apart


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (300, 2))
    y = X[:, 0] + np.exp(1.5 * X[:, 1]) * rng.standard_normal(300)
    options = {"n_networks": 4, "cv": 2, "epochs": 3, "random_state": 0, "verbose": 0, "n_jobs": 1}
    model = IntervalRegressor(**options).fit(X, y)
    # So few epochs learn hardly any width: the correction is given what it would have found.
    steps = np.linspace(-0.3, 0.3, 16)
    width = np.sort(0.5 * np.log(model.ensemble_.mixture(X).var))
    by_width = WidthCalibration(np.quantile(width, np.arange(1, 16) / 16), np.exp(steps), 300)
    calibrations = (by_width, model.ensemble_.calibrations[-1])
    model.ensemble_ = replace(model.ensemble_, calibrations=calibrations)
    return model, X, y


def test_it_is_saved_kept_by_conformalize_and_exported(model, tmp_path):
    model, X, y = model
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.predict_interval(X), model.predict_interval(X))
    again.conformalize(X, y)
    assert [c.kind for c in again.ensemble_.calibrations] == ["width", "map"]
    document, arrays = read_model(tmp_path / "model")
    for value in (np.zeros(16), np.full(15, 1.0), np.full(16, np.nan)):
        write_model(tmp_path / "bad", document, arrays | {"calibration.0.factor": value})
        with pytest.raises(ModelFileError):
            load(tmp_path / "bad")
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "m.onnx", [0.5, 0.9]))
    lower, upper = session.run(["lower", "upper"], {"X": X})
    expected = model.predict_interval(X, coverage=[0.5, 0.9])
    np.testing.assert_allclose(lower, expected[:, 0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(upper, expected[:, 1], rtol=1e-4, atol=1e-4)
