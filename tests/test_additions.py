"""What docs/architecture.md says: one file and one line add a loss, a head, an aggregation..."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from calipers import IntervalRegressor, losses
from calipers.aggregation import AGGREGATIONS, Aggregation
from calipers.calibration import CALIBRATIONS, Calibration, Calibrator
from calipers.calibration._level_map import Pieces
from calipers.cli import app
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.heads import HEADS, Head
from calipers.networks import MLP
from calipers.objectives import LOSSES, Objective
from calipers.prediction import Forward, Prediction, Query

SMALL = {"network": MLP(hidden_layers=(8,), frequencies=0), "epochs": 150, "random_state": 0}


class Laplace(Head):
    """A median and a scale."""

    name = "laplace"
    size = 2
    fields = ("median", "scale")
    split_normal = ("median", "scale", "scale")
    lengths = ("scale",)

    def parameters(self, raw):
        return raw[..., 0], jnp.exp(raw[..., 1])

    def interval(self, *parameters, coverage):
        median, scale = parameters
        reach = -scale * jnp.log(1 - coverage)
        return median - reach, median, median + reach

    def onnx(self, graph, *raw):
        return [raw[0], graph("Exp", raw[1])]


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

    level_map: Calibration

    kind: ClassVar[str] = "cautious"

    @classmethod
    def from_scores(cls, scores, weights=None, strict=False, row_weight=None):
        return cls(Calibration.from_scores(1.5 * scores, weights, strict))

    @property
    def n_rows(self):
        return self.level_map.n_rows

    def to_arrays(self):
        return self.level_map.to_arrays()

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
class Sided(Calibrator):
    """A scale of the scores, twice as large where the first input is positive."""

    scale: float
    n_rows: int

    kind: ClassVar[str] = "sided"
    scores: ClassVar[np.ndarray] = np.zeros(1)

    @classmethod
    def from_scores(cls, scores, weights=None, strict=False, row_weight=None):
        return cls(float(np.std(scores)), np.shape(scores)[-1])

    @property
    def level_map(self):
        return self

    def local(self, dist, X):
        return np.where(X[:, 0] > 0, 2.0, 1.0)

    def to_score(self, v, side):
        return v * self.scale * side

    def from_score(self, z, side):
        return z / (self.scale * side)

    def pieces_of_score(self, z, side):
        zeros = np.zeros(np.broadcast_shapes(np.shape(z), np.shape(side)))
        return Pieces(zeros, zeros, zeros + self.scale * side)

    def supports(self, p, local=None):
        return np.ones(np.shape(p), bool)

    def to_arrays(self):
        return {"scale": np.array(self.scale), "n_rows": np.array(self.n_rows)}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(float(arrays["scale"]), int(arrays["n_rows"]))


def test_a_calibration_that_depends_on_the_row(data, tmp_path, monkeypatch):
    monkeypatch.setitem(CALIBRATIONS, "sided", Sided)
    usual = IntervalRegressor(calibration="map", n_networks=4, cv=2, **SMALL).fit(*data)
    model = IntervalRegressor(calibration="sided", n_networks=4, cv=2, **SMALL).fit(*data)
    ratio = np.divide(*(np.ptp(m.predict_interval(data[0]), axis=1) for m in (model, usual)))
    positive = data[0][:, 0] > 0
    assert ratio[positive].min() > 1.5 * ratio[~positive].max()
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    assert np.array_equal(again.predict_interval(data[0]), model.predict_interval(data[0]))
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "model")])
    assert "calibrated out of fold on 200 rows" in shown.output.lower()
    with pytest.raises(ValueError, match="'sided', which depends on the row"):
        model.to_onnx(tmp_path / "model.onnx")
    model.conformalize(*data)
    assert [type(c) for c in model.ensemble_.calibrations] == [Sided]


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


def test_a_new_number_for_each_row_is_a_field_and_a_flag(data, monkeypatch):
    @dataclass(frozen=True)
    class WiderQuery(Query):
        median: bool = False

    @dataclass(frozen=True, eq=False)
    class WiderPrediction(Prediction):
        median: np.ndarray | None = None

    class WiderForward(Forward):
        def answer(self, query):
            found = vars(super().answer(query))
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
