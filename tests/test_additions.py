"""What docs/architecture.md says: one file and one line add a loss, a head, an aggregation..."""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from calipers import IntervalRegressor, _schema, losses
from calipers.aggregation import AGGREGATIONS, Aggregation
from calipers.calibration import CALIBRATIONS, Calibration, Calibrator
from calipers.calibration._level_map import Pieces
from calipers.cli import app
from calipers.cli._scoring import RowScorer
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.heads import HEADS, Head
from calipers.importance import Dependence
from calipers.networks import ACTIVATIONS, MLP, Activation
from calipers.objectives import LOSSES, Objective
from calipers.prediction import Forward, Prediction, Query
from calipers.preprocessing import Column, _column, _document, _encoder, _kinds, refuse_unread
from calipers.preprocessing._encoders import ENCODERS, RangeEncoder
from calipers.preprocessing._kinds import DetectedKind
from calipers.preprocessing._learn import LearnedColumn
from calipers.preprocessing._unread import tell_unread
from calipers.report._format import write_cell
from calipers.serve import _bodies, _openapi, _responses, _schemas
from calipers.serve._served import Piece, Served
from calipers.tables import read_blocks

SMALL = {"network": MLP(hidden_layers=(8,), frequencies=0), "epochs": 150, "random_state": 0}


class Laplace(Head):
    """A scale, which is a product of three factors, and a median."""

    name = around_point = "laplace"
    size = 4
    fields = ("median", "scale")
    split_normal = ("median", "scale", "scale")
    lengths = ("scale",)
    locations = (3,)
    point_at = 3

    def parameters(self, raw):
        return raw[..., 3], jnp.exp(raw[..., 0] + raw[..., 1] + raw[..., 2])

    def interval(self, *parameters, coverage):
        median, scale = parameters
        reach = -scale * jnp.log(1 - coverage)
        return median - reach, median, median + reach

    def onnx(self, graph, *raw):
        return [raw[3], graph("Exp", raw[0] + raw[1] + raw[2])]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 2))
    return X, X[:, 0] + rng.laplace(0, 0.2, 200)


@pytest.fixture
def laplace(monkeypatch):
    monkeypatch.setitem(HEADS, "laplace", Laplace())

    class LaplaceLikelihood(Objective):
        head = "laplace"

        def __init__(self, *, strength=1.0):
            self.strength = strength

        @staticmethod
        def loss(median, scale, target, *, weight, coverage, strength):
            error = jnp.abs(target - median) / scale + jnp.log(scale)
            return strength * jnp.sum(jnp.where(weight > 0, error, 0) * weight) / jnp.sum(weight)

    monkeypatch.setitem(LOSSES, "laplace", LaplaceLikelihood)
    return LaplaceLikelihood


def test_a_loss_and_a_head(laplace, data, tmp_path):
    model = IntervalRegressor(loss=laplace(strength=2.0), n_networks=4, cv=2, **SMALL).fit(*data)
    assert model.score(*data) > 0.5
    lower, upper = model.predict_interval(data[0]).T
    assert 0.9 < np.mean((lower <= data[1]) & (data[1] <= upper)) <= 1
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    assert again.loss.strength == 2.0
    assert np.array_equal(again.predict_interval(data[0]), model.predict_interval(data[0]))
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "model.onnx"))
    (found,) = session.run(["lower"], {"X": data[0]})
    np.testing.assert_allclose(found, lower, rtol=1e-5, atol=1e-5)


def test_a_head_located_at_its_last_output_is_saved(laplace, data, tmp_path):
    model = IntervalRegressor(loss=laplace(), n_networks=4, cv=2, **SMALL)
    points = IntervalRegressor(loss="mse", n_networks=4, cv=2, **SMALL).fit(*data)
    upgraded = clone(model).upgrade(points, *data)
    over_trees = model.set_params(network=MLP(hidden_layers=(8,), frequencies=2, trees=35))
    for number, fitted in enumerate((upgraded, over_trees.fit(*data))):
        fitted.save(tmp_path / str(number))
        again = IntervalRegressor.load(tmp_path / str(number))
        assert np.array_equal(again.predict_interval(data[0]), fitted.predict_interval(data[0]))


