"""Pictures of calibration: coverage, PIT values, widths against errors."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from calipers.metrics import CalibrationCurve, coverage_band, pit_band
from calipers.plots._style import COLORS


def plot_calibration(
    ax: Axes,
    curves: Mapping[str, CalibrationCurve],
    *,
    colors: Mapping[str, str] | None = None,
    rows: int | None = None,
) -> None:
    """Draw observed against nominal coverage, beside the diagonal of perfect calibration.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    curves : mapping of str to CalibrationCurve
        Curves by their name in the legend.
    colors : mapping of str to str, optional
        Their colours.
    rows : int, optional
        Rows that the curves are of: shades where chance takes 95% of honest curves at each
        coverage.

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
        nominal = np.linspace(0.01, 0.99, 99)
        low, high = coverage_band(rows, nominal)
        ax.fill_between(
            nominal, low, high, color=COLORS["grey"], alpha=0.3, linewidth=0, label="within chance"
        )
    ax.plot([0, 1], [0, 1], color=COLORS["grey"], linewidth=0.8, linestyle=(0, (4, 3)))
    chosen = colors or dict(zip(curves, cycle(COLORS.values()), strict=False))
    for name, curve in curves.items():
        ax.plot(curve.nominal, curve.observed, color=chosen[name], label=name)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xticks([0, 0.5, 1])
    ax.set_yticks([0, 0.5, 1])


def plot_pit(ax: Axes, values: ArrayLike, *, bins: int = 20, color: str = COLORS["blue"]) -> None:
    """Draw a histogram of PIT values, flat where predictions are calibrated.

    The shaded strip is where 95% of the bars of uniform values would end, were the rows
    independent; see ``calipers.metrics.pit_band``.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    values : array-like of shape (n,)
        Probability integral transform of the targets, between 0 and 1.
    bins : int
        Number of bars.
    color : str
        Of the bars.
    """
    values = np.asarray(values, dtype=float)
    counts, edges = np.histogram(values, bins=bins, range=(0, 1))
    height = counts / len(values) * bins
    ax.bar(edges[:-1], height, width=1 / bins, align="edge", color=color, alpha=0.75, linewidth=0)
    ax.axhspan(*pit_band(len(values), bins), color=COLORS["grey"], alpha=0.3, linewidth=0)
    ax.axhline(1, color=COLORS["black"], linewidth=0.7)
    ax.set(xlim=(0, 1), ylim=(0, max(2.0, 1.05 * height.max())))
    ax.set_xticks([0, 0.5, 1])
