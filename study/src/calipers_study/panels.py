"""Panels that only the study draws: heat maps with gaps, and counts beside published ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize
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
    """Draw a square grid of values as colours; where a value is missing, the cell is grey.

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
    """Draw counts as bars side by side, each with its number, and reference values as lines.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    names : sequence of str
        Places along the axis.
    groups : mapping of str to sequence of float
        One bar in each place for each group.
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
