import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor, plots
from calipers._evaluation import LabelledPrediction
from calipers.aggregation import snm
from calipers.bank import HISTORY_TYPE, Bank
from calipers.importance import Importances
from calipers.metrics import CalibrationCurve, GroupedCoverage, pit_band
from calipers.networks import MLP
from calipers.report._charts import curve_and_band, pit_bars


@pytest.fixture
def ax():
    with plots.style():
        yield plots.new_figure(2.0).subplots()


def drawn(ax):
    """Render, since Matplotlib finds many mistakes only then."""
    ax.figure.canvas.draw()
    return ax


def test_style_does_not_leak():
    before = mpl.rcParams["font.size"]
    with plots.style():
        assert mpl.rcParams["font.size"] == 8
    assert mpl.rcParams["font.size"] == before


def test_interval(ax):
    x = np.linspace(0, 1, 5)
    plots.plot_interval(ax, x, x - 1, x, x + 1)
    assert [line.get_ydata().tolist() for line in drawn(ax).lines] == [
        (x - 1).tolist(), (x + 1).tolist(), x.tolist()
    ]  # fmt: skip
    assert ax.get_legend_handles_labels()[1] == ["prediction interval", "point estimate"]


def test_infinite_intervals_are_drawn_beyond_everything_else(ax):
    endless = np.full(3, np.inf)
    plots.plot_rows(ax, -endless, [0, 1, 2], endless, [0, 4, 2])
    assert ax.get_legend_handles_labels()[1][0] == "interval, infinite"
    bars = [bar[:, 1].tolist() for bar in drawn(ax).collections[0].get_segments()]
    assert bars == [[-0.4, 4.4]] * 3
    other = plots.new_figure(2.0).subplots()
    plots.plot_interval(other, [0, 1, 2], -endless, [0, 1, 2], endless)
    assert drawn(other).get_ylim()[0] < 0 < 2 < other.get_ylim()[1]
    assert other.get_legend_handles_labels()[1][0] == "prediction interval, infinite"


def test_mixture(ax):
    mixture = snm([[-1.0], [0.0]], [[0.0], [1.0]], [[2.0], [2.0]], coverage=0.95)
    plots.plot_mixture(ax, mixture, coverage=0.95)
    first, second, total, low, high = drawn(ax).lines
    members = (first.get_ydata() + second.get_ydata()) / 2
    np.testing.assert_allclose(total.get_ydata(), members)
    bounds = [line.get_xdata()[0] for line in (low, high)]
    np.testing.assert_allclose(bounds, np.ravel(mixture.interval(0.95)))


def test_a_model_and_rows(ax, monkeypatch):
    X = np.linspace(0, 1, 60)[:, None]
    y = pd.Series(X[:, 0], name="price")
    network = MLP(hidden_layers=(4,), frequencies=0)
    model = IntervalRegressor(
        network=network, n_networks=2, cv=2, epochs=5, bounds=None, random_state=0
    )
    model.fit(X, y)
    predict, passes = Bank.predict, []
    with monkeypatch.context() as patch:
        patch.setattr(Bank, "predict", lambda self, X: passes.append(len(X)) or predict(self, X))
        given = plots.plot_intervals(model, X, y, coverage=0.8, ax=ax)
    assert passes == [len(X)]
    assert given is drawn(ax)
    lines = given.collections[0].get_segments()
    expected = model.predict_interval(X[np.argsort(model.predict(X), kind="stable")], coverage=0.8)
    np.testing.assert_allclose([line[:, 1] for line in lines], expected)
    assert given.get_ylabel() == "price"
    curve = plots.plot_reliability(model, X, y).lines[1]
    inside = [
        np.mean((low <= y) & (y <= high))
        for low, high in (model.predict_interval(X, coverage=c).T for c in curve.get_xdata())
    ]
    np.testing.assert_allclose(curve.get_ydata(), inside)


