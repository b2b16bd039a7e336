"""Words of free text and of rare categories: which have inputs, and that all parts read them."""

import json

import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor, load
from calipers._estimator.conformal import columns_of
from calipers._schema import SchemaError
from calipers.importance import dependence
from calipers.multitarget import MultiTargetRegressor
from calipers.networks import MLP
from calipers.optimizers import Adam
from calipers.preprocessing import TableEncoder
from calipers.preprocessing._words import frequent_words, with_words, word_places

SMALL = {
    "n_networks": 2,
    "cv": 2,
    "network": MLP(hidden_layers=(8,), frequencies=0, bins=0, trees=0),
    "epochs": 30,
    "patience": None,
    "optimizer": Adam(learning_rate=0.02, averaging=0.0),
    "random_state": 0,
    "verbose": 0,
}
KINDS = ["Law", "Beauty", "École", "Music"]
WORTH = {"law": 3.0, "beauty": -2.0, "école": 1.0, "music": 0.0}


def schools(rows, seed=0, repeated=1):
    """Schools, of whom each name is in one row or ``repeated``; the words determine the target."""
    rng = np.random.default_rng(seed)
    number = np.arange(rows) // repeated
    kind = np.array(KINDS)[rng.integers(0, 4, rows)[number]]
    names = [
        f"{k} {('School', 'Academy')[n % 2]} of town{n + 9000 * seed}"
        for k, n in zip(kind, number, strict=True)
    ]
    y = [WORTH[k.lower()] for k in kind] + rng.normal(0, 0.1, rows)
    return pd.DataFrame({"name": names, "x": rng.uniform(size=rows)}), np.asarray(y)


@pytest.fixture(scope="module")
def model():
    return IntervalRegressor(**SMALL).fit(*schools(200))


def frequent(texts, rows, fewest=1):
    return frequent_words(word_places(texts), rows, fewest)


def test_words_with_inputs():
    texts = ["red apple", "Red pear", "green-apple 12", "pear tree 12", "a tree"]
    rows = np.array([15, 10, 10, 5, 30])
    # "12" has no letter, "green" is in one text; "tree" has 35 rows, "pear" 15
    assert frequent(texts, rows) == ["tree", "apple", "red"]
    assert frequent(texts, rows, 26) == ["tree"]
    assert frequent(["all one", "all two"], np.array([50, 50])) == []  # "all" is in all
    assert frequent(["new york x", "New York y", "z"], np.full(3, 20)) == ["new"]
    many = [f"{chr(97 + k % 26)}word{chr(97 + k // 26)} {i}" for k in range(120) for i in range(2)]
    assert len(frequent(many, np.full(240, 10))) == 100
    # no letter alone, none of the words for what is missing, none with digits
    assert frequent(["a missing a12", "missing a a12 b"], np.full(2, 20)) == []


def test_words_of_values():
    values = np.array(["Law, beauty", None, "LAW school", "lawful", "x_law", ""], dtype=object)
    expected = [[1, 1], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0]]
    assert np.array_equal(with_words(values, ["law", "beauty"]), expected)


def test_text_is_used_by_its_words_and_not_stored():
    X, _ = schools(200)
    encoder = TableEncoder().fit(X)
    column = encoder.columns_[0]
    assert (column.kind, column.used, column.missing) == ("text", True, False)
    assert {"school", "academy", "law", "beauty", "école", "music"} == set(column.categories)
    assert column.note == "free text, with inputs for 6 words; its values are not stored"
    assert not any("town" in text for text in [json.dumps(encoder.to_document()), column.note])
    new = pd.DataFrame({"name": ["Institut of LAW", None], "x": 0.5})
    found = dict(zip(encoder.get_feature_names_out(), encoder.transform(new).T, strict=True))
    assert found["name (word law)"].tolist() == [1, 0]
    assert found["name (word music)"].tolist() == [0, 0]
    assert encoder.outside(new).tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize(
    "write",
    [
        lambda rng: "-".join(rng.bytes(2).hex() for _ in range(8)),
        lambda rng: ":".join(rng.bytes(1).hex() for _ in range(6)),
        lambda rng: f"INV-{rng.integers(2020, 2024)}-{rng.integers(10**6)}-AB",
    ],
)
def test_identifiers_are_no_text(write):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"key": [write(rng) for _ in range(5000)], "x": rng.uniform(size=5000)})
    assert TableEncoder().fit(X).columns_[0].kind == "identifier"


def test_long_values_take_no_longer():  # than is linear in their length
    values = np.array(["9" * 10**6, "a1" * 10**6, "law " * 10**5], dtype=object)
    assert with_words(values, ["law"]).tolist() == [[False], [False], [True]]


def test_missing_text():
    X, _ = schools(200)
    X.loc[::3, "name"] = None
    encoder = TableEncoder().fit(X)
    assert encoder.get_feature_names_out()[0] == "name (missing)"
    assert np.array_equal(encoder.transform(X)[:, 0], X["name"].isna())
    assert np.array_equal(encoder.transform(X), TableEncoder().fit_transform(X))


def test_rare_categories_have_their_words_too():
    X, _ = schools(400, repeated=4)
    encoder = TableEncoder().fit(X)
    column = encoder.columns_[0]
    assert (column.kind, len(column.categories)) == ("category", 60)
    assert column.note.endswith("; inputs for 6 words in them")
    names = encoder.get_feature_names_out().tolist()
    new = encoder.transform(pd.DataFrame({"name": ["Beauty farm"], "x": 0.5}))[0]
    assert new[names.index("name (other)")] == new[names.index("name (word beauty)")] == 1
    assert encoder.outside(pd.DataFrame({"name": ["Beauty farm"], "x": 0.5}))[0, 0]


