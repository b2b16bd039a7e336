"""Pictures of training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from calipers.plots._style import COLORS


def plot_history(ax: Axes, histories: Sequence[Any], *, measure: str = "loss") -> None:
    """Draw a measure of every network over its epochs, on training and on validation rows.

    A ring marks the best epoch of each network that sets rows aside, whose weights it keeps. What
    follows may leave the picture at the top.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    histories : sequence of structured arrays
        ``model.ensemble_.bank.histories``.
    measure : str
        "loss", "coverage", "width" or "mse".

    Examples
    --------
    >>> from calipers.bank import HISTORY_TYPE
    >>> from calipers.plots import new_figure
    >>> history = np.zeros(3, HISTORY_TYPE)
    >>> history["epoch"], history["valid_loss"] = [1, 2, 3], [3, 1, 2]
    >>> ax = new_figure(2.0).subplots()
    >>> plot_history(ax, [history])
    >>> ax.get_legend_handles_labels()[1]
    ['training rows', 'validation rows', 'best epoch']
    """
    fields = histories[0].dtype.names
    known = [name for name in fields if f"valid_{name}" in fields]
    if measure not in known:
        raise ValueError(f"measure must be one of {known}, got {measure!r}")
    validated = [history[np.isfinite(history["valid_loss"])] for history in histories]
    validated = [history for history in validated if history.size]
    for parts, field, color, name in (
        (histories, measure, "blue", "training rows"),
        (validated, f"valid_{measure}", "orange", "validation rows"),
    ):
        for first, part in enumerate(parts):
            label = name if first == 0 else None
            line: Any = {"color": COLORS[color], "linewidth": 0.8, "alpha": 0.6}
            ax.plot(part["epoch"], part[field], label=label, **line)
    best = np.array([part[_best(part)] for part in validated], dtype=histories[0].dtype)
    if best.size:
        ring: Any = {"color": COLORS["orange"], "markerfacecolor": "white", "markersize": 4}
        ax.plot(best["epoch"], best[f"valid_{measure}"], "o", label="best epoch", **ring)
    values = np.concatenate([history[measure] for history in histories])
    ends = *np.quantile(values[np.isfinite(values)], [0, 0.98]), *best[f"valid_{measure}"]
    low, high = min(ends), max(ends)
    margin = 0.08 * (high - low) or 1.0
    ax.set(ylim=(low - margin, high + margin), xlabel="epoch", ylabel=measure)


def _best(history: Any) -> int:
    """Place of the epoch with the least validation loss."""
    return int(np.argmin(history["valid_loss"]))
