"""Panels that only the study draws: heat maps with gaps, bar charts, and errors by width."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from numpy.typing import ArrayLike

from calipers.plots import COLORS

FAILED = "#B8B8B8"
"""Grey of cells without a value."""


def plot_heat_map(
    ax: Axes,
    values: ArrayLike,
    *,
    extent: tuple[float, float],
    norm: Normalize | None = None,
    cmap: str = "viridis",
) -> QuadMesh:
    """Draw a square grid of values as colours; cells without a value are grey.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    values : array-like of shape (k, k)
        First axis upwards, second axis to the right; NaN for missing.
    extent : tuple of float
        First and last value of both axes, at the centres of their cells.
    norm : Normalize, optional
        From values to colours.
    cmap : str
        Name of a Matplotlib colour map.

    Returns
    -------
    QuadMesh
        For a colour bar.
    """
    grid = np.asarray(values, dtype=float)
    half = (extent[1] - extent[0]) / (len(grid) - 1) / 2
    edges = np.linspace(extent[0] - half, extent[1] + half, len(grid) + 1)
    ax.set_facecolor(FAILED)
    masked = np.ma.masked_invalid(grid)
    mesh = ax.pcolormesh(edges, edges, masked, norm=norm, cmap=cmap, rasterized=True)
    ax.set(aspect="equal", xlim=(edges[0], edges[-1]), ylim=(edges[0], edges[-1]))
    for spine in ax.spines.values():
        spine.set_visible(False)
    return mesh


def plot_counts(
    ax: Axes,
    names: Sequence[str],
    groups: Mapping[str, Sequence[float]],
    *,
    colors: Mapping[str, str],
    reference: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Draw counts as grouped bars, each with its number, and reference values as lines.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    names : sequence of str
        Labels along the axis.
    groups : mapping of str to sequence of float
        One bar at each label for each group.
    colors : mapping of str to str
        Colours of the groups.
    reference : mapping of str to sequence of float, optional
        Values drawn as a black line over a group's bars.
    """
    place, width = np.arange(len(names)), 0.8 / len(groups)
    lines: dict[str, Any] = {"color": COLORS["black"], "linewidth": 1.4}
    for j, (name, counts) in enumerate(groups.items()):
        x = place + (j - (len(groups) - 1) / 2) * width
        ax.bar(x, counts, width * 0.9, color=colors[name], label=name)
        above = counts if reference is None else np.maximum(counts, reference[name])
        for place_of, height, count in zip(x, above, counts, strict=True):
            ax.annotate(
                f"{count:g}",
                (place_of, height),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
                color=colors[name],
            )
        if reference is not None:
            label = "published" if j == 0 else "_nolegend_"
            ax.hlines(reference[name], x - width * 0.45, x + width * 0.45, label=label, **lines)
    ax.set_xticks(place, names)
    ax.tick_params(axis="x", length=0)


def plot_width_error(
    ax: Axes,
    half_width: ArrayLike,
    error: ArrayLike,
    *,
    coverage: float = 0.95,
    groups: int = 10,
    color: str = COLORS["blue"],
    most: int = 1500,
) -> None:
    """Draw absolute errors against half the width of their intervals, on logarithmic axes.

    Rows are grouped by width, and a marker shows each group's error quantile at ``coverage``:
    where wide intervals mean large errors, markers follow the diagonal.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    half_width, error : array-like of shape (n,)
        Half widths, and distances of the targets from the middle of their intervals.
    coverage : float
        Nominal probability of the intervals.
    groups : int
        Number of groups, of equal size.
    color : str
        Of the markers.
    most : int
        At most so many rows are drawn as dots; all of them count for the markers.
    """
    width, distance = np.asarray(half_width, dtype=float), np.asarray(error, dtype=float)
    order = np.argsort(width, kind="stable")
    shown = order[:: max(1, -(-len(order) // most))]
    floor = np.quantile(width, 0.01) * 1e-2
    dots = np.maximum(distance[shown], floor)
    ax.plot(
        width[shown], dots, ".", color=COLORS["grey"], markersize=1.6, alpha=0.4, rasterized=True
    )
    parts = [part for part in np.array_split(order, groups) if part.size]
    center = [float(np.median(width[part])) for part in parts]
    quantile = [float(np.quantile(distance[part], coverage)) for part in parts]
    ends = np.array([width.min(), width.max()])
    ax.plot(ends, ends, color=COLORS["black"], linewidth=0.8, linestyle=(0, (4, 3)))
    ax.plot(center, quantile, "o-", color=color, markersize=3, linewidth=0.9)
    ax.set(xscale="log", yscale="log")
    ax.set_ylim(bottom=floor)
    _few_ticks(ax.xaxis)
    _few_ticks(ax.yaxis)


def _few_ticks(axis: Axis) -> None:
    """Label a few powers of ten; also 2 and 5 times them if the axis spans less than a decade."""
    low, high = sorted(axis.get_view_interval())
    wide = np.floor(np.log10(high)) - np.ceil(np.log10(low)) >= 1
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=4))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
