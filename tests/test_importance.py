"""What drives the point and what drives the width, where both are known."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from calipers import IntervalRegressor, dependence
from calipers.importance import permutation_importance
from calipers.networks import MLP
from calipers.optimizers import Adam


@pytest.fixture(scope="module")
def data():
    """The first column moves the target, the second its spread, the third nothing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "level": rng.uniform(-1, 1, 600),
        "spread": rng.choice(["calm", "wild"], 600),
        "idle": rng.normal(size=600),
        "number": np.arange(600),
    })  # fmt: skip
    scale = np.where(frame["spread"] == "wild", 1.0, 0.1)
    return frame, 2 * frame["level"] + scale * rng.normal(size=600)


@pytest.fixture(scope="module")
def model(data):
    network = MLP(hidden_layers=(16,), frequencies=0)
    settings = {"n_networks": 2, "cv": 2, "epochs": 60, "random_state": 0, "network": network}
    return IntervalRegressor(optimizer=Adam(learning_rate=0.02), **settings).fit(*data)


def test_points_and_widths_have_their_own_drivers(model, data):
    found = permutation_importance(model, *data)
    frame = found.to_frame()
    assert frame["squared_error"].idxmax() == "level"
    assert frame["width"].idxmax() == "spread"
    assert frame["width"]["spread"] > 3 * frame["width"]["idle"]
    score = frame["interval_score"]
    assert min(score["level"], score["spread"]) > 10 * abs(score["idle"])
    assert frame.loc["number"].tolist() == [0, 0, 0]  # names rows, and is not used
    assert found.width.shape == (4, 5)


def test_frames_of_polars_and_the_seed(model, data):
    X, y = data
    first, again, other = (
        permutation_importance(model, table, y, n_repeats=1, random_state=seed).squared_error
        for table, seed in ((X, 3), (pl.from_pandas(X), 3), (X, 4))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_infinite_intervals_are_refused(model, data):
    with pytest.raises(ValueError, match=r"coverage 0.9999 are infinite"):
        permutation_importance(model, *data, coverage=0.9999)


def test_dependence_has_points_and_widths_of_its_own(model, data):
    X, _ = data
    level = dependence(model, X, "level")
    assert len(level.values) == 20
    assert (np.diff(level.values) > 0).all()
    assert level.point[-1] - level.point[0] > 2  # four in truth, less by shrinkage
    spread = dependence(model, X, "spread", coverage=0.8).to_frame()
    assert set(spread.index) == {"calm", "wild"}
    width = spread["upper"] - spread["lower"]
    assert width["wild"] > 2 * width["calm"]


@pytest.mark.parametrize("column", ["nothing", 99, -99])
def test_dependence_on_a_column_that_is_not_there(model, data, column):
    with pytest.raises(ValueError, match="there is no column"):
        dependence(model, data[0], column)


def test_dependence_is_the_mean_of_predictions(model, data):
    X, _ = data
    found = dependence(model, pl.from_pandas(X), "spread", n_rows=1000)
    for value, point in zip(found.values, found.point, strict=True):
        assert model.predict(X.assign(spread=value)).mean() == pytest.approx(point, rel=1e-6)
    by_place = dependence(model, X, 1, n_rows=1000)
    assert np.array_equal(by_place.upper, found.upper)


def test_columns_of_numbers_without_names(model):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (100, 2))
    small = IntervalRegressor(n_networks=2, cv=2, epochs=5, random_state=0).fit(X, X[:, 0])
    kept = X.copy()
    assert dependence(small, X, "x1", n_values=5).positions.shape == (5,)
    assert np.array_equal(X, kept)


@pytest.mark.parametrize(
    ("column", "problem"),
    [("levle", "no column 'levle'.*'level'"), ("number", "does not use column 'number': ")],
)
def test_columns_without_a_curve_are_refused(model, data, column, problem):
    with pytest.raises(ValueError, match=problem):
        dependence(model, data[0], column)


def test_values_that_are_all_missing_are_refused(model, data):
    with pytest.raises(ValueError, match="'level' has no value in these rows"):
        dependence(model, data[0].assign(level=np.nan), "level")
