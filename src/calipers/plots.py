"""Figures: functions that draw on Matplotlib axes, and the style they share.

Importing this module needs Matplotlib, which comes with the extra ``plots``. Nothing here touches
pyplot, so no figure stays in memory and no display is needed. Colours are those of Okabe and Ito,
which people with any kind of colour vision can tell apart.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers.distributions import SplitNormalMixture
from calipers.metrics import CalibrationCurve

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
except ImportError as error:
    raise ImportError(
        "figures need Matplotlib: install it with `pip install 'calipers[plots]'`"
    ) from error

COLORS: dict[str, str] = {
    "blue": "#0072B2",
    "orange": "#D55E00",
    "green": "#009E73",
    "yellow": "#E69F00",
    "sky": "#56B4E9",
    "pink": "#CC79A7",
    "grey": "#8C8C8C",
    "black": "#1A1A1A",
}
"""Colours by name."""

PAGE = 7.2
"""Width of a page in inches."""

_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "savefig.dpi": 220,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}

FloatArray = NDArray[np.float64]


@contextmanager
def style() -> Iterator[None]:
    """Use the common style inside the block, for making figures and for saving them."""
    with mpl.rc_context(_STYLE):
        yield


def new_figure(height: float, *, width: float = PAGE) -> Figure:
    """Make an empty figure whose axes arrange themselves.

    Examples
    --------
    >>> with style():
    ...     figure = new_figure(3.0)
    ...     axes = figure.subplots(1, 2)
    >>> len(axes)
    2
    """
    return Figure(figsize=(width, height), layout="constrained")


def plot_interval(
    ax: Axes,
    x: ArrayLike,
    lower: ArrayLike,
    point: ArrayLike,
    upper: ArrayLike,
    *,
    color: str = COLORS["blue"],
    labels: tuple[str, str] = ("prediction interval", "point estimate"),
) -> None:
    """Draw intervals over an ordered input as a band, and points as a line.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    x, lower, point, upper : array-like of shape (n,)
        Ordered input, bounds and points.
    color : str
        Of band and line.
    labels : tuple of str
        Names of band and line in the legend.
    """
    ax.fill_between(x, lower, upper, color=color, alpha=0.18, linewidth=0, label=labels[0])
    for bound in (lower, upper):
        ax.plot(x, bound, color=color, linewidth=1.0)
    ax.plot(x, point, color=color, linewidth=1.6, label=labels[1])


def plot_mixture(ax: Axes, mixture: SplitNormalMixture, *, coverage: float) -> None:
    """Draw the density of one mixture, those of its components, and its interval.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    mixture : SplitNormalMixture of shape (1,)
        The mixture.
    coverage : float
        Mass of the shaded interval.
    """
    low, high = (float(bound[0]) for bound in mixture.interval(coverage))
    margin = 0.35 * (high - low)
    x = np.linspace(low - margin, high + margin, 1001)
    total = mixture.pdf(x[:, None])[:, 0]
    inside = (x >= low) & (x <= high)
    ax.fill_between(x[inside], total[inside], color=COLORS["blue"], alpha=0.18, linewidth=0)
    palette = [COLORS[name] for name in ("orange", "green", "yellow", "sky", "pink")]
    for j in range(len(mixture.weights)):
        member = mixture.components[j].pdf(x)
        label = "members" if j == 0 else None
        ax.plot(x, member, "--", color=palette[j % len(palette)], linewidth=1.0, label=label)
    ax.plot(x, total, color=COLORS["black"], linewidth=1.8, label="mixture")
    for bound in (low, high):
        ax.plot([bound] * 2, [0, np.interp(bound, x, total)], color=COLORS["blue"], linewidth=1.2)
    ax.set(ylim=(0, None), xlim=(x[0], x[-1]), xlabel="target", ylabel="density")


def plot_calibration(
    ax: Axes, curves: Mapping[str, CalibrationCurve], *, colors: Mapping[str, str]
) -> None:
    """Draw observed against nominal coverage, beside the diagonal of perfect calibration.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    curves : mapping of str to CalibrationCurve
        Curves by their name in the legend.
    colors : mapping of str to str
        Their colours.
    """
    ax.plot([0, 1], [0, 1], color=COLORS["grey"], linewidth=0.8, linestyle=(0, (4, 3)))
    for name, curve in curves.items():
        ax.plot(curve.nominal, curve.observed, color=colors[name], label=name)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xticks([0, 0.5, 1])
    ax.set_yticks([0, 0.5, 1])


def plot_pit(ax: Axes, values: ArrayLike, *, bins: int = 20, color: str = COLORS["blue"]) -> None:
    """Draw a histogram of PIT values, flat where predictions are calibrated.

    The shaded strip is where 95% of the bars of uniform values would end, were the rows
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
        Of the bars.
    """
    values = np.asarray(values, dtype=float)
    counts, edges = np.histogram(values, bins=bins, range=(0, 1))
    height = counts / len(values) * bins
    ax.bar(edges[:-1], height, width=1 / bins, align="edge", color=color, alpha=0.75, linewidth=0)
    spread = 1.96 * np.sqrt((bins - 1) / len(values))
    ax.axhspan(max(1 - spread, 0), 1 + spread, color=COLORS["grey"], alpha=0.3, linewidth=0)
    ax.axhline(1, color=COLORS["black"], linewidth=0.7)
    ax.set(xlim=(0, 1), ylim=(0, max(2.0, 1.05 * height.max())))
    ax.set_xticks([0, 0.5, 1])


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
    """Label few powers of ten; where there is no power between the ends, 1, 2 and 5 as well."""
    low, high = sorted(axis.get_view_interval())
    wide = np.floor(np.log10(high)) - np.ceil(np.log10(low)) >= 1
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=4))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
