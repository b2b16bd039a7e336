"""Splitters in time order: which networks calibrate, and which predict."""

import numpy as np
import pytest
from sklearn.model_selection import KFold, TimeSeriesSplit

import calipers
from calipers import IntervalRegressor
from calipers.networks import MLP

SMALL = {"n_networks": 4, "epochs": 30, "random_state": 0, "verbose": 0, "patience": None}
TINY = SMALL | {"epochs": 2, "network": MLP(hidden_layers=(8,), frequencies=0)}


def trend(n=240):
    """A series whose level rises: networks trained on the first part only are far off."""
    rng = np.random.default_rng(0)
    t = np.arange(n, dtype=float)
    X = np.column_stack([t / n, rng.standard_normal(n)])
    return X, 10.0 * X[:, 0] + rng.normal(0, 0.3, n)


@pytest.fixture(scope="module")
def model():
    return IntervalRegressor(cv=TimeSeriesSplit(4), **SMALL).fit(*trend())


def test_the_networks_that_predict_are_trained_on_all_rows(model):
    assert len(model.ensemble_.bank) == 4
    X, y = trend()
    last = model.predict_members(X[-20:]).point
    assert np.abs(last.mean(axis=1) - y[-20:].mean()).max() < 0.8  # the first fold ends at 2


def test_calibration_uses_networks_trained_on_the_past_only(model):
    X, _ = trend()
    found = model.out_of_fold_
    assert found.rows.min() == 48
    assert found.rows.max() == len(X) - 1
    assert model.ensemble_.calibrations[0].n_rows == len(found.rows)
    # Scores are those of forecasts: further off than the networks that have seen the rows.
    missed = np.abs(found.point - trend()[1])[found.rows].mean()
    seen = np.abs(model.predict(X) - trend()[1])[found.rows].mean()
    assert missed > 1.5 * seen


@pytest.mark.slow
def test_rows_ahead_are_covered_where_a_series_continues_unchanged():
    """Four standard errors of 40 series: a valid method falls below the band in 1 run of 30,000."""
    covered = []
    for seed in range(40):
        noise = np.random.default_rng(seed).standard_normal(300)
        y = np.zeros(300)
        for t in range(2, 300):
            y[t] = 0.9 * y[t - 1] - 0.3 * y[t - 2] + noise[t]
        X = np.column_stack([np.roll(y, 1), np.roll(y, 2)])
        small = IntervalRegressor(coverage=0.9, cv=TimeSeriesSplit(4), **SMALL)
        lower, upper = small.fit(X[2:240], y[2:240]).predict_interval(X[240:]).T
        covered.append(np.mean((lower <= y[240:]) & (y[240:] <= upper)))
    error = np.std(covered) / 40**0.5
    assert 0.9 - 4 * error < np.mean(covered) < 0.95 + 4 * error


def test_it_is_saved_and_loaded(model, tmp_path):
    model.save(tmp_path)
    X, _ = trend()
    again = calipers.load(tmp_path)
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


def test_folds_that_leave_no_row_out_are_as_before():
    X, y = trend(80)
    made = IntervalRegressor(cv=KFold(4), **TINY).fit(X, y)
    assert made.ensemble_.bank.numbers.tolist() == [0, 1, 2, 3]


def test_points_trained_on_all_rows_are_not_upgraded_on_them():
    X, y = trend(80)
    few = TINY | {"cv": TimeSeriesSplit(4)}
    points = IntervalRegressor(loss="mse", **few).fit(X, y)
    assert np.isnan(points.out_of_fold_.point[:16]).all()
    with pytest.raises(ValueError, match="might mistake training rows for new ones"):
        IntervalRegressor(**few).upgrade(points, X, y)
