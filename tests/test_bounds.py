"""Models of targets that cannot take every value: counts, zeros, caps, ranges."""

import json
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import calipers
from calipers import IntervalRegressor, metrics
from calipers.cli import app
from calipers.cli._measures import measure
from calipers.distributions import Support
from calipers.multitarget import MultiTargetRegressor
from calipers.networks import MLP
from calipers.prediction import Query
from calipers.report._format import percent
from calipers.storage import ModelFileError


def small(**parameters):
    given = {
        "n_networks": 4,
        "cv": 2,
        "network": MLP(hidden_layers=(16,), frequencies=0),
        "epochs": 60,
        "random_state": 0,
        "verbose": 0,
    }
    return IntervalRegressor(**given | parameters)


def rows(n, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 2))
    return X, np.exp(0.5 * X[:, 0] + 0.2)


@pytest.fixture(scope="module")
def counts():
    X, mean = rows(1000)
    return X, np.random.default_rng(1).poisson(mean).astype(float)


@pytest.fixture(scope="module")
def model(counts):
    X, y = counts
    return small().fit(X[:600], y[:600])


@pytest.fixture(scope="module")
def zeros():
    """Two fifths zeros, and a positive rest."""
    X, mean = rows(900, 2)
    rng = np.random.default_rng(3)
    y = np.where(rng.random(900) < 0.4, 0.0, rng.gamma(3, mean))
    return X, y, small().fit(X[:600], y[:600])


def test_no_interval_of_counts_reaches_below_zero(model, counts):
    """Without bounds, most of the 95% intervals of a Poisson target do."""
    X, y = counts
    loose = small(bounds=None).fit(X[:600], y[:600])
    assert np.mean(loose.predict_interval(X[600:])[:, 0] < 0) > 0.7
    bounds = model.predict_interval(X[600:], coverage=[0.5, 0.8, 0.95])
    assert str(model.support_) == "non-negative integers"
    assert bounds.min() == 0
    assert (bounds == np.round(bounds)).all()
    assert model.predict(X).min() >= 0


def test_counts_score_better_and_cover(model, counts):
    X, y = counts[0][600:], counts[1][600:]
    loose = small(bounds=None).fit(counts[0][:600], counts[1][:600])
    dist = model.predict_dist(X)
    assert metrics.crps(y, dist) < 0.99 * metrics.crps(y, loose.predict_dist(X))
    for coverage in (0.5, 0.8, 0.95):
        scores = [
            metrics.interval_score(y, *m.predict_interval(X, coverage).T, coverage=coverage)
            for m in (model, loose)
        ]
        assert scores[0] < scores[1]
        low, high = metrics.coverage_band(len(y), coverage, confidence=0.999)
        shared = metrics.shared_coverage(dist.cdf_below(y), dist.cdf(y), coverage).mean()
        assert low <= shared <= high
        lower, upper = model.predict_interval(X, coverage).T
        assert metrics.coverage_rate(y, lower, upper) >= low


def test_randomised_pit_is_uniform_and_the_plain_one_is_not(model, counts):
    X, y = counts[0][600:], counts[1][600:]
    dist = model.predict_dist(X)
    pit = metrics.pit_values(y, dist, rng=np.random.default_rng(0))
    steps = np.arange(1, len(y) + 1) / len(y)
    limit = 1.95 / len(y) ** 0.5  # Kolmogorov's distance, exceeded once in a thousand times
    assert np.abs(np.sort(pit) - steps).max() < limit
    assert np.abs(np.sort(dist.cdf(y)) - steps).max() > limit
    assert np.abs(metrics.calibration_error(y, dist)) < 0.05


def test_mass_at_zero_is_that_of_the_rows(zeros):
    X, y, model = zeros
    assert str(model.support_) == "non-negative numbers"
    assert model.predict_dist(X[600:]).pmf(0.0).mean() == pytest.approx(np.mean(y == 0), abs=0.06)


