"""Predictions of training rows by the networks that have not seen them."""

import pickle

import numpy as np
import pytest
from sklearn.model_selection import TimeSeriesSplit

import calipers
from calipers import IntervalRegressor
from calipers.networks import MLP


def tiny(**parameters):
    given = {"n_networks": 4, "cv": 2, "network": MLP(hidden_layers=(8,), frequencies=0)}
    return IntervalRegressor(**(given | {"epochs": 20, "random_state": 0} | parameters))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    return X, X[:, 0] + rng.normal(0, 0.2, 200)


@pytest.fixture(scope="module")
def model(data):
    return tiny().fit(*data)


def own_points(model, X):
    """Points by the networks of each row's fold, the folds found by what networks trained on."""
    bank, seed = model.ensemble_.bank, model.about_["split"]["seed"]
    from sklearn.model_selection import KFold

    folds = KFold(2, shuffle=True, random_state=seed).split(X)
    found = np.empty(len(X))
    for number, (_, held_out) in enumerate(folds):
        mean = model.ensemble_.head.mixture(bank.predict(X[held_out])).by_network.mean
        found[held_out] = mean[np.arange(len(bank)) % 2 == number].mean(axis=0)
    return found


def test_points_are_of_networks_that_have_not_seen_the_row(model, data):
    found = model.out_of_fold_
    np.testing.assert_allclose(found.point, own_points(model, data[0]), rtol=1e-6)
    assert not np.allclose(found.point, model.predict(data[0]))


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_hold_what_they_promise(model, data, coverage):
    lower, upper = model.out_of_fold_.interval(coverage).T
    assert np.mean((lower <= data[1]) & (data[1] <= upper)) == pytest.approx(coverage, abs=0.015)
    assert np.array_equal(model.out_of_fold_.interval(), model.out_of_fold_.interval(0.95))


def test_rows_that_no_fold_holds_out_are_missing(data):
    X, y = data
    weight = np.ones(200)
    weight[7] = 0
    found = tiny().fit(X, y, sample_weight=weight).out_of_fold_
    assert np.flatnonzero(np.isnan(found.point)).tolist() == [7]
    assert np.isnan(found.interval(0.5)[7]).all()
    found = tiny(cv=TimeSeriesSplit(2)).fit(X, y).out_of_fold_
    assert np.isnan(found.point[:68]).all()
    assert np.isfinite(found.point[68:]).all()


def test_points_alone(data):
    found = tiny(loss="mse").fit(*data).out_of_fold_
    assert np.corrcoef(found.point, data[1])[0, 1] > 0.8
    with pytest.raises(ValueError, match="points alone have no intervals"):
        found.interval()


def test_where_there_are_none(model, data, tmp_path):
    assert np.array_equal(pickle.loads(pickle.dumps(model)).out_of_fold_.point,
                          model.out_of_fold_.point)  # fmt: skip
    model.save(tmp_path / "model")
    for other in (calipers.load(tmp_path / "model"), tiny(cv=None, epochs=1).fit(*data)):
        with pytest.raises(AttributeError, match="unless cv is None, and they are not saved"):
            other.out_of_fold_  # noqa: B018 - the access is what is tested
