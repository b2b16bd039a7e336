"""A model with a preprocessor: tables in, and what it remembers of them."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import calipers
from calipers import IntervalRegressor
from calipers._estimator.inputs import Inputs
from calipers._estimator.row_checks import readable_target
from calipers._estimator.training_rows import read_rows
from calipers.importance import permutation_importance
from calipers.more_rows import worth_of_more_rows
from calipers.networks import MLP
from calipers.optimizers import Adam
from calipers.preprocessing import (
    Column,
    DataError,
    TableEncoder,
    describe_numbers,
    learn_number,
    read_number,
)
from calipers.preprocessing._categories import CategoryEncoder
from calipers.preprocessing._encoders import NumberEncoder
from calipers.rowblocks import RowBlocks
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

    def test_frames_are_of_the_kind_that_came(self, model, table):
        frame = model.predict_interval(table[0], coverage=[0.5, 0.9], as_frame=True)
        same = model.predict_interval(pl.from_pandas(table[0]), coverage=[0.5, 0.9], as_frame=True)
        assert isinstance(same, pl.DataFrame)
        assert same.columns == list(frame)
        assert np.array_equal(same.to_numpy(), frame.to_numpy())
        levels = model.predict_quantiles(pl.from_pandas(table[0]), [0.5], as_frame=True)
        assert levels.columns == ["quantile_0.5"]

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
        assert again.get_params()["preprocessor__max_categories"] is None
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
            tiny(preprocessor="none").fit(*table)


class TestAuto:
    def test_a_table_needs_no_encoder_of_ones_own(self, model, table, tmp_path):
        X, y = table
        plain = tiny().fit(X, y)
        assert isinstance(plain.preprocessor_, TableEncoder)
        assert np.array_equal(plain.predict_interval(X), model.predict_interval(X))
        again = tiny().fit(pl.from_pandas(X), y)
        assert np.array_equal(again.predict(X), model.predict(X))
        plain.save(tmp_path / "model")
        again = calipers.load(tmp_path / "model")
        assert again.preprocessor == "auto"
        assert np.array_equal(again.predict(X), model.predict(X))

    @pytest.mark.parametrize(
        "column",
        [
            pd.Series(["a", "b"] * 40),
            pd.Series(["a", "b"] * 40, dtype="category"),
            pd.Series(pd.date_range("2024-01-01", periods=80)),
            pd.Series([1.0, None] * 40),
            pd.Series([1, None] * 40, dtype="Int64"),
        ],
        ids=["text", "category", "date", "missing", "missing integer"],
    )
    def test_what_a_column_needs(self, column):
        frame = pd.DataFrame({"size": np.arange(80.0), "other": column})
        for X in (frame, pl.from_pandas(frame)):
            fitted = tiny(epochs=1).fit(X, np.arange(80.0))
            assert fitted.inputs_[1].used
            assert fitted.predict(X).shape == (80,)
        with pytest.raises(ValueError, match="preprocessor='auto'"):
            tiny(preprocessor=None).fit(frame, np.arange(80.0))

    def test_numbers_are_taken_as_they_are(self, table):
        X, y = np.c_[np.linspace(-1, 1, 80), np.arange(80) % 7], table[1]
        strict = tiny(preprocessor=None).fit(X, y)
        frame = pd.DataFrame(X, columns=["a", "b"]).assign(b=(X[:, 1]).astype(int))
        for numbers in (X, X.tolist(), frame, pl.from_pandas(frame), frame.convert_dtypes()):
            found = tiny().fit(numbers, y)
            assert not hasattr(found, "preprocessor_")
            assert np.array_equal(found.predict_interval(numbers), strict.predict_interval(X))

    def test_arrays_are_strict_and_name_the_remedy(self, table):
        X, y = table
        for array in (X.to_numpy(), [["a"], ["b"]] * 40):
            with pytest.raises(ValueError, match=r"could not convert.* pandas or polars frame"):
                tiny().fit(array, y)
        with pytest.raises(ValueError, match=r"contains NaN\. An array .*=TableEncoder\(\)"):
            tiny().fit(X[["size"]].to_numpy(), y)
        numbers = tiny(epochs=1).fit(X[["size"]].fillna(0), y)
        with pytest.raises(
            ValueError, match=r"contains NaN\. The model was fitted on numbers alone"
        ):
            numbers.predict(X[["size"]])

    @pytest.mark.parametrize("kind", [pd.DataFrame, pa.Table.from_arrays])
    def test_columns_of_one_name_are_refused_by_name(self, table, kind):
        X, y = np.c_[np.linspace(-1, 1, 80), np.arange(80) % 7], table[1]
        names = {"columns" if kind is pd.DataFrame else "names": ["size", "size"]}
        same = kind(X if kind is pd.DataFrame else [*X.T], **names)
        for call in (lambda: tiny().fit(same, y), lambda: tiny(epochs=1).fit(X, y).predict(same)):
            with pytest.raises(DataError, match="more than one column 'size': give each its own"):
                call()

    def test_a_parameter_of_the_encoder_makes_one(self):
        assert tiny().set_params(preprocessor__max_categories=9).preprocessor.max_categories == 9
        with pytest.raises(AttributeError):
            tiny(preprocessor=None).set_params(preprocessor__max_categories=9)

    def test_lazy_frames_are_to_be_collected(self, model, table):
        lazy = pl.from_pandas(table[0]).lazy()
        for call in (lambda: tiny().fit(lazy, table[1]), lambda: model.predict(lazy)):
            with pytest.raises(TypeError, match=r"LazyFrame.*collect\(\) it first"):
                call()


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


class TestTargets:
    @pytest.mark.parametrize(
        "write", ["{:,.2f}", "${:,.2f}", "{:.2f} kg", "{:.2e}", "EUR {:.2f}"], ids=repr
    )
    def test_text_is_read_as_in_inputs(self, write):
        y = np.linspace(1000, 9000, 80).round(2)
        text = pd.Series([write.format(value) for value in y], name="price")
        assert readable_target(text) == pytest.approx(y, rel=0.01)
        assert tiny(epochs=1).fit(np.c_[y], text).target_.name == "price"

    def test_two_readings_and_the_remedy(self):
        text = pd.Series(["1,234", "5,678"] * 40)
        with pytest.raises(ValueError, match=r"y may be thousands .*read_number\(y, kind\)$"):
            readable_target(text)
        numbers = read_number(text, "number 1,234.5")
        assert readable_target(numbers).tolist() == [1234, 5678] * 40

    @pytest.mark.parametrize("text", ["1_000", "0x10", "\uff11"])
    def test_text_that_only_python_reads_is_refused_everywhere(self, text):
        y = pd.Series(["1.5", text], name="y")
        with pytest.raises(DataError, match="is not a number"):
            learn_number(y)
        with pytest.raises(ValueError, match=rf"y must hold numbers, got '{text}' in row 1 "):
            readable_target(y)
        with pytest.raises(ValueError, match=rf"must hold numbers, got '{text}' in row 1 .*: conv"):
            list(RowBlocks(np.zeros((2, 1)), y))

    def test_blocks_read_plain_numbers_and_missing_words(self):
        y = pd.Series(["(7)", "na", "?", "2e3"])
        ((_, found),) = RowBlocks(np.zeros((4, 1)), y, drop_missing=True)
        assert found.tolist() == [-7, 2000]
        with pytest.raises(ValueError, match=r"got '1,234.5' in row 1 .*read_number\(y, kind\)$"):
            list(RowBlocks(np.zeros((2, 1)), ["7", "1,234.5"]))

    def test_dates(self):
        with pytest.raises(ValueError, match=r"^y holds dates where numbers are needed"):
            readable_target(["2024-01-31", "2024-02-01"])
        with pytest.raises(ValueError, match=r"must hold numbers, got '2024-01-31 .*' in row 0"):
            list(RowBlocks(np.zeros((1, 1)), pd.Series(pd.to_datetime(["2024-01-31"]))))

    @pytest.mark.parametrize("missing", [np.nan, None, "N/A", pd.NA])
    def test_missing_ones_are_counted(self, missing):
        y = pd.Series([1.5, missing, "7", missing], dtype=object)
        with pytest.raises(ValueError, match=r"y contains NaN, in 2 of 4 rows: leave them out"):
            readable_target(y)

    def test_an_evaluation_reads_them_as_fit_does(self, model, table, tmp_path):
        X, y = table
        text = y.map("{:,.3f} €".format)
        numbers = np.array([float(value[:-2].replace(",", "")) for value in text])
        fitted = [clone(model).fit(X, target) for target in (text, numbers)]
        scores, importances, gains = (
            [act(m, X, target) for m, target in zip(fitted, (text, numbers), strict=True)]
            for act in (IntervalRegressor.score, permutation_importance, worth_of_more_rows)
        )
        assert scores[0] == scores[1]
        assert np.array_equal(importances[0].interval_score, importances[1].interval_score)
        assert gains[0] == gains[1]
        assert fitted[0].report(X, text, tmp_path / "page.html").exists()

    def test_another_order_of_the_index(self, table):
        X, y = table
        with pytest.warns(UserWarning, match="the same index in another order"):
            tiny(epochs=1).fit(X, y.iloc[::-1])
        tiny(epochs=1).fit(X, y.reset_index(drop=True).set_axis(np.arange(80) + 7))  # no warning


@pytest.mark.parametrize("records", [[{"a": 1.0}] * 80, {"a": [1.0] * 80}])
def test_records_are_no_array(records):
    with pytest.raises(TypeError, match=r"pass pandas.DataFrame\(X\)"):
        tiny().fit(records, np.arange(80.0))


def test_where_a_number_is_infinite():
    X = np.ones((80, 2))
    X[17, 1] = -np.inf
    with pytest.raises(ValueError, match=r"contains infinity.*: row 17 \(from 0\)"):
        tiny().fit(X, np.arange(80.0))


@pytest.mark.parametrize("uneven", [False, True])
def test_a_fit_reads_every_column_once(monkeypatch, uneven):
    """The kinds of columns of text are detected from their values, which are used from then on."""
    rng = np.random.default_rng(0)
    shop, code = rng.integers(0, 90, (2, 1200))
    effect = rng.normal(size=90)[shop] + rng.normal(size=90)[code]
    text = {"shop": [f"shop {i}" for i in shop], "code": [f"{37 * i % 1009},5" for i in code]}
    X = pd.DataFrame(text | {"size": [f"{x:,.2f} €" for x in rng.uniform(1e3, 1e6, 1200)]})
    y, weights = effect + rng.normal(0, 0.3, 1200), 1.0 + rng.random(1200) * uneven
    expected = read_rows(tiny(), X, y, weights, None).X

    def again(self, series):
        raise AssertionError(f"{series.name} is read again")

    for encoder in (NumberEncoder, CategoryEncoder):
        monkeypatch.setattr(encoder, "read", again)
    model = tiny()
    rows = read_rows(model, X, y, weights, None)
    assert np.array_equal(rows.X, expected)
    assert len(rows.encoding.columns) == 2
    assert "repeat and differ" in model.inputs_[1].note


def test_new_values_are_found_without_the_trees():
    class Trees:
        def predict(self, X, n_jobs):
            raise AssertionError("not needed")

    inputs = Inputs(describe_numbers(np.array([[1.0], [3.0]]), ["size"]), forest=Trees())
    model = IntervalRegressor()
    model.n_features_in_ = 1
    assert inputs.outside(model, np.array([[2.0], [5.0]])).tolist() == [[False], [True]]


class TestColumnsByName:
    seen = np.array([[1.0, 10.0], [3.0, 30.0]])
    inputs = Inputs(describe_numbers(seen, ["size", "age"]))

    def test_numbers_are_put_in_order_and_compared_with_training(self):
        table = {"other": np.array(["a"]), "age": np.array([50.0]), "size": np.array([2.0])}
        numbers, outside = self.inputs.read_columns(table)
        assert numbers.tolist() == [[2.0, 50.0]]
        assert outside.tolist() == [[False, True]]

    @pytest.mark.parametrize(
        "age",
        [np.array([np.nan]), np.array([np.inf]), np.array(["5"], object), np.array([5]), None],
    )
    def test_whatever_else_is_left_to_a_frame(self, age):
        table = {"size": np.array([2.0])} | ({} if age is None else {"age": age})
        assert self.inputs.read_columns(table) is None

    def test_what_an_encoder_reads_is_left_to_it(self, table):
        encoder = TableEncoder().fit(table[0])
        assert Inputs(encoder.columns_, encoder).read_columns({"size": np.array([2.0])}) is None


class TestCellsThatCannotBeRead:
    """Few of them in rows to predict are missing values; rows with targets are as strict as fit."""

    @pytest.fixture
    def rows(self):
        rng = np.random.default_rng(0)
        days = pd.date_range("2024-01-01", periods=60)
        table = {
            "at": [None, *(f"{i % 24}:{i % 60:02d}" for i in range(1, 60))],
            "size": rng.normal(size=60).astype(object),
            "flag": np.where(np.arange(60) % 3, "true", "false"),
            "day": days.strftime("%d.%m.%Y"),
        }
        return pd.DataFrame(table), rng.normal(size=60)

    @pytest.fixture
    def model(self, rows):
        return tiny().fit(*rows)

    BAD = ("9.12", "abc", "maybe", "31.13.2024")

    @pytest.fixture
    def bad(self, rows):
        table = rows[0].astype(object)
        for i, value in enumerate(self.BAD):
            table.iloc[7 + i, i] = value
        table.iloc[20, 1] = "def"
        return table

    def test_they_are_missing_marked_and_warned_of_once(self, model, bad):
        empty = bad.mask(bad.isin([*self.BAD, "def"]))
        problem = (
            "unreadable, so taken as missing: 1 cell in 'at', 2 cells in 'size', "
            "1 cell in 'flag', 1 cell in 'day'; column 'at', row 7 .from 0.: '9.12'"
        )
        for call in ("predict", "predict_interval", "predict_var", "predict_dist"):
            with pytest.warns(UserWarning, match=problem) as caught:
                found = getattr(model, call)(bad)
            assert [warning.filename for warning in caught] == [__file__]
            if call == "predict":
                assert (found == model.predict(empty)).all()
        mask = model.outside(bad)
        assert np.argwhere(mask).tolist() == [[7, 0], [8, 1], [9, 2], [10, 3], [20, 1]]
        assert not model.outside(empty)[:, 0].any()  # missing ones were in training

    def test_more_than_a_tenth_are_an_error(self, model, rows):
        table = rows[0].astype(object)
        table.iloc[30:, 1] = None
        table.iloc[:3, 1] = "abc"
        with pytest.warns(UserWarning, match="3 cells in 'size'"):
            model.predict(table)
        table.iloc[3, 1] = "abc"  # of the 30 that are there
        for call in (model.predict, model.outside):
            with pytest.raises(DataError, match=r"'size', row 0 .*'abc' is not a number"):
                call(table)
        with pytest.raises(DataError, match=r"'at', row 0 .*'9.12' is not a number like 10:30"):
            model.predict(rows[0].iloc[[5]].assign(at="9.12"))

    def test_rows_with_targets_are_refused(self, model, bad, rows, tmp_path):
        wrong = pytest.raises(DataError, match=r"'at', row 7 .*'9.12' is not a number like 10:30")
        for call in (model.conformalize, model.update):
            with wrong:
                call(bad, rows[1])
        with wrong:
            model.report(bad, rows[1], tmp_path / "report.html")
        with wrong:
            model.preprocessor_.transform(bad)

    def test_times_that_no_calendar_has(self):
        days = pd.Series(pd.date_range("2024-01-01", periods=60).astype("datetime64[s]"))
        X = pd.DataFrame({"day": days, "x": np.arange(60.0)})
        model = tiny(preprocessor=TableEncoder()).fit(X, np.arange(60.0))
        X["day"] = np.r_[days[:59].to_numpy(), np.array(["20000-01-01"], "datetime64[s]")]
        with pytest.warns(UserWarning, match=r"'day', row 59 .*years 1 to 9999"):
            model.predict(X)
        assert np.argwhere(model.outside(X)).tolist() == [[59, 0]]

    def test_infinity_stays_an_error(self, model, bad):
        bad.iloc[30, 1] = np.inf
        with pytest.raises(DataError, match=r"'size', row 30 .*inf is not finite"):
            model.predict(bad)


def test_a_model_of_numbers_alone_has_the_rules_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    other, missing = X.assign(c=1.0)[["c", "b", "a"]], X.assign(a=[np.nan, *X["a"][1:]])
    strict, by_name = (
        tiny(**given).fit(X, X["a"]) for given in ({}, {"preprocessor": TableEncoder()})
    )
    for wrong in (X[["b", "a"]], other):
        with pytest.raises(ValueError, match="feature names should match"):
            strict.predict(wrong)
    with pytest.raises(ValueError, match=r"contains NaN.*preprocessor=TableEncoder"):
        strict.predict(missing)
    assert (strict.predict(strict.pick(other)) == strict.predict(X)).all()
    assert (by_name.predict(other) == by_name.predict(X)).all()
    assert by_name.outside(missing)[0].tolist() == [True, False]
