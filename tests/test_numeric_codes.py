"""Numeric columns that are codes: detection, description, storage and export."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.datasets import load_diabetes

from calipers import IntervalRegressor, load
from calipers._estimator.training_rows import read_rows
from calipers.importance import dependence
from calipers.networks import MLP
from calipers.preprocessing import TableEncoder
from calipers.preprocessing._numeric_codes import (
    distinct_rows,
    numeric_code_columns,
    smooth_residuals,
)

TINY = {
    "n_networks": 4,
    "cv": 2,
    "network": MLP(hidden_layers=(16,), frequencies=0),
    "epochs": 60,
    "batch_size": 64,
    "random_state": 0,
}
NUMBERS = np.round(np.random.default_rng(6).uniform(10, 90, 60), 2)
EFFECT = np.random.default_rng(5).normal(size=60)


def problem(rows, seed, *, effect=1.0):
    """A station's pressure, which identifies the station, and another number."""
    rng = np.random.default_rng(seed)
    station, x = rng.integers(0, 60, rows), rng.uniform(-1, 1, rows)
    smooth = np.sin(NUMBERS[station] / 15) + x**2
    y = smooth + effect * EFFECT[station] + rng.normal(0, 0.3, rows)
    return np.column_stack([x, NUMBERS[station]]), y


X, Y = problem(900, 0)
X_TEST, Y_TEST = problem(600, 1)


@pytest.fixture(scope="module")
def model():
    return IntervalRegressor(**TINY).fit(X, Y)


def found(X, y):
    return numeric_code_columns(X, dict(enumerate(X.T)), y)


def test_a_numeric_code_is_found_and_a_quantity_is_not():
    assert found(X, Y) == [1]
    assert found(*problem(900, 2, effect=0.0)) == []


def test_an_array_is_searched_once(monkeypatch):
    from calipers._estimator import inputs
    from calipers.preprocessing import _target_inputs

    searched = []

    def search(*arguments):
        searched.append(1)
        return numeric_code_columns(*arguments)

    for module in (inputs, _target_inputs):
        monkeypatch.setattr(module, "numeric_code_columns", search)
    rows = read_rows(IntervalRegressor(**TINY), X, Y, None, None, reset=True)
    assert len(searched) == 1
    assert rows.encoding is not None


def test_ordinary_tables_have_no_codes():
    assert found(*load_diabetes(return_X_y=True)) == []
    rng = np.random.default_rng(0)
    for _ in range(10):
        X = rng.integers(0, 40, (600, 3)).astype(float)
        assert found(X, np.sin(X[:, 0] / 9) + X[:, 1] / 20 + rng.standard_t(3, 600)) == []


def test_repeated_rows_do_not_make_codes_of_their_numbers():
    rng = np.random.default_rng(0)
    X = np.repeat(np.round(rng.normal(size=(150, 3)), 1), 4, axis=0)
    y = np.repeat(rng.normal(size=150), 4)
    assert len(distinct_rows(X)) < 160
    assert found(X, y) == []


def test_a_smooth_function_is_fitted_without_a_rows_own_target():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    y = np.sin(3 * X[:, 0]) + rng.normal(0, 0.1, 400)
    left = smooth_residuals(X, y)
    assert np.mean(left**2) < 0.1
    off = y.copy()
    off[7] += 50 * y.std()
    again = smooth_residuals(X, off) * off.std() / y.std()
    assert again[7] - left[7] == pytest.approx(50, rel=0.2)


def test_it_halves_the_error_and_intervals_hold(model):
    plain = IntervalRegressor(**TINY | {"preprocessor": None}).fit(X, Y)
    errors = [np.mean((m.predict(X_TEST) - Y_TEST) ** 2) for m in (model, plain)]
    assert errors[0] < 0.5 * errors[1]
    low, high = model.predict_interval(X_TEST, coverage=0.9).T
    assert 0.85 < np.mean((low <= Y_TEST) & (high >= Y_TEST)) < 0.95


def test_codes_are_described_in_the_note_and_the_names_of_inputs(model):
    assert "used as numbers and as categories" in model.preprocessor_.columns_[1].note
    names = model.preprocessor_.get_feature_names_out().tolist()
    assert names[2:] == ["x1 (frequency)", "x1 (mean of targets)", "x1 (spread of targets)"]


