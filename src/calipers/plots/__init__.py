"""Figures: functions that draw on Matplotlib axes, and the style they share.

Importing this module needs Matplotlib, which comes with the extra ``plots``. Nothing here touches
pyplot, so no figure stays in memory and no display is needed. Colours are those of Okabe and Ito,
which people with any kind of colour vision can tell apart.

``plot_intervals`` and ``plot_reliability`` take a model and rows, ``plot_importance`` and
``plot_dependence`` take results of ``calipers.importance``. Every other function takes the axes
first, arrays in the order lower, point, upper, target, and options by name. ``calipers.report``
draws the same charts for a model, all in one file.
"""

try:
    import matplotlib as mpl  # noqa: F401 - fails here with a better message than below
except ImportError as error:
    raise ImportError(
        "figures need Matplotlib: install it with `pip install 'calipers[plots]'`"
    ) from error

from calipers.plots._calibration import plot_calibration, plot_coverage_by, plot_pit
from calipers.plots._diagnostics import (
    plot_dependence,
    plot_history,
    plot_importance,
    plot_intervals,
    plot_reliability,
)
from calipers.plots._predictions import plot_interval, plot_mixture, plot_rows, plot_uncertainty
from calipers.plots._style import COLORS, PAGE, new_figure, style

__all__ = [
    "COLORS",
    "PAGE",
    "new_figure",
    "plot_calibration",
    "plot_coverage_by",
    "plot_dependence",
    "plot_history",
    "plot_importance",
    "plot_interval",
    "plot_intervals",
    "plot_mixture",
    "plot_pit",
    "plot_reliability",
    "plot_rows",
    "plot_uncertainty",
    "style",
]
