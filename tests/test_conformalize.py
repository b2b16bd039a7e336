"""``conformalize``: groups, kinds of rows, weights and shifts, each with its guarantee.

Coverage is simulated with a fitted model that is kept: only the calibration is repeated. Bands are
four standard errors of the mean over runs, so that a right method fails 1 run in 30,000; seeds are
fixed.
"""

import copy
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from calipers import IntervalRegressor, load
from calipers.calibration import CalibrationBy, DensityRatio
from calipers.cli import app
from calipers.networks import MLP
from calipers.preprocessing import TableEncoder
from calipers.storage import ModelFileError, read_model, write_model

SMALL = {
    "n_networks": 4,
    "cv": 2,
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "epochs": 15,
    "random_state": 0,
    "verbose": 0,
    "n_jobs": 1,
}
KINDS = np.array(["a", "b", "c"])


def draw(rng, n, kinds=(0.6, 0.35, 0.05)):
    """Rows whose noise depends on a category, which the model captures only in part."""
    kind = rng.choice(3, n, p=kinds)
    x = rng.uniform(-1, 1, n)
    y = x + np.array([0.1, 1.0, 3.0])[kind] * rng.standard_normal(n)
    return pd.DataFrame({"x": x, "kind": KINDS[kind]}), y


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X, y = draw(rng, 200)
    return IntervalRegressor(coverage=0.9, **SMALL).fit(X, rng.permutation(y))


def not_below(values, bound):
    values = np.asarray(values)
    return np.nanmean(values) >= bound - 4.0 * np.nanstd(values) / np.sqrt(values.size)


def inside(model, X, y):
    lower, upper = model.predict_interval(X).T
    return (lower <= y) & (y <= upper)


@pytest.mark.slow
def test_by_holds_in_each_kind_and_falls_back_where_rows_are_few(model):
    rng = np.random.default_rng(1)
    rates = {"by": [], "all": []}
    for _ in range(60):
        X, y = draw(rng, 150)
        X_new, y_new = draw(rng, 400)
        kind = X_new["kind"].to_numpy()
        for name, options in (("by", {"by": "kind"}), ("all", {})):
            found = inside(copy.copy(model).conformalize(X, y, **options), X_new, y_new)
            rates[name].append([found[kind == k].mean() for k in "abc"])
    by, every = np.array(rates["by"]), np.array(rates["all"])
    assert every[:, 1].mean() < 0.85  # what the marginal guarantee leaves open
    assert not_below(by[:, 0], 0.9)
    assert not_below(by[:, 1], 0.9)
    assert by[:, 0].mean() < 0.94
    assert np.nanmean(by[:, 2]) < 0.8  # some eight rows of the third kind: that of all rows


def test_kinds_are_bins_of_numbers_and_of_widths_too(model):
    X, y = draw(np.random.default_rng(2), 400)
    for by in ("x", "predicted width"):
        found = copy.copy(model).conformalize(X, y, by=by).ensemble_.calibrations[-1]
        assert isinstance(found, CalibrationBy)
        assert len(found.place) == 10  # ten bins of at least 39 rows
        assert (found.place > 0).all()
    own = copy.copy(model).conformalize(X, y, by=lambda rows: rows[:, 0] > 0)
    assert own.ensemble_.calibrations[-1].place.tolist() == [1, 2]
    assert own.predict_interval(X[:5]).shape == (5, 2)


def test_frequent_levels_of_a_large_category_are_subgroups(tmp_path):
    rng = np.random.default_rng(11)
    level = np.r_[np.repeat(np.arange(110), 20), np.repeat(np.arange(110, 150), 3)]
    X = pd.DataFrame({"x": rng.uniform(-1, 1, len(level)), "town": [f"t{i}" for i in level]})
    y = X["x"] + 0.1 * (1 + level % 3) * rng.standard_normal(len(level))
    encoder = TableEncoder(max_categories=150, min_frequency=1)
    model = IntervalRegressor(coverage=0.9, preprocessor=encoder, **SMALL | {"epochs": 1})
    found = model.fit(X, y).conformalize(X, y, by="town")
    place = found.ensemble_.calibrations[-1].place
    assert (len(place), int((place > 0).sum())) == (150, 110)  # 19 rows are needed
    found.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_interval(X), found.predict_interval(X))
    numbers = found.preprocessor_.transform(X[-9:].assign(town="elsewhere"))
    assert found.ensemble_.calibrations[-1].subgroups.of_rows(None, numbers).tolist() == [-1] * 9


