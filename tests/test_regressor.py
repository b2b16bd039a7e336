"""IntervalRegressor through its public interface."""

import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import dataclass

import equinox as eqx
import jax
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from typer.testing import CliRunner

from calipers import IntervalRegressor, losses, metrics
from calipers.cli import app
from calipers.heads import HEADS
from calipers.networks import MLP, DenseFactory, smooth
from calipers.objectives import LOSSES, Density, IntervalScore, Objective
from calipers.optimizers import Adam
from calipers.storage import ModelFileError
from calipers.training import make_settings

PLAIN = MLP(hidden_layers=(8,), frequencies=0)  # one program for whatever the inputs hold
# Without validation and averaging it takes half as long to compile.
CHEAP = {
    "network": PLAIN,
    "optimizer": Adam(learning_rate=0.02, averaging=0.0),
    "patience": None,
}


def small(**parameters):
    """A model that trains in a moment, without folds; its networks cannot fail."""
    given = {
        "loss": "interval score",
        "network__hidden_layers": (10,),
        "epochs": 30,
        "n_networks": 2,
        "optimizer__learning_rate": 0.02,
        "optimizer__schedule": "cosine",
        "random_state": 0,
    }
    if "network" in parameters:
        del given["network__hidden_layers"]
    return IntervalRegressor.paper(**(given | parameters))


def calibrated(**parameters):
    """A small model with folds, early stopping and everything else that is on by default."""
    given = {
        "network": MLP(hidden_layers=(16,), frequencies=2),
        "epochs": 60,
        "optimizer": Adam(learning_rate=0.02),
        "cv": 3,
    }
    return IntervalRegressor(**(given | {"n_networks": 6, "random_state": 0} | parameters))


