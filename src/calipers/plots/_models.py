"""Pictures of a fitted model on labelled rows, in one call."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from calipers.metrics import calibration_curve
from calipers.plots._calibration import plot_calibration
from calipers.plots._predictions import plot_rows
from calipers.plots._style import new_figure


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

    Returns
    -------
    Axes

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

    Returns
    -------
    Axes
    """
    axes = _axes(ax)
    targets = np.asarray(y, dtype=float)
    curve = calibration_curve(targets, model.predict_dist(X))
    plot_calibration(axes, {"model": curve}, rows=len(targets))
    axes.set(xlabel="nominal coverage", ylabel="observed coverage")
    return axes


def _axes(ax: Axes | None) -> Axes:
    return new_figure(3.0).subplots() if ax is None else ax