def test_targets_do_not_leak_to_held_out_rows_and_hardly_to_others():
    data = read_rows(IntervalRegressor(**TINY), X, Y, None, None, reset=True)
    train = np.arange(0, len(Y), 2)
    before = data.encoding.encoded(data.X, train, seed=3)[:, 2:]
    unit = before[:, 1].std()
    for row, most in ((1, 0.0), (train[5], 0.1)):
        targets = Y.copy()
        targets[row] += 3.0
        changed = replace(data.encoding, targets=targets)
        after = changed.encoded(data.X, train, seed=3)[:, 2:]
        assert np.abs(after[row] - before[row]).max() <= most * unit
    targets = Y + 3.0 * (X[:, 1] == X[1, 1]) * (np.arange(len(Y)) % 2 == 0)
    after = replace(data.encoding, targets=targets).encoded(data.X, train, seed=3)[:, 2:]
    assert after[1, 1] - before[1, 1] > unit  # but on the targets of other rows of their code


def test_unseen_codes_have_frequency_zero_and_finite_predictions(model):
    encoder = model.preprocessor_
    table = encoder.transform([[0.0, NUMBERS[0]], [0.0, NUMBERS[0] + 0.001], [0.0, 1e9]])
    assert table[0, 2] > 0
    assert table[1:, 2].tolist() == [0, 0]
    assert np.isfinite(model.predict_interval([[0.0, NUMBERS[0] + 0.001]])).all()


def test_codes_in_single_precision_are_recognised(model):
    single, double = model.predict(X_TEST.astype(np.float32)), model.predict(X_TEST)
    np.testing.assert_allclose(single, double, atol=1e-3)


def test_a_folder_keeps_it(model, tmp_path):
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_interval(X_TEST), model.predict_interval(X_TEST))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("levels", [2.0, 1.0], "ascending"),
        ("counts", [1], "a list of"),
        ("means", [], "a list of"),
        ("spreads", [1e9], "spreads"),
    ],
)
def test_forged_levels_are_refused(model, part, value, message):
    document = json.loads(json.dumps(model.preprocessor_.to_document()))
    document["columns"][1]["encoder"][part] = value
    with pytest.raises(ValueError, match=message):
        TableEncoder.from_document(document)


def test_the_graph_of_onnx_has_it(model, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "model.onnx"))
    rows = np.vstack([X_TEST[:50], [[0.0, 33.333]]])
    (point,) = session.run(["point"], model.preprocessor_.read(rows))
    np.testing.assert_allclose(point, model.predict(rows), rtol=1e-5)


def test_frames_missing_numbers_and_weights():
    frame = pd.DataFrame(X.copy(), columns=["x", "pressure"])
    frame.loc[::50, "pressure"] = np.nan
    weights = np.ones(len(Y))
    weights[:100] = 0
    model = IntervalRegressor(**TINY).fit(frame, Y, sample_weight=weights)
    assert model.preprocessor_.get_feature_names_out()[-3:].tolist() == [
        "pressure (frequency)",
        "pressure (mean of targets)",
        "pressure (spread of targets)",
    ]
    assert np.isfinite(model.predict(frame)).all()


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_frame_is_read_by_position_if_the_model_was_fitted_on_an_array(model, kind, tmp_path):
    """As one of scikit-learn, and as if the array had no codes."""
    frame = kind({"x": X_TEST[:, 0], "pressure": X_TEST[:, 1]})
    model.save(tmp_path / "model")
    for fitted in (model, load(tmp_path / "model")):
        assert not hasattr(fitted, "feature_names_in_")
        with pytest.warns(UserWarning, match="X has feature names, but IntervalRegressor was"):
            found = fitted.predict_interval(frame)
        np.testing.assert_array_equal(found, model.predict_interval(X_TEST))
        with pytest.warns(UserWarning, match="without feature names"):
            assert not fitted.outside(frame).any()


def test_columns_without_names_are_read_by_position_and_the_models_own_by_name(model):
    point = model.predict(X_TEST)
    np.testing.assert_array_equal(model.predict(pd.DataFrame(X_TEST)), point)
    named = pd.DataFrame({"x1": X_TEST[:, 1], "other": 0.0, "x0": X_TEST[:, 0]})
    np.testing.assert_array_equal(model.predict(model.pick(named)), point)
    with pytest.raises(ValueError, match="X has 3 features, but IntervalRegressor is expecting 2"):
        model.predict(named.set_axis(["a", "b", "c"], axis=1))


