"""The adapter passes skpro's own checks, and has the predictions of the model."""

import warnings

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("skpro")

from skpro.metrics import CRPS
from skpro.utils.estimator_checks import check_estimator

from calipers.skpro import PredictiveDistribution, ProbaIntervalRegressor

# Warnings that skpro and pandas cause themselves are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", [ProbaIntervalRegressor, PredictiveDistribution])
def test_own_checks_of_skpro(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(kind, raise_exceptions=False, verbose=False)
    failed = {name: result for name, result in results.items() if result != "PASSED"}
    assert failed == {}
    assert len(results) > 30


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(-1, 1, 120), "town": rng.choice(["x", "y"], 120)})
    y = pd.DataFrame({"price": X["a"] + rng.normal(0, 0.1, 120)})
    X.loc[5, "a"] = np.nan
    model = ProbaIntervalRegressor(**ProbaIntervalRegressor.get_test_params()[0])
    return model.fit(X, y), X.iloc[::7], y.iloc[::7]


def test_numbers_are_those_of_the_model(fitted):
    model, X, y = fitted
    own = model.estimator_
    assert np.array_equal(model.predict(X)["price"], own.predict(X))
    bounds = model.predict_interval(X, coverage=[0.5, 0.9])
    expected = own.predict_interval(X, coverage=[0.5, 0.9])
    assert np.array_equal(bounds["price", 0.9, "upper"], expected[:, 1, 1])
    assert np.array_equal(bounds["price", 0.5, "lower"], expected[:, 0, 0])
    quantiles = model.predict_quantiles(X, alpha=[0.2, 0.7])
    np.testing.assert_allclose(quantiles, own.predict_quantiles(X, [0.2, 0.7]), rtol=1e-9)
    score = CRPS()(y, model.predict_proba(X))
    assert score == pytest.approx(own.predict_dist(X).crps(y["price"]).mean(), rel=1e-9)


def test_energy_is_the_mean_distance_of_draws(fitted):
    model, X, _ = fitted
    dist = model.predict_proba(X)
    draws = dist.dist.sample(4000, rng=np.random.default_rng(0))
    one, other = np.split(draws, 2)
    expected = np.abs(one - other).mean(axis=0)
    # 2,000 pairs: a standard error of about 1.7%, five of them.
    np.testing.assert_allclose(dist.energy()["energy"], expected, rtol=0.085)


def test_rows_are_picked_by_label(fitted):
    model, X, _ = fitted
    dist = model.predict_proba(X)
    label = X.index[3]
    assert dist.loc[label, "price"].mean() == pytest.approx(dist.mean().loc[label, "price"])
    assert dist.iloc[[4, 1]].index.tolist() == X.index[[4, 1]].tolist()
    assert np.array_equal(dist.iloc[[4, 1]].mean(), dist.mean().iloc[[4, 1]])


def test_sktime_forecasts_with_it():
    compose = pytest.importorskip("sktime.forecasting.compose")
    months = pd.period_range("2019-01", periods=90, freq="M")
    noise = np.random.default_rng(0).normal(0, 0.1, 90)
    series = pd.Series(np.sin(np.arange(90) / 3) + noise, index=months)
    own = ProbaIntervalRegressor(**ProbaIntervalRegressor.get_test_params()[0])
    forecaster = compose.make_reduction(own, strategy="direct", window_length=6)
    bounds = forecaster.fit(series, fh=[1, 2]).predict_interval(coverage=[0.5, 0.9])
    assert bounds.index.tolist() == [months[-1] + 1, months[-1] + 2]
    lower, low, high, upper = (
        bounds[0, 0.9, "lower"], bounds[0, 0.5, "lower"],
        bounds[0, 0.5, "upper"], bounds[0, 0.9, "upper"],
    )  # fmt: skip
    assert (np.diff([lower, low, high, upper], axis=0) > 0).all()
    last = pd.DataFrame([series.to_numpy()[-6:]])
    (first, *_) = forecaster.estimators_
    assert bounds[0, 0.9, "upper"].iloc[0] == pytest.approx(
        first.estimator_.predict_interval(last, coverage=0.9)[0, 1], rel=1e-6
    )
