"""onnxruntime predicts what the model predicts, to 1e-5 of the target's scale."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor
from calipers.bank import Bank, BankPoints, Program, Scaling, Upgraded
from calipers.calibration import Calibration
from calipers.distributions import TARGET_MAPS, Support, TargetMap
from calipers.distributions._transformed import MapFormulas
from calipers.ensemble import Ensemble
from calipers.heads import HEADS
from calipers.networks import ACTIVATIONS, MLP, Around, DenseFactory, Linear
from calipers.objectives import LOSSES
from calipers.onnx import export
from calipers.prediction import Query
from calipers.preprocessing import TableEncoder

onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")

SCALE = 50.0  # of the target, whose centre is far away
INPUTS = ["temperature", "größe", "x"]


def make_bank(network, head, members=3, seed=0, components=1):
    """Networks with random weights; nothing here needs training."""
    rng = np.random.default_rng(seed)
    program = Program(network, LOSSES["qd+"], in_size=len(INPUTS), head=head, components=components)
    weights = [
        rng.normal(0, 0.5, (members, *leaf.shape)).astype(np.float32)
        for leaf in jax.tree.leaves(program.weights)
    ]
    ones = np.ones((members, len(INPUTS)))
    own = Scaling(0.1 * ones, 1.1 * ones, np.full(members, 0.1), np.linspace(0.9, 1.1, members))
    units = Scaling(np.array([1e5, -3.0, 0.0]), np.array([10.0, 0.01, 1.0]), 7e3, SCALE)
    seeds = np.arange(members)
    return Bank(program, weights, own, units, seeds, seeds, seeds, [], seeds < 0)


def make_rows(rows, dtype=np.float64):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, 3)) * [10.0, 0.01, 1.0] + [1e5, -3.0, 0.0]
    return X.astype(dtype)


def check_names(path):
    """Every node has a name of its own: onnxruntime 1.20 takes nodes without one for the same."""
    names = [node.name for node in onnx.load(path).graph.node]
    assert all(names)
    assert len(set(names)) == len(names)


def run(path, feed):
    check_names(path)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True)), session


def close(found, expected):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) <= 1e-5 * SCALE


def check(ensemble, tmp_path, coverage=None, dtype="float64", rows=257):
    path = export(ensemble, tmp_path / "m.onnx", coverage=coverage, dtype=dtype, inputs=INPUTS)
    X = make_rows(rows, dtype)
    found, session = run(path, {"X": X})
    for name, value in ensemble.bank.predict(X).items():
        close(found.pop(f"member_{name}"), value)
    levels = None if coverage is None else tuple(np.atleast_1d(coverage))
    expected = ensemble.predict(X, Query(levels))
    close(found.pop("point"), expected.point)
    if found:
        bounds = expected.intervals
        for i, name in enumerate(("lower", "upper")):
            close(found.pop(name), bounds[:, i, 0] if np.ndim(coverage) == 0 else bounds[:, i])
    assert not found
    return session


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_and_periodic_inputs(activation, tmp_path):
    bank = make_bank(DenseFactory((8, 8), activation, 4), "split normal")
    check(Ensemble(bank, 0.95, "snm"), tmp_path)


@pytest.mark.parametrize("bins", [0, 3])
@pytest.mark.parametrize("columns", [(), (1,), (0, 2)])
def test_embedded_inputs_of_some_columns(columns, bins, tmp_path):
    network = DenseFactory((8,), frequencies=4, columns=columns, bins=bins)
    bank = make_bank(network, "split normal")
    check(Ensemble(bank, 0.95, "snm"), tmp_path)


class Squared(eqx.Module):
    """A network of another library."""

    linear: Linear

    def __call__(self, x):
        return self.linear(x * x)


class ExportedSquared(Squared):
    """The same with a form in ONNX."""

    def onnx(self, graph, x):
        return self.linear.onnx(graph, x * x)


def test_own_networks_have_the_form_that_they_define(tmp_path):
    def factory(kind):
        return lambda in_size, out_size, *, key: kind(Linear(in_size, out_size, key=key))

    check(Ensemble(make_bank(factory(ExportedSquared), "split normal"), 0.95, "snm"), tmp_path)
    plain = Ensemble(make_bank(factory(Squared), "split normal"), 0.95, "snm")
    with pytest.raises(ValueError, match=r"type Squared cannot be exported.* no method onnx"):
        export(plain, tmp_path / "m.onnx", inputs=INPUTS)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_every_head(head, tmp_path):
    check(Ensemble(make_bank(DenseFactory((8,)), head), 0.95, "snm"), tmp_path)


@pytest.mark.parametrize("aggregation", ["normal", "sem", "std", "mean"])
@pytest.mark.parametrize("head", ["free", "split normal", "normal"])
def test_every_aggregation(aggregation, head, tmp_path):
    check(Ensemble(make_bank(DenseFactory((8,)), head), 0.9, aggregation), tmp_path)


@pytest.mark.parametrize("aggregation", ["snm", "sem"])
@pytest.mark.parametrize("head", ["split normal", "centred"])
def test_several_components(aggregation, head, tmp_path):
    bank = make_bank(DenseFactory((8,)), head, components=3)
    check(Ensemble(bank, 0.9, aggregation), tmp_path, rows=40)


@pytest.mark.parametrize("aggregation", ["snm", "sem"])
@pytest.mark.parametrize(("kind", "components"), [("log", 1), ("asinh", 1), ("log", 3)])
def test_targets_on_another_scale(kind, components, aggregation, tmp_path):
    bank = make_bank(DenseFactory((8,)), "split normal", components=components)
    bank = replace(bank, units=bank.units._replace(target_center=0.5, target_scale=0.4))
    scale = TargetMap(kind, 20.0, -1.0, 1.5)
    ensemble = Ensemble(bank, 0.8, aggregation, target_map=scale, support=Support(low=0.0))
    check(ensemble, tmp_path, rows=40)


def test_a_frequent_value_and_bounds_off_the_lattice(tmp_path):
    bank = make_bank(DenseFactory((8,)), "split normal")
    knots = Support(latent=(-1.0, 0.0, 0.4), observed=(-1.0, 0.1, 0.1), atoms=(0.1,))
    for support in (knots, Support(low=-0.7, high=1.3, step=0.5, decimals=1)):
        check(Ensemble(bank, 0.8, "snm", support=support), tmp_path, rows=40)


def test_a_scale_is_an_entry_of_the_registry(tmp_path, monkeypatch):
    symmetric = MapFormulas(
        forward=lambda ratio: np.sign(ratio) * np.log1p(np.abs(ratio)),
        back=lambda z: np.sign(z) * np.expm1(np.abs(z)),
        log_slope=lambda ratio: -np.log1p(np.abs(ratio)),
        onnx=lambda graph, z, unit: graph("Sign", z) * (graph("Exp", graph("Abs", z)) - 1.0) * unit,
    )
    monkeypatch.setitem(TARGET_MAPS, "symmetric log", symmetric)
    scale = TargetMap.learn("symmetric log", [-5.0, 0.0, 20.0, 300.0])
    np.testing.assert_allclose(scale.back(scale.forward([-5.0, 0.0, 1e9])), [-5.0, 0.0, 1e9])
    assert not scale.formulas.positive
    bank = make_bank(DenseFactory((8,)), "split normal")
    bank = replace(bank, units=bank.units._replace(target_center=0.5, target_scale=0.4))
    check(Ensemble(bank, 0.8, "snm", target_map=scale), tmp_path, rows=40)


def test_one_network_alone(tmp_path):
    bank = make_bank(DenseFactory((8,)), "free", members=1)
    for aggregation in ("none", "sem", "snm"):
        check(Ensemble(bank, 0.9, aggregation), tmp_path)


@pytest.fixture(scope="module")
def calibrated():
    """Corrected twice: shifted and stretched, then held-out rows on top."""
    rng = np.random.default_rng(0)
    steps = (
        Calibration.from_scores(0.4 + 1.7 * rng.standard_normal(400)),
        Calibration.from_scores(0.8 * rng.standard_normal(300), strict=True),
    )
    return Ensemble(make_bank(DenseFactory((8,)), "split normal"), 0.95, "snm", steps)


@pytest.mark.parametrize("coverage", [None, 0.5, 0.99, [0.1, 0.8, 0.95]])
def test_calibrated_intervals_of_any_coverage(calibrated, coverage, tmp_path):
    check(calibrated, tmp_path, coverage)


def test_far_tails(calibrated, tmp_path):
    steps = (Calibration.from_scores(5 * np.random.default_rng(0).standard_normal(400)),)
    check(replace(calibrated, calibrations=steps), tmp_path, 0.99)


@pytest.mark.parametrize("rows", [0, 1, 3000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_number_of_rows_in_either_precision(calibrated, rows, dtype, tmp_path):
    check(calibrated, tmp_path, dtype=dtype, rows=rows)


def test_upgraded_points(tmp_path):
    heads = make_bank(Around(DenseFactory((8,)), point_at=0, reach=0.3), "centred", seed=2)
    points = BankPoints(make_bank(DenseFactory((8,)), "point"))
    check(Ensemble(Upgraded(points, heads), 0.95, "snm"), tmp_path)


def test_absurd_inputs_stay_finite(calibrated, tmp_path):
    path = export(calibrated, tmp_path / "m.onnx", inputs=INPUTS)
    found, _ = run(path, {"X": np.array([[1e300, -1e300, 0.0]])})
    assert np.isfinite(found["lower"]).all()


def test_the_file_says_what_it_is(calibrated, tmp_path):
    session = check(calibrated, tmp_path, [0.5, 0.9])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["inputs"]) == INPUTS
    assert json.loads(about["coverage"]) == [0.5, 0.9]
    assert about["target"] == "y"
    assert "calipers" in json.loads(about["versions"])


def test_the_interval_in_a_few_lines_of_numpy(calibrated, tmp_path):
    from scipy.special import ndtr

    path = export(calibrated, tmp_path / "m.onnx", inputs=INPUTS)
    found, session = run(path, {"X": make_rows(20)})
    scores = json.loads(session.get_modelmeta().custom_metadata_map["levels"])

    loc, left, right = (found[f"member_{n}"] for n in ("loc", "left_scale", "right_scale"))

    def cdf(x):
        below = 2 * left / (left + right) * ndtr((x - loc) / left)
        above = 1 - 2 * right / (left + right) * ndtr((loc - x) / right)
        return np.where(x < loc, below, above).mean(axis=0)

    def quantile(level):
        low, high = (loc - 40 * left).min(axis=0), (loc + 40 * right).max(axis=0)
        for _ in range(60):
            middle = (low + high) / 2
            short = cdf(middle) < level
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return middle

    lower, upper = quantile(ndtr(scores[0][0])), quantile(ndtr(scores[1][0]))
    np.testing.assert_allclose(lower, found["lower"], rtol=1e-9)
    np.testing.assert_allclose(upper, found["upper"], rtol=1e-9)


@pytest.mark.parametrize("coverage", [0.999, [0.8, 0.999]])
def test_bounds_of_the_target_stand_in_for_too_few_rows(calibrated, coverage, tmp_path):
    bounded = replace(calibrated, support=Support(low=6.9e3, high=7.1e3))
    check(bounded, tmp_path, coverage)
    with pytest.raises(ValueError, match="infinite"):
        export(replace(bounded, unsupported="raise"), tmp_path / "o", coverage=0.999, inputs=INPUTS)
    half = replace(calibrated, support=Support(low=6.9e3))
    with pytest.raises(ValueError, match="infinite"):
        export(half, tmp_path / "o.onnx", coverage=0.999, inputs=INPUTS)


def test_what_cannot_be_written_is_refused(calibrated, tmp_path):
    def refused(ensemble, message, **options):
        with pytest.raises(ValueError, match=message):
            export(ensemble, tmp_path / "m.onnx", inputs=INPUTS, **options)

    refused(calibrated, "infinite: it takes 1,999 rows to calibrate", coverage=0.999)
    refused(calibrated, "dtype must be one of", dtype="float16")
    weighted = replace(calibrated.calibrations[-1], row_weight=lambda X: X[:, 0])
    refused(replace(calibrated, calibrations=(weighted,)), "row_weight")
    refused(replace(calibrated, aggregation="sem"), "nothing else", coverage=0.5)
    refused(replace(calibrated, bank=make_bank(_strange, "point")), "of type Strange")
    assert not list(tmp_path.iterdir())


def _strange(in_size, out_size, *, key):
    import equinox as eqx

    class Strange(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return x[:1] * self.weight

    return Strange(jax.numpy.ones(1))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    rows = 120
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(rows) < 0.1, np.nan, rng.uniform(20, 120, rows)),
            "wealth": rng.standard_cauchy(rows) * 1e4,
            "kind": rng.choice(["flat", "house", "loft", "castle"], rows, p=[0.5, 0.3, 0.15, 0.05]),
            "garden": rng.random(rows) > 0.5,
            "lower": rng.normal(size=rows),
            "sold": pd.date_range("1969-06-01", periods=rows, freq="7D"),
            "country": "NO",
        }
    )
    frame.loc[3, "kind"] = None
    frame.loc[6, "kind"] = "hut"  # once, which makes it rare
    return frame, pd.Series(rng.normal(7000, SCALE, rows), name="price")


@pytest.mark.parametrize("most", [2, 30])
def test_tables_go_in_as_they_are(most, table, tmp_path):
    frame, y = table
    model = IntervalRegressor(
        preprocessor=TableEncoder(max_categories=most),
        n_networks=2,
        cv=2,
        network=MLP(hidden_layers=(8,), frequencies=0),
        epochs=2,
        random_state=0,
    ).fit(frame, y)
    path = model.to_onnx(tmp_path / "m.onnx")
    new = frame.copy()
    new.loc[:4, "kind"] = ["unseen", None, "castle", "loft", "flat"]
    new.loc[:2, "wealth"] = [np.nan, 1e12, -1e12]
    new.loc[5, "sold"] = pd.NaT
    read = model.preprocessor_.read(new)
    feed = {
        f"input_{name}" if name == "lower" else name: values
        if values.dtype == np.float64
        else np.array(["" if value is None else value for value in values], dtype=object)
        for name, values in read.items()
    }
    found, session = run(path, feed)
    assert {given.name for given in session.get_inputs()} == feed.keys()
    close(found["point"], model.predict(new))
    close(np.stack([found["lower"], found["upper"]], axis=1), model.predict_interval(new))
    assert session.get_modelmeta().custom_metadata_map["target"] == "price"
