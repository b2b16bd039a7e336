"""Prediction on collections of Dask: lazy, of the right shape, and the same bits."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor
from calipers.preprocessing import TableEncoder

from .conftest import TINY

QUESTIONS = {
    "points": lambda model, X: model.predict(X),
    "interval": lambda model, X: model.predict_interval(X),
    "one coverage": lambda model, X: model.predict_interval(X, 0.5),
    "a list of one": lambda model, X: model.predict_interval(X, [0.5]),
    "coverages": lambda model, X: model.predict_interval(X, [0.5, 0.8]),
    "quantile": lambda model, X: model.predict_quantiles(X, 0.1),
    "quantiles": lambda model, X: model.predict_quantiles(X, [0.1, 0.5, 0.9]),
}
FRAMES = {
    "coverages": lambda model, X: model.predict_interval(X, [0.5, 0.8], as_frame=True),
    "quantiles": lambda model, X: model.predict_quantiles(X, [0.1, 0.9], as_frame=True),
}


@pytest.fixture(autouse=True)
def _threads():
    """No cluster is needed, and none is to be found."""
    with dask.config.set(scheduler="threads"):
        yield


@pytest.fixture(scope="module")
def frame():
    return pd.DataFrame(np.random.default_rng(1).normal(size=(90, 3)), columns=list("abc"))


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_dask_array_has_the_results_of_an_array(plain, rows, question):
    X = rows[0]
    expected = question(plain, X)
    found = question(plain, da.from_array(X, chunks=(110, 2)))  # cut along columns too
    assert isinstance(found, da.Array)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert found.chunks[0] == (110, 110, 80)
    np.testing.assert_array_equal(found.compute(), expected)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_dask_frame_gives_an_array_of_unknown_length(model, frame, question):
    expected = question(model, frame)
    found = question(model, dd.from_pandas(frame, npartitions=3))
    assert isinstance(found, da.Array)
    assert np.isnan(found.shape[0])
    assert (found.shape[1:], found.dtype) == (expected.shape[1:], expected.dtype)
    np.testing.assert_array_equal(found.compute(), expected)


@pytest.mark.parametrize("question", FRAMES.values(), ids=FRAMES)
def test_a_dask_frame_gives_a_dask_frame_if_asked(model, frame, question):
    kept = frame[frame["a"] > 0]  # an index with holes
    expected = question(model, kept)
    found = question(model, dd.from_pandas(kept, npartitions=3))
    assert isinstance(found, dd.DataFrame)
    pd.testing.assert_frame_equal(found._meta, expected[:0])
    pd.testing.assert_frame_equal(found.compute(), expected)


def test_points_come_with_their_deviation(model, frame):
    found = model.predict(dd.from_pandas(frame, npartitions=2), return_std=True)
    for lazy, expected in zip(found, model.predict(frame, return_std=True), strict=True):
        np.testing.assert_array_equal(lazy.compute(), expected)


@pytest.mark.parametrize("as_frame", [False, True])
def test_partitions_may_be_empty(model, frame, as_frame):
    lazy = dd.from_pandas(frame, npartitions=3).map_partitions(lambda part: part[part.index < 10])
    found = model.predict_interval(lazy, as_frame=as_frame).compute()
    np.testing.assert_array_equal(found, model.predict_interval(frame[:10]))


def test_a_preprocessor_sees_the_columns_of_a_partition(rows):
    X, y = rows
    table = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 1] > 0, "flat", "house")})
    model = IntervalRegressor(n_networks=2, preprocessor=TableEncoder(), **TINY).fit(table, y)
    found = model.predict(dd.from_pandas(table, npartitions=2))
    np.testing.assert_array_equal(found.compute(), model.predict(table))


def test_the_model_is_one_task_whatever_the_number_of_blocks(model, frame):
    graph = dict(model.predict(da.from_array(frame.to_numpy(), chunks=(10, 3))).__dask_graph__())
    assert sum("loads" in str(key) for key in graph) == 1
    assert sum("predict_block" in str(key) for key in graph) == 9


@pytest.mark.parametrize("X", [da.zeros((4,)), da.zeros((4, 3, 2))])
def test_what_has_no_rows_and_columns_is_refused(model, X):
    with pytest.raises(TypeError, match="2D Dask array"):
        model.predict(X)


def test_an_array_has_no_index_for_a_frame(model):
    with pytest.raises(TypeError, match="must be a Dask DataFrame"):
        model.predict_interval(da.zeros((4, 3)), as_frame=True)
