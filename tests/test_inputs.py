"""A model with a preprocessor: tables in, and what it remembers of them."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import calipers
from calipers import IntervalRegressor
from calipers._fitting import read_rows
from calipers.networks import MLP
from calipers.optimizers import Adam
from calipers.preprocessing import Column, DataError, TableEncoder
from calipers.storage import ModelFileError


def tiny(**parameters):
    given = {
        "loss": "interval score",
        "n_networks": 2,
        "cv": 2,
        "network": MLP(hidden_layers=(8,), frequencies=0),
        "epochs": 20,
        "optimizer": Adam(averaging=0.0),
        "patience": None,
        "random_state": 0,
    }
    return IntervalRegressor(**(given | parameters))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.uniform(20, 90, 80), "kind": rng.choice(["a", "b"], 80)})
    frame.loc[::7, "size"] = None
    frame["id"] = range(80)
    price = 3 * frame["size"].fillna(50) + 20 * (frame["kind"] == "a") + rng.normal(0, 5, 80)
    return frame, price.rename("price")


@pytest.fixture(scope="module")
def model(table):
    return tiny(preprocessor=TableEncoder()).fit(*table)


class TestTables:
    def test_answers(self, model, table):
        X, y = table
        assert model.predict(X).shape == (80,)
        assert model.predict_interval(X, coverage=[0.5, 0.9]).shape == (80, 2, 2)
        assert list(model.predict_quantiles(X, [0.1], as_frame=True).index) == [*range(80)]
        assert np.array_equal(model.predict(pl.from_pandas(X)), model.predict(X))
        assert np.array_equal(model.predict(X[["kind", "size"]]), model.predict(X))
        assert np.isfinite(model.score(X, y))

    def test_what_it_remembers(self, model, table):
        size, kind, name = model.inputs_
        assert (size.kind, size.missing, size.high) == ("number", True, table[0]["size"].max())
        assert set(kind.categories) == {"a", "b"}
        assert (name.kind, name.used) == ("identifier", False)
        assert (model.target_.name, model.target_.low) == ("price", table[1].min())
        assert model.about_["rows"] == 80
        assert model.about_["versions"]["calipers"] == calipers.__version__
        assert model.n_features_in_ == 3
        assert list(model.feature_names_in_) == ["size", "kind", "id"]

    def test_outside(self, model):
        new = pd.DataFrame({"size": [50.0, 500.0, None], "kind": ["c", None, "a"], "id": 7})
        expected = [[False, True, False], [True, True, False], [False, False, False]]
        assert model.outside(new).tolist() == expected

    def test_a_folder_keeps_it_all(self, model, table, tmp_path):
        model.about_["source"] = {"files": ["flats.csv"]}
        model.save(tmp_path / "model")
        again = calipers.load(tmp_path / "model")
        assert np.array_equal(again.predict_interval(table[0]), model.predict_interval(table[0]))
        for name in ("inputs_", "target_", "about_", "n_features_in_"):
            assert getattr(again, name) == getattr(model, name)
        assert again.get_params()["preprocessor__max_categories"] == 30
        clone(again)
        record = json.loads((tmp_path / "model" / "model.json").read_text())
        columns = record["document"]["inputs"]["preprocessor"]["columns"]
        assert [column["column"]["name"] for column in columns] == ["size", "kind", "id"]
        model.about_["source"] = object()
        with pytest.raises(TypeError, match="source"):
            model.save(tmp_path / "model")
        assert calipers.load(tmp_path / "model").about_ == again.about_

    def test_conformalize(self, model, table):
        X, y = table
        bounds = clone(model).fit(*table).conformalize(X, y).predict_interval(X, coverage=0.8)
        assert np.mean((bounds[:, 0] <= y) & (y <= bounds[:, 1])) >= 0.8

    def test_rows_of_no_weight_are_not_seen(self, table):
        X, y = table
        weight = np.where(X["kind"] == "b", 0.0, 1.0)
        model = tiny(preprocessor=TableEncoder())
        assert len(read_rows(model, X, y, weight, None, reset=True).X) == 80
        assert model.inputs_[1].categories == ("a",)
        assert model.target_.low == y[weight > 0].min()

    def test_a_warm_start_keeps_its_reading(self, table):
        X, y = table
        model = tiny(preprocessor=TableEncoder(), warm_start=True).fit(X, y)
        before = model.inputs_
        model.fit(X.assign(kind="new"), y)
        assert model.inputs_ == before

    def test_search_over_the_encoder(self, table):
        grid = {"preprocessor__min_frequency": [2, 3]}
        search = GridSearchCV(tiny(preprocessor=TableEncoder()), grid, cv=2)
        assert search.fit(*table).best_estimator_.preprocessor_.min_frequency in (2, 3)

    def test_errors_name_the_place(self, model, table):
        with pytest.raises(DataError, match=r"column 'size', row 0 .*'big' is not a number"):
            model.predict(table[0].assign(size="big"))
        with pytest.raises(ValueError, match="'preprocessor' parameter of IntervalRegressor"):
            tiny(preprocessor="auto").fit(*table)


class TestArrays:
    def test_plain_numbers_are_described_too(self, table, tmp_path):
        X = np.c_[np.linspace(-1, 1, 80), np.full((80, 3), 5.0)]
        model = tiny().fit(X, table[1].to_numpy())
        assert model.inputs_[:2] == (
            Column("x0", "number", -1.0, 1.0, pytest.approx(0.0, abs=1e-9)),
            Column("x1", "number", 5.0, 5.0, 5.0, note="the same in every row"),
        )
        assert model.target_.name == "y"
        assert model.outside([[0, 5, 5, 5], [2, 4, 5, 5]])[:, :2].tolist() == [
            [False] * 2,
            [True] * 2,
        ]
        model.save(tmp_path / "model")
        again = calipers.load(tmp_path / "model")
        assert again.inputs_ == model.inputs_
        assert not hasattr(again, "feature_names_in_")
        frame = pd.DataFrame({"x1": ["5"], "x0": [0.5], "more": 1, "x2": 2, "x3": 3})
        assert model.pick(frame).tolist() == [[0.5, 5.0, 2.0, 3.0]]

    def test_a_folder_without_a_model(self, tmp_path):
        with pytest.raises(ModelFileError):
            calipers.load(tmp_path)
