import matplotlib as mpl
import numpy as np
import pytest

from calipers import plots
from calipers.aggregation import snm
from calipers.metrics import CalibrationCurve
from calipers.study._panels import plot_counts, plot_heat_map


@pytest.fixture
def ax():
    with plots.style():
        yield plots.new_figure(2.0).subplots()


def drawn(ax):
    """Draw for real, since Matplotlib finds many mistakes only then."""
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


def test_mixture(ax):
    mixture = snm([[-1.0], [0.0]], [[0.0], [1.0]], [[2.0], [2.0]], coverage=0.95)
    plots.plot_mixture(ax, mixture, coverage=0.95)
    first, second, total, low, high = drawn(ax).lines
    members = (first.get_ydata() + second.get_ydata()) / 2
    np.testing.assert_allclose(total.get_ydata(), members)
    bounds = [line.get_xdata()[0] for line in (low, high)]
    np.testing.assert_allclose(bounds, np.ravel(mixture.interval(0.95)))


def test_calibration(ax):
    curve = CalibrationCurve(np.array([0.1, 0.9]), np.array([0.2, 0.8]))
    plots.plot_calibration(ax, {"mine": curve}, colors={"mine": "C0"})
    assert drawn(ax).lines[1].get_ydata().tolist() == [0.2, 0.8]
    assert ax.get_legend_handles_labels()[1] == ["mine"]


def test_pit_of_uniform_values_is_flat(ax):
    plots.plot_pit(ax, (np.arange(100) + 0.5) / 100, bins=10)
    bars = [patch.get_height() for patch in drawn(ax).patches[:10]]
    np.testing.assert_allclose(bars, 1.0)


def test_width_error_markers_are_quantiles_of_groups(ax):
    width = np.repeat([1.0, 10.0], 100)
    error = np.concatenate([np.linspace(0, 1, 100), np.linspace(0, 20, 100)])
    plots.plot_width_error(ax, width, error, groups=2)
    x, y = drawn(ax).lines[-1].get_data()
    assert list(x) == [1.0, 10.0]
    np.testing.assert_allclose(y, [0.95, 19.0])
    assert all("times" not in label.get_text() for label in ax.get_xticklabels())


def test_heat_map_leaves_gaps_grey(ax):
    mesh = plot_heat_map(ax, [[0.0, np.nan], [0.5, 1.0]], extent=(0, 1))
    drawn(ax)
    assert mesh.get_array().mask.tolist() == [[False, True], [False, False]]
    assert ax.get_xlim() == (-0.5, 1.5)


def test_counts(ax):
    colors = {"QD+": "C0", "QD": "C1"}
    groups = {"QD+": [0.0, 0.0], "QD": [3.0, 7.0]}
    plot_counts(ax, ["a", "b"], groups, colors=colors, reference={"QD+": [0, 0], "QD": [2, 9]})
    assert [text.get_text() for text in drawn(ax).texts] == ["0", "0", "3", "7"]
    assert [text.xy[1] for text in ax.texts] == [0, 0, 3, 9]
    assert [patch.get_height() for patch in ax.patches] == [0, 0, 3, 7]
