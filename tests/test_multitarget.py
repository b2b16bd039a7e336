"""Several targets: an interval for each, and intervals that hold all of them together."""

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from calipers import IntervalRegressor, bank, load, objectives
from calipers._estimator import joint_fits, trials
from calipers.cli import app
from calipers.cli._measures import measure_targets
from calipers.multitarget import MultiTargetRegressor, _depth
from calipers.networks import MLP, DenseFactory
from calipers.optimizers import Adam
from calipers.prediction import Query
from calipers.preprocessing import DataError, TableEncoder
from calipers.storage import ModelFileError, read_model, write_model

TINY = {
    "coverage": 0.9,
    "n_networks": 4,
    "cv": 2,
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "epochs": 30,
    "batch_size": 32,
    "optimizer": Adam(learning_rate=0.05, averaging=0.0),
    "random_state": 0,
    "verbose": 0,
}


def problem(rows, seed):
    """Two targets of different units, whose noise is partly the same."""
    rng = np.random.default_rng(seed)
    x, shared, own = rng.uniform(-2, 2, rows), *rng.normal(size=(2, rows))
    X = pd.DataFrame({"x": x, "kind": np.where(x > 0, "warm", "cold")})
    Y = {"price": 1000 + 20 * x**2 + 5 * shared, "weight": x + 0.2 * shared + 0.2 * own}
    return X, pd.DataFrame(Y)


X, Y = problem(250, 0)
X_TEST, Y_TEST = problem(3000, 1)


@pytest.fixture(scope="module")
def model():
    return MultiTargetRegressor(IntervalRegressor(**TINY)).fit(X, Y)


def rates(bounds):
    """Coverage of each target, and of all together."""
    inside = (bounds[..., 0] <= Y_TEST.to_numpy()) & (Y_TEST.to_numpy() <= bounds[..., 1])
    return inside.mean(axis=0), inside.all(axis=1).mean()


def test_each_target_has_its_own_model(model):
    assert model.target_names_ == ["price", "weight"]
    assert model.predict(X_TEST).shape == (3000, 2)
    assert model.score(X_TEST, Y_TEST) > 0.7


def test_a_cell_that_cannot_be_read_is_warned_of_once(model):
    table = X_TEST.head(20).astype(object)
    table.iloc[3, 0] = "abc"
    with pytest.warns(UserWarning, match="1 cell in 'x'; column 'x', row 3 .*'abc'") as caught:
        found, outside = model.query_and_check(table, Query())
    assert len(caught) == 1
    assert outside[:, 0].nonzero()[0].tolist() == [3]
    assert np.isfinite(found["weight"].point).all()


@pytest.mark.long
def test_targets_train_in_one_bank_and_are_as_if_alone(monkeypatch):
    """Also where a target chooses another shape, and trains by a program of its own."""
    calls = []

    def train(program, table, plans, **more):
        calls.append((program.components, len(plans)))
        return bank.train(program, table, plans, **more)

    monkeypatch.setattr(joint_fits, "train", train)
    monkeypatch.setattr(objectives, "ROWS_FOR_SEVERAL", 200)
    monkeypatch.setattr(trials, "EPOCHS", {1: 1.0})
    humps = np.where(np.random.default_rng(5).random(250) < 0.5, -3.0, 3.0)
    targets = Y.assign(level=Y["weight"] + humps)
    estimator = IntervalRegressor(**TINY)
    model = MultiTargetRegressor(estimator).fit(X, targets)
    components = [own.ensemble_.bank.program.components for own in model.models_]
    assert components == [1, 1, 3]
    assert calls == [(1, 6), (3, 2), (1, 8), (3, 4)]  # trials, then what was chosen
    for own in model.models_[1:]:  # one of each shape
        alone = clone(own).fit(X, targets[own.target_.name])
        assert own.about_["shapes"] == alone.about_["shapes"]
        assert (own.predict_interval(X_TEST) == alone.predict_interval(X_TEST)).all()
        assert (own.out_of_fold_.interval() == alone.out_of_fold_.interval()).all()
        for ours, theirs in zip(
            own.ensemble_.bank.histories, alone.ensemble_.bank.histories, strict=True
        ):
            for name in ours.dtype.names:
                np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-6)
        assert own.ensemble_.bank.numbers.tolist() == alone.ensemble_.bank.numbers.tolist()