@pytest.mark.parametrize("complete", [True, False])
def test_an_activation(complete, data, tmp_path, monkeypatch):
    def hard_tanh(x, _):
        return np.clip(x, -1, 1, out=x)

    forms = (lambda graph, x: graph("Clip", x, -1.0, 1.0), hard_tanh) if complete else ()
    monkeypatch.setitem(ACTIVATIONS, "hard tanh", Activation(jax.nn.hard_tanh, *forms))
    network = MLP(hidden_layers=(8,), activation="hard tanh", frequencies=0)
    model = IntervalRegressor(n_networks=4, cv=2, **SMALL | {"network": network}).fit(*data)
    bounds = model.predict_interval(data[0])
    if complete:
        monkeypatch.setitem(ACTIVATIONS, "hard tanh", Activation(jax.nn.hard_tanh, forms[0]))
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_interval(data[0]), bounds, rtol=1e-5, atol=1e-5)
    runtime = pytest.importorskip("onnxruntime")
    if not complete:
        with pytest.raises(ValueError, match="the activation 'hard tanh' has no ONNX form"):
            model.to_onnx(tmp_path / "model.onnx")
        return
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "model.onnx"))
    (lower,) = session.run(["lower"], {"X": data[0]})
    np.testing.assert_allclose(lower, bounds[:, 0], rtol=1e-5, atol=1e-5)


def test_an_aggregation(data, tmp_path, monkeypatch):
    def widest(lower, point, upper, *, coverage):
        """One split normal, between the outermost bounds."""
        sides = (np.min(lower, axis=0), np.mean(point, axis=0), np.max(upper, axis=0))
        return SplitNormalMixture(SplitNormal.from_interval(*(s[None] for s in sides), coverage))

    monkeypatch.setitem(AGGREGATIONS, "widest", Aggregation(widest, gives_distribution=True))
    settings = {"loss": "interval score", "cv": None, "n_networks": 4}
    # Parameters are checked against the registry as it is now.
    model = IntervalRegressor(aggregation="widest", **settings, **SMALL).fit(*data)
    plain = IntervalRegressor(aggregation="mean", **settings, **SMALL).fit(*data)
    assert (np.ptp(model.predict_interval(data[0]), axis=1) > 0).all()
    widths = [np.ptp(m.predict_interval(data[0]), axis=1).mean() for m in (model, plain)]
    assert widths[0] > widths[1]
    model.save(tmp_path / "model")
    assert IntervalRegressor.load(tmp_path / "model").aggregation == "widest"
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match="aggregation='widest' has no ONNX form"):
        model.to_onnx(tmp_path / "model.onnx")


@dataclass(frozen=True)
class Cautious(Calibrator):
    """The usual map with scores half as far out again."""

    map: Calibration

    kind: ClassVar[str] = "cautious"

    @classmethod
    def from_rows(cls, rows):
        return (cls(*Calibration.from_rows(replace(rows, scores=1.5 * rows.scores))),)

    @property
    def n_rows(self):
        return self.map.n_rows

    def level_map(self):
        return self.map

    def to_arrays(self):
        return self.map.to_arrays()

    @classmethod
    def from_arrays(cls, arrays):
        return cls(Calibration.from_arrays(arrays))


def test_a_calibration(data, tmp_path, monkeypatch):
    monkeypatch.setitem(CALIBRATIONS, "cautious", Cautious)
    usual = IntervalRegressor(n_networks=4, cv=2, **SMALL).fit(*data)
    model = IntervalRegressor(calibration="cautious", n_networks=4, cv=2, **SMALL).fit(*data)
    wide, narrow = (np.ptp(m.predict_interval(data[0]), axis=1) for m in (model, usual))
    assert (wide > 1.2 * narrow).all()
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    assert isinstance(again.ensemble_.calibrations[0], Cautious)
    assert np.array_equal(again.predict_interval(data[0]), model.predict_interval(data[0]))
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "model")])
    assert "calibrated out of fold on 200 rows" in shown.output.lower()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "model.onnx"))
    (lower,) = session.run(["lower"], {"X": data[0]})
    np.testing.assert_allclose(lower, model.predict_interval(data[0])[:, 0], rtol=1e-5, atol=1e-5)


@dataclass(frozen=True)
class Located(Calibrator):
    """The mean and the spread of the scores, in bins of the first input."""

    edges: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    n_rows: int

    kind: ClassVar[str] = "located"

    @classmethod
    def from_rows(cls, rows):
        edges = np.quantile(rows.X[:, 0], [0.25, 0.5, 0.75])
        bins = np.searchsorted(edges, rows.X[:, 0], side="right")
        each = [np.atleast_2d(rows.scores)[:, bins == number] for number in range(4)]
        moments = (np.array([f(scores) for scores in each]) for f in (np.mean, np.std))
        return (cls(edges, *moments, len(bins)),)

    @property
    def scores(self):
        return np.sort(self.mean)

    @property
    def tail_slope(self):
        return self.spread.max()

    def level_map(self):
        return self

    def local(self, dist, X):
        return np.searchsorted(self.edges, X[:, 0], side="right")

    def to_score(self, v, number):
        return self.mean[number] + v * self.spread[number]

    def from_score(self, z, number):
        return (z - self.mean[number]) / self.spread[number]

    def pieces_of_score(self, z, number):
        zeros = np.zeros(np.broadcast_shapes(np.shape(z), np.shape(number)))
        return Pieces(zeros + self.mean[number], zeros, zeros + self.spread[number])

    def supports(self, p, local=None):
        return np.ones(np.shape(p), bool)

    def to_arrays(self):
        return {name: np.asarray(value) for name, value in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays):
        names = ("edges", "mean", "spread")
        return cls(*(arrays[name] for name in names), int(arrays["n_rows"]))