def test_frequent_categories_need_no_words():
    X, _ = schools(400, repeated=10)  # forty categories of ten rows each
    assert not any("word" in name for name in TableEncoder().fit(X).get_feature_names_out())


@pytest.mark.parametrize("kinds", [None, {"name": "text"}])
def test_text_without_common_words_is_left_out(kinds):
    X = pd.DataFrame({"name": [f"flat {chr(97 + i % 26)}{i}" for i in range(90)], "x": range(90)})
    column = TableEncoder(kinds=kinds).fit(X.assign(x=X["x"] % 7)).columns_[0]
    assert (column.kind, column.used) == ("identifier", False)
    assert column.note.endswith("its values are not stored")


def test_the_kind_can_be_given_and_comes_back():
    X, _ = schools(400, repeated=4)
    first = TableEncoder(kinds={"name": "text"})
    typed = first.fit_typed(X)
    assert first.kinds_["name"] == "text"
    again = TableEncoder(kinds=first.kinds_).fit(typed)
    assert np.array_equal(again.transform(typed), first.transform(X))
    assert again.columns_ == first.columns_
    assert TableEncoder(kinds={"name": "identifier"}).fit(X).columns_[0].note == (
        "row identifier; its values are not stored"
    )


def test_rows_that_a_word_must_have():
    X, _ = schools(200)
    assert set(TableEncoder(min_frequency=80).fit(X).columns_[0].categories) == {
        "academy",
        "school",
    }


def test_a_model_learns_words(model):
    X, y = schools(300, seed=1)
    assert np.mean((model.predict(X) - y) ** 2) < 0.1 * np.var(y)
    assert not model.outside(X)[:, 0].any()


def test_storage(model, tmp_path):
    X, _ = schools(50, seed=2)
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": ["law", "law"]}, "distinct words in lower case"),
        ({"words": ["law.*"]}, "distinct words in lower case"),
        ({"words": ["Law"]}, "distinct words in lower case"),
        ({"words": []}, "words"),
        ({"words": ["law"]}, "the words"),
        ({"missing": 1}, "missing"),
    ],
)
def test_malformed_documents(model, change, message):
    document = json.loads(json.dumps(model.preprocessor_.to_document()))
    document["columns"][0]["encoder"] |= change
    with pytest.raises(SchemaError, match=message):
        TableEncoder.from_document(document)


@pytest.mark.parametrize("repeated", [1, 4])
def test_onnx(repeated, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X, y = schools(400, repeated=repeated)
    X.loc[5::9, "name"] = None
    model = IntervalRegressor(**SMALL).fit(X, y)
    texts = ["LAW school", "lawful", "ÉCOLE", "l'école\nmusic", "x_beauty-", X["name"][0], ""]
    texts += [
        "\u0130law",
        "law\u0130 law",
        "mus\u0130c",
        "mus\u0130k",
        "\u017fchool",
        "law1",
        "9law",
    ]
    new = pd.DataFrame({"name": texts, "x": 0.5})
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "m.onnx"))
    feed = {"name": new["name"].to_numpy(object), "x": new["x"].to_numpy()}
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, feed), strict=True))
    np.testing.assert_allclose(found["point"], model.predict(new), atol=1e-5)
    bounds = np.stack([found["lower"], found["upper"]], axis=1)
    np.testing.assert_allclose(bounds, model.predict_interval(new), atol=1e-4)


def test_report_and_dependence(model, tmp_path):
    X, y = schools(100, seed=3)
    page = model.report(X, y, tmp_path / "report.html").read_text("utf-8")
    assert "free text, with inputs for 6 words" in page
    curve = dependence(model, X, "name")
    assert curve.kind == "text"
    assert set(curve.values) <= set(X["name"])
    assert {name.split()[0] for name in set(curve.values)} == set(KINDS)  # a text for each word
    X.loc[0, "name"] = "law " * 10**6
    assert X.loc[0, "name"] in set(dependence(model, X, "name").values)


def test_subgroups(model):
    X, y = schools(400, seed=4)
    with pytest.raises(ValueError, match="by is the input 'name', which is free text"):
        model.conformalize(X, y, by="name")
    table, target = schools(400, repeated=4)
    other = IntervalRegressor(**SMALL).fit(table, target)
    names = other.preprocessor_.get_feature_names_out()
    columns = columns_of(other.reader_, "name", ["name", "x"])
    assert not any("word" in name for name in names[columns])


def test_several_targets_of_which_one_depends_on_a_category(tmp_path):
    rng = np.random.default_rng(0)
    shop = rng.integers(0, 90, 600)
    X = pd.DataFrame({"shop": [f"shop {i}" for i in shop], "x": rng.uniform(size=600)})
    Y = np.stack([rng.normal(size=90)[shop], rng.normal(size=600)], axis=1)
    model = MultiTargetRegressor(IntervalRegressor(**SMALL)).fit(X, Y)
    notes = [one.inputs_[0].note for one in model.models_]
    assert notes[0] != notes[1]
    model.save(tmp_path / "model")
    again = MultiTargetRegressor.load(tmp_path / "model")
    assert np.array_equal(again.predict(X), model.predict(X))
