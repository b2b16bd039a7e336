"""Networks with several components, from training to every use of their predictions."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from calipers import IntervalRegressor, objectives
from calipers._estimator import candidates, trials
from calipers._estimator.trials import Measures, unexplained_by_trees
from calipers._schema import SchemaError
from calipers._serialization.ensembles import ensemble_from_dict, ensemble_to_dict
from calipers.bank import Program, _train
from calipers.crossfit import Fold
from calipers.distributions import SplitNormalMixture
from calipers.heads import HEADS
from calipers.networks import MLP
from calipers.objectives import LOSSES, Density
from calipers.optimizers import Adam
from calipers.prediction import Query
from calipers.training import make_settings

SMALL = {
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "n_networks": 4,
    "cv": 2,
    "epochs": 150,
    "optimizer": Adam(learning_rate=0.02),
    "random_state": 0,
    "verbose": 0,
}


def two_humps(rows, seed=0):
    """Targets on either of two branches."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(1, 2, (rows, 1))
    return X, rng.choice([-1, 1], rows) * X[:, 0] + rng.normal(0, 0.1, rows)


@pytest.fixture(scope="module")
def model():
    return IntervalRegressor(loss=Density(components=3), **SMALL).fit(*two_humps(250))


def test_several_components_see_two_humps(model):
    X, y = two_humps(300, seed=1)
    one = IntervalRegressor(loss=Density(components=1), **SMALL).fit(*two_humps(250))
    several, single = (m.ensemble_.mixture(X) for m in (model, one))
    assert several.components.shape == (12, 300)
    assert several.per_network == 3
    assert single.components.shape == (4, 300)
    assert several.logpdf(y).mean() > single.logpdf(y).mean() + 0.3
    assert len(model.ensemble_.mixture(X[:1]).hdr(0.8)[0]) >= 2
    # The humps are noise that all networks see, not what they disagree upon.
    dist = model.predict_dist(X)
    assert np.median(dist.epistemic_var / dist.aleatoric_var) < 0.1
    lower, upper = dist.hdr(0.8)
    assert 1.5 < np.mean(np.isfinite(lower).sum(axis=0)) < 2.5
    assert np.mean(((lower <= y) & (y <= upper)).any(axis=0)) > 0.75
    assert np.median(np.nansum(upper - lower, axis=0) / np.ptp(dist.hdi(0.8), axis=0)) < 0.5
    inside = model.predict_interval(X)
    assert 0.85 < np.mean((inside[:, 0] <= y) & (y <= inside[:, 1])) <= 1


def test_one_component_is_what_there_was(tmp_path):
    X, y = two_humps(250)
    fits = [
        IntervalRegressor(loss=loss, **SMALL | {"epochs": 3}).fit(X, y)
        for loss in ("density", Density(components=1))
    ]
    assert np.array_equal(*(m.predict_interval(X) for m in fits))
    program = fits[0].ensemble_.bank.program
    assert program == replace(program, components=1)
    fits[0].save(tmp_path / "model")
    stored = json.loads((tmp_path / "model" / "model.json").read_text())
    assert '"components": 3' not in json.dumps(stored)
    assert program.output.fields == ("loc", "left_scale", "right_scale")


def test_a_saved_model_comes_back(model, tmp_path):
    X, _ = two_humps(50, seed=2)
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    assert again.loss.components == 3
    query = Query((0.5, 0.9), (0.1,), members=True, density=5, variance=True, variance_parts=True)
    found, wanted = again.query(X, query), model.query(X, query)
    for name, column in wanted.columns().items():
        np.testing.assert_array_equal(found.columns()[name], column)
    assert found.members.shape == (50, 4, 12)
    np.testing.assert_allclose(found.members[:, 3].sum(axis=1), 1)
    assert {"loc_11", "weight_0"} <= set(found.columns())