def test_a_trial_that_fails_with_all_targets_is_repeated_for_each(monkeypatch):
    trials = []

    def train(program, table, plans, **more):
        if "least_sizes" in more:
            trials.append(len(plans))
            if len(plans) > 2:
                raise bank.TrainingFailedError
        return bank.train(program, table, plans, **more)

    monkeypatch.setattr(joint_fits, "train", train)
    monkeypatch.setattr(objectives, "ROWS_FOR_SEVERAL", 200)
    model = MultiTargetRegressor(IntervalRegressor(**TINY)).fit(X, Y)
    assert trials[:3] == [4, 2, 2]
    for own in model.models_:
        assert own.about_["shapes"] == clone(own).fit(X, Y[own.target_.name]).about_["shapes"]


def test_a_time_budget_is_each_targets_own(monkeypatch):
    given = []

    def train(*rest, seconds, **more):
        given.append(seconds)
        return bank.train(*rest, seconds=seconds, **more)

    monkeypatch.setattr(joint_fits, "train", train)
    model = MultiTargetRegressor(IntervalRegressor(**TINY | {"time_budget": 60})).fit(X, Y)
    assert given == [120]
    assert [own.about_["time_budget"]["networks"] for own in model.models_] == [4, 4]


def test_joint_intervals_hold_all_targets_together(model):
    each, together = rates(model.predict_interval(X_TEST))
    assert each == pytest.approx([0.9, 0.9], abs=0.04)
    assert together < 0.88
    each, together = rates(model.predict_interval(X_TEST, joint=True))
    assert together == pytest.approx(0.9, abs=0.03)
    assert (each < 0.96).all()  # less than independent targets would need for certain


def test_rows_are_learned_and_read_once_for_all_targets(monkeypatch):
    done = []
    for name in ("learn", "_read"):
        original = getattr(TableEncoder, name)
        monkeypatch.setattr(
            TableEncoder,
            name,
            lambda self, X, name=name, original=original, **options: (
                done.append((name, len(X))) or original(self, X, **options)
            ),
        )
    text = X.assign(x=X["x"].map("{:.3f}".format))
    weights = np.arange(len(X)) % 3
    estimator = IntervalRegressor(**TINY)
    both = MultiTargetRegressor(estimator).fit(text, Y, weights)
    assert done == [("learn", np.count_nonzero(weights)), ("_read", len(X))]
    done.clear()
    found = both.query_and_check(text, Query(quantiles=(0.5,)))
    assert np.array_equal(both.predict(text).T, [one.point for one in found[0].values()])
    assert len(both.predict_interval(text, joint=True)) == len(X)
    assert done == [("_read", len(X))] * 3
    seed = both.models_[0].random_state
    alone = IntervalRegressor(**(TINY | {"random_state": seed})).fit(text, Y["price"], weights)
    assert np.array_equal(alone.query_and_check(text, Query())[1], found[1])
    assert np.array_equal(alone.predict(text), both.predict(text)[:, 0])


def test_several_coverages_at_once(model):
    bounds = model.predict_interval(X_TEST, [0.5, 0.9], joint=True)
    assert bounds.shape == (3000, 2, 2, 2)
    assert (bounds[..., 1] == model.predict_interval(X_TEST, 0.9, joint=True)).all()
    assert rates(bounds[..., 0])[1] == pytest.approx(0.5, abs=0.06)


def test_conformalized_joint_coverage_is_at_least_nominal():
    estimator = IntervalRegressor(**TINY | {"cv": None})
    model = MultiTargetRegressor(estimator).fit(X, Y)
    with pytest.raises(ValueError, match="joint coverage is estimated from held-out rows"):
        model.predict_interval(X_TEST, joint=True)
    before = model.predict_interval(X_TEST)
    held_out, targets = problem(2000, 2)
    depths = model.conformalize(held_out, targets).depths_
    text = pd.DataFrame(targets).map("{:.17g} kg".format)
    assert np.array_equal(model.conformalize(held_out, text).depths_, depths)
    swapped = pd.DataFrame(targets).iloc[:, ::-1]
    assert np.array_equal(model.conformalize(held_out, swapped).depths_, depths)
    with pytest.raises(ValueError, match=r"y has the targets other, .*, but the model was fitted"):
        model.conformalize(held_out, swapped.set_axis(["other", *swapped.columns[1:]], axis=1))
    assert rates(model.predict_interval(X_TEST, joint=True))[1] == pytest.approx(0.9, abs=0.025)
    assert (model.predict_interval(X_TEST) == before).all()


