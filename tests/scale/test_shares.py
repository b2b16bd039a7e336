"""Rows of a Dask frame stay on its workers, each of which trains networks on its own share."""

import joblib
import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor
from calipers._estimator import shares
from calipers.rowblocks import RowBlocks

from .conftest import TINY

dask = pytest.importorskip("dask.dataframe")
pytestmark = pytest.mark.slow
SETTINGS = TINY | {"n_networks": 4, "epochs": 12}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    y = 2 * X[:, 0] + rng.normal(0, 0.5, 4000)
    return pd.DataFrame(X, columns=list("abc")).assign(y=y)


def fitted(client, rows):
    with joblib.parallel_config(backend="dask", client=client):
        return IntervalRegressor(**SETTINGS).fit(RowBlocks(rows, "y"))


def test_each_worker_trains_on_its_share(client, frame, monkeypatch):
    rows = dask.from_pandas(frame, npartitions=8)
    monkeypatch.setattr(
        RowBlocks, "numbered", lambda _: pytest.fail("the client reads a partition")
    )
    model = fitted(client, rows)
    again = fitted(client, rows.persist())
    monkeypatch.undo()
    assert model.about_["shares"] == 2
    assert model.about_["rows"] == 4000
    pairs = zip(model.ensemble_.bank.weights, again.ensemble_.bank.weights, strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)  # wherever the partitions are
    assert len(set(model.ensemble_.bank.seeds.tolist())) == 4
    rng = np.random.default_rng(1)
    new = pd.DataFrame(rng.normal(size=(2000, 3)), columns=list("abc"))
    y = 2 * new["a"] + rng.normal(0, 0.5, 2000)
    lower, upper = model.predict_interval(new).T
    assert abs(np.mean((lower <= y) & (y <= upper)) - 0.95) < 0.03
    assert np.mean((model.predict(new) - 2 * new["a"]) ** 2) < 0.1


def test_the_sample_is_that_of_one_machine(client, frame):
    rows = RowBlocks(dask.from_pandas(frame, npartitions=5), "y")
    with joblib.parallel_config(backend="dask", client=client):
        found = shares.WorkerShares.of(rows, 4).sample(300, seed=3)
    expected = rows.sample(300, seed=3)
    pd.testing.assert_frame_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.hashes, expected.hashes)
    assert found.total == expected.total == 4000


def test_a_bad_value_on_a_worker_is_named_with_its_row(client, frame):
    bad = frame.astype({"b": object})
    bad.loc[2600, "y"] = np.nan
    with pytest.raises(ValueError, match=r"missing in row 2,600"):
        fitted(client, dask.from_pandas(bad, npartitions=8))


def test_partitions_that_give_other_rows_each_time_are_refused(client, frame):
    rows = dask.from_pandas(frame, npartitions=4).map_partitions(lambda part: part.sample(frac=1))
    with pytest.raises(ValueError, match="in another order: it must give the same rows"):
        fitted(client, rows)