def test_no_profit_and_no_loss_have_mass(tmp_path):
    X = rows(1200, 4)[0]
    rng = np.random.default_rng(5)
    none = rng.random(1200) < 1 / (1 + np.exp(-X[:, 1]))
    y = np.where(none, 0.0, 2 * X[:, 0] + rng.normal(size=1200) - 0.5)
    fitted = small().fit(X[:700], y[:700])
    assert str(fitted.support_) == "any number, often 0"
    dist, new = fitted.predict_dist(X[700:]), y[700:]
    assert dist.pmf(0.0).mean() == pytest.approx(none.mean(), abs=0.05)
    assert dist.pmf(0.1).max() == 0
    loose = small(bounds=None).fit(X[:700], y[:700])
    assert dist.crps(new).mean() < 0.97 * loose.predict_dist(X[700:]).crps(new).mean()
    found = fitted.query(X[700:], Query(density=50, quantiles=(0.1, 0.5, 0.9)))
    np.testing.assert_array_equal(found.atoms[:, 0, 2], 0.0)
    np.testing.assert_allclose(found.atoms[:, 1, 2], dist.pmf(0.0))
    assert (np.diff(found.quantiles, axis=1) >= 0).all()
    observed = metrics.calibration_curve(new, dist, coverages=[0.5, 0.9]).observed
    np.testing.assert_allclose(observed, [0.5, 0.9], atol=0.07)
    fitted.save(tmp_path)
    again = IntervalRegressor.load(tmp_path)
    np.testing.assert_array_equal(again.predict_interval(X), fitted.predict_interval(X))


def test_a_continuous_target_is_as_it_was():
    X, mean = rows(300)
    y = mean - 1 + np.random.default_rng(0).normal(0, 0.3, 300)
    auto, none = (small(bounds=b, epochs=20).fit(X, y) for b in ("auto", None))
    assert auto.support_.is_line
    assert np.array_equal(
        auto.predict_interval(X, [0.5, 0.9]), none.predict_interval(X, [0.5, 0.9])
    )
    assert np.array_equal(auto.predict_dist(X).crps(y), none.predict_dist(X).crps(y))
    shifted = [small(bounds=b, epochs=20).fit(X, y + 100) for b in ("auto", None)]
    assert str(shifted[0].support_) == "non-negative numbers"
    query = Query((0.5, 0.9), (0.1,), variance=True, density=9, at=y + 100)
    first, second = (m.query(X, query) for m in shifted)
    for name in ("point", "intervals", "quantiles", "variance", "cdf"):
        assert np.array_equal(getattr(first, name), getattr(second, name)), name