def test_a_head_of_one_component_takes_no_more(model, tmp_path):
    with pytest.raises(ValueError, match="the head 'free' has one component, got 3"):
        HEADS["free"].with_components(3)
    program = model.ensemble_.bank.program
    assert isinstance(program, Program)
    with pytest.raises(ValueError, match="one component"):
        _ = replace(program, objective=LOSSES["qd+"]).output
    document, arrays = ensemble_to_dict(model.ensemble_)
    for count in (0, 17, "3"):
        bad = {**document, "program": {**document["program"], "components": count}}
        with pytest.raises(SchemaError, match="components"):
            ensemble_from_dict(bad, arrays)
    forged = {"loss": "qd+", "head": "free"}
    bad = {**document, "program": {**document["program"], "objective": forged}}
    with pytest.raises(SchemaError, match=r"program\.components"):
        ensemble_from_dict(bad, arrays)


def test_bounds_of_each_network_and_other_aggregations(model):
    X, _ = two_humps(20, seed=3)
    members = model.predict_members(X)
    assert members.lower.shape == (4, 20)
    assert (members.lower < members.upper).all()
    other = replace(model.ensemble_, aggregation="sem", calibrations=())
    assert (np.ptp(other.predict(X).intervals, axis=1) > 0).all()


def test_upgraded_points_are_kept():
    X, y = two_humps(150)
    settings = SMALL | {"epochs": 20}
    points = IntervalRegressor(loss="mse", **settings).fit(X, y)
    model = IntervalRegressor(loss=Density(components=2), **settings).upgrade(points, X, y)
    np.testing.assert_allclose(model.predict(X), points.predict(X), atol=1e-5)
    assert model.ensemble_.mixture(X).per_network == 2


@pytest.mark.long
def test_the_number_of_components_is_chosen_by_out_of_fold_scores(monkeypatch):
    monkeypatch.setattr(objectives, "ROWS_FOR_SEVERAL", 200)
    monkeypatch.setattr("calipers._estimator.trials.EPOCHS", {1: 1.0})
    model = IntervalRegressor(**SMALL | {"epochs": 120, "optimizer": "adam"}).fit(*two_humps(250))
    assert model.ensemble_.bank.program.components == 3
    assert model.about_["shapes"]["3, identity"] < 0.99 * model.about_["shapes"]["1, identity"]
    few = clone(model).fit(*two_humps(150))
    assert few.ensemble_.bank.program.components == 1
    assert "shapes" not in few.about_
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (250, 1))
    plain = clone(model).fit(X, X[:, 0] + rng.normal(0, 0.1, 250))
    assert plain.ensemble_.bank.program.components == 1
    again = model.set_params(warm_start=True, epochs=1).fit(*two_humps(150))
    assert again.ensemble_.bank.program.components == 3
    assert isinstance(again.ensemble_.mixture(X), SplitNormalMixture)


def test_components_are_not_tried_where_one_explains_nearly_all(monkeypatch):
    monkeypatch.setattr(objectives, "ROWS_FOR_SEVERAL", 200)
    monkeypatch.setattr("calipers._estimator.trials.EPOCHS", {1: 1.0})
    X = np.random.default_rng(0).uniform(-1, 1, (250, 1))
    model = IntervalRegressor(**SMALL).fit(X, X[:, 0])
    assert set(model.about_["shapes"]) == {"1, identity"}


def test_trials_are_of_some_rows(monkeypatch):
    """With any number of rows, so that the choice is cheap compared with the fit."""
    seen, original = [], trials.Training

    def training(program, table, plans, **more):
        seen.extend(len(plan.rows) + len(plan.validation) for plan in plans)
        return original(program, table, plans, **more)

    monkeypatch.setattr(trials, "Training", training)
    monkeypatch.setattr(candidates, "MAX_ROWS", 150)
    monkeypatch.setattr(objectives, "ROWS_FOR_SEVERAL", 200)
    model = IntervalRegressor(**SMALL | {"epochs": 2}).fit(*two_humps(250))
    assert set(model.about_["shapes"]) == {"1, identity", "3, identity"}
    assert max(seen) <= 150


