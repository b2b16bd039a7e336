"""Functions that draw the figures."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from calipers.aggregation import snm
from calipers.datasets import TOY
from calipers.metrics import CalibrationCurve
from calipers.plots import (
    COLORS,
    PAGE,
    new_figure,
    plot_calibration,
    plot_interval,
    plot_mixture,
    plot_pit,
)
from calipers_study.cells import Results
from calipers_study.measures import combine, pit as pit_of, stored_trials
from calipers_study.methods import DATASETS, METHODS
from calipers_study.panels import FAILED, plot_counts, plot_heat_map, plot_width_error
from calipers_study.sensitivity import normalised
from calipers_study.store import ResultStore, StoreEntry, StoreError
from calipers_study.verdict import published_cells

METHOD_COLORS = {"SNM-QD+": COLORS["blue"], "MVE": COLORS["orange"], "SEM-QD": COLORS["green"]}

_COVERAGE = 0.95

# Bounds and points of five members, for the figure that explains the mixture.
_EXAMPLE = np.array(
    [
        [-1.9, 0.1, 1.3],
        [-1.2, 0.4, 3.1],
        [-0.6, 1.0, 2.2],
        [-2.4, -0.5, 0.8],
        [-0.9, 1.6, 4.0],
    ]
).T[:, :, None]


def toy(entry: StoreEntry) -> Figure:
    """Draw the toy problem: data, members, the ensemble's interval and the true one."""
    a = entry.arrays
    x = a["x"]
    ensemble = snm(a["lower"], a["point"], a["upper"], coverage=_COVERAGE)
    lower, upper = ensemble.interval(_COVERAGE)
    truth = TOY.interval(x[:, None], _COVERAGE)
    figure = new_figure(3.4, width=5.4)
    ax = figure.subplots()
    dots: dict[str, Any] = {
        "color": COLORS["grey"],
        "markersize": 2,
        "alpha": 0.6,
        "label": "training rows",
    }
    ax.plot(a["inputs"], a["targets"], ".", **dots)
    for name in ("lower", "point", "upper"):
        for j, values in enumerate(a[name]):
            label = "members" if (name, j) == ("lower", 0) else None
            ax.plot(x, values, color=COLORS["yellow"], linewidth=0.5, label=label)
    labels = ("95% interval (SNM-QD+)", "point estimate")
    plot_interval(ax, x, lower, a["point"].mean(axis=0), upper, labels=labels)
    dashes: dict[str, Any] = {"color": COLORS["black"], "linewidth": 0.9, "linestyle": (0, (4, 2))}
    ax.plot(x, truth[:, 0], label="true mean and 95% interval", **dashes)
    ax.plot(x, truth[:, 1], **dashes)
    ax.plot(x, TOY.mean(x[:, None]), **dashes)
    ax.set(xlabel="x", ylabel="y", xlim=(-6, 6))
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def mixture() -> Figure:
    """Draw five members' split normals and the mixture they make."""
    figure = new_figure(2.6, width=4.6)
    ax = figure.subplots()
    plot_mixture(ax, snm(*_EXAMPLE, coverage=_COVERAGE), coverage=_COVERAGE)
    ax.legend(loc="upper right")
    return figure


