"""``model.update``: what a user of the estimator sees of it, and that a kill loses nothing."""

import os
import signal
import subprocess
import sys
from copy import copy

import numpy as np
import pytest

import calipers
from calipers import IntervalRegressor, metrics
from calipers.distributions import SplitNormal, SplitNormalMixture, Support
from calipers.ensemble import Ensemble
from calipers.objectives import Density
from calipers.prediction import Query
from calipers.storage import ModelFileError, read_model, write_model

SMALL = {"n_networks": 2, "cv": 2, "epochs": 10, "random_state": 0, "verbose": 0}


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, X[:, 0] + rng.normal(0, 0.3, n)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("online") / "model"
    IntervalRegressor(**SMALL).fit(*rows(150)).save(path)
    return path


def test_everything_that_is_predicted_follows(folder):
    model = calipers.load(folder)
    X, y = rows(400, seed=1)
    before = model.predict(X)
    found = model.update(X, 2.0 * y + 5.0)
    assert found.alarm
    assert abs(found.coverage(0.8) - 0.8) <= 0.02
    query = Query((0.5, 0.9), (0.1, 0.5, 0.9), variance=True, density=5)
    after = model.query(X, query)
    assert abs(np.mean(after.point - before) - 5.0) < 0.5
    assert (after.intervals[:, 0, 1] < after.point).all()
    assert (after.point < after.intervals[:, 1, 1]).all()
    assert (np.diff(after.quantiles, axis=1) > 0).all()
    dist = model.predict_dist(X)
    np.testing.assert_allclose(dist.cdf(dist.ppf(0.3)), 0.3, atol=1e-9)
    assert np.isfinite(dist.crps(y)).all()
    assert np.isfinite(dist.var).all()


@pytest.mark.filterwarnings("ignore:the target was assumed to be")
def test_intervals_of_counts_are_counts_until_the_stream_says_otherwise():
    X, y = rows(150)
    counts = np.maximum(np.round(3 * y + 5), 0)
    model = IntervalRegressor(**SMALL).fit(X, counts)
    found = model.update(X[:100], counts[:100])
    seen = found.intervals(0.8)
    assert (seen == np.round(seen)).all()
    assert seen.min() >= 0
    lower, upper = seen.T
    assert found.coverage(0.8) == np.mean((lower <= counts[:100]) & (counts[:100] <= upper))
    found = model.update(X[:100], counts[:100] - 30.5)
    assert found.intervals(0.8)[-1].max() < 0
    assert model.predict_interval(X).min() < 0


def test_a_model_on_another_scale_of_the_target_is_updated(tmp_path):
    X, y = rows(150)
    model = IntervalRegressor(**SMALL, loss=Density(scale="log")).fit(X, np.exp(y))
    X, y = rows(400, seed=1)
    found = model.update(X, 3.0 * np.exp(y))
    assert abs(found.coverage(0.8) - 0.8) <= 0.03
    assert found.intervals(0.8).min() > 0
    late = np.median(model.predict_quantiles(X, [0.5])[:, 0] / np.exp(X[:, 0]))
    assert late == pytest.approx(3.0, rel=0.3)
    model.save(tmp_path)
    again = calipers.load(tmp_path)
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    with pytest.raises(ValueError, match="needs positive targets, got -1 in row 1"):
        model.update(X[:2], [1.0, -1.0])


def test_a_delay_of_targets_is_a_number_of_rows(folder):
    X, y = rows(40)
    models = [calipers.load(folder) for _ in range(2)]
    late, soon = (m.update(X, y + 3.0, delay=d) for m, d in zip(models, (10, 0), strict=True))
    assert late.intervals(0.9)[5, 1] < soon.intervals(0.9)[5, 1]
    for delay in (-1, 1.5, "3", None):
        words = f"delay must be a whole number of rows from 0 on, got {delay!r}"
        with pytest.raises(ValueError, match=words):
            models[0].update(X, y, delay=delay)
    models[0].update(X, y, delay=np.int64(10**15))  # which takes no longer than one of 40


