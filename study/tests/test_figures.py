import dataclasses

import numpy as np
import pytest

from calipers import plots
from calipers_study.draw import sensitivity as draw_sensitivity, toy as draw_toy
from calipers_study.figures import FIGURES, write_figures
from calipers_study.panels import plot_counts, plot_heat_map, plot_width_error
from calipers_study.sensitivity import failures_markdown, other_seeds, sensitivity
from calipers_study.settings import load_settings
from calipers_study.store import ResultStore, StoreError
from calipers_study.toy import SETTINGS, toy

STORED = ["mixture", "robustness", "calibration", "pit", "width"]


@pytest.mark.long
def test_figures_from_the_store(store, tmp_path, monkeypatch):
    monkeypatch.setattr("calipers.bank.train", None)
    paths = write_figures(STORED, store=store, out=tmp_path)
    assert [p.name for p in paths] == [f"{n}.{s}" for n in STORED for s in ("png", "pdf")]
    assert all(p.stat().st_size > 5000 for p in paths)
    again = write_figures(["pit"], store=store, out=tmp_path / "again")
    for path in again:
        assert path.read_bytes() == (tmp_path / "figures" / path.name).read_bytes()


def test_toy(tmp_path):
    options = {"settings": dataclasses.replace(SETTINGS, epochs=3), "patience": 2, "n_jobs": 1}
    entry = toy(ResultStore(tmp_path), **options)
    assert entry.arrays["inputs"].shape == (1000,)
    assert entry.arrays["lower"].shape == (5, 601)
    again = toy(ResultStore(tmp_path), **options)
    assert again.record == entry.record  # found, not trained
    [ax] = draw_toy(entry).axes
    assert len(ax.lines) == 1 + 15 + 3 + 3


def test_sensitivity(mini, tmp_path):
    settings = load_settings("qd+", "yacht", folder=mini / "settings")
    store = ResultStore(tmp_path)
    options = {"grid": 3, "settings": settings, "n_jobs": 1}
    maps = {weight: sensitivity(store, weight, **options) for weight in (10.0, 0.0)}
    for entry in maps.values():
        assert entry.arrays["weights"].tolist() == [0.0, 0.5, 1.0]
        empty = np.isnan(entry.arrays["PICP"])
        assert entry.arrays["PICP"].shape == (3, 3)
        assert (np.isnan(entry.arrays["MSE"]) == empty).all()
        inside = entry.arrays["PICP"][~empty]
        assert ((inside >= 0) & (inside <= 1)).all()
    assert maps[10.0].record["settings"]["crossing_weight"] == 10.0
    assert sensitivity(store, 0.0, **options).record == maps[0.0].record
    assert len(draw_sensitivity(maps).axes) == 6 + 3
    shares = failures_markdown(store).splitlines()[4:]
    assert [line.split(" | ")[:2] for line in shares] == [
        ["| xi = 0", "lambda_1"], ["| xi = 0", "lambda_2"],
        ["| xi = 10", "lambda_1"], ["| xi = 10", "lambda_2"],
    ]  # fmt: skip
    failed = np.isnan(maps[0.0].arrays["PICP"]).mean()
    assert shares[0].split(" | ")[2] == f"{100 * failed:.0f}%"
    several = other_seeds(store, range(1, 3), **options)
    rows = failures_markdown(store).splitlines()[-2:]
    for name, row, what in zip(
        ("PICP", "PICP of last weights"), rows, ("", ", last weights"), strict=True
    ):
        assert several.arrays[name].shape == (2, 3, 3)
        each = np.isnan(several.arrays[name]).mean(axis=(1, 2))
        assert row.startswith(f"| xi = 0, 2 other seeds and shuffles{what} | lambda_1 | ")
        assert f"| {100 * each.min():.0f}% to {100 * each.max():.0f}% | " in row
        ends = row.split(" | ")[-1].rstrip(" |").split(", ")
        for end, share in zip(ends, np.isnan(several.arrays[name]).mean(axis=2), strict=True):
            first = 3 if end == "none" else round(2 * float(end))
            assert (share[first:] < 0.5).all()
            assert first == 0 or share[first - 1] >= 0.5


def test_what_is_asked_for_must_be_there(tmp_path):
    with pytest.raises(StoreError, match="holds no trials"):
        write_figures(["pit"], store=tmp_path / "nowhere", out=tmp_path)
    with pytest.raises(ValueError, match="there is no figure 'pitt'; did you mean 'pit'"):
        write_figures(["pitt"], store=tmp_path, out=tmp_path)


def test_by_default_what_is_missing_is_left_out(tmp_path, monkeypatch):
    kept = {name: FIGURES[name] for name in ("mixture", "pit")}
    monkeypatch.setattr("calipers_study.figures.FIGURES", kept)
    lines = []
    paths = write_figures(store=tmp_path / "nowhere", out=tmp_path, notify=lines.append)
    assert [p.name for p in paths] == ["mixture.png", "mixture.pdf"]
    assert lines[0].startswith("pit is left out: ")


@pytest.fixture
def ax():
    with plots.style():
        yield plots.new_figure(2.0).subplots()


def test_heat_map_leaves_gaps_grey(ax):
    mesh = plot_heat_map(ax, [[0.0, np.nan], [0.5, 1.0]], extent=(0, 1))
    ax.figure.canvas.draw()
    assert mesh.get_array().mask.tolist() == [[False, True], [False, False]]
    assert ax.get_xlim() == (-0.5, 1.5)


def test_counts(ax):
    colors = {"QD+": "C0", "QD": "C1"}
    groups = {"QD+": [0.0, 0.0], "QD": [3.0, 7.0]}
    plot_counts(ax, ["a", "b"], groups, colors=colors, reference={"QD+": [0, 0], "QD": [2, 9]})
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == ["0", "0", "3", "7"]
    assert [text.xy[1] for text in ax.texts] == [0, 0, 3, 9]
    assert [patch.get_height() for patch in ax.patches] == [0, 0, 3, 7]


def test_width_error_markers_are_quantiles_of_groups(ax):
    width = np.repeat([1.0, 10.0], 100)
    error = np.concatenate([np.linspace(0, 1, 100), np.linspace(0, 20, 100)])
    plot_width_error(ax, width, error, groups=2)
    ax.figure.canvas.draw()
    x, y = ax.lines[-1].get_data()
    assert list(x) == [1.0, 10.0]
    np.testing.assert_allclose(y, [0.95, 19.0])
    assert all("times" not in label.get_text() for label in ax.get_xticklabels())
