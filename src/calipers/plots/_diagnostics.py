"""Pictures of a fitted model on labelled rows, in one call."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from calipers.importance import Dependence, Importances
from calipers.metrics import calibration_curve
from calipers.plots._calibration import plot_calibration
from calipers.plots._predictions import plot_interval, plot_rows
from calipers.plots._style import COLORS, new_figure

_WORDS = {
    "interval_score": "growth of the interval score when shuffled",
    "squared_error": "growth of the squared error when shuffled",
    "width": "mean change of a width when shuffled",
}


def plot_intervals(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    coverage: float | None = None,
    ax: Axes | None = None,
    most: int = 400,
) -> Axes:
    """Draw rows in the order of their prediction, each with its interval and its target.

    Parameters
    ----------
    model : IntervalRegressor
        A fitted model.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Rows that it has not seen, and their targets.
    coverage : float, optional
        Coverage of the intervals, the model's own by default.
    ax : Axes, optional
        Where to draw; a new figure by default, which is ``ax.figure``.
    most : int
        At most so many rows are drawn, evenly over the order.

    Examples
    --------
    >>> from calipers import IntervalRegressor
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> model = IntervalRegressor(n_networks=5, epochs=5, random_state=0).fit(X, X[:, 0])
    >>> plot_intervals(model, X, X[:, 0], coverage=0.9).get_ylabel()
    'y'
    """
    axes = _axes(ax)
    lower, upper = model.predict_interval(X, coverage=coverage).T
    plot_rows(axes, lower, model.predict(X), upper, y, most=most)
    axes.set_ylabel(model.target_.name)
    return axes


def plot_reliability(model: Any, X: Any, y: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw observed against nominal coverage of a model, with what chance allows.

    Parameters
    ----------
    model : IntervalRegressor
        A fitted model.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Rows that it has not seen, and their targets.
    ax : Axes, optional
        Where to draw; a new figure by default, which is ``ax.figure``.
    """
    axes = _axes(ax)
    targets = np.asarray(y, dtype=float)
    curve = calibration_curve(targets, model.predict_dist(X))
    plot_calibration(axes, {"model": curve}, rows=len(targets))
    axes.set(xlabel="nominal coverage", ylabel="observed coverage")
    return axes


def plot_importance(
    importances: Importances,
    *,
    measure: str = "interval_score",
    ax: Axes | None = None,
    most: int = 12,
) -> Axes:
    """Draw what each column is worth for a model, the most important on top.

    Parameters
    ----------
    importances : Importances
        From ``calipers.importance.permutation_importance``.
    measure : {"interval_score", "squared_error", "width"}
        Which importance.
    ax : Axes, optional
        Where to draw; a new figure by default, which is ``ax.figure``.
    most : int
        At most so many columns are drawn.

    Examples
    --------
    >>> found = Importances(("a", "b"), *np.arange(12.0).reshape(3, 2, 2))
    >>> [label.get_text() for label in plot_importance(found).get_yticklabels()]
    ['b', 'a']
    """
    if measure not in _WORDS:
        raise ValueError(f"measure must be one of {sorted(_WORDS)}, got {measure!r}")
    axes = _axes(ax)
    values = getattr(importances, measure)
    mean = values.mean(axis=1)
    order = np.argsort(-mean, kind="stable")[:most]
    spread = [mean - values.min(axis=1), values.max(axis=1) - mean]
    names = [importances.names[place] for place in order]
    error = np.array(spread)[:, order]
    places = np.arange(len(order))
    axes.barh(places, mean[order], xerr=error, color=COLORS["blue"], error_kw={"linewidth": 0.8})
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlabel(_WORDS[measure])
    return axes


def plot_dependence(curve: Dependence, *, ax: Axes | None = None) -> Axes:
    """Draw how points and intervals move with a column: a band, or one bar for each category.

    Parameters
    ----------
    curve : Dependence
        From ``calipers.dependence``.
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
    if curve.kind in ("boolean", "category"):
        spread = [curve.point - curve.lower, curve.upper - curve.point]
        axes.errorbar(
            curve.positions, curve.point, spread, fmt="o", color=COLORS["blue"], label=label,
            capsize=3,
        )  # fmt: skip
        axes.set_xticks(curve.positions, [str(value) for value in curve.values])
    else:
        dates = curve.kind == "date"
        x = curve.positions.astype("datetime64[s]") if dates else curve.positions
        plot_interval(axes, x, curve.lower, curve.point, curve.upper, labels=(label, "mean point"))
    axes.set_xlabel(curve.name)
    return axes


def _axes(ax: Axes | None) -> Axes:
    return new_figure(3.0).subplots() if ax is None else ax