def test_a_trial_needs_no_program_that_the_fit_does_not(monkeypatch):
    seen, original = set(), _train.run

    def run(program, table, plans, shape, *rest):
        seen.add((program, shape, table.inputs.shape))
        return original(program, table, plans, shape, *rest)

    monkeypatch.setattr(_train, "run", run)
    monkeypatch.setattr(candidates, "MAX_ROWS", 150)
    monkeypatch.setattr(objectives, "ROWS_FOR_SEVERAL", 200)
    X = np.random.default_rng(0).uniform(-1, 1, (700, 1))
    model = IntervalRegressor(**SMALL | {"epochs": 30}).fit(X, X[:, 0])
    counts = [program.components for program, _, _ in seen]
    assert len(counts) == len(set(counts)) == len(model.about_["shapes"])


def test_bad_numbers_of_components_are_refused():
    X, y = two_humps(30)
    for wrong in (0, 17, 2.5, "many"):
        with pytest.raises(ValueError, match="components"):
            IntervalRegressor(loss=Density(components=wrong), **SMALL).fit(X, y)


def prices(rows, seed=0, spread=0.8, slope=1.0):
    """Targets with a long tail."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (rows, 2))
    return X, 1e4 * np.exp(slope * X[:, 0] + rng.normal(0, spread, rows))


@pytest.mark.parametrize("scale", ["log", "asinh"])
def test_a_target_on_another_scale(scale, tmp_path):
    X, y = prices(250)
    settings = SMALL | {"epochs": 100}
    model = IntervalRegressor(loss=Density(scale=scale), **settings).fit(X, y)
    fresh, target = prices(2000, seed=1)
    lower, upper = model.predict_interval(fresh).T
    assert 0.92 < np.mean((lower <= target) & (target <= upper)) < 0.98
    if scale == "log":
        assert (lower > 0).all()
    expected = 1e4 * np.exp(fresh[:, 0] + 0.8**2 / 2)
    assert np.mean(model.predict(fresh) / expected) == pytest.approx(1, abs=0.25)
    pytest.importorskip("onnx")
    out = model.out_of_fold_
    inside = out.interval(0.9)
    assert np.mean((inside[:, 0] <= y) & (y <= inside[:, 1])) == pytest.approx(0.9, abs=0.02)
    assert np.mean(out.point) == pytest.approx(np.mean(y), rel=0.25)
    model.conformalize(fresh[:500], target[:500])
    assert model.to_onnx(tmp_path / "model.onnx").exists()
    found = model.update(fresh[500:1500], 3 * target[500:1500])  # drift by a factor
    assert found.coverage(0.9) == pytest.approx(0.9, abs=0.02)
    lower, upper = model.predict_interval(fresh[1500:], coverage=0.9).T
    assert np.mean((lower <= 3 * target[1500:]) & (3 * target[1500:] <= upper)) > 0.85
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    query = Query((0.5,), (0.1,), density=5, variance=True, variance_parts=True)
    for name, column in model.query(X[:9], query).columns().items():
        np.testing.assert_array_equal(again.query(X[:9], query).columns()[name], column)


def test_the_scale_is_chosen_by_out_of_fold_scores(monkeypatch):
    def trial(model, program, shape, data, folds, epochs, least_sizes):
        yield from ()
        return Measures(*[0.5 if shape.scale == "asinh" else 1.0] * 4)

    monkeypatch.setattr("calipers._estimator.candidates.trial", trial)
    model = IntervalRegressor(**SMALL | {"epochs": 3}).fit(*prices(250, slope=5.0))
    assert model.ensemble_.target_map.kind == "asinh"
    assert set(model.about_["shapes"]) == {"1, identity", "1, asinh"}
    X, y = two_humps(250)
    assert clone(model).fit(X, y).ensemble_.target_map is None
    with pytest.raises(ValueError, match="scale='log' needs positive targets"):
        IntervalRegressor(loss=Density(scale="log"), **SMALL).fit(X, y)


def test_a_model_is_saved_without_the_score_of_a_trial_that_failed(monkeypatch, tmp_path):
    def trial(model, program, shape, data, folds, epochs, least_sizes):
        yield from ()
        return Measures(*[1.0] * 4) if shape.scale == "asinh" else trials._FAILED

    monkeypatch.setattr(candidates, "trial", trial)
    model = IntervalRegressor(**SMALL | {"epochs": 3}).fit(*prices(250, slope=5.0))
    assert model.about_["shapes"] == {"1, asinh": 1.0}
    model.save(tmp_path / "model")
    assert IntervalRegressor.load(tmp_path / "model").about_ == model.about_


def test_smooth_networks_take_larger_steps_and_fewer():
    model, given = IntervalRegressor(), IntervalRegressor(epochs=7)
    one, other = (make_settings(model, 5000, 64, stops=True, smooth=s) for s in (False, True))
    assert (one.epochs, other.epochs) == (128, 64)
    assert (other.learning_rate, other.weight_decay) == (0.006, 0.05)
    assert make_settings(given, 5000, 64, stops=True, smooth=True).epochs == 7


def test_trees_leave_little_of_steps_and_much_of_what_is_smooth_in_all_inputs():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1500, 6))
    fold = Fold(np.arange(1000), np.arange(1000, 1500))
    steps, sums = np.sign(X[:, 0]) + (X[:, 1] > 0.5), np.sin(2 * X.sum(axis=1))
    little = rng.choice([1.0, 1e-9], 1500)
    wrong = np.where(little == 1, steps, 9.0)
    found = [
        unexplained_by_trees(X, y, weights, fold, 0)
        for y, weights in ((steps, None), (sums, None), (wrong, little), (wrong, None))
    ]
    assert found[0] < 0.05
    assert found[2] < 0.2
    assert min(found[1], found[3]) > 0.5


def test_a_trial_takes_another_scale_only_where_it_is_better(monkeypatch):
    monkeypatch.setattr("calipers._estimator.trials.EPOCHS", {1: 1.0})
    settings = SMALL | {"epochs": 100}
    found = IntervalRegressor(**settings).fit(*prices(250, slope=5.0, spread=0.2))
    assert found.ensemble_.target_map.kind == "asinh"
    assert found.about_["shapes"]["1, asinh"] < 0.99 * found.about_["shapes"]["1, identity"]
    rng = np.random.default_rng(0)
    X = rng.exponential(1, (250, 1))  # as skewed, but with the same noise everywhere
    plain = IntervalRegressor(**settings).fit(X, X[:, 0] + rng.normal(0, 0.3, 250))
    assert plain.ensemble_.target_map is None
    assert set(plain.about_["shapes"]) == {"1, identity", "1, asinh"}


@pytest.mark.parametrize(
    ("noise", "left", "bins", "smooth"),
    [(0.3, 0.4, 4, False), (0.3, 0.6, 0, True), (0, 9, 0, False)],
)
def test_a_trial_takes_pieces_where_it_leaves_noise_and_smooth_networks_where_trees_leave_more(
    monkeypatch, noise, left, bins, smooth, tmp_path
):
    monkeypatch.setattr("calipers._estimator.candidates.unexplained_by_trees", lambda *rows: left)
    monkeypatch.setattr("calipers.networks._mlp.ROWS_FOR_SEGMENTS", 200)
    monkeypatch.setattr("calipers.networks._mlp.BINS", 4)
    monkeypatch.setattr("calipers._estimator.trials.EPOCHS", {1: 1.0})
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (250, 2))
    y = X[:, 0] + noise * rng.normal(0, 1, 250)
    settings = SMALL | {"network": MLP(hidden_layers=(8,), frequencies=1), "epochs": 60}
    model = IntervalRegressor(**settings).fit(X, y)
    network = model.ensemble_.bank.program.network
    assert (network.bins, network.smooth) == (bins, smooth)
    assert set(model.about_["shapes"]) == {"1, identity"}
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    few = clone(model).fit(X[:150], y[:150])
    assert few.ensemble_.bank.program.network.bins == 0
    assert "shapes" not in few.about_
    quick = clone(model).set_params(time_budget=60, epochs=1).fit(X, y)
    assert quick.ensemble_.bank.program.network.bins == 0
