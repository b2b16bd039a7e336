"""Two-stage learning: points first, then intervals around them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from calipers import IntervalRegressor, load
from calipers.networks import MLP
from calipers.optimizers import Adam
from calipers.preprocessing import TableEncoder

TINY = {
    "n_networks": 4,
    "cv": 2,
    "network": MLP(hidden_layers=(16,), frequencies=0),
    "epochs": 200,
    "batch_size": 32,
    "optimizer": Adam(learning_rate=0.02, averaging=0.0),
    "random_state": 0,
    "verbose": 0,
}


def problem(rows, seed):
    """A table with a category, and targets far from zero whose noise depends on it."""
    rng = np.random.default_rng(seed)
    x, kind = rng.uniform(-2, 2, rows), rng.choice(["quiet", "loud"], rows)
    y = 1000 + 20 * x**2 + rng.normal(0, np.where(kind == "loud", 5, 1), rows)
    return pd.DataFrame({"x": x, "kind": kind}), y


X, Y = problem(250, 0)
X_TEST, Y_TEST = problem(2000, 1)


@pytest.fixture(scope="module")
def points():
    return IntervalRegressor(loss="mse", preprocessor=TableEncoder(), **TINY).fit(X, Y)


@pytest.fixture(scope="module")
def upgraded(points):
    return IntervalRegressor(**TINY).upgrade(points, X, Y)


def coverage(model, level=None):
    lower, upper = model.predict_interval(X_TEST, level).T
    return np.mean((lower <= Y_TEST) & (upper >= Y_TEST))


@pytest.mark.parametrize("loss", ["density", "interval score"])
def test_points_are_kept_whatever_the_loss(points, loss):
    model = IntervalRegressor(**TINY, loss=loss).upgrade(points, X, Y)
    np.testing.assert_allclose(model.predict(X_TEST), points.predict(X_TEST), rtol=1e-6)
    lower, upper = model.predict_interval(X_TEST).T
    assert (lower < upper).all()


def test_intervals_are_calibrated_on_the_rows_of_the_points(upgraded):
    assert coverage(upgraded) == pytest.approx(0.95, abs=0.04)
    assert coverage(upgraded, 0.5) == pytest.approx(0.5, abs=0.1)


def test_heads_learn_where_the_noise_is(upgraded):
    lower, upper = upgraded.predict_interval(X_TEST).T
    loud = X_TEST["kind"] == "loud"
    assert (upper - lower)[loud].mean() > 1.5 * (upper - lower)[~loud].mean()


def test_adaptation_moves_points_no_further_than_asked(points):
    given = points.predict(X_TEST)
    limit = np.sqrt(np.mean((points.predict(X) - Y) ** 2))
    model = IntervalRegressor(**TINY).upgrade(points, X, Y, adapt=0.5)
    moved = np.abs(model.predict(X_TEST) - given)
    assert 0 < moved.max() < limit  # half of an error of networks that have not seen the row


def test_other_rows_must_be_declared_fresh(points):
    new = problem(250, 2)
    with pytest.raises(ValueError, match="fresh=True"):
        IntervalRegressor(**TINY).upgrade(points, *new)
    model = IntervalRegressor(**TINY).upgrade(points, *new, fresh=True)
    assert coverage(model) == pytest.approx(0.95, abs=0.04)


def test_without_folds_it_can_be_conformalized(points):
    model = IntervalRegressor(**TINY | {"cv": None}).upgrade(points, X, Y)
    assert model.ensemble_.calibrations == ()
    assert coverage(model.conformalize(*problem(400, 3))) == pytest.approx(0.96, abs=0.03)


def test_points_of_no_folds_cannot_calibrate_on_their_rows():
    settings = TINY | {"cv": None, "epochs": 2, "preprocessor": TableEncoder()}
    points = IntervalRegressor(loss="mse", **settings).fit(X, Y)
    with pytest.raises(ValueError, match="fresh=True"):
        IntervalRegressor(**TINY).upgrade(points, X, Y)


def test_points_continued_from_other_rows_cannot_calibrate_either():
    settings = TINY | {"epochs": 2, "preprocessor": TableEncoder()}
    further = IntervalRegressor(loss="mse", **settings).fit(*problem(100, 4))
    further.set_params(warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match="fresh=True"):
        IntervalRegressor(**TINY).upgrade(further, X, Y)


def test_saved_and_loaded_it_is_the_same(points, upgraded, tmp_path):
    upgraded.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.predict_interval(X_TEST) == upgraded.predict_interval(X_TEST)).all()
    points.save(tmp_path / "points")
    again = IntervalRegressor(**TINY).upgrade(load(tmp_path / "points"), X, Y)
    assert (again.predict_interval(X_TEST) == upgraded.predict_interval(X_TEST)).all()


def test_it_has_a_report(upgraded, tmp_path):
    page = upgraded.report(X_TEST[:200], Y_TEST[:200], tmp_path / "report.html").read_text("utf-8")
    assert "4 networks, trained for" in page


def test_tables_are_read_as_the_points_read_them(points, upgraded):
    assert upgraded.inputs_ == points.inputs_
    assert upgraded.outside(X.assign(kind="noisy"))[:, 1].all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_networks": 2}, "n_networks must be 4"),
        ({"loss": "mse"}, "trains no interval"),
    ],
)
def test_what_does_not_fit_is_refused(points, change, message):
    with pytest.raises(ValueError, match=message):
        IntervalRegressor(**TINY | change).upgrade(points, X, Y)


def test_only_models_of_points_are_upgraded_and_only_once(upgraded):
    with pytest.raises(ValueError, match="fitted for points alone"):
        IntervalRegressor(**TINY).upgrade(upgraded, X, Y)
    again = clone(upgraded).set_params(warm_start=True)
    again.ensemble_ = upgraded.ensemble_
    with pytest.raises(ValueError, match="warm_start=False"):
        again.fit(X, Y)