class InGraphs(Located):
    """The same with an ONNX form."""

    kind = "in graphs"

    def onnx(self, graph, X, mixture):
        first = graph("Gather", X, graph.integers(0), axis=1)
        return graph.count(graph("GreaterOrEqual", first, self.edges), 1), 4


@pytest.fixture
def uneven(monkeypatch):
    """Rows in groups, with more noise where the first input is greater."""
    monkeypatch.setitem(CALIBRATIONS, "located", Located)
    monkeypatch.setitem(CALIBRATIONS, "in graphs", InGraphs)
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (240, 2))
    y = X[:, 0] + np.exp(0.5 * X[:, 0]) * rng.standard_normal(240)
    return X, y, np.repeat(np.arange(60), 4)


def test_a_calibration_that_learns_on_what_in_a_row_it_depends(uneven, tmp_path):
    X, y, groups = uneven
    one = SMALL | {"epochs": 1}  # networks that have learned nothing of the noise
    usual = IntervalRegressor(calibration="map", n_networks=4, cv=2, **one).fit(X, y)
    model = IntervalRegressor(calibration="located", n_networks=4, cv=2, **one)
    model.fit(X, y, groups=groups)
    found = {True: model, False: usual}
    ratio = np.divide(*(np.ptp(m.predict_interval(X), axis=1) for m in found.values()))
    assert ratio[X[:, 0] > 1].min() > 1.5 * ratio[X[:, 0] < -1].max()
    check_predictions(model, X, y)
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    assert np.array_equal(again.predict_interval(X), model.predict_interval(X))
    assert np.array_equal(again.predict_var(X), model.predict_var(X))
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "model")])
    assert "calibrated out of fold on 240 rows" in shown.output.lower()
    with pytest.raises(ValueError, match="'located', which depends on the row, cannot be exp"):
        model.to_onnx(tmp_path / "model.onnx")
    model.conformalize(X, y, groups=groups)
    assert [type(c) for c in model.ensemble_.calibrations] == [Located]
    model.conformalize(X[:200], y[:200], half_life=50, keep=True)
    assert [c.n_rows for c in model.ensemble_.calibrations] == [240, 200]
    check_predictions(model, X, y)
    with pytest.raises(ValueError, match="'located' takes no weights of new rows"):
        model.conformalize(X, y, row_weight=lambda rows: np.ones(len(rows)))


def check_predictions(model, X, y):
    """All that a distribution is asked, which one quantile function must explain."""
    dist, levels = model.predict_dist(X), (np.arange(2000) + 0.5)[:, None] / 2000
    quantiles = dist.ppf(levels)
    std = model.predict(X, return_std=True)[1]
    np.testing.assert_allclose(std, quantiles.std(axis=0), rtol=0.01)
    np.testing.assert_allclose(dist.mean, quantiles.mean(axis=0), atol=0.01 * std.max())
    np.testing.assert_array_equal(dist[:9].mean, dist.mean[:9])
    expected = np.abs(quantiles - y).mean(axis=0) - ((2 * levels - 1) * quantiles).mean(axis=0)
    np.testing.assert_allclose(dist.crps(y), expected, atol=0.01 * std.max())
    np.testing.assert_allclose(dist.cdf(quantiles[[5, 1500]]), levels[[5, 1500]] + np.zeros(len(X)))
    lower, upper = dist.hdi(0.8)
    assert (upper - lower <= np.ptp(dist.interval(0.8), axis=0) * (1 + 1e-9)).all()
    assert np.isfinite(dist.logpdf(y)).all()