def test_a_saved_model_predicts_the_same(model, counts, tmp_path):
    model.save(tmp_path / "model")
    loaded = calipers.load(tmp_path / "model")
    assert loaded.support_ == model.support_
    assert np.array_equal(loaded.predict_interval(counts[0]), model.predict_interval(counts[0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": 5.0, "high": 1.0}, "support.high must be above 5"),
        ({"step": -1.0}, "support.step must be a number from 0"),
        ({"latent": [1.0], "observed": []}, "support.observed must be as long as latent"),
        ({"latent": [1.0, 0.0], "observed": [0.0, 1.0]}, "latent must be in rising order"),
        ({"latent": [0.0, 5e-324], "observed": [0.0, 1e9]}, "observed must be as far apart"),
        ({"decimals": "many"}, "support.decimals must be a whole number"),
        ({"more": 1}, "without 'more'"),
        ({"values": [0.0, 1.5]}, "support.values must be a step apart, starting at the origin"),
    ],
)
def test_forged_supports_are_refused(model, change, message):
    from calipers._schema import SchemaError
    from calipers._serialization.ensembles import ensemble_from_dict, ensemble_to_dict

    document, arrays = ensemble_to_dict(model.ensemble_)
    document = json.loads(json.dumps(document))
    document["support"] |= change
    with pytest.raises((SchemaError, ModelFileError), match=message):
        ensemble_from_dict(document, arrays, largest=10.0)


def test_standardised_counts_are_counts(counts, model, tmp_path):
    """A lattice of any step: intervals end on the values of the target, to the last bit."""
    X, y = counts
    scale, values = y.std(), np.unique((y - y.mean()) / y.std())
    other = small().fit(X[:600], ((y - y.mean()) / scale)[:600])
    assert other.support_.step == pytest.approx(1 / scale)
    bounds = other.predict_interval(X, 0.9)
    assert np.isin(bounds[bounds < values[5]], values).all()
    back = y.mean() + scale * bounds
    assert np.mean(np.isclose(back, model.predict_interval(X, 0.9))) > 0.95
    other.save(tmp_path / "model")
    assert calipers.load(tmp_path / "model").support_ == other.support_


def test_bounds_given(counts):
    X, y = counts
    with pytest.raises(ValueError, match=r"y must not be above 3, got .* in row \d+ \(from 0\)"):
        small(bounds=(0, 3)).fit(X, y)
    for bad in ((1, 0), (0, np.inf), (0,), ("a", None)):
        with pytest.raises(ValueError, match="bounds must be 'auto', None or a pair"):
            small(bounds=bad).fit(X, y)
    model = small(bounds=(None, 40), epochs=5).fit(X, y)
    assert (model.support_.low, model.support_.high, model.support_.given) == (None, 40.0, True)
    with pytest.raises(ValueError, match="must not be above 40, got 41 in row 2"):
        model.conformalize(X[:60], np.append(y[:2], np.full(58, 41.0)))


def test_rows_of_weight_0_count_for_nothing(counts):
    X, y = counts[0][:100], counts[1][:100].copy()
    y[[3, 7, 9]] = -7
    weight = 1.0 * (y >= 0)
    model = small(bounds=(0, None), epochs=5).fit(X, y, sample_weight=weight)
    assert str(model.support_) == "non-negative integers"
    model.conformalize(X, y, sample_weight=weight)
    weight[7] = 1
    refused = r"below 0, got -7 in row 7 \(from 0\)$"
    with pytest.raises(ValueError, match=refused):
        model.fit(X, y, sample_weight=weight)
    both = MultiTargetRegressor(model)
    with pytest.raises(ValueError, match=refused):
        both.fit(X, np.stack([y, y], axis=1), sample_weight=weight)


def test_conformalize_gives_up_what_its_rows_contradict(counts):
    X, y = counts
    model = small(epochs=5).fit(X[:500], y[:500])
    model.conformalize(X[500:], y[500:])
    assert str(model.support_) == "non-negative integers"
    inside = model.predict_interval(X[500:], 0.8)
    assert np.mean((inside[:, 0] <= y[500:]) & (y[500:] <= inside[:, 1])) >= 0.8
    frequent = "non-negative numbers, often 1, 2 and 3"
    told = f"to be non-negative integers, which does not hold for 1 of 500 rows: .* {frequent}$"
    with pytest.warns(UserWarning, match=told):
        model.conformalize(X[500:], np.append(y[500:-1], 0.5))
    assert str(model.support_) == frequent
    model = small(epochs=5).fit(X[:500], y[:500])
    with pytest.warns(UserWarning, match="for 500 of 500 rows: from now on it is any number$"):
        model.conformalize(X[500:], y[500:] - 0.5)
    assert model.support_.is_line


@pytest.mark.parametrize("learn", [IntervalRegressor.conformalize, IntervalRegressor.update])
@pytest.mark.parametrize("capped", [False, True])
def test_one_contrary_row_does_not_take_the_mass_of_zeros(zeros, learn, capped):
    X, y, model = zeros
    if capped:
        model = small().fit(X[:600], np.minimum(-y[:600], 0))
    sign, again = -1 if capped else 1, copy(model)
    with pytest.warns(UserWarning, match="any number, often 0"):
        learn(again, X[600:], sign * np.append(y[600:-1], -0.5))
    assert again.predict_dist(X).pmf(0.0).mean() == pytest.approx(np.mean(y == 0), abs=0.1)
    sides = again.predict_interval(X)
    assert np.mean(sides[:, 1] > 0 if capped else sides[:, 0] < 0) < 0.2


TWO_VALUES = {
    "a bound and one above": lambda u, rest: np.where(
        u < 0.3, 0.0, np.where(u < 0.5, 10.0, 10 + rest)
    ),
    "one row below": lambda u, rest: np.where(u < 0.3, 0.0, rest) - 0.5 * (u == u.min()),
    "neighbours": lambda u, rest: np.where(
        u < 0.6, 1.0 * (u < 0.3), rest * np.where(u < 0.8, 1, -1) + (u < 0.8)
    ),
    "one below a cap": lambda u, rest: np.where(u < 0.5, 49.0 + (u < 0.2), 49 - rest),
}


@pytest.mark.parametrize("kind", TWO_VALUES)
def test_every_frequent_value_has_mass(kind, tmp_path):
    X, mean = rows(700, 6)
    rng = np.random.default_rng(7)
    y = TWO_VALUES[kind](rng.random(700), rng.gamma(2, mean))
    model = small(epochs=20).fit(X, y)
    dist = model.out_of_fold_.calibrated
    frequent = [value for value in np.unique(y) if np.mean(y == value) > 0.1]
    assert {*model.support_.atoms} <= {*frequent} <= {*model.support_.atoms, *model.support_.ends}
    for value in frequent:
        assert dist.pmf(value).mean() == pytest.approx(np.mean(y == value), abs=0.06)
    assert np.isfinite(dist.logpdf(y)).all()
    model.save(tmp_path)
    assert calipers.load(tmp_path).support_ == model.support_


def test_no_value_inside_is_frequent_without_held_out_rows():
    X, mean = rows(300, 8)
    y = np.where(np.arange(300) % 3 == 0, 0.0, mean - 1)
    model = small(cv=None, epochs=5).fit(X, y)
    assert model.support_.is_line
    assert np.isfinite(model.predict_dist(X).logpdf(y)).all()


def test_other_aggregations_and_points_keep_to_the_bounds(counts):
    X, y = counts
    sem = small(loss="qd+", aggregation="sem", cv=None, epochs=20).fit(X, y)
    bounds = sem.predict_interval(X)
    assert bounds.min() >= 0
    assert (bounds == np.round(bounds)).all()
    assert small(loss="mse", epochs=5).fit(X, y).predict(X).min() >= 0


def test_the_papers_method_has_no_bounds():
    assert IntervalRegressor.paper().bounds is None


def test_out_of_fold_intervals_keep_to_the_support(model, counts):
    bounds = model.out_of_fold_.interval(0.8)
    assert bounds.min() == 0
    assert (bounds == np.round(bounds)).all()
    y = counts[1][:600]
    assert np.mean((bounds[:, 0] <= y) & (y <= bounds[:, 1])) >= 0.8
    assert model.out_of_fold_.point.min() >= 0


def test_density_and_atoms_of_a_query(model, zeros, counts):
    found = model.query(counts[0][:5], Query(density=50, at=counts[1][:5]))
    assert np.nansum(found.atoms[:, 1], axis=1) == pytest.approx(1, abs=0.01)
    assert (found.density[:, 1] == 0).all()
    assert (found.cdf_below < found.cdf).all()
    X, _, mixed = zeros
    found = mixed.query(X[:5], Query(density=200))
    x, height = found.density[:, 0], found.density[:, 1]
    mass = np.sum(height * (x[:, 1:2] - x[:, :1]), axis=1) + np.nansum(found.atoms[:, 1], axis=1)
    assert mass == pytest.approx(1, abs=0.02)


def test_onnx_cuts_off_and_rounds(model, zeros, counts, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    for fitted, X in ((model, counts[0]), (zeros[2], zeros[0])):
        fitted.to_onnx(tmp_path / "model.onnx", coverage=[0.5, 0.95])
        session = runtime.InferenceSession(tmp_path / "model.onnx")
        point, lower, upper = session.run(["point", "lower", "upper"], {"X": X[:200]})
        expected = fitted.predict_interval(X[:200], coverage=[0.5, 0.95])
        np.testing.assert_allclose(lower, expected[:, 0], atol=1e-4)
        np.testing.assert_allclose(upper, expected[:, 1], atol=1e-4)
        np.testing.assert_allclose(point, fitted.predict(X[:200]), atol=1e-5)


@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_the_report_corrects_for_ties_as_evaluate_does(model, counts, coverage, tmp_path):
    X, y = counts[0][600:], counts[1][600:]
    model = copy(model).set_params(coverage=coverage)
    page = model.report(X, y, tmp_path / "r.html").read_text("utf-8")
    measures, labelled = measure(model, X, y, coverage)
    dist, shared = model.predict_dist(X), measures["shared_rate"]
    assert shared == metrics.shared_coverage(dist.cdf_below(y), dist.cdf(y), coverage).mean()
    tied = percent(np.mean((y == labelled.lower) | (y == labelled.upper)))
    assert (
        f"{tied} of the targets equal an end of their interval, which inflates this figure; "
        f"corrected for that, it is {percent(shared)}. "
    ) in page
    assert f"<dd>nominal {percent(coverage)}; {percent(shared)} corrected for ties</dd>" in page
    low, high = metrics.coverage_band(len(y), coverage)
    assert measures["coverage_rate"] > high  # without the correction, intervals look too wide
    assert ("as promised" in page) == (low <= shared <= high)
    assert "non-negative integers" in page


def test_served_predictions_have_atoms(model, counts, tmp_path):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    from calipers.serve import ServerSettings, create_app

    model.save(tmp_path / "counts")
    with TestClient(create_app([tmp_path / "counts"], ServerSettings())) as client:
        body = {"rows": counts[0][:2].tolist(), "density": 20}
        found = client.post("/v1/models/counts/predict", json=body).json()["predictions"][0]
        assert found["atoms"]["x"] == list(range(len(found["atoms"]["x"])))
        assert sum(found["atoms"]["mass"]) == pytest.approx(1, abs=0.01)
        assert client.get("/v1/models").json()["models"][0]["support"] == "non-negative integers"


def test_a_continued_fit_keeps_what_earlier_rows_have_shown(counts):
    X, y = counts[0][200:], counts[1][200:]
    first = small(epochs=5, warm_start=True).fit(counts[0][:200], counts[1][:200])

    def support(chosen, shift=0.0, **parameters):
        model = copy(first).set_params(**parameters)
        return model.fit(X[chosen], y[chosen] + shift).support_

    few, positive = slice(40), np.flatnonzero(y > 0)[:100]
    for chosen in (few, positive):  # which alone show nothing, or a bound of 1
        assert str(support(chosen)) == "non-negative integers"
    assert str(support(few, -1.0)) == "integers"
    assert support(few, -0.5) == Support()
    assert str(support(positive, bounds=(0, 50))) == "integers from 0 to 50"
    assert support(positive, bounds=None) == Support()
    first.set_params(bounds=(0, 50)).fit(X[:100], y[:100])
    assert support(few, bounds="auto") == Support()  # those given before were no finding


def test_a_continued_fit_matches_atoms_on_its_own_rows(zeros):
    X, y, model = zeros
    again = copy(model).set_params(warm_start=True, epochs=5).fit(X[600:], y[600:])
    assert model.support_.latent
    assert again.support_.latent not in ((), model.support_.latent)
    assert replace(again.support_, latent=(), observed=()) == Support(low=0.0)
    share = again.predict_dist(X).pmf(0.0).mean()
    assert share == pytest.approx(np.mean(y[600:] == 0), abs=0.05)


def test_commands_take_bounds_and_print_them(counts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = counts
    frame = pd.DataFrame({"a": X[:120, 0], "b": X[:120, 1], "n": y[:120]})
    frame.to_csv("table.csv", index=False)
    lines = ["n_networks = 2", "cv = 2", "epochs = 5", "bounds = '0,99'", "[network]"]
    lines += ["hidden_layers = [16]", "frequencies = 0"]
    (tmp_path / "c.toml").write_text("\n".join(lines))
    fit = ["fit", "table.csv", "--target", "n", "--config", "c.toml", "--out"]
    runner = CliRunner()
    result = runner.invoke(app, [*fit, "m"])
    assert result.exit_code == 0, result.output
    assert (
        "Values of n are assumed to be integers from 0 to 99 (change with --bounds)."
        in result.output
    )
    assert "inflate this; corrected for them: " in result.output
    assert "coverage  observed  corrected  mean width" in result.output
    shown = runner.invoke(app, ["inspect", "m"]).output
    assert "coverage  observed  corrected  mean width" in shown
    measured = runner.invoke(app, ["evaluate", "m", "table.csv", "--json"]).stdout
    levels = json.loads(measured)["calibration"]
    assert all(level["shared_rate"] < level["observed"] for level in levels)
    assert "Values of n are assumed to be integers from 0 to 99\n" in shown
    refused = runner.invoke(app, [*fit, "m2", "--bounds", "0,2"])
    assert refused.exit_code != 0
    assert "is outside the bounds 0 to 2" in refused.output
    tuned = runner.invoke(app, ["tune", "table.csv", "--target", "n", "--bounds", "0,2"])
    assert tuned.exit_code != 0
    assert "y must not be above 2" in " ".join(tuned.output.split())
    wrong = runner.invoke(app, [*fit, "m2", "--bounds", "zero"])
    assert "--bounds takes 'low,high'" in wrong.output