def test_points_of_a_model_without_names_are_upgraded_and_examined_on_a_frame():
    points = IntervalRegressor(loss="mse", **TINY | {"epochs": 1}).fit(X, Y)
    frame = pd.DataFrame(X, columns=["x", "pressure"])
    with pytest.warns(UserWarning, match="without feature names"):
        upgraded = IntervalRegressor(**TINY | {"epochs": 1}).upgrade(points, frame, Y)
    np.testing.assert_allclose(upgraded.predict(X_TEST), points.predict(X_TEST), atol=1e-3)
    with pytest.warns(UserWarning, match="without feature names"):
        curve = dependence(upgraded, frame, "x0", n_values=3)
    np.testing.assert_array_equal(curve.point, dependence(upgraded, X, "x0", n_values=3).point)


def test_codes_in_a_table_of_arrow():
    table = pa.table({"x": X[:, 0], "pressure": X[:, 1]})
    model = IntervalRegressor(**TINY | {"epochs": 1}).fit(table, Y)
    assert model.feature_names_in_.tolist() == ["x", "pressure"]
    assert len(model.preprocessor_.get_feature_names_out()) == 5
    np.testing.assert_array_equal(model.predict(table), model.predict(table.select([1, 0])))


def test_groups_and_a_parameter_turn_target_encoding_off():
    groups = np.arange(len(Y)) // 3
    grouped = IntervalRegressor(**TINY | {"epochs": 1}).fit(X, Y, groups=groups)
    assert not hasattr(grouped, "preprocessor_")
    off = IntervalRegressor(
        preprocessor=TableEncoder(target_encoding=False), **TINY | {"epochs": 1}
    )
    assert len(off.fit(X, Y).preprocessor_.get_feature_names_out()) == 2


def test_points_of_such_a_model_are_upgraded():
    points = IntervalRegressor(loss="mse", **TINY).fit(X, Y)
    upgraded = IntervalRegressor(**TINY).upgrade(points, X, Y)
    np.testing.assert_allclose(upgraded.predict(X_TEST), points.predict(X_TEST), atol=1e-3)


def test_other_columns_stay_numbers():
    frame = pd.DataFrame(X, columns=["x", "pressure"]).assign(day=np.arange(len(Y)))
    model = IntervalRegressor(**TINY | {"epochs": 1}).fit(frame, Y)
    assert [column.used for column in model.inputs_] == [True] * 3
    assert "pressure (frequency)" in model.preprocessor_.get_feature_names_out()


def test_rare_values_are_no_codes():
    options = TINY | {"epochs": 1, "preprocessor": TableEncoder(min_frequency=500)}
    model = IntervalRegressor(**options).fit(X, Y)
    assert len(model.preprocessor_.get_feature_names_out()) == 2


def test_values_that_differ_in_the_last_bit_are_one_code(tmp_path):
    rows = X.copy()
    rows[::2, 1] = np.nextafter(rows[::2, 1], np.inf)
    model = IntervalRegressor(**TINY | {"epochs": 1}).fit(rows, Y)
    model.save(tmp_path / "model")
    assert min(model.preprocessor_.used_columns()[1][1].counts) > 1


def test_a_second_fit_leaks_no_more_to_held_out_rows_than_the_first():
    model = IntervalRegressor(**TINY | {"warm_start": True, "epochs": 1}).fit(X, Y)
    again = read_rows(model, X, Y, None, None, reset=False)
    assert list(again.encoding.columns) == [2]
    first = read_rows(IntervalRegressor(**TINY), X, Y, None, None, reset=True)
    train = np.arange(0, len(Y), 2)
    found = [data.encoding.encoded(data.X, train, seed=3) for data in (first, again)]
    np.testing.assert_allclose(*found)


def test_wide_tables_and_far_numbers_take_no_time_and_raise_nothing():
    rng = np.random.default_rng(0)
    assert found(rng.integers(0, 20, (250, 400)).astype(float), rng.normal(size=250)) == []
    far = np.column_stack([X[:, 1], np.where(X[:, 0] > 0, 1.7e308, -1.7e308)])
    assert found(far, Y) == [0]
