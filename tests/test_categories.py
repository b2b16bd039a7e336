"""Categories of many levels: target encoding that does not leak a row's own target."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.model_selection import TimeSeriesSplit

from calipers import IntervalRegressor, load
from calipers._estimator.training_rows import read_rows
from calipers.networks import MLP
from calipers.optimizers import Adam
from calipers.preprocessing import TableEncoder, TargetEncoding
from calipers.preprocessing._targets import Differ, EncodedColumn, level_targets

TINY = {
    "n_networks": 8,
    "cv": 4,
    "network": MLP(hidden_layers=(16,), frequencies=0),
    "epochs": 60,
    "batch_size": 64,
    "optimizer": Adam(learning_rate=0.02, averaging=0.0),
    "random_state": 0,
    "verbose": 0,
}
EFFECT = np.random.default_rng(5).normal(size=80)


def problem(rows, seed, *, effect=3.0):
    """Eighty levels, of which each has its own mean; a few rows have one of their own."""
    rng = np.random.default_rng(seed)
    level, x = rng.integers(0, 80, rows), rng.uniform(-1, 1, rows)
    names = np.where(rng.uniform(size=rows) < 0.02, [f"once{i}-{seed}" for i in range(rows)], level)
    y = 100 + effect * EFFECT[level] + x + rng.normal(0, 0.5, rows)
    return pd.DataFrame({"shop": names.astype(str), "x": x}), y


X, Y = problem(600, 0)
X_TEST, Y_TEST = problem(1500, 1)


def encoder(**options):
    return TableEncoder(kinds={"shop": "category"}, **options)


@pytest.fixture(scope="module")
def model():
    return IntervalRegressor(preprocessor=encoder(), **TINY).fit(X, Y)


def test_means_are_drawn_in_as_the_analysis_of_variance_says():
    codes = np.array([0, 0, 0, 1, 1, 2])
    targets = np.array([1.0, 2.0, 3.0, 6.0, 8.0, 4.0])
    found = level_targets(codes, targets, None, 3, Differ(means=True, spreads=True))
    # By hand: mean 4; sum of squares within 2 + 2 = 4, over 6 - 3 degrees; between 3 * 4 + 2 * 9
    # = 30, less 2 * 4 / 3, over 6 - 14 / 6.
    within, between = 4 / 3, (30 - 8 / 3) / (6 - 14 / 6)
    prior = within / between
    kept = np.array([3 / (3 + prior), 2 / (2 + prior), 1 / (1 + prior), 0])
    expected = 4 + kept * np.array([-2, 3, 0, 0])
    np.testing.assert_allclose(found.means, expected)
    variance = np.array([2 + 10 * within, 2 + 10 * within, 10 * within, 10 * within])
    degrees = np.array([2 + 10, 1 + 10, 10, 10])
    variance = variance / degrees + (1 - kept) * between  # the mean of a level is not known
    np.testing.assert_allclose(found.spreads, 0.5 * np.log(variance))
    assert found.counts.tolist() == [3, 2, 1, 0]


def test_levels_that_do_not_differ_are_all_alike():
    codes = np.arange(300) // 10
    found = level_targets(codes, np.random.default_rng(0).normal(size=300), None, 30)
    assert found.differ == (False, False)
    assert np.ptp(found.means) == np.ptp(found.spreads) == 0


@pytest.mark.parametrize("unequal", [0.5, 1.0, 2.0])
def test_unequal_weights_do_not_make_levels_differ(unequal):
    rng = np.random.default_rng(0)
    differ = 0
    for _ in range(20):
        weights = np.exp(unequal * rng.normal(size=1000))
        codes, targets = rng.integers(0, 100, 1000), rng.normal(size=1000)
        found = level_targets(codes, targets, 7 * weights / weights.mean(), 100)
        differ += found.differ.means
    assert differ <= 1


def test_levels_that_differ_do_so_with_unequal_weights_of_any_unit():
    rng = np.random.default_rng(0)
    codes, weights = rng.integers(0, 50, 1000), np.exp(rng.normal(size=1000))
    targets = rng.normal(size=50)[codes] + rng.normal(size=1000)
    for unit in (1e-3, 1.0, 1e3):
        assert level_targets(codes, targets, unit * weights, 50).differ.means


def test_levels_that_differ_in_spread_alone_keep_one_mean():
    rng = np.random.default_rng(0)
    codes = np.arange(600) // 20
    targets = rng.normal(size=600) * np.where(codes < 15, 1.0, 3.0)
    found = level_targets(codes, targets - targets.mean(), None, 30)
    assert found.differ == (False, True)
    assert np.ptp(found.means) == 0
    assert found.spreads[:15].max() < found.spreads[15:30].min()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_no_row_has_seen_its_own_target(seed, grouped):
    rng = np.random.default_rng(seed)
    rows, levels = 60, 7
    codes = rng.integers(-1, levels, rows)
    groups = rng.integers(0, 20, rows) if grouped else None
    train = np.sort(rng.choice(rows, 40, replace=False))
    held_out = np.setdiff1d(np.arange(rows), train)
    y, X = rng.normal(size=rows), np.zeros((rows, 4))

    def encoded(targets):
        differ = Differ(means=True, spreads=True)  # found out once, from all rows
        column = EncodedColumn(codes, levels, kept=0, differ=differ)
        return TargetEncoding({1: column}, targets, None, groups).encoded(X, train, 3)

    before, changed = encoded(y), y.copy()
    changed[held_out] = 1e3
    assert (encoded(changed) == before).all()  # held-out targets have no influence
    row = train[rng.integers(len(train))]
    own = np.array([row]) if groups is None else train[groups[train] == groups[row]]
    changed = y.copy()
    changed[own] += 10
    after = encoded(changed)
    assert (after[own] == before[own]).all()  # nor of its own, or of its group's
    assert (after[:, 0] == before[:, 0]).all()  # nor are other rows hidden
    assert (after != before).any() == (codes[own] >= 0).any() or (after != before).any()


def test_a_level_is_as_frequent_for_held_out_rows_as_for_new_ones():
    codes = np.repeat([0, 1, 2], [4, 6, 10])
    column = EncodedColumn(codes, 3, kept=0, differ=Differ(means=True, spreads=True))
    encoding = TargetEncoding({1: column}, np.arange(20.0))
    train = np.setdiff1d(np.arange(20), [3, 8, 17])
    held_out = encoding.encoded(np.zeros((20, 4)), train, 3)[[3, 8, 17], 1]
    np.testing.assert_allclose(held_out, np.log1p([4, 6, 10]))


def test_networks_learn_what_rows_of_unseen_levels_are_like():
    rng = np.random.default_rng(0)
    codes, kept = rng.integers(0, 50, 2000), 3
    X = np.zeros((2000, kept + 4))
    X[codes < kept, codes[codes < kept]], X[codes >= kept, kept] = 1.0, 1.0
    y, train, place = codes + rng.normal(size=2000), np.arange(1500), kept + 1
    found = TargetEncoding({place: EncodedColumn(codes, 50, kept)}, y)
    encoded = found.encoded(X, train, 0)
    unseen = encoded[:, place] == 0
    assert not unseen[1500:].any()
    assert 0.03 < unseen[:1500].mean() < 0.07
    assert (encoded[unseen, :kept] == 0).all()
    assert (encoded[unseen, kept] == 1).all()
    assert np.ptp(encoded[unseen, place + 1]) < 0.01  # the mean of all rows, but for the part
    assert encoded[unseen, place + 2].min() > encoded[~unseen, place + 2].max()
    np.testing.assert_array_equal(encoded[~unseen, : kept + 1], X[~unseen, : kept + 1])


def test_levels_beyond_those_with_inputs_help(model):
    before = IntervalRegressor(preprocessor=encoder(target_encoding=False), **TINY).fit(X, Y)

    def error(found):
        return np.sqrt(np.mean((found.predict(X_TEST) - Y_TEST) ** 2))

    assert error(model) < 0.7 * error(before)
    lower, upper = model.predict_interval(X_TEST).T
    assert np.mean((lower <= Y_TEST) & (upper >= Y_TEST)) > 0.92  # a leak would make it less


def test_small_levels_of_nothing_do_not_seem_to_help():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": (np.arange(600) // 2).astype(str), "x": rng.normal(size=600)})
    frame = frame.sample(frac=1, random_state=0)
    y = rng.normal(size=600)
    model = IntervalRegressor(preprocessor=encoder(), **TINY).fit(frame, y)
    assert not model.preprocessor_.knows_targets
    error = np.sqrt(np.mean((model.out_of_fold_.point - y) ** 2))
    assert error > 0.97 * y.std()
    lower, upper = model.predict_interval(frame.assign(shop="new", x=rng.normal(size=600))).T
    fresh = rng.normal(size=600)
    assert np.mean((lower <= fresh) & (fresh <= upper)) > 0.92


def test_what_is_shown_at_a_prompt_is_one_line(model):
    assert repr(model.out_of_fold_).startswith("<OutOfFold: ")
    assert repr(model.predict_dist(X_TEST)).endswith(" of shape (1500,)>")


def test_out_of_fold_predictions_have_the_rows_of_fit(model):
    found = model.out_of_fold_
    assert found.point.shape == Y.shape
    assert found.rows.tolist() == list(range(len(Y)))
    np.testing.assert_array_equal(found.target, Y)
    lower, upper = found.interval().T
    assert np.mean((lower <= Y) & (upper >= Y)) == pytest.approx(0.95, abs=0.01)
    new = np.sqrt(np.mean((model.predict(X_TEST) - Y_TEST) ** 2))
    assert np.sqrt(np.mean((found.point - Y) ** 2)) == pytest.approx(new, rel=0.3)


def test_networks_that_predict_learn_from_encodings_by_all_rows(monkeypatch):
    own, plans = IntervalRegressor(preprocessor=encoder(), **TINY), []
    data = read_rows(own, X, Y, None, None)
    inputs = data.encoded_by_fold(data.split(TimeSeriesSplit(4), 8), 0).inputs
    assert len(inputs) == 5
    np.testing.assert_array_equal(inputs[-1], data.encoding.encoded(data.X, data.used, 4))
    monkeypatch.setattr(
        "calipers._estimator.joint_fits.train", lambda *a, **k: plans.extend(a[2]) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        own.set_params(cv=TimeSeriesSplit(4)).fit(X, Y)
    assert [int(plan.rows.min()) // len(Y) for plan in plans] == [0, 1, 2, 3] * 2 + [4] * 8


def test_a_level_never_seen_has_the_mean_of_all(model):
    new = X_TEST.assign(shop="never seen")
    assert model.outside(new)[:, 0].all()
    places = [
        i for i, name in enumerate(model.preprocessor_.get_feature_names_out()) if "(" in name
    ]
    own = IntervalRegressor(preprocessor=encoder(min_frequency=2), **TINY | {"epochs": 2}).fit(X, Y)
    rare = own.preprocessor_.transform(X[X["shop"].str.startswith("once")])
    np.testing.assert_array_equal(own.read(new)[0][0, places], rare[0, places])
    assert model.predict(new).std() < model.predict(X_TEST).std() / 2


def test_a_level_of_one_row_says_what_its_row_says():
    rng = np.random.default_rng(0)
    level = np.concatenate([rng.integers(0, 40, 200), np.repeat(np.arange(40, 400), 2)])
    table = pd.DataFrame({"shop": [f"shop {i}" for i in level], "x": rng.uniform(-1, 1, 920)})
    y = rng.normal(size=400)[level] + table["x"] + rng.normal(0, 0.1, 920)
    twice = np.flatnonzero(level >= 40)
    once, new = twice[1:-200:2], twice[:-200:2]  # the shops of all but 100 pairs
    train = np.setdiff1d(np.arange(920), new)
    assert np.isin(level[once], level[train]).all()
    errors = []
    for min_frequency in (None, 2):
        own = IntervalRegressor(preprocessor=encoder(min_frequency=min_frequency), **TINY)
        own.fit(table.iloc[train], y[train])
        errors.append(np.mean((own.predict(table.iloc[new]) - y[new]) ** 2))
        assert own.outside(table.iloc[new])[:, 0].sum() == 0
    assert errors[0] < 0.5 * errors[1]


def test_rows_without_weight_change_no_encoding():
    weights = (np.arange(len(Y)) < 400).astype(float)
    spoilt = np.where(weights > 0, Y, 1e6)
    quick = TINY | {"epochs": 2, "preprocessor": encoder()}
    found = IntervalRegressor(**quick).fit(X, spoilt, weights).preprocessor_.transform(X)
    alone = IntervalRegressor(**quick).fit(X[:400], Y[:400]).preprocessor_.transform(X)
    np.testing.assert_allclose(found, alone)


def test_encoder_alone_never_looks_at_targets():
    found = encoder().fit(X, Y)
    assert found.get_feature_names_out().tolist()[-2:] == ["shop (frequency)", "x"]
    assert not found.knows_targets


def test_a_folder_keeps_it(model, tmp_path):
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for rows in (X, X_TEST):
        assert (again.predict_interval(rows) == model.predict_interval(rows)).all()
    assert again.preprocessor_.get_feature_names_out().tolist()[-3:] == [
        "shop (mean of targets)",
        "shop (spread of targets)",
        "x",
    ]
    assert again.inputs_[0].note.endswith("have inputs, all by their targets")


@pytest.mark.parametrize(
    ("options", "y", "named"),
    [
        ({}, Y, True),
        ({"min_frequency": 2}, Y, False),
        ({"target_encoding": False}, Y, False),
        ({}, np.random.default_rng(0).permutation(Y), False),
    ],
    ids=["default", "two rows", "without targets", "levels that do not differ"],
)
def test_names_of_single_rows_are_stored_only_where_their_targets_are(options, y, named, tmp_path):
    own = IntervalRegressor(preprocessor=encoder(**options), **TINY | {"epochs": 2}).fit(X, y)
    own.save(tmp_path / "model")
    assert ("once" in (tmp_path / "model" / "model.json").read_text()) == named
    again = load(tmp_path / "model")
    assert again.get_params()["preprocessor__min_frequency"] == options.get("min_frequency")
    assert not again.outside(X)[:, 0].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": [0.0]}, r"means must be a list of \d+"),
        ({"spreads": []}, r"spreads must be a list of \d+"),
        ({"means": "many"}, "means must be a list"),
        ({"spreads": [1e9]}, "spreads"),
    ],
)
def test_forged_targets_are_refused(model, change, message):
    document = json.loads(json.dumps(model.preprocessor_.to_document()))
    document["columns"][0]["encoder"] |= change
    with pytest.raises(ValueError, match=message):
        TableEncoder.from_document(document)


def test_the_graph_of_onnx_has_it(model, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    path = model.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(path)
    rows = X_TEST[:50].assign(shop=[*X_TEST["shop"][:48], "never seen", None])
    read = {
        name: np.array([v or "" for v in values], object) if values.dtype == object else values
        for name, values in model.preprocessor_.read(rows).items()
    }
    (point,) = session.run(["point"], read)
    np.testing.assert_allclose(point, model.predict(rows), rtol=1e-5)


def test_points_of_such_a_model_are_upgraded_in_the_same_folds():
    points = IntervalRegressor(loss="mse", preprocessor=encoder(), **TINY).fit(X, Y)
    model = IntervalRegressor(**TINY).upgrade(points, X, Y)
    np.testing.assert_allclose(model.predict(X_TEST), points.predict(X_TEST), rtol=1e-6)
    np.testing.assert_allclose(model.out_of_fold_.point, points.out_of_fold_.point, rtol=1e-6)
    lower, upper = model.predict_interval(X_TEST).T
    assert np.mean((lower <= Y_TEST) & (upper >= Y_TEST)) > 0.92  # a leak would make it less