@pytest.fixture(scope="module")
def of_counts():
    X, _ = rows(300)
    return IntervalRegressor(**SMALL).fit(X, np.random.default_rng(1).poisson(1.5, 300))


@pytest.mark.filterwarnings("ignore:the target was assumed to be")
def test_a_target_that_was_thought_impossible_is_a_miss(of_counts):
    model, row = copy(of_counts), [[0.0, 0.0]]
    (before,) = model.predict_interval(row, 0.9)
    assert before[0] == 0
    found = model.update(row, [-1.0])
    np.testing.assert_array_equal(found.intervals(0.9), [before])
    assert found.coverage(0.9) == 0
    assert str(of_counts.support_) == "non-negative integers"
    assert str(model.support_) == "integers"
    assert model.predict_quantiles(row, [1e-6])[0, 0] < 0


@pytest.mark.filterwarnings("ignore:the target was assumed to be")
@pytest.mark.parametrize("delay", [0, 3])
def test_a_block_is_predicted_as_its_rows_are_one_by_one(delay):
    """Targets below the bound and between the integers, some before the first of them is known."""
    support = Support(low=0.0, step=1.0)
    y = support.observe(np.random.default_rng(2).normal(0.3, 1, 60))
    y[[7, 9, 30, 31]] = -2.0, -1.0, 2.5, 0.5
    X = np.zeros((60, 1))
    ensemble = RightModel(bank=None, coverage=0.9, aggregation="snm", support=support)
    whole, found = ensemble.learn(X, y, delay)
    past, bounds = [], []
    for t in range(60 + delay):
        if t < 60:
            past.append(ensemble)
            bounds.append(np.ravel(ensemble.distribution(X[:1]).interval(0.9)))
        if t >= delay:
            one = slice(t - delay, t - delay + 1)
            ensemble, _ = ensemble.learn(X[one], y[one], predicted_by=past[one])
    lower = found.intervals(0.9)[:, 0]
    np.testing.assert_allclose(found.intervals(0.9), bounds, rtol=1e-9)
    assert lower[: 8 + delay].min() == 0 > lower[8 + delay]
    integer = lower == np.round(lower)
    assert integer[: 31 + delay].all()
    assert not integer[31 + delay :].any()
    assert ensemble.support == whole.support == Support()
    ends = [each.calibrations[-1].to_arrays() for each in (ensemble, whole)]
    for name, array in ends[0].items():
        np.testing.assert_allclose(array, ends[1][name], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("support", [Support(low=0.0, step=1.0), Support(low=0.0)])
def test_exchangeable_targets_with_ties_leave_a_right_model_right(support):
    y, X = support.observe(np.random.default_rng(0).normal(0.3, 1, 3000)), np.zeros((3000, 1))
    model = RightModel(bank=None, coverage=0.9, aggregation="snm", support=support)
    after, found = model.learn(X[:1000], y[:1000])
    before, then = (each.distribution(X[1000:]) for each in (model, after))
    target = y[1000:]
    assert then.crps(target).mean() < 1.05 * before.crps(target).mean()
    for coverage in (0.8, 0.9):
        shared = metrics.shared_coverage(then.cdf_below(target), then.cdf(target), coverage)
        assert shared.mean() == pytest.approx(coverage, abs=0.1)
        assert found.coverage(coverage) >= coverage


@pytest.mark.parametrize("support", [Support(low=0.0, step=1.0), Support(low=0.0)])
def test_targets_with_ties_stay_inside_under_drift(support):
    rng, t = np.random.default_rng(0), np.arange(800)
    y = support.observe(rng.normal(0.3, 1, 800) * np.where(t < 300, 1.0, 4.0) + 5.0 * (t >= 500))
    model = RightModel(bank=None, coverage=0.9, aggregation="snm", support=support)
    _, found = model.learn(np.zeros((800, 1)), y)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        assert found.coverage(coverage) >= coverage - 0.01


@pytest.mark.long
def test_counts_one_by_one_raise_no_alarm():
    """Each row is drawn within its cell by itself, as rows are that come together."""
    counts = Support(low=0.0, step=1.0)
    y = counts.observe(np.random.default_rng(1).normal(0.3, 1, 300))
    ensemble = RightModel(bank=None, coverage=0.9, aggregation="snm", support=counts)
    for one in y:
        ensemble, found = ensemble.learn(np.zeros((1, 1)), np.array([one]))
    assert not found.alarm


class RightModel(Ensemble):
    """One that predicts what rows are drawn from."""

    def mixture(self, X):
        return SplitNormalMixture(SplitNormal(np.full((1, len(X)), 0.3), 1.0, 1.0))


def test_bounds_that_were_given_hold_in_a_stream():
    X, y = rows(150)
    model = IntervalRegressor(**SMALL, bounds=(-10, 10)).fit(X, y)
    with pytest.raises(ValueError, match="y must not be above 10"):
        model.update(X[:3], y[:3] + 50)


def test_an_updated_model_is_saved_and_continues(folder, tmp_path):
    X, y = rows(60, seed=2)
    model = calipers.load(folder)
    model.update(X, y + 1.0)
    model.save(tmp_path)
    again = calipers.load(tmp_path)
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    ends = [each.update(X, y + 2.0).intervals(0.9) for each in (model, again)]
    np.testing.assert_array_equal(*ends)


def test_a_damaged_state_is_a_model_file_error(folder, tmp_path):
    model = calipers.load(folder)
    model.update(*rows(10))
    model.save(tmp_path)
    document, arrays = read_model(tmp_path)
    arrays["calibration.1.levels.scale"] *= -1.0
    write_model(tmp_path, document, arrays)
    with pytest.raises(ModelFileError, match="levels"):
        calipers.load(tmp_path)


def test_conformalize_starts_again(folder):
    model = calipers.load(folder)
    X, y = rows(100, seed=3)
    model.update(X, y + 5.0)
    model.conformalize(X, y)
    assert [c.kind for c in model.ensemble_.calibrations] == ["map"]


def test_a_model_with_row_weights_is_updated_saved_and_loaded(folder, tmp_path):
    def row_weight(X):
        return 1.0 + (X[:, 0] > 0)

    model = calipers.load(folder)
    X, y = rows(100, seed=4)
    model.conformalize(X, y, row_weight=row_weight)
    model.update(X, y)
    model.save(tmp_path)
    again = calipers.load(tmp_path, row_weight=row_weight)
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


def test_bounds_without_a_distribution_are_refused():
    model = IntervalRegressor(aggregation="mean", **{**SMALL, "cv": None})
    X, y = rows(60)
    model.fit(X, y)
    with pytest.raises(ValueError, match="aggregation='mean' gives bounds"):
        model.update(X, y)


FOREVER = """
import sys, numpy as np, calipers
model = calipers.load(sys.argv[1])
rng = np.random.default_rng(0)
while True:
    learned = int(model.ensemble_.calibrations[-1].levels.rows) if len(
        model.ensemble_.calibrations) > 1 else 0
    X = rng.uniform(-2, 2, (3, 2))
    model.update(X, X[:, 0])
    model.save(sys.argv[1])
    print(learned + 3, flush=True)
"""


@pytest.mark.slow  # test_campaigns.py has a fast share of such kills
def test_a_kill_loses_nothing_that_was_saved(folder, tmp_path):
    path = tmp_path / "model"
    calipers.load(folder).save(path)
    command = [sys.executable, "-c", FOREVER, os.fspath(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        try:
            for _ in range(5):
                last = int(worker.stdout.readline())
        finally:
            worker.send_signal(signal.SIGKILL)
        rest = worker.stdout.read().split()
    printed = int(rest[-1]) if rest else last
    model = calipers.load(path)
    assert int(model.ensemble_.calibrations[-1].levels.rows) in (printed, printed + 3)


def test_an_updated_model_says_why_it_is_not_exported(folder, tmp_path):
    pytest.importorskip("onnx")
    model = calipers.load(folder)
    model.update(*rows(20, seed=1))
    with pytest.raises(ValueError, match="updated online cannot be exported to ONNX"):
        model.to_onnx(tmp_path / "m.onnx")
