"""Plots of calibration: coverage at all levels and in groups of rows, and the PIT."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike

from calipers.metrics import (
    CalibrationCurve,
    GroupedCoverage,
    coverage_band,
    curve_band,
    joint_confidence,
    pit_band,
)
from calipers.plots._style import COLORS


def plot_calibration(
    ax: Axes,
    curves: Mapping[str, CalibrationCurve],
    *,
    colors: Mapping[str, str] | None = None,
    rows: int | None = None,
) -> None:
    """Draw observed against nominal coverage, with the diagonal of perfect calibration.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    curves : mapping of str to CalibrationCurve
        Curves by their name in the legend.
    colors : mapping of str to str, optional
        Colours by the same names.
    rows : int, optional
        Number of rows behind the curves. If given, the band is shaded in which the whole curves of
        95% of calibrated models lie.

    Examples
    --------
    >>> from calipers.plots import new_figure
    >>> ax = new_figure(2.0).subplots()
    >>> curve = CalibrationCurve(np.array([0.5, 0.9]), np.array([0.48, 0.93]))
    >>> plot_calibration(ax, {"model": curve}, rows=200)
    >>> ax.get_legend_handles_labels()[1]
    ['within chance', 'model']
    """
    if rows is not None:
        nominal, low, high = curve_band(rows)
        ax.fill_between(
            nominal, low, high, color=COLORS["grey"], alpha=0.3, linewidth=0, label="within chance"
        )
    ax.plot([0, 1], [0, 1], color=COLORS["grey"], linewidth=0.8, linestyle=(0, (4, 3)))
    colors = colors or dict(zip(curves, cycle(COLORS.values()), strict=False))
    for name, curve in curves.items():
        ax.plot(curve.nominal, curve.observed, color=colors[name], label=name)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xticks([0, 0.5, 1])
    ax.set_yticks([0, 0.5, 1])


def plot_pit(ax: Axes, values: ArrayLike, *, bins: int = 20, color: str = COLORS["blue"]) -> None:
    """Draw a histogram of PIT values, which is flat if predictions are calibrated.

    The shaded band is where all bars end, for 95% of samples, if values are uniform and rows
    independent.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    values : array-like of shape (n,)
        Probability integral transform of the targets, between 0 and 1.
    bins : int
        Number of bars.
    color : str
        Colour of the bars.
    """
    values = np.asarray(values, dtype=float)
    counts, edges = np.histogram(values, bins=bins, range=(0, 1))
    height = counts / len(values) * bins
    ax.bar(edges[:-1], height, width=1 / bins, align="edge", color=color, alpha=0.75, linewidth=0)
    band = pit_band(len(values), bins, confidence=joint_confidence(len(values), bins))
    ax.axhspan(*band, color=COLORS["grey"], alpha=0.3, linewidth=0)
    ax.axhline(1, color=COLORS["black"], linewidth=0.7)
    ax.set(xlim=(0, 1), ylim=(0, max(2.0, 1.05 * height.max(), 1.05 * band[1])))
    ax.set_xticks([0, 0.5, 1])


def plot_coverage_by(
    ax: Axes,
    groups: GroupedCoverage,
    *,
    coverage: float = 0.95,
    labels: Sequence[str] | None = None,
) -> None:
    """Draw the coverage rate of groups of rows, one line each, with the range due to chance.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    groups : GroupedCoverage
        From ``calipers.metrics.coverage_by_group``, ``coverage_by_value`` or ``coverage_by_width``.
    coverage : float
        Nominal probability of the intervals.
    labels : sequence of str, optional
        Names of the groups; by default the groups themselves.

    Examples
    --------
    >>> from calipers.metrics import coverage_by_group
    >>> from calipers.plots import new_figure
    >>> ax = new_figure(2.0).subplots()
    >>> groups = coverage_by_group([0.5, 2, 0.1], [0, 0, 0], [1, 1, 1], ["a", "a", "b"])
    >>> plot_coverage_by(ax, groups)
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['a (2)', 'b (1)']
    """
    rate, y = groups.coverage_rate, np.arange(len(groups.group))
    low, high = coverage_band(groups.n_samples, coverage)
    ax.barh(
        y, high - low, left=low, height=0.6, color=COLORS["grey"], alpha=0.3, linewidth=0,
        label="within chance",
    )  # fmt: skip
    ax.axvline(coverage, color=COLORS["black"], linewidth=0.8, linestyle=(0, (4, 3)))
    within = (low <= rate) & (rate <= high)
    for mask, mark, color in ((within, "o", "blue"), (~within, "D", "orange")):
        ax.plot(rate[mask], y[mask], mark, color=COLORS[color], markersize=4)
    names = _names(groups, labels)
    ax.set_yticks(
        y, [f"{name} ({rows:,})" for name, rows in zip(names, groups.n_samples, strict=True)]
    )
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(min(low.min(), rate.min()) - 0.03, 1.01), xlabel="fraction of rows inside")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def _names(groups: GroupedCoverage, labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        numeric = groups.group.dtype.kind in "biuf"
        return [f"{value:.4g}" if numeric else str(value) for value in groups.group.tolist()]
    if len(labels) != len(groups.group):
        raise ValueError(f"labels must name {len(groups.group)} groups, got {len(labels)}")
    return list(labels)