@pytest.mark.parametrize("twice", [False, True])
def test_a_calibration_that_depends_on_the_row_may_have_an_onnx_form(uneven, tmp_path, twice):
    X, y, groups = uneven
    options = {"n_networks": 4, "cv": 2, **SMALL}
    model = IntervalRegressor(calibration="in graphs", **options).fit(X, y, groups=groups)
    if twice:
        model.conformalize(X[:100], y[:100], keep=True)
    runtime = pytest.importorskip("onnxruntime")
    path = model.to_onnx(tmp_path / "model.onnx", [0.5, 0.9])
    lower, upper = runtime.InferenceSession(path).run(["lower", "upper"], {"X": X})
    expected = model.predict_interval(X, coverage=[0.5, 0.9])
    np.testing.assert_allclose(lower, expected[:, 0], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(upper, expected[:, 1], rtol=1e-4, atol=1e-4)


def test_a_calibration_with_distributions_of_its_own_has_no_onnx_form(data, tmp_path, monkeypatch):
    class Moved(Cautious):
        kind = "moved"

        def calibrated(self, dist, X, unsupported="inf"):
            return super().calibrated(dist[::-1], X, unsupported)

    monkeypatch.setitem(CALIBRATIONS, "moved", Moved)
    model = IntervalRegressor(calibration="moved", n_networks=4, cv=2, **SMALL).fit(*data)
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match="'moved', which depends on the row, cannot be exported"):
        model.to_onnx(tmp_path / "model.onnx")


@dataclass(frozen=True)
class AngleEncoder(RangeEncoder):
    """Angles such as ``90°``: sine and cosine."""

    def read(self, series, on_unread=refuse_unread):
        present = series.notna().to_numpy()
        values = pd.to_numeric(series.str.rstrip("°"), errors="coerce").to_numpy()
        wrong = np.flatnonzero(np.isnan(values) & present)
        if wrong.size:
            problem = f"{series.iloc[wrong[0]]!r} is not an angle"
            tell_unread(series, wrong, present.sum(), problem, on_unread)
        return values

    def encode(self, values):
        angle = np.radians(np.where(np.isnan(values), self.fill, values))
        return np.column_stack([np.sin(angle), np.cos(angle)])

    def names(self, name):
        return [f"{name} (sin)", f"{name} (cos)"]

    def onnx(self, graph, value):
        _, filled = self._onnx_filled(graph, value)
        angle = graph.cast(filled * (np.pi / 180), "float32")
        return [graph.cast(graph(name, angle), "float64") for name in ("Sin", "Cos")]


@pytest.fixture
def angles(monkeypatch):
    """Rows with a column of angles, where the modules that the table names know them."""

    def find_kind(series, most):
        is_angle = isinstance(series[0], str) and series.str.endswith("°").all()
        return DetectedKind("angle") if is_angle else found(series, most)

    def learn(series, kind, *options):
        if kind is not None or _kinds.find_kind(series, 30).kind != "angle":
            return learned(series, kind, *options)
        values = AngleEncoder().read(series)
        ends = values.min(), values.max(), np.median(values)
        encoder = AngleEncoder(ends[0], ends[1], ends[2], missing=False)
        return LearnedColumn(Column(series.name, "angle", *ends), encoder, values)

    def check_column(document, place):  # made of ``KINDS`` when it was imported
        one(document | {"kind": "number"}, place)

    found, learned, one = _kinds.find_kind, _encoder.learn, _document._COLUMN
    monkeypatch.setattr(_column, "KINDS", (*_column.KINDS, "angle"))
    monkeypatch.setitem(ENCODERS, "angle", AngleEncoder)
    monkeypatch.setattr(_kinds, "find_kind", find_kind)
    monkeypatch.setattr(_encoder, "learn", learn)
    monkeypatch.setitem(_column._DTYPES, "angle", "float64")
    ends = {name: _schema.number() for name in ("low", "high", "fill")}
    monkeypatch.setitem(
        _document._ENCODERS, "angle", _schema.record({**ends, "missing": _schema.flag})
    )
    monkeypatch.setattr(_document, "_COLUMN", check_column)
    rng = np.random.default_rng(0)
    degrees = rng.integers(0, 360, 200)
    X = pd.DataFrame({"wind": [f"{d}°" for d in degrees], "size": rng.uniform(-2, 2, 200)})
    return X, np.sin(np.radians(degrees)) + X["size"] + rng.normal(0, 0.1, 200)