def bounded(rows, seed):
    """Targets with mass on single values: a cap, yes or no, and counts."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    capped = np.minimum(30 + 15 * X[:, 0] + rng.normal(0, 5, rows), 40.0)
    yes = X[:, 1] + rng.normal(size=rows) > 0
    counts = rng.poisson(np.exp(0.5 * X[:, 0] + 0.2))
    return X, pd.DataFrame({"capped": capped, "yes": yes * 1.0, "counts": counts * 1.0})


@pytest.fixture(scope="module")
def bounded_model():
    return MultiTargetRegressor(IntervalRegressor(**TINY)).fit(*bounded(400, 0))


def test_depth_is_the_smallest_coverage_whose_interval_contains_the_target(bounded_model):
    X, Y = bounded(150, 1)
    for own in bounded_model.models_:
        y = Y[own.target_.name].to_numpy()
        found = own.query(X, Query((), at=y))
        depth, each = _depth(found.cdf_below, found.cdf), np.arange(len(y))

        def contains(levels, own=own, y=y, each=each):
            lower, upper = own.predict_interval(X, list(levels))[each, :, each].T
            return (lower <= y) & (y <= upper), np.isfinite(lower) & np.isfinite(upper)

        assert contains(np.clip(depth + 1e-7, 0, 1 - 1e-7))[0].all()
        inside, finite = contains(np.maximum(depth - 1e-7, 1e-9))
        assert (inside == (depth == 0))[finite].all()
        assert (depth > 0).mean() > 0.2


def test_joint_intervals_of_targets_with_bounds_are_finite_and_cover(bounded_model):
    X, Y = bounded(3000, 2)
    model = deepcopy(bounded_model)

    def coverage(level):
        lower, upper = np.moveaxis(model.predict_interval(X, level, joint=True), -1, 0)
        assert np.isfinite([lower, upper]).all()
        return ((lower <= Y) & (upper >= Y)).to_numpy().all(axis=1).mean()

    assert coverage(0.9) == pytest.approx(0.9, abs=0.05)
    model.conformalize(*bounded(1000, 3))
    for level in (0.6, 0.9):
        assert coverage(level) == pytest.approx(level, abs=0.05)


def test_joint_intervals_contain_the_held_out_rows_of_their_depth():
    """Also where many rows share one depth, as where few inputs and targets are possible."""
    rng = np.random.default_rng(4)
    X = rng.integers(0, 2, (600, 1)) * 1.0
    Y = np.column_stack([X[:, 0] + rng.integers(0, 4, 600), rng.integers(0, 3, 600)]) * 1.0
    model = MultiTargetRegressor(IntervalRegressor(**TINY)).fit(X[:300], Y[:300])
    X, Y = X[300:], Y[300:]
    model.conformalize(X, Y)
    levels = np.linspace(0.05, 0.95, 40)
    lower, upper = np.moveaxis(model.predict_interval(X, levels, joint=True), 2, 0)
    inside = ((lower <= Y[..., None]) & (Y[..., None] <= upper)).all(axis=1).sum(axis=0)
    assert (inside >= np.ceil(levels * 301)).all()


def test_few_rows_give_infinite_joint_intervals():
    model = MultiTargetRegressor(IntervalRegressor(**TINY | {"epochs": 2})).fit(X, Y)
    model.depths_ = model.depths_[:8]
    assert np.isinf(model.predict_interval(X_TEST[:2], 0.9, joint=True)[..., 1]).all()
    assert np.isfinite(model.predict_interval(X_TEST[:2], 0.8, joint=True)).all()


def test_conformalize_drops_assumptions_that_its_rows_contradict(bounded_model):
    X, Y = bounded(1000, 3)
    model, Y = deepcopy(bounded_model), Y.assign(capped=Y["capped"] + 2)
    assumed = r"the target 'capped' was .* up to 40, which does not hold for \d+ of 1,000 rows"
    with pytest.warns(UserWarning, match=assumed):
        model.conformalize(X, Y)
    supports = [str(own.support_) for own in model.models_]
    assert supports == ["any number", "integers from 0 to 1", "non-negative integers"]
    assert str(bounded_model.models_[0].support_) == "numbers up to 40"
    lower, upper = np.moveaxis(model.predict_interval(X, 0.9, joint=True), -1, 0)
    assert ((lower <= Y) & (upper >= Y)).to_numpy().all(axis=1).mean() >= 0.9


def test_errors_name_the_target():
    X, Y = bounded(100, 4)
    estimator = IntervalRegressor(**TINY | {"bounds": (0, 60), "epochs": 2})
    model = MultiTargetRegressor(estimator)
    below = r"column 'capped': bounds=\(0, 60\): y must not be below 0, got -\d.* in row \d"
    with pytest.raises(DataError, match=below):
        model.fit(X, Y)
    Y["capped"] = Y["capped"].clip(0)
    model.fit(X, Y)
    beyond = Y.assign(counts=np.where(Y.index == 7, 61, Y["counts"]))
    for wrong, message in (
        (beyond, r"'counts': bounds=\(0, 60\): y must not be above 60, got 61 in row 7"),
        (Y.assign(yes="some"), "'yes': y must hold numbers, got 'some' in row 0"),
        (Y.assign(yes=np.nan), "'yes': Input y contains NaN"),
        (Y.assign(yes=np.inf), "'yes': y must be finite, got inf in row 0"),
    ):
        for step in (model.conformalize, clone(model).fit):
            with pytest.raises(DataError, match=message):
                step(X, wrong)
    assert model.models_[0].support_.given
    model.conformalize(X, Y)
    with pytest.raises(ValueError, match="bounds must be 'auto', None or a pair"):
        MultiTargetRegressor(IntervalRegressor(bounds=(1,))).fit(X, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y["price"], "one column per target"),
        (Y[["price"]], "at least two targets"),
        (Y.set_axis(["price"] * Y.shape[1], axis=1), "more than one target 'price'.* own name"),
    ],
)
def test_one_target_is_for_the_other_class(y, message):
    with pytest.raises(ValueError, match=message):
        MultiTargetRegressor().fit(X, y)


def test_one_model_names_the_class_for_several():
    with pytest.raises(ValueError, match=r"predicts one: use calipers.*\.MultiTargetRegressor"):
        IntervalRegressor(**TINY).fit(X, Y)
    with pytest.raises(TypeError, match="estimator must be an IntervalRegressor"):
        MultiTargetRegressor("forest").fit(X, Y)


def test_a_folder_holds_them_all(model, tmp_path):
    model.save(tmp_path / "model")
    again = MultiTargetRegressor.load(tmp_path / "model")
    for joint in (False, True):
        found, before = (m.predict_interval(X_TEST, 0.8, joint=joint) for m in (again, model))
        assert (found == before).all()
    with pytest.raises(ModelFileError, match=r"MultiTargetRegressor\.load"):
        load(tmp_path / "model")
    model.models_[0].save(tmp_path / "one")
    assert (load(tmp_path / "one").predict(X_TEST) == model.predict(X_TEST)[:, 0]).all()
    with pytest.raises(ModelFileError, match="not of MultiTargetRegressor"):
        MultiTargetRegressor.load(tmp_path / "one")


def small_network(in_size, out_size, *, key):
    return DenseFactory((4,))(in_size, out_size, key=key)


def even(rows):
    return np.ones(len(rows))


def test_a_folder_of_models_with_code_is_loaded_with_it_and_inspected_without(tmp_path):
    own = IntervalRegressor(**TINY | {"network": small_network, "n_networks": 2})
    model = MultiTargetRegressor(own).fit(X, Y)
    model.models_[1].conformalize(X_TEST[:200], Y_TEST["weight"][:200], row_weight=even)
    folder = tmp_path / "model"
    model.save(folder)
    with pytest.raises(ModelFileError, match=r"load\(..., network=...\)"):
        MultiTargetRegressor.load(folder)
    with pytest.raises(ModelFileError, match=r"load\(..., row_weight=...\)"):
        MultiTargetRegressor.load(folder, network=small_network)
    again = MultiTargetRegressor.load(folder, network=small_network, row_weight=even)
    assert (again.predict_interval(X_TEST) == model.predict_interval(X_TEST)).all()
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 0
    assert "predicts weight from 2 of 2 inputs" in shown.output
    document, arrays = read_model(folder)
    del document["targets"][1]["inputs"]["about"]
    write_model(folder, document, arrays)
    assert CliRunner().invoke(app, ["inspect", str(folder)]).exit_code == 4


def _descending(document, arrays):
    arrays["depths"] = arrays["depths"][::-1].copy()


def _too_deep(document, arrays):
    arrays["depths"] = arrays["depths"] + 1


def _one_target(document, arrays):
    del document["targets"][1]


def _an_array_more(document, arrays):
    arrays["2.seeds"] = np.zeros(3)


def _the_same_twice(document, arrays):
    document["targets"][1]["inputs"]["target"] = document["targets"][0]["inputs"]["target"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_descending, "ascending"),
        (_too_deep, "depths"),
        (_one_target, "targets"),
        (_an_array_more, "the weights"),
        (_the_same_twice, "targets must be different"),
    ],
)
def test_forged_folders_are_refused(model, tmp_path, spoil, message):
    model.save(tmp_path / "model")
    document, arrays = read_model(tmp_path / "model")
    spoil(document, arrays)
    write_model(tmp_path / "model", document, arrays)
    with pytest.raises(ModelFileError, match=message):
        MultiTargetRegressor.load(tmp_path / "model")


def test_measures_of_all_targets_take_one_pass_through_the_networks(model, monkeypatch):
    predict, passes = bank.Bank.predict, []

    def counted(self, rows):
        passes.append(len(rows))
        return predict(self, rows)

    monkeypatch.setattr(bank.Bank, "predict", counted)
    found = measure_targets(model, X_TEST[:500], Y_TEST[:500], 0.9)
    assert passes == [500, 500]  # those of price, and those of weight
    assert list(found["targets"]) == ["price", "weight"]
    levels = [row["coverage"] for row in found["targets"]["price"]["calibration"]]
    assert levels == [0.5, 0.8, 0.9, 0.95, 0.99]  # and not that of the joint intervals
    bounds = model.predict_interval(X_TEST[:500], 0.9, joint=True)
    widths = np.ptp(bounds, axis=-1).mean(axis=0)
    np.testing.assert_allclose(list(found["joint"]["mean_width"].values()), widths)
    inside = (bounds[..., 0] <= Y_TEST[:500]) & (bounds[..., 1] >= Y_TEST[:500])
    assert found["joint"]["coverage_rate"] == inside.all(axis=1).mean()


def test_commands_take_several_targets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X.join(Y).assign(price=Y["price"].where(Y.index > 1)).to_csv("two.csv", index=False)
    lines = ["n_networks = 4", "cv = 2", "epochs = 30", "[network]", "hidden_layers = [8]"]
    lines += ["frequencies = 0"]
    (tmp_path / "c.toml").write_text("\n".join(lines))

    def run(*words):
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
        return found.stdout

    fit = ("fit", "two.csv", "--target", "price", "--target", "weight", "--out", "model")
    found = json.loads(run(*fit, "--config", "c.toml", "--no-refit", "--json"))
    assert [target["name"] for target in found["targets"]] == ["price", "weight"]
    assert found["rows_without_target"] == 2
    assert set(found["evaluation"]["targets"]) == {"price", "weight"}
    assert found["evaluation"]["joint"]["coverage_of_each"] > 0.95
    columns = run("predict", "model", "two.csv", "--joint").partition("\n")[0]
    assert columns == (
        "price_prediction,price_lower_0.95,price_upper_0.95,"
        "weight_prediction,weight_lower_0.95,weight_upper_0.95"
    )
    found = json.loads(run("evaluate", "model", "two.csv", "--json"))
    assert found["joint"]["coverage_rate"] == pytest.approx(0.95, abs=0.04)
    assert "All 2 together: 95% joint intervals" in run("evaluate", "model", "two.csv")
    assert "predicts weight from 2 of 2 inputs" in run("inspect", "model")
    assert "in units of weight" in run("evaluate", "model", "two.csv", "--target", "weight")
    run("report", "model", "two.csv", "--target", "weight", "--out", "weight.html")
    assert "Prediction intervals for weight" in Path("weight.html").read_text("utf-8")
    found = CliRunner().invoke(app, ["report", "model", "two.csv"])
    assert found.exit_code == 2
    assert "predicts price, weight: choose one with --target" in " ".join(found.output.split())
    for command in (
        ("watch", "model", "two.csv", "--target", "price"),
        ("conformalize", "model", "two.csv", "--target", "price"),
        ("export", "model", "--out", "model.onnx"),
        ("serve", "other=model", "--port", "0"),
        ("predict", "model", "two.csv", "--cluster", "tcp://nowhere:1", "--out", "parts"),
    ):
        found = CliRunner().invoke(app, command)
        assert found.exit_code == 2
        printed = " ".join(found.output.replace("│", " ").split())
        assert "predicts price, weight, but this command takes models of one target" in printed
        assert "calipers fit --target price" in printed
    found = CliRunner().invoke(app, ["fit", "two.csv", *fit[2:4], *fit[2:4], "--out", "other"])
    assert found.exit_code == 2
    assert "twice" in found.output