def test_importance(ax):
    numbers = np.array([[1.0, 2.0], [5.0, 7.0], [0.0, 0.0]])
    found = Importances(("a", "b", "c"), numbers, numbers[::-1], numbers)
    assert plots.plot_importance(found, ax=ax, max_columns=2) is drawn(ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b", "a"]
    assert [bar.get_width() for bar in ax.patches] == [6.0, 1.5]
    other = plots.plot_importance(found, measure="squared_error")
    assert [bar.get_width() for bar in other.patches] == [6.0, 1.5, 0.0]
    assert "squared error" in other.get_xlabel()
    with pytest.raises(ValueError, match="measure must be one of"):
        plots.plot_importance(found, measure="error")


def test_calibration(ax):
    curve = CalibrationCurve(np.array([0.1, 0.9]), np.array([0.2, 0.8]))
    plots.plot_calibration(ax, {"mine": curve}, colors={"mine": "C0"})
    assert drawn(ax).lines[1].get_ydata().tolist() == [0.2, 0.8]
    assert ax.get_legend_handles_labels()[1] == ["mine"]


def test_pit_of_uniform_values_is_flat(ax):
    plots.plot_pit(ax, (np.arange(100) + 0.5) / 100, bins=10)
    bars = [patch.get_height() for patch in drawn(ax).patches[:10]]
    np.testing.assert_allclose(bars, 1.0)
    band = ax.patches[10]
    low, high = band.get_y(), band.get_y() + band.get_height()
    alone = pit_band(100, 10)
    assert low < alone[0] < alone[1] < high  # all bars end in it


def test_bands_are_those_of_the_report(ax):
    rows, pit = 300, np.random.default_rng(0).random(300)
    found = labelled(pit)
    plots.plot_calibration(ax, {}, rows=rows)
    band = ax.collections[0].get_paths()[0].vertices
    nominal, _, low, high = curve_and_band(found)
    for level, *ends in zip(nominal, low, high, strict=True):
        drawn_there = band[np.isclose(band[:, 0], level), 1]
        assert np.isclose(drawn_there.min(), ends[0])
        assert np.isclose(drawn_there.max(), ends[1])
    counts, _, bars = pit_bars(found)
    plots.plot_pit(ax, pit, bins=len(counts))
    patch = ax.patches[-1]
    np.testing.assert_allclose([patch.get_y(), patch.get_y() + patch.get_height()], bars)


def labelled(pit):
    """Rows of which only the PIT is given."""
    of_rows = dict.fromkeys(("target", "point"), np.zeros(len(pit)))
    others = dict.fromkeys(("bounds", "outside", "aleatoric", "epistemic"))
    return LabelledPrediction(coverage=0.9, levels=np.array([0.9]), pit=pit, **of_rows, **others)


def test_rows_stand_in_the_order_of_their_prediction(ax):
    plots.plot_rows(ax, [2, 0], [3, 1], [4, 2], [3.5, 9])
    point, inside, outside = drawn(ax).lines
    assert point.get_ydata().tolist() == [1, 3]
    assert (inside.get_xdata().tolist(), inside.get_ydata().tolist()) == ([1], [3.5])
    assert (outside.get_xdata().tolist(), outside.get_ydata().tolist()) == ([0], [9])


def test_many_rows_are_thinned(ax):
    values = np.arange(1000.0)
    plots.plot_rows(ax, values - 1, values, values + 1, values, max_rows=100)
    shown = drawn(ax).lines[0].get_ydata()
    assert (len(shown), shown[0], shown[-1]) == (100, 0, 999)


def test_calibration_band_is_that_of_chance(ax):
    curve = CalibrationCurve(np.array([0.5]), np.array([0.5]))
    plots.plot_calibration(ax, {"a": curve, "b": curve}, rows=100)
    [band] = drawn(ax).collections
    at_half = [y for x, y in band.get_paths()[0].vertices if abs(x - 0.5) < 1e-9]
    assert sorted(set(np.round(at_half, 6))) == [0.36, 0.64]  # of the whole curve; alone 0.4 to 0.6
    colors = [line.get_color() for line in ax.lines[1:]]
    assert len(set(colors)) == 2


def test_coverage_by_marks_what_chance_does_not_explain(ax):
    groups = GroupedCoverage(
        np.array(["a", "b"]), np.array([0.95, 0.5]), np.array([1.0, 2.0]), np.array([100, 100])
    )
    plots.plot_coverage_by(ax, groups, labels=["first", "second"])
    _, within, beyond = drawn(ax).lines
    assert (within.get_xdata().tolist(), beyond.get_xdata().tolist()) == ([0.95], [0.5])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["first (100)", "second (100)"]
    with pytest.raises(ValueError, match="labels must name 2 groups, got 1"):
        plots.plot_coverage_by(ax, groups, labels=["first"])


def test_uncertainty(ax):
    plots.plot_uncertainty(ax, [1.0, 2.0, 3.0], [0.1, 0.2, 0.3], [True, False, True])
    inside, outside, _ = drawn(ax).lines
    assert inside.get_xdata().tolist() == [1.0, 3.0]
    assert outside.get_ydata().tolist() == [0.2]


def history(losses, valid):
    record = np.zeros(len(losses), HISTORY_TYPE)
    record["epoch"] = np.arange(1, len(losses) + 1)
    record["loss"], record["valid_loss"], record["valid_mse"] = losses, valid, 7
    return record


def test_history_marks_the_best_epoch(ax):
    plots.plot_history(ax, [history([3, 2, 1], [5, np.nan, 9]), history([4, 3, 2], [6, 1, 2])])
    *curves, best = drawn(ax).lines
    assert len(curves) == 4
    assert (best.get_xdata().tolist(), best.get_ydata().tolist()) == ([1, 2], [5, 1])


def test_history_without_validation(ax):
    plots.plot_history(ax, [history([3, 2, 1], [np.nan] * 3)])
    assert ax.get_legend_handles_labels()[1] == ["training rows"]
    with pytest.raises(ValueError, match=r"measure must be one of \['loss', .*\], got 'lost'"):
        plots.plot_history(ax, [history([1], [1])], measure="lost")