def draw(rows, seed):
    """Inputs, and targets whose noise depends on them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 3))
    return X, X[:, 0] ** 2 + 0.5 * X[:, 1] + rng.normal(0, 0.1 + 0.1 * np.abs(X[:, 0]))


@pytest.fixture(scope="module")
def data():
    """So few rows that parts of them have the same program."""
    return draw(250, 0)


@pytest.fixture(scope="module")
def model(data):
    return small(epochs=100).fit(*data)


_NOT_MET = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a weight equals repeated rows within a batch, but not in which rows meet in a batch"
    ),
}


@pytest.mark.filterwarnings("ignore:intervals of .* are infinite")  # the checks have few rows
@parametrize_with_checks(
    [calibrated(network=PLAIN, epochs=20, n_networks=2, cv=2)],
    expected_failed_checks=lambda _: _NOT_MET,
)
def test_scikit_learn(estimator, check):
    check(estimator)


class TestFewRows:
    """Intervals are infinite where rows are too few, and ``fit`` says so, once."""

    @staticmethod
    def model(**parameters):
        return calibrated(**CHEAP, epochs=2, batch_size=8, **parameters)

    def test_fit_says_why_and_from_when_on_they_are_finite(self, data):
        X, y = data
        words = (
            "intervals of 95% are infinite: it takes 39 rows to calibrate them, and there are 20; "
            "those of up to 90.4% are finite"
        )
        with pytest.warns(UserWarning, match="infinite") as found:
            model = self.model().fit(X[:20], y[:20])
        assert [str(one.message) for one in found] == [words]
        assert found[0].filename == __file__
        assert np.isinf(model.predict_interval(X)).all()  # where warnings are errors
        assert np.isfinite(model.predict_interval(X, coverage=0.904)).all()

    def test_enough_rows_are_no_matter_of_warning(self, data):
        X, y = data
        assert np.isfinite(self.model().fit(X[:39], y[:39]).predict_interval(X)).all()
        with pytest.warns(UserWarning, match="takes 39 rows to calibrate them, and there are 38"):
            self.model().fit(X[:38], y[:38])

    def test_those_who_asked_for_an_error_get_one_and_no_warning(self, data):
        X, y = data
        model = self.model(unsupported="raise").fit(X[:20], y[:20])
        with pytest.raises(ValueError, match="needs at least 39 calibration rows"):
            model.predict_interval(X)

    def test_an_upgrade_says_so_too(self, data):
        X, y = data
        with pytest.warns(UserWarning, match="infinite.* there are 20") as found:
            self.model().upgrade(LinearRegression(), X[:20], y[:20])
        assert found[0].filename == __file__


class TestAnswers:
    def test_shapes(self, model, data):
        X = data[0][:7]
        assert model.predict(X).shape == (7,)
        assert model.predict_interval(X).shape == (7, 2)
        assert model.predict_interval(X, coverage=[0.5]).shape == (7, 2, 1)
        assert model.predict_interval(X, coverage=[0.5, 0.9, 0.99]).shape == (7, 2, 3)
        assert model.predict_quantiles(X, 0.3).shape == (7,)
        assert model.predict_quantiles(X, [0.1, 0.5, 0.9]).shape == (7, 3)
        assert model.predict_var(X).shape == (7,)
        assert model.predict_members(X).lower.shape == (2, 7)
        assert model.predict_dist(X).shape == (7,)

    def test_answers_agree_with_each_other(self, model, data):
        X = data[0]
        dist = model.predict_dist(X)
        bounds = model.predict_interval(X)
        np.testing.assert_allclose(dist.cdf(bounds[:, 0]), 0.025, rtol=1e-9)
        np.testing.assert_allclose(dist.sf(bounds[:, 1]), 0.025, rtol=1e-9)
        levels = [0.025, 0.3, 0.975]
        quantiles = model.predict_quantiles(X, levels)
        np.testing.assert_allclose(quantiles[:, [0, 2]], bounds, rtol=1e-12)
        assert (np.diff(quantiles, axis=1) > 0).all()
        nested = model.predict_interval(X, coverage=[0.5, 0.95])
        np.testing.assert_allclose(nested[:, :, 1], bounds, rtol=1e-12)
        assert (nested[:, 0, 0] > bounds[:, 0]).all()
        point, std = model.predict(X, return_std=True)
        assert np.array_equal(point, model.predict(X))
        np.testing.assert_allclose(std**2, model.predict_var(X))
        np.testing.assert_allclose(std**2, dist.aleatoric_var + dist.epistemic_var)
        members = model.predict_members(X)
        np.testing.assert_allclose(members.point.mean(axis=0), point)

    def test_intervals_cover(self, data):
        X, y = draw(100, 1)
        model = small(epochs=300, n_networks=5).fit(*data)
        bounds = model.predict_interval(X)
        # 100 rows at 0.95: outside of [0.87, 1] less than once in a thousand draws if honest.
        assert metrics.coverage_rate(y, bounds[:, 0], bounds[:, 1]) > 0.87
        assert metrics.mean_width(bounds[:, 0], bounds[:, 1]) < 2 * y.std()
        assert model.score(X, y) > 0.9

    def test_frames_have_named_columns(self, model, data):
        X = pd.DataFrame(data[0], index=[f"row {i}" for i in range(250)])
        named = small().fit(X, data[1])
        frame = named.predict_interval(X[:3], coverage=[0.5, 0.9], as_frame=True)
        assert list(frame) == ["lower_0.5", "upper_0.5", "lower_0.9", "upper_0.9"]
        assert list(frame.index) == ["row 0", "row 1", "row 2"]
        frame = model.predict_quantiles(data[0][:3], [0.1, 0.9], as_frame=True)
        assert list(frame) == ["quantile_0.1", "quantile_0.9"]

    def test_blocks_and_threads_change_nothing(self, model, data, monkeypatch):
        whole = model.predict_interval(data[0])
        monkeypatch.setattr("calipers.ensemble._BLOCK", 64)
        assert np.array_equal(model.predict_interval(data[0]), whole)
        assert np.array_equal(model.predict_dist(data[0]).interval(0.95)[0], whole[:, 0])


class TestCalibration:
    def test_intervals_of_every_coverage_cover(self, data):
        rng = np.random.default_rng(5)
        X = rng.uniform(-2, 2, (1250, 3))
        y = X[:, 0] ** 2 + rng.gamma(2, 0.2 + 0.1 * np.abs(X[:, 1]))
        model = calibrated(epochs=100).fit(X[:250], y[:250])
        levels = [0.5, 0.8, 0.95]
        curve = metrics.calibration_curve(
            y[250:], model.predict_interval(X[250:], coverage=levels), coverages=levels
        )
        # Five standard errors, of the 1,000 rows tested and the 250 calibrated on.
        error = np.sqrt(curve.nominal * (1 - curve.nominal) * (1 / 1000 + 1 / 250))
        assert (np.abs(curve.observed - curve.nominal) < 5 * error).all()

    def test_too_few_rows_for_a_coverage(self, data):
        model = calibrated(coverage=0.8).fit(data[0][:30], data[1][:30])
        assert np.isinf(model.predict_interval(data[0], coverage=0.99)).all()
        assert np.isfinite(model.predict_interval(data[0], coverage=0.8)).all()
        with pytest.raises(ValueError, match="at least 199 calibration rows"):
            model.set_params(unsupported="raise").predict_interval(data[0], coverage=0.99)

    def test_conformalize(self, data, tmp_path):
        X, y = data
        model = small(epochs=100, coverage=0.8).fit(X[:100], y[:100])
        raw = model.predict_interval(X[200:])
        model.conformalize(X[100:200], y[100:200])
        strict = model.predict_interval(X[200:])
        assert not np.array_equal(raw, strict)
        again = model.conformalize(X[100:200], y[100:200]).predict_interval(X[200:])
        assert np.array_equal(strict, again)
        on_top = model.conformalize(X[100:200], y[100:200], keep=True).predict_interval(X[200:])
        np.testing.assert_allclose(on_top, strict, atol=0.3)
        model.save(tmp_path / "model")
        loaded = IntervalRegressor.load(tmp_path / "model")
        assert np.array_equal(loaded.predict_interval(X), model.predict_interval(X))
        loaded.conformalize(X[100:200], y[100:200])
        assert np.array_equal(loaded.predict_interval(X[200:]), strict)

    def test_conformalize_under_covariate_shift(self, data, tmp_path):
        X, y = data

        def likelier(rows):
            return np.exp(rows[:, 0])

        model = small().fit(X[:100], y[:100]).conformalize(X[100:], y[100:], row_weight=likelier)
        bounds = model.predict_interval(X, coverage=0.8)
        assert np.isfinite(bounds).all()
        model.save(tmp_path / "model")
        with pytest.raises(ModelFileError, match=r"load\(..., row_weight=...\)"):
            IntervalRegressor.load(tmp_path / "model")
        again = IntervalRegressor.load(tmp_path / "model", row_weight=likelier)
        assert np.array_equal(again.predict_interval(X, coverage=0.8), bounds)

    def test_groups_stay_together(self, monkeypatch):
        X, y = draw(400, 0)
        groups = np.arange(400) // 4
        plans = []
        monkeypatch.setattr(
            "calipers._estimator.joint_fits.train", lambda *a, **k: plans.extend(a[2]) or 1 / 0
        )
        with pytest.raises(ZeroDivisionError):
            calibrated().fit(X, y, groups=groups)
        assert len(plans) == 6
        for plan in plans:
            assert not set(groups[plan.rows]) & set(groups[plan.validation])
            seen = set(groups[plan.rows]) | set(groups[plan.validation])
            held_out = np.setdiff1d(np.arange(400), np.concatenate([plan.rows, plan.validation]))
            assert not seen & set(groups[held_out])
            assert 100 <= len(held_out) <= 160
        with pytest.raises(ValueError, match="groups has 2 distinct values, too few for cv=3"):
            calibrated().fit(X, y, groups=np.arange(400) % 2)

    def test_a_splitter_of_ones_own(self, data):
        model = calibrated(cv=TimeSeriesSplit(3, max_train_size=250)).fit(*data)
        assert np.isfinite(model.predict_interval(data[0])).all()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"aggregation": "sem"}, "'sem' gives no distribution to calibrate: set cv=None"),
            ({"n_networks": 2}, "n_networks must be a multiple of cv=3, got 2"),
            ({"cv": 1}, "'cv' parameter"),
        ],
    )
    def test_what_cannot_be_calibrated(self, data, change, message):
        with pytest.raises(ValueError, match=message):
            calibrated(**change).fit(*data)


class TestMethods:
    def test_numbers_of_a_loss_are_its_own_unless_given(self):
        def numbers(model):
            return make_settings(model, 100, 64, stops=True).loss

        assert numbers(IntervalRegressor()) == {"crps_weight": 0.95}
        assert numbers(IntervalRegressor(loss="interval score")) == {"point_weight": 0.65}
        assert numbers(IntervalRegressor(loss=IntervalScore(point_weight=0))) == {"point_weight": 0}

    def test_nested_parameters(self):
        model = IntervalRegressor().set_params(
            loss="qd+", loss__softness=100, network__frequencies=2
        )
        assert model.loss.softness == 100
        assert model.get_params()["loss__coverage_weight"] == 0.99
        assert clone(model).network.frequencies == 2
        assert clone(model).network is not model.network
        assert IntervalRegressor().get_params()["optimizer__learning_rate"] == 0.003
        assert IntervalRegressor().optimizer == "adam"
        with pytest.raises(ValueError, match="Invalid parameter 'speed' for estimator Adam"):
            model.set_params(optimizer__speed=1)
        with pytest.raises(ValueError, match=r"'crps_weight' parameter of Density .* Got 2"):
            IntervalRegressor(loss=Density(crps_weight=2)).fit([[0.0], [1.0]], [0.0, 1.0])

    def test_at_most_twenty_parameters(self):
        assert len(IntervalRegressor().get_params(deep=False)) <= 20

    def test_frequencies_follow_the_table(self):
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.normal(size=60), rng.integers(0, 2, 60), np.ones(60)])
        few = MLP().factory(X, 60)
        assert few.columns == (0,)  # two values have no frequencies, one even less
        assert few.frequencies == 8
        assert few.amplitude == 0.5
        assert few.bins == 0
        assert MLP().alternative(few, 60) is None
        assert MLP().alternative(few, 900).bins == 32
        assert MLP(bins=0).alternative(few, 900) is None
        slower = smooth(few)
        assert (slower.smooth, slower.amplitude, slower.spread) == (True, 0.0625, 0.15)
        assert MLP(bins=30).factory(X, 60).bins == 16  # another number is another program
        levels = (rng.integers(0, 90, (60, 1)) == np.arange(90)).astype(float)
        wide = MLP().factory(np.column_stack([X, levels]), 60)
        assert wide == few  # one-hot inputs take none from the numbers
        assert few == MLP().factory(X, 62)  # which is compiled already
        assert MLP().factory(X, 3000).frequencies == 8
        assert MLP().factory(X, 3000).amplitude == 1
        assert MLP(frequencies=0).factory(X, 60) == DenseFactory((128, 128, 128), "silu")

    @pytest.mark.parametrize("loss", sorted(LOSSES))
    def test_every_loss_learns_and_suits_every_aggregation(self, data, loss):
        bounds_alone = not HEADS[LOSSES[loss].head].split_normal
        for aggregation in ("snm", "sem", *["normal"] * (bounds_alone or loss == "normal")):
            model = small(loss=loss, aggregation=aggregation, epochs=100).fit(*data)
            assert model.score(*data) > 0
            if loss == "mse":
                with pytest.raises(ValueError, match="points alone have no intervals"):
                    model.predict_interval(data[0])
            else:
                lower, upper = model.predict_interval(data[0]).T
                assert (lower < upper).all()
        history = model.ensemble_.bank.histories[0]
        assert history["loss"][-1] < history["loss"][0]
        if loss not in ("qd", "qd-paper"):  # these train no point
            assert history["mse"][-1] < history["mse"][0]
        if loss != "mse":
            assert 0.7 < history["coverage"][-1] <= 1

    def test_an_aggregation_without_effect(self, data):
        plain = small(loss="density", epochs=1).fit(*data).predict_interval(data[0])
        with pytest.warns(UserWarning, match="'normal' has no effect with loss='density': its"):
            other = small(loss="density", aggregation="normal", epochs=1).fit(*data)
        assert np.array_equal(other.predict_interval(data[0]), plain)

    @pytest.mark.parametrize("aggregation", ["sem", "std", "mean"])
    def test_bounds_alone_have_no_other_coverage(self, data, aggregation):
        model = small(aggregation=aggregation).fit(*data)
        assert model.predict_interval(data[0], coverage=0.95).shape == (250, 2)
        with pytest.raises(ValueError, match=r"coverage \[0.8\] is not available.*'snm'"):
            model.predict_interval(data[0], coverage=0.8)
        for method in (model.predict_dist, model.predict_var):
            with pytest.raises(ValueError, match=f"aggregation='{aggregation}' gives bounds"):
                method(data[0])

    def test_none_is_for_a_single_network(self, data):
        with pytest.raises(ValueError, match="n_networks=1, got n_networks=2"):
            small(aggregation="none").fit(*data)
        model = small(aggregation="none", n_networks=1).fit(*data)
        assert np.array_equal(
            model.predict_interval(data[0])[:, 0], model.predict_members(data[0]).lower[0]
        )

    def test_a_network_and_a_loss_of_ones_own(self, data, tmp_path):
        model = small(network=Skip(4), loss=TwoPinballs()).fit(*data)
        assert model.score(*data) > 0
        model.save(tmp_path / "model")
        with pytest.raises(ModelFileError, match=r"load\(..., network=...\)"):
            IntervalRegressor.load(tmp_path / "model")
        again = IntervalRegressor.load(tmp_path / "model", network=Skip(4))
        assert np.array_equal(again.predict_interval(data[0]), model.predict_interval(data[0]))
        with pytest.raises(ModelFileError, match="do not fit the network"):
            IntervalRegressor.load(tmp_path / "model", network=Skip(5))

    def test_a_training_that_ran_out_of_time_says_so(self, data, tmp_path):
        slow = {"optimizer__learning_rate": 1e-5, "optimizer__schedule": "constant"}
        model = small(epochs=10**6, time_budget=0.2, patience=10**6, **slow)
        with pytest.warns(
            UserWarning, match=r"time_budget=0.2 ended training after \d+ of 1000000"
        ):
            model.fit(*data)
        about = model.about_["time_budget"]
        assert about["out_of_time"] == about["networks"] == 2
        model.save(tmp_path / "model")
        shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "model")])
        assert "Note: time_budget=0.2 ended training" in shown.output
        page = model.report(*data, tmp_path / "report.html").read_text("utf-8")
        assert "ended training after" in page

    def test_a_sufficient_budget_shortens_no_training(self, data):
        model = small(epochs=5, time_budget=600).fit(*data)
        assert model.about_["time_budget"]["out_of_time"] == 0
        assert [len(history) for history in model.ensemble_.bank.histories] == [5, 5]

    def test_early_stopping(self, data):
        model = small(patience=3, epochs=500, optimizer__learning_rate=0.1).fit(*data)
        histories = model.ensemble_.bank.histories
        assert all(len(history) < 500 for history in histories)
        assert all(np.isfinite(history["valid_loss"]).any() for history in histories)

    def test_more_weight_on_coverage_makes_wider_intervals(self, data):
        widths = [
            np.ptp(
                small(loss="qd+", loss__coverage_weight=w, epochs=200)
                .fit(*data)
                .predict_interval(data[0]),
                axis=1,
            ).mean()
            for w in (0.9, 0.999)
        ]
        assert widths[0] < widths[1]


class SkipModule(eqx.Module):
    inner: eqx.Module
    outer: eqx.nn.Linear

    def __call__(self, x):
        return self.outer(x) + self.inner(x)


@dataclass(frozen=True)
class Skip:
    width: int

    def __call__(self, in_size, out_size, *, key):
        one, two = jax.random.split(key)
        inner = DenseFactory((self.width,))(in_size, out_size, key=one)
        return SkipModule(inner, eqx.nn.Linear(in_size, out_size, key=two))


class TwoPinballs(Objective):
    head = "ordered"

    @staticmethod
    def loss(lower, point, upper, target, *, weight, coverage):
        tail = (1 - coverage) / 2
        return (
            losses.pinball(lower, target, quantile=tail, weight=weight)
            + losses.pinball(upper, target, quantile=1 - tail, weight=weight)
            + losses.squared_error(point, target, weight=weight)
        )


class TestData:
    @pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
    def test_frames_and_their_names(self, data, frame):
        X = frame(dict(zip("abc", data[0].T, strict=True)))
        model = small().fit(X, data[1])
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        assert model.predict(X).shape == (250,)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(X[["b", "a", "c"]])

    def test_single_and_double_precision_agree(self, data):
        X, y = data
        double = small().fit(X, y).predict(X)
        single = small().fit(X.astype(np.float32), y.astype(np.float32)).predict(X)
        np.testing.assert_allclose(single, double, atol=0.05)

    @pytest.mark.parametrize(
        ("unit", "of_target"), [(1e-200, 1e-200), (1e-9, 1e-9), (1e9, 1e9), (1e200, 1e140)]
    )
    def test_units_do_not_matter(self, data, unit, of_target):
        X, y = data
        plain = small().fit(X, y).predict_interval(X)
        inputs = X * unit + 3 * unit
        scaled = small().fit(inputs, y * of_target).predict_interval(inputs)
        np.testing.assert_allclose(scaled / of_target, plain, atol=0.05)

    def test_targets_whose_squares_are_no_numbers_are_refused(self, data):
        X, y = data
        for targets in (y, y[:, None], pd.DataFrame({"y": y})):
            with pytest.raises(ValueError, match=r"y must lie within \+-1e\+150, got"):
                small().fit(X, targets * 1e200)

    @pytest.mark.parametrize(
        ("X", "y"),
        [
            ([[1.0, 2.0]], [3.0]),
            (np.arange(20.0)[:, None], np.arange(20.0)),
            (np.c_[np.arange(20.0), np.full(20, 7.0)], np.arange(20.0)),
            (np.arange(20.0)[:, None], np.full(20, 5.0)),
            (np.ones((20, 2)), np.arange(20.0)),
            (np.repeat(np.arange(5.0), 20)[:, None], np.repeat(np.arange(5.0), 20)),
        ],
        ids=[
            "one row",
            "one column",
            "constant column",
            "constant target",
            "no information",
            "repeated rows",
        ],
    )
    @pytest.mark.parametrize("loss", ["interval score", "qd+"])
    def test_odd_data(self, X, y, loss):
        model = small(loss=loss, epochs=100).fit(X, y)
        bounds = model.predict_interval(X)
        assert np.isfinite(bounds).all()
        assert (bounds[:, 0] <= bounds[:, 1]).all()
        assert np.isfinite(model.predict(X)).all()
        if np.ptp(y) == 0:
            np.testing.assert_allclose(bounds, y[0], rtol=1e-3)

    def test_far_outside_is_finite(self, model):
        assert np.isfinite(model.predict_interval([[1e300, -1e300, 0.0]])).all()

    def test_zero_weight_is_no_row(self, data):
        X, y = data
        weight = np.ones(250)
        weight[::3] = 0
        weighted = small().fit(X, y, sample_weight=weight)
        without = small().fit(X[weight > 0], y[weight > 0])
        np.testing.assert_allclose(weighted.predict(X), without.predict(X), atol=1e-3)

    def test_equal_weights_are_no_weights(self, data):
        X, y = data
        weighted = small().fit(X, y, sample_weight=np.full(250, 7.0))
        assert np.array_equal(weighted.predict(X), small().fit(X, y).predict(X))

    @pytest.mark.parametrize("loss", ["interval score", "normal", "mse"])
    def test_weights_are_repeated_rows_in_a_full_batch(self, data, loss):
        X, y = data[0][:60], data[1][:60]
        times = np.random.default_rng(1).integers(1, 4, 60)
        parameters = {"loss": loss, "batch_size": 256, "epochs": 50}
        weighted = small(**parameters).fit(X, y, sample_weight=times)
        repeated = small(**parameters).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
        np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-3)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"coverage": 1.0}, "'coverage' parameter of IntervalRegressor must be .* Got 1.0"),
            ({"coverage": 95}, "must be a number between 0 and 1, such as 0.95. Got 95 instead"),
            ({"loss": "qd*"}, r"'loss' parameter .*'qd\+'.* Got 'qd\*'"),
            ({"n_networks": 0}, "'n_networks'"),
            ({"network__hidden_layers": 5}, "'hidden_layers'"),
            ({"optimizer__learning_rate": -1}, "'learning_rate'"),
        ],
    )
    def test_wrong_parameters(self, data, change, message):
        with pytest.raises(ValueError, match=message):
            small(**change).fit(*data)

    def test_wrong_data(self, data):
        X, y = data
        with pytest.raises(ValueError, match="several targets"):
            small().fit(X, np.c_[y, y])
        with pytest.raises(ValueError, match="NaN"):
            small().fit(np.where(X > 1.9, np.nan, X), y)
        with pytest.raises(ValueError, match="zero"):
            small().fit(X, y, sample_weight=np.zeros(250))
        with pytest.raises(ValueError, match="coverage must be above 0 and below 1, got 95"):
            small().fit(X, y).predict_interval(X, coverage=95)
        with pytest.raises(ValueError, match=r"coverage must be one level or a list .*, got \[\]"):
            small().fit(X, y).predict_interval(X, [])
        with pytest.raises(ValueError, match="quantiles must be one level or a list of some"):
            small().fit(X, y).predict_quantiles(X, ())
        with pytest.raises(NotFittedError):
            small().predict_interval(X)


class TestHabits:
    def test_pipeline_grid_search_and_cross_validation(self):
        X, y = load_diabetes(return_X_y=True, as_frame=True)
        columns = make_column_transformer(
            (StandardScaler(), ["bmi", "bp"]), (OneHotEncoder(), ["sex"])
        )
        pipeline = make_pipeline(columns, small())
        search = GridSearchCV(
            pipeline,
            {"intervalregressor__optimizer__learning_rate": [0.001, 0.02]},
            cv=2,
            refit=False,
        )
        search.fit(X, y)
        assert search.best_params_["intervalregressor__optimizer__learning_rate"] == 0.02
        assert cross_val_predict(pipeline, X, y, cv=2, method="predict").shape == (442,)

    def test_copies(self, model, data, tmp_path):
        expected = model.predict_interval(data[0])
        assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_interval(data[0]), expected)
        joblib.dump(model, tmp_path / "model.joblib")
        again = joblib.load(tmp_path / "model.joblib")
        assert np.array_equal(again.predict_interval(data[0]), expected)
        assert np.array_equal(clone(model).fit(*data).predict_interval(data[0]), expected)

    def test_seeds(self, data):
        one, two = (small(random_state=s).fit(*data).predict(data[0]) for s in (0, 1))
        assert not np.array_equal(one, two)
        state = np.random.RandomState(0)
        first, second = (small(random_state=state).fit(*data).predict(data[0]) for _ in range(2))
        assert not np.array_equal(first, second)
        assert not np.array_equal(
            *(small(random_state=None).fit(*data).predict(data[0]) for _ in range(2))
        )

    def test_warm_start_follows_new_rows(self, data):
        X, y = data
        model = small(epochs=100, warm_start=True).fit(X, y)
        seeds = model.ensemble_.bank.seeds
        later = y + 0.5 * X[:, 2]
        before = np.mean((model.predict(X) - later) ** 2)
        model.set_params(epochs=20).fit(X, later)
        cold = small(epochs=20).fit(X, later)
        error = np.mean((model.predict(X) - later) ** 2)
        assert error < before
        assert error < np.mean((cold.predict(X) - later) ** 2)
        assert len(model.ensemble_.bank.seeds) == len(seeds)
        with pytest.raises(ValueError, match="2 networks of the last fit, got n_networks=3"):
            model.set_params(n_networks=3).fit(X, y)

    def test_an_interrupt_leaves_an_unfitted_model(self, data, monkeypatch):
        model = small().fit(*data)

        def interrupted(*_, **__):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("calipers._estimator.joint_fits.train", interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.fit(data[0][:, :2], data[1])
        with pytest.raises(NotFittedError):
            model.predict(data[0])
        assert model.fit(*data).predict(data[0]).shape == (250,)

    @pytest.mark.long
    def test_a_real_interrupt_ends_training_soon(self, tmp_path):
        script = (
            "import signal\n"  # which a shell turns off for what runs in the background
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from contextlib import contextmanager\n"
            "import numpy as np\n"
            "from calipers import IntervalRegressor\n"
            "from calipers._estimator import joint_fits\n"
            "from calipers.networks import MLP\n"
            "@contextmanager\n"
            "def progress(*_, **__):\n"
            "    yield lambda _: print('training\\n', end='', flush=True)\n"
            "joint_fits.progress = progress\n"
            "X = np.random.default_rng(0).normal(size=(500, 3))\n"
            "network = MLP(hidden_layers=(8,), frequencies=0)\n"
            "few = dict(loss='interval score', network=network, n_networks=10, n_jobs=2)\n"
            "model = IntervalRegressor(epochs=1_000_000, **few)\n"
            "try:\n"
            "    model.fit(X, X[:, 0])\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', hasattr(model, 'ensemble_'), flush=True)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=600)[0].count("interrupted False\n") == 1
        assert process.returncode == 0  # no thread is cut off inside XLA

    def test_importing_changes_no_settings(self):
        script = (
            "import jax, numpy as np\n"
            "before = dict(jax.config.values), np.geterr()\n"
            "import calipers\n"
            "assert before == (dict(jax.config.values), np.geterr())\n"
        )
        subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


class TestFolder:
    def test_a_model_comes_back_to_the_bit(self, data, tmp_path):
        X = pd.DataFrame(data[0], columns=list("abc"))
        model = small(
            loss="qd+", network__hidden_layers=np.array([7, 5]), coverage=np.float64(0.9)
        ).fit(X, data[1])
        model.save(tmp_path / "model")
        again = IntervalRegressor.load(tmp_path / "model")
        assert np.array_equal(again.predict_interval(X), model.predict_interval(X))
        known, found = model.get_params(), again.get_params()
        assert found["network__hidden_layers"] == (7, 5)
        rest = [name for name in known if name not in ("loss", "network", "optimizer")]
        assert all(found[name] == known[name] for name in rest if name != "network__hidden_layers")
        assert list(again.feature_names_in_) == ["a", "b", "c"]
        before, after = model.ensemble_.bank.histories, again.ensemble_.bank.histories
        assert all(
            np.array_equal(a, b, equal_nan=False) or str(a) == str(b)
            for a, b in zip(before, after, strict=True)
        )
        with pytest.raises(ValueError, match="feature names"):
            again.predict(X.rename(columns={"a": "z"}))
        warm = again.set_params(warm_start=True, epochs=3).fit(X, data[1])
        assert warm.predict(X).shape == (250,)

    def test_a_calibrated_model_comes_back_to_the_bit(self, data, tmp_path):
        model = calibrated().fit(*data)
        model.save(tmp_path / "model")
        again = IntervalRegressor.load(tmp_path / "model")
        for coverage in (0.5, 0.95):
            assert np.array_equal(
                again.predict_interval(data[0], coverage=coverage),
                model.predict_interval(data[0], coverage=coverage),
            )
        assert again.ensemble_.bank.program == model.ensemble_.bank.program

    def test_a_model_of_another_kind_is_refused(self, model, tmp_path):
        model.save(tmp_path / "model")
        record = json.loads((tmp_path / "model" / "model.json").read_text())
        assert record["document"]["parameters"]["n_networks"] == 2

        class Other(IntervalRegressor):
            pass

        with pytest.raises(
            ModelFileError, match="holds a model of 'IntervalRegressor', not of Other"
        ):
            Other.load(tmp_path / "model")

    def test_an_unfitted_model_cannot_be_saved(self, tmp_path):
        with pytest.raises(NotFittedError):
            small().save(tmp_path / "model")
        assert not (tmp_path / "model").exists()