def test_a_kind_of_column(angles, tmp_path):
    X, y = angles
    model = IntervalRegressor(n_networks=4, cv=2, **SMALL).fit(X, y)
    assert [column.kind for column in model.inputs_] == ["angle", "number"]
    assert model.score(X, y) > 0.9
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    assert np.array_equal(again.predict_interval(X), model.predict_interval(X))
    unread = []
    later = X.assign(wind=["north", *X["wind"][1:]])
    prediction, outside = again.query_and_check(later, Query(), on_unread=unread.append)
    assert np.isfinite(prediction.point).all()
    assert [str(cells.error) for cells in unread] == [
        "column 'wind', row 0 (from 0): 'north' is not an angle"
    ]
    assert outside[:, 0].tolist() == [True] + [False] * 199
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "model")])
    assert "wind" in shown.output
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_onnx(tmp_path / "model.onnx"))
    degrees = X["wind"].str.rstrip("°").to_numpy(float)
    (point,) = session.run(["point"], {"wind": degrees, "size": X["size"].to_numpy()})
    np.testing.assert_allclose(point, model.predict(X), atol=1e-4)

    wind, _ = model.inputs_
    description = f"In training from {wind.low} to {wind.high}."
    text = {"type": ["number", "null"], "description": description}
    assert _openapi._property(wind) == text
    assert write_cell(12.0, wind.dtype) == "12"
    assert Dependence("wind", "angle", *[np.zeros(1)] * 5, 0.9).dtype == wind.dtype


def test_a_head_of_unknown_fields_is_refused_when_it_is_defined():
    with pytest.raises(TypeError, match=r"Odd.fields must be .*got \('low', 'high'\)"):

        class Odd(Head):
            fields = ("low", "high")


def test_a_loss_of_known_parts_needs_no_registration(data):
    class Pinballs(Objective):
        head = "ordered"

        @staticmethod
        def loss(lower, point, upper, target, *, weight, coverage):
            tail = (1 - coverage) / 2
            levels = ((lower, tail), (point, 0.5), (upper, 1 - tail))
            return sum(losses.pinball(s, target, quantile=q, weight=weight) for s, q in levels)

    model = IntervalRegressor(loss=Pinballs(), n_networks=4, cv=2, **SMALL).fit(*data)
    assert model.score(*data) > 0.5


def test_a_new_number_for_each_row_is_a_field_and_a_flag(data, tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class WiderQuery(Query):
        median: bool = False

    @dataclass(frozen=True, eq=False)
    class WiderPrediction(Prediction):
        median: np.ndarray | None = None

    class WiderForward(Forward):
        def prediction(self, query):
            found = vars(super().prediction(query))
            return WiderPrediction(**found, median=self.dist.ppf(0.5) if query.median else None)

    query = WiderQuery(median=True, quantiles=(0.5,))
    assert query.needs_distribution
    assert query.size(members=10) == WiderQuery(quantiles=(0.5,)).size(members=10) + 1
    monkeypatch.setattr("calipers.ensemble.Forward", WiderForward)
    monkeypatch.setattr("calipers.ensemble.Prediction", WiderPrediction)
    monkeypatch.setattr("calipers.ensemble._BLOCK", 64)  # several blocks, which are joined
    model = IntervalRegressor(n_networks=4, cv=2, **SMALL).fit(*data)
    found = model.query(data[0], query)
    assert list(found.columns())[-2:] == ["quantile_0.5", "median"]
    np.testing.assert_array_equal(found.median, found.quantiles[:, 0])
    assert "median" not in model.query(data[0], WiderQuery()).columns()

    scorer = RowScorer(model, query, keep=None, mark_outside=False, as_text=False)
    path = tmp_path / "rows.csv"
    pd.DataFrame(data[0], columns=["x0", "x1"]).to_csv(path, index=False)
    (table,) = scorer.score(read_blocks(path))  # what `calipers predict` writes
    np.testing.assert_allclose(table["median"], found.median, rtol=1e-6)

    class WiderRequest(_schemas.PredictRequest):  # a line in each class of the schemas
        median: bool = False

    class WiderSchema(_schemas.PredictionSchema):
        median: float | None = None

    monkeypatch.setattr(_schemas, "Query", WiderQuery)
    monkeypatch.setattr(_schemas, "_QUERY_FIELDS", {*_schemas._QUERY_FIELDS, "median"})
    request = WiderRequest(rows=data[0][:3].tolist(), median=True, coverage=0.9)
    served = Served("model", model)
    piece = Piece(_bodies.row_columns(request.rows, served), 3, request.to_query())
    [answer] = served.predict([piece])
    (of_row, *_) = json.loads(_responses.as_json(served, answer, 9, None))["predictions"]
    assert WiderSchema(**of_row).median == pytest.approx(found.median[0], rel=1e-6)
    assert set(of_row) == {"point", "intervals", "median", "outside"}
    text = _responses.write_frame(
        _responses.predictions_frame(served, answer), _bodies.CSV
    ).decode()
    header, first, *_ = text.splitlines()  # of the file that the page offers
    assert header == "prediction,lower_0.9,upper_0.9,median,outside"
    assert float(first.split(",")[3]) == pytest.approx(found.median[0], rel=1e-6)