def test_corrected_distributions_by_kind_agree_with_themselves(model):
    X, y = draw(np.random.default_rng(3), 300)
    dist = copy.copy(model).conformalize(X, y, by="kind", keep=True).predict_dist(X[:40])
    p = np.array([0.06, 0.4, 0.9])[:, None]
    assert np.allclose(dist.cdf(dist.ppf(p)), p)
    draws = dist.sample(4000, rng=np.random.default_rng(0))
    assert np.allclose(dist.mean, draws.mean(axis=0), atol=6 * (draws.std(axis=0) / 63).max())
    at, step = y[:40] + 0.01, 1e-7  # the density jumps at the calibration rows themselves
    slope = (dist.cdf(at + step) - dist.cdf(at - step)) / (2 * step)
    assert np.allclose(dist.pdf(at), slope, rtol=1e-3, atol=1e-6)
    assert (dist.crps(y[:40]) > 0).all()


def grouped(rng, groups, size, spread=1.0):
    common = np.repeat(rng.normal(0, spread, groups), size)
    X, _ = draw(rng, groups * size)
    return X, X["x"].to_numpy() + common + 0.1 * rng.standard_normal(len(X))


@pytest.mark.slow
def test_groups_have_the_guarantee_for_new_groups(model):
    rng = np.random.default_rng(4)
    rates = {"groups": [], "rows": []}
    labels = np.repeat(np.arange(30), 6)
    for _ in range(80):
        X, y = grouped(rng, 30, 6)
        X_new, y_new = grouped(rng, 200, 1)
        for name, options in (("groups", {"groups": labels}), ("rows", {})):
            found = inside(copy.copy(model).conformalize(X, y, **options), X_new, y_new)
            rates[name].append(found.mean())
    assert np.mean(rates["rows"]) < np.mean(rates["groups"]) - 0.03
    assert not_below(rates["groups"], 0.9)
    assert np.mean(rates["groups"]) < 0.9 + 2 / 31 + 0.02
    few = copy.copy(model).conformalize(X, y, groups=np.repeat(np.arange(15), 12))
    assert np.isinf(few.predict_interval(X[:2])).all()  # 90% takes 19 groups


@pytest.mark.slow
def test_a_shift_is_estimated_and_saved(model, tmp_path):
    rng = np.random.default_rng(5)

    def shifted(n, by):
        x = np.clip(rng.normal(by, 0.4, n), -1, 1)
        X = pd.DataFrame({"x": x, "kind": np.repeat("a", n)})
        return X, x + np.exp(1.5 * x) * rng.standard_normal(n)

    plain, weighted = [], []
    for _ in range(40):
        X, y = shifted(300, -0.2)
        X_new, y_new = shifted(300, 0.4)
        plain.append(inside(copy.copy(model).conformalize(X, y), X_new, y_new).mean())
        found = copy.copy(model).conformalize(X, y, shifted_to=X_new)
        weighted.append(inside(found, X_new, y_new).mean())
    assert np.mean(plain) < 0.82
    assert 0.88 < np.mean(weighted) < 0.97  # the ratio is estimated: no guarantee
    about = found.about_["conformalized"]
    assert 20 < about["effective_rows"] < 250
    assert about["largest_ratio"] <= 20
    found.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again.ensemble_.calibrations[-1].row_weight, DensityRatio)
    assert np.array_equal(again.predict_interval(X_new), found.predict_interval(X_new))


@pytest.mark.slow
def test_recent_rows_count_more_under_drift(model, tmp_path):
    """The noise doubles in the middle of the held-out rows; new rows come after them."""
    rng = np.random.default_rng(9)
    rates = {None: [], 40: []}
    for _ in range(60):
        X, _ = draw(rng, 700)
        scale = np.where(np.arange(700) < 200, 1.0, 3.0)
        y = X["x"].to_numpy() + scale * rng.standard_normal(700)
        for half_life, found in rates.items():
            made = copy.copy(model).conformalize(X[:400], y[:400], half_life=half_life)
            found.append(inside(made, X[400:], y[400:]).mean())
    assert np.mean(rates[None]) < 0.85
    # Rows from before the change are 200 rows or five half-lives old: 1/32 of the weight.
    assert not_below(rates[40], 0.9 - 1 / 32)
    assert np.mean(rates[40]) < 0.95
    rows = made.about_["conformalized"]["effective_rows"]
    assert rows == pytest.approx(40 / np.log(2), rel=0.02)
    made.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_interval(X), made.predict_interval(X))


def test_rows_by_age_are_worth_their_weight_and_have_an_onnx_form(model, tmp_path):
    """The weight of a new row is 1, which is what decides how much coverage rows support."""
    X, y = draw(np.random.default_rng(10), 300)
    found = copy.copy(model).conformalize(X, y, half_life=14)
    made = found.ensemble_.calibrations[-1]
    assert found.about_["conformalized"]["effective_rows"] == pytest.approx(14 / np.log(2), rel=0.1)
    assert made.mean_weight == 1.0
    assert made.onnx(None, None, None) is None  # one map for all rows
    assert [bool(made.supports(p)) for p in (0.06, 0.04)] == [True, False]  # 1 / (20.2 + 1)
    found = copy.copy(model).conformalize(X[:1], y[:1], half_life=1)
    found.save(tmp_path / "model")
    assert load(tmp_path / "model").ensemble_.calibrations[-1].n_effective == 0.5


