"""Colours, sizes and fonts that figures share."""

from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

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


def style() -> AbstractContextManager[None]:
    """Use the common style inside a ``with`` block, for making and for saving figures."""
    return mpl.rc_context(_STYLE)


def new_figure(height: float, *, width: float = PAGE) -> Figure:
    """Return an empty figure with constrained layout.

    Examples
    --------
    >>> with style():
    ...     figure = new_figure(3.0)
    ...     axes = figure.subplots(1, 2)
    >>> len(axes)
    2
    """
    return Figure(figsize=(width, height), layout="constrained")
