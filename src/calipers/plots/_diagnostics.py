"""Plots of a fitted model on labelled rows, of importances and of training histories."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from calipers._estimator.row_checks import checked_target
from calipers.importance import Dependence, Importances
from calipers.metrics import calibration_curve
from calipers.plots._calibration import plot_calibration
from calipers.plots._predictions import drawable, plot_interval, plot_rows
from calipers.plots._style import COLORS, new_figure
from calipers.prediction import Query, checked_levels
from calipers.regressor import IntervalRegressor

_LABELS = {
    "interval_score": "increase of the interval score when shuffled",
    "squared_error": "increase of the squared error when shuffled",
    "width": "mean absolute change of width when shuffled",
}


def plot_intervals(
    model: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike,
    *,
    coverage: float | None = None,
    ax: Axes | None = None,
    max_rows: int = 400,
) -> Axes:
    """Draw rows in the order of their prediction, each with its interval and its target.

    Parameters
    ----------
    model : IntervalRegressor
        A fitted model.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Rows that were not used for training, and their targets.
    coverage : float, optional
        Coverage of the intervals, the model's own by default.
    ax : Axes, optional
        Where to draw; a new figure by default, which is ``ax.figure``.
    max_rows : int
        Maximum number of rows drawn, evenly spaced in this order.

    Examples
    --------
    >>> from calipers import IntervalRegressor
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> model = IntervalRegressor(n_networks=5, epochs=5, random_state=0).fit(X, X[:, 0])
    >>> plot_intervals(model, X, X[:, 0], coverage=0.9).get_ylabel()
    'y'
    """
    axes = _axes(ax)
    (level,) = checked_levels("coverage", model.coverage if coverage is None else coverage)
    found = model.query(X, Query((level,)))
    lower, upper = found.bounds(level)
    plot_rows(axes, lower, found.point, upper, checked_target(X, y), max_rows=max_rows)
    axes.set_ylabel(model.target_.name)
    return axes


def plot_reliability(
    model: IntervalRegressor, X: ArrayLike, y: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw observed against nominal coverage of a model, with the range due to chance.

    Parameters
    ----------
    model : IntervalRegressor
        A fitted model.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Rows that were not used for training, and their targets.
    ax : Axes, optional
        Where to draw; a new figure by default, which is ``ax.figure``.
    """
    axes = _axes(ax)
    targets = checked_target(X, y)
    curve = calibration_curve(targets, model.predict_dist(X))
    plot_calibration(axes, {"model": curve}, rows=len(targets))
    axes.set(xlabel="nominal coverage", ylabel="observed coverage")
    return axes


def plot_importance(
    importances: Importances,
    *,
    measure: str = "interval_score",
    ax: Axes | None = None,
    max_columns: int = 12,
) -> Axes:
    """Draw the importance of each column, the most important on top.

    Parameters
    ----------
    importances : Importances
        From ``calipers.importance.permutation_importance``.
    measure : {"interval_score", "squared_error", "width"}
        Which importance.
    ax : Axes, optional
        Where to draw; a new figure by default, which is ``ax.figure``.
    max_columns : int
        Maximum number of columns drawn.

    Examples
    --------
    >>> importances = Importances(("a", "b"), *np.arange(12.0).reshape(3, 2, 2))
    >>> [label.get_text() for label in plot_importance(importances).get_yticklabels()]
    ['b', 'a']
    """
    if measure not in _LABELS:
        raise ValueError(f"measure must be one of {sorted(_LABELS)}, got {measure!r}")
    axes = _axes(ax)
    values = getattr(importances, measure)
    mean = values.mean(axis=1)
    order = np.argsort(-mean, kind="stable")[:max_columns]
    error = np.array([mean - values.min(axis=1), values.max(axis=1) - mean])[:, order]
    y = np.arange(len(order))
    axes.barh(y, mean[order], xerr=error, color=COLORS["blue"], error_kw={"linewidth": 0.8})
    axes.set_yticks(y, [importances.names[i] for i in order])
    axes.invert_yaxis()
    axes.set_xlabel(_LABELS[measure])
    return axes


def plot_dependence(curve: Dependence, *, ax: Axes | None = None) -> Axes:
    """Draw the dependence of points and intervals on a column: a band, or one bar per category.

    Parameters
    ----------
    curve : Dependence
        From ``calipers.importance.dependence``.
    ax : Axes, optional
        Where to draw; a new figure by default, which is ``ax.figure``.

    Examples
    --------
    >>> low = np.array([0.0, 1.0])
    >>> names = np.array(["red", "blue"])
    >>> curve = Dependence("hue", "category", names, low, low, low + 1, low + 2, 0.9)
    >>> [label.get_text() for label in plot_dependence(curve).get_xticklabels()]
    ['red', 'blue']
    """
    axes = _axes(ax)
    label = f"mean {100 * curve.coverage:g}% interval"
    if curve.dtype.kind in "bO":
        lower, upper, infinite = drawable(curve.lower, curve.upper, curve.point)
        axes.errorbar(
            curve.positions, curve.point, [curve.point - lower, upper - curve.point], fmt="o",
            color=COLORS["blue"], label=label + infinite, capsize=3,
        )  # fmt: skip
        axes.set_xticks(curve.positions, [str(value) for value in curve.values])
    else:
        dates = curve.dtype.kind == "M"
        x = curve.positions.astype("datetime64[s]") if dates else curve.positions
        plot_interval(axes, x, curve.lower, curve.point, curve.upper, labels=(label, "mean point"))
    axes.set_xlabel(curve.name)
    return axes


def _axes(ax: Axes | None) -> Axes:
    return new_figure(3.0).subplots() if ax is None else ax


def plot_history(ax: Axes, histories: Sequence[Any], *, measure: str = "loss") -> None:
    """Draw a measure of every network over its epochs, on training and on validation rows.

    A ring marks the best epoch of each network with early stopping, whose weights it keeps. Later
    values may exceed the upper limit of the axis.

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
    measures = [name for name in fields if f"valid_{name}" in fields]
    if measure not in measures:
        raise ValueError(f"measure must be one of {measures}, got {measure!r}")
    validated = [history[np.isfinite(history["valid_loss"])] for history in histories]
    validated = [history for history in validated if history.size]
    for parts, field, color, name in (
        (histories, measure, "blue", "training rows"),
        (validated, f"valid_{measure}", "orange", "validation rows"),
    ):
        for i, part in enumerate(parts):
            line: dict[str, Any] = {"color": COLORS[color], "linewidth": 0.8, "alpha": 0.6}
            ax.plot(part["epoch"], part[field], label=name if i == 0 else None, **line)
    best_epochs = [part[np.argmin(part["valid_loss"])] for part in validated]
    best = np.array(best_epochs, dtype=histories[0].dtype)
    if best.size:
        ring: dict[str, Any] = {
            "color": COLORS["orange"],
            "markerfacecolor": "white",
            "markersize": 4,
        }
        ax.plot(best["epoch"], best[f"valid_{measure}"], "o", label="best epoch", **ring)
    values = np.concatenate([history[measure] for history in histories])
    ends = *np.quantile(values[np.isfinite(values)], [0, 0.98]), *best[f"valid_{measure}"]
    low, high = min(ends), max(ends)
    margin = 0.08 * (high - low) or 1.0
    ax.set(ylim=(low - margin, high + margin), xlabel="epoch", ylabel=measure)
