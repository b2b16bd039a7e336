"""Intervals around the points of a regressor of another library."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

from calipers import IntervalRegressor, load
from calipers.networks import MLP
from calipers.optimizers import Adam
from calipers.storage import ModelFileError

TINY = {
    "n_networks": 4,
    "cv": 2,
    "network": MLP(hidden_layers=(16,), frequencies=0),
    "epochs": 100,
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


X, Y = problem(400, 0)
X_TEST, Y_TEST = problem(2000, 1)


def pipeline():
    """A pipeline that encodes the table itself."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["kind"]), remainder="passthrough"
    )
    return make_pipeline(columns, RandomForestRegressor(30, random_state=0))


@pytest.fixture(scope="module")
def forest():
    return pipeline().fit(X, Y)


@pytest.fixture(scope="module")
def around(forest):
    return IntervalRegressor(**TINY).upgrade(forest, X, Y)


def coverage(model, X=X_TEST, y=Y_TEST):
    lower, upper = model.predict_interval(X).T
    return np.mean((lower <= y) & (upper >= y))


def test_points_are_those_of_the_fitted_regressor(forest, around):
    np.testing.assert_allclose(around.predict(X_TEST), forest.predict(X_TEST), rtol=1e-6)


def test_intervals_cover_around_a_regressor_that_memorised_its_rows():
    tree = DecisionTreeRegressor().fit(X[["x"]], Y)
    assert np.abs(tree.predict(X[["x"]]) - Y).max() < 1e-9
    model = IntervalRegressor(**TINY).upgrade(tree, X[["x"]], Y)
    assert coverage(model, X_TEST[["x"]]) == pytest.approx(0.95, abs=0.03)


def test_intervals_are_calibrated_and_wide_where_the_noise_is(around):
    assert coverage(around) == pytest.approx(0.95, abs=0.03)
    lower, upper = around.predict_interval(X_TEST).T
    loud = X_TEST["kind"] == "loud"
    assert (upper - lower)[loud].mean() > 1.5 * (upper - lower)[~loud].mean()


def test_a_regressor_that_is_not_fitted_is_fitted_on_all_rows(forest, around):
    given = pipeline()
    model = IntervalRegressor(**TINY).upgrade(given, X, Y)
    assert (model.predict_interval(X_TEST) == around.predict_interval(X_TEST)).all()
    with pytest.raises(ValueError, match="not fitted"):
        given.predict(X)  # a copy was


def test_targets_do_not_leak_into_out_of_fold_points(forest, around):
    own = np.sqrt(np.mean((forest.predict(X) - Y) ** 2))
    held_out = np.sqrt(np.mean((around.out_of_fold_.point - Y) ** 2))
    new = np.sqrt(np.mean((forest.predict(X_TEST) - Y_TEST) ** 2))
    assert held_out > 1.5 * own
    assert held_out == pytest.approx(new, rel=0.25)


def test_fresh_rows_take_the_regressor_as_it_is():
    class Parabola:
        """Has ``predict`` without being a scikit-learn estimator."""

        def predict(self, X):
            return 1000 + 20 * X["x"].to_numpy() ** 2

    model = IntervalRegressor(**TINY).upgrade(Parabola(), X, Y, fresh=True)
    assert coverage(model) == pytest.approx(0.95, abs=0.03)
    with pytest.raises(ValueError, match=r"Parabola cannot be fitted again in folds.*fresh=True"):
        IntervalRegressor(**TINY).upgrade(Parabola(), X, Y)


def test_a_frozen_regressor_is_not_taken_to_be_fitted_in_folds(forest):
    with pytest.raises(ValueError, match="FrozenEstimator cannot be fitted again in folds"):
        IntervalRegressor(**TINY).upgrade(FrozenEstimator(forest), X, Y)
    with pytest.raises(ValueError, match="but it is not fitted"):
        IntervalRegressor(**TINY).upgrade(pipeline(), X, Y, fresh=True)


@pytest.mark.parametrize("cv", [None, TimeSeriesSplit(2)])
def test_rows_that_no_fold_holds_out_are_held_out_all_the_same(cv):
    tree = DecisionTreeRegressor(random_state=0)
    model = IntervalRegressor(**TINY | {"cv": cv, "epochs": 2}).upgrade(tree, X[["x"]], Y)
    # Heads are scaled by the errors that they learn from: none of them is that of a known row.
    assert model.ensemble_.bank.heads.units.target_scale > 3
    if cv is None:
        assert model.ensemble_.calibrations == ()
        assert coverage(model.conformalize(X_TEST[["x"]], Y_TEST), X_TEST[["x"]]) >= 0.95


def test_weights_reach_the_regressor_and_rows_without_weight_do_not():
    weights = np.where(np.arange(len(Y)) < 200, 1.0, 0.0)
    spoilt = np.where(weights > 0, Y, 1e6)
    settings = TINY | {"epochs": 2}
    model = IntervalRegressor(**settings).upgrade(LinearRegression(), X[["x"]], spoilt, weights)
    alone = LinearRegression().fit(X[["x"]][:200], Y[:200])
    np.testing.assert_allclose(model.predict(X_TEST[["x"]]), alone.predict(X_TEST[["x"]]))


def test_a_folder_asks_for_the_regressor(forest, around, tmp_path):
    around.save(tmp_path / "model")
    again = load(tmp_path / "model", points=forest)
    assert (again.predict_interval(X_TEST) == around.predict_interval(X_TEST)).all()
    with pytest.raises(ModelFileError, match=r"Pipeline.*load\(\.\.\., points=regressor\)"):
        load(tmp_path / "model")
    with pytest.raises(ModelFileError, match="fitted Pipeline, got a LinearRegression"):
        load(tmp_path / "model", points=LinearRegression().fit([[0.0]], [0.0]))
    with pytest.raises(ModelFileError, match="that is not fitted"):
        load(tmp_path / "model", points=pipeline())


def test_outside_and_conformalize_and_onnx(around, tmp_path):
    assert around.outside(X.assign(kind="noisy"))[:, 1].all()
    numbers, outside = around.read(X)
    assert numbers.shape[1] == around.reader_.width
    assert outside.shape == X.shape
    with pytest.raises(ValueError, match="regressor of another library"):
        around.to_onnx(tmp_path / "model.onnx")


def test_points_that_are_none_are_refused():
    class Pairs(LinearRegression):
        def predict(self, X):
            return np.zeros((len(X), 2))

    class Gaps(LinearRegression):
        def predict(self, X):
            return np.full(len(X), np.nan)

    for kind, problem in ((Pairs, "one number for each of"), (Gaps, "got nan in row 0")):
        with pytest.raises(ValueError, match=problem):
            IntervalRegressor(**TINY).upgrade(kind(), X[["x"]], Y)
    with pytest.raises(TypeError, match="points must be a regressor"):
        IntervalRegressor(**TINY).upgrade("forest", X, Y)


def test_a_forged_folder_is_refused(around, forest, tmp_path):
    from calipers._schema import SchemaError
    from calipers._serialization.models import model_from_dict
    from calipers.storage import read_model

    around.save(tmp_path / "model")
    document, arrays = read_model(tmp_path / "model")
    document = json.loads(json.dumps(document))
    del document["inputs"]["regressor"]
    with pytest.raises(SchemaError, match=r"inputs\.regressor"):
        model_from_dict(IntervalRegressor(), document, arrays, points=forest)