def test_no_shift_leaves_rows_worth_what_they_are(model):
    X, y = draw(np.random.default_rng(6), 400)
    found = copy.copy(model).conformalize(X[:200], y[:200], shifted_to=X[200:])
    assert found.about_["conformalized"]["effective_rows"] > 180


@pytest.mark.parametrize("by", ["kind", "predicted width"])
def test_kinds_are_saved_and_damage_is_refused(model, tmp_path, by):
    X, y = draw(np.random.default_rng(7), 300)
    found = copy.copy(model).conformalize(X, y, by=by)
    found.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert np.array_equal(again.predict_interval(X), found.predict_interval(X))
    with pytest.raises(ValueError, match="a calibration 'by' takes no row_weight"):
        load(tmp_path / "model", row_weight=len)
    document, arrays = read_model(tmp_path / "model")
    name = next(n for n in arrays if n.endswith(".place"))
    for value in (arrays[name] + 1, arrays[name][:-1], -arrays[name] - 1):
        write_model(tmp_path / "bad", document, arrays | {name: value})
        with pytest.raises(ModelFileError):
            load(tmp_path / "bad")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "knd"}, "name or number of an input.*did you mean 'kind'"),
        ({"by": 7}, "got 7"),
        ({"by": "x", "sample_weight": np.ones(60)}, "sample_weight and by cannot be combined"),
        ({"half_life": 0}, "half_life must be a number of rows from 1 on, got 0"),
        ({"half_life": "x"}, "half_life must be a number of rows from 1 on, got 'x'"),
        ({"half_life": 9.0, "by": "x"}, "half_life and by cannot be combined"),
        ({"groups": np.ones(5)}, "inconsistent numbers"),
        ({"row_weight": len, "sample_weight": [1.0]}, "both weight rows"),
        ({"shifted_to": pd.DataFrame({"x": [1.0], "kind": ["a"]})}, "at least 10 rows"),
    ],
)
def test_what_does_not_fit_is_refused(model, options, message):
    X, y = draw(np.random.default_rng(8), 60)
    with pytest.raises(ValueError, match=message):
        copy.copy(model).conformalize(X, y, **options)


def test_a_function_cannot_be_saved(model, tmp_path):
    X, y = draw(np.random.default_rng(9), 100)
    own = copy.copy(model).conformalize(X, y, by=lambda rows: rows[:, 0] > 0)
    with pytest.raises(ValueError, match="name a column instead"):
        own.save(tmp_path / "model")


def test_the_command(model, tmp_path):
    model.save(tmp_path / "model")
    rng = np.random.default_rng(10)
    X, y = draw(rng, 240)
    table = X.assign(y=y, patient=np.repeat(np.arange(60), 4))
    table.to_csv(tmp_path / "rows.csv", index=False)
    X.iloc[:50].to_csv(tmp_path / "new.csv", index=False)

    def run(*options, rows="rows.csv"):
        place = [str(tmp_path / "model"), str(tmp_path / rows)]
        return CliRunner().invoke(app, ["conformalize", *place, *map(str, options)])

    shown = run("--out", tmp_path / "by", "--by", "kind")
    assert shown.exit_code == 0, shown.output
    assert "2 of 3 subgroups by kind have their own guarantee" in shown.output
    loaded = load(tmp_path / "by").predict_interval(X)
    assert np.array_equal(
        loaded, copy.copy(model).conformalize(X, y, by="kind").predict_interval(X)
    )
    found = json.loads(run("--out", tmp_path / "g", "--groups", "patient", "--json").output)
    assert (found["groups"], found["effective_rows"]) == (60, 60.0)
    shown = run("--out", tmp_path / "s", "--shifted-to", tmp_path / "new.csv")
    assert shown.exit_code == 0, shown.output
    assert "conformalized on 240 rows" in shown.output
    assert run("--by", "nothing").exit_code == 2
    assert run("--groups", "nothing").exit_code == 3
    table.assign(patient=table["patient"].where(table.index != 5)).to_csv(tmp_path / "gap.csv")
    missing = run("--groups", "patient", rows="gap.csv")
    assert missing.exit_code == 3
    assert "row 6, column 'patient': the group is missing" in missing.output
    assert run().exit_code == 0  # into the model's own folder
    assert load(tmp_path / "model").ensemble_.calibrations[-1].strict
    inspected = CliRunner().invoke(app, ["inspect", str(tmp_path / "by")])
    assert "Conformalized on 240 rows" in inspected.output