def sensitivity(maps: Mapping[float, StoreEntry]) -> Figure:
    """Draw maps of three measures over both weights, one row for each weight of the penalty."""
    figure = new_figure(5.6)
    axes = figure.subplots(len(maps), 3, sharex=True, sharey=True, squeeze=False)
    widths = normalised([entry.arrays["MPIW"].astype(float) for entry in maps.values()])
    shown = {
        weight: {"PICP": entry.arrays["PICP"], "NMPIW": width, "MSE": entry.arrays["MSE"]}
        for (weight, entry), width in zip(maps.items(), widths, strict=True)
    }
    norms: dict[str, Normalize] = {"PICP": Normalize(0, 1)}
    for name in ("NMPIW", "MSE"):
        found = np.concatenate([arrays[name].ravel() for arrays in shown.values()])
        found = found[np.isfinite(found) & (found > 0)]
        low, high = (found.min(), found.max()) if found.size else (1e-3, 1.0)
        norms[name] = LogNorm(low, max(high, low * 1.01))
    for column, name in enumerate(norms):
        for ax, (weight, arrays) in zip(axes[:, column], shown.items(), strict=True):
            mesh = plot_heat_map(ax, arrays[name].T, extent=(0, 1), norm=norms[name])
            ax.set_title(rf"{name}, $\xi = {weight:g}$")
        axes[-1, column].set_xlabel(r"$\lambda_1$ (coverage)")
        bar = figure.colorbar(mesh, ax=axes[:, column], location="bottom", shrink=0.9, aspect=30)
        bar.set_label(name)
    for ax in axes[:, 0]:
        ax.set_ylabel(r"$\lambda_2$ (point)")
        ax.set(xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    figure.legend(handles=[Patch(color=FAILED, label="failed training")], loc="outside upper right")
    return figure


def robustness(store: ResultStore) -> Figure:
    """Draw how many networks failed and were trained again, and the paper's counts."""
    groups: dict[str, list[float]] = {"QD+": [], "QD": []}
    paper: dict[str, list[float]] = {"QD+": [], "QD": []}
    counted = {(c.dataset, c.method): c.mean for c in published_cells() if c.metric == "failures"}
    names = []
    for dataset in DATASETS:
        found = {m: Results(stored_trials(store, m, dataset), []) for m in ("qd+", "qd")}
        if not all(result.trials for result in found.values()):
            continue
        names.append(f"{dataset}\n{found['qd'].networks}")
        for method, result in found.items():
            title = METHODS[method].title
            groups[title].append(result.failures.mean or 0.0)
            paper[title].append(counted[dataset, title])
    if not names:
        raise StoreError(f"{store.folder} holds no trials of QD+ and QD")
    figure = new_figure(2.6)
    ax = figure.subplots()
    colors = {"QD+": METHOD_COLORS["SNM-QD+"], "QD": METHOD_COLORS["SEM-QD"]}
    plot_counts(ax, names, groups, colors=colors, reference=paper)
    ax.set(ylabel="failed trainings", xlabel="dataset and number of networks")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def calibration(store: ResultStore) -> Figure:
    """Draw observed against nominal coverage for every dataset, over all its trials."""
    levels = np.linspace(0, 1, 201)[1:-1]

    def panel(ax: Axes, dataset: str) -> bool:
        curves = {}
        for label, method in (("SNM-QD+", "qd+"), ("MVE", "mve")):
            depth = np.abs(2 * _pit(store, method, dataset) - 1)
            if depth.size:  # a row is inside the interval if its PIT value is within the tails
                observed = np.searchsorted(np.sort(depth), levels, side="right") / depth.size
                curves[label] = CalibrationCurve(levels, observed)
        plot_calibration(ax, curves, colors=METHOD_COLORS)
        return bool(curves)

    return _small_multiples(store, panel, "nominal coverage", "observed coverage", height=3.6)


def pit(store: ResultStore) -> Figure:
    """Draw histograms of the PIT values of SNM-QD+ for every dataset."""

    def panel(ax: Axes, dataset: str) -> bool:
        values = _pit(store, "qd+", dataset)
        if values.size:
            plot_pit(ax, values)
        return bool(values.size)

    return _small_multiples(
        store, panel, "PIT value of the target (SNM-QD+)", "density", height=3.4
    )


def width(store: ResultStore) -> Figure:
    """Draw errors against half widths of SNM-QD+ intervals for every dataset."""

    def panel(ax: Axes, dataset: str) -> bool:
        half, error = [], []
        for trial in _sound(store, "qd+", dataset):
            found = combine(trial, "snm")
            if found.lower is not None and found.upper is not None:
                half.append((found.upper - found.lower) / 2)
                middle = (found.upper + found.lower) / 2
                error.append(np.abs(trial.arrays["target"] - middle))
        if half:
            plot_width_error(ax, np.concatenate(half), np.concatenate(error))
        return bool(half)

    x, y = "half width of the interval (SNM-QD+)", "distance from its middle"
    return _small_multiples(store, panel, x, y, height=3.8)


def _small_multiples(
    store: ResultStore, panel: Callable[[Axes, str], bool], x: str, y: str, *, height: float
) -> Figure:
    """Draw one panel for each dataset that has trials, five to a row."""
    present = [name for name in DATASETS if any(_trial_names(store, name))]
    if not present:
        raise StoreError(f"{store.folder} holds no trials of QD+ or MVE")
    columns = min(5, len(present))
    rows = -(-len(present) // columns)
    figure = new_figure(height * rows / 2 + 0.3, width=max(3.6, PAGE * columns / 5))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax, name in zip(axes, present, strict=False):
        if panel(ax, name):
            ax.set_title(name)
        else:
            ax.set_axis_off()
    for ax in axes[len(present) :]:
        ax.set_axis_off()
    figure.supxlabel(x, fontsize=8)
    figure.supylabel(y, fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
    return figure


def _trial_names(store: ResultStore, dataset: str) -> Iterator[str]:
    for method in ("qd+", "mve"):
        yield from store.names(f"{METHODS[method].folder}/{dataset}")


def _sound(store: ResultStore, method: str, dataset: str) -> list[StoreEntry]:
    """Trials that have at least one network."""
    return [t for t in stored_trials(store, method, dataset) if len(t.arrays["members"])]


def _pit(store: ResultStore, method: str, dataset: str) -> np.ndarray:
    trials = _sound(store, method, dataset)
    values = [pit_of(trial) for trial in trials]
    return np.concatenate(values) if values else np.empty(0)
