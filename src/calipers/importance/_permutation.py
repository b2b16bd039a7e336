"""Permutation importances of the columns of a model.

A column is shuffled, so that it carries no information about its row, and the model predicts again.
The importance is how much predictions get worse [1]_. Correlated columns can replace each other, so
that each looks less important than they are together.

References
----------
.. [1] A. Fisher, C. Rudin and F. Dominici, "All models are wrong, but many are useful: learning a
   variable's importance by studying an entire class of prediction models simultaneously", JMLR 20
   (177), 2019.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray
from calipers.metrics import interval_score
from calipers.prediction import Query
from calipers.regressor import IntervalRegressor


@dataclass(frozen=True, eq=False)
class Importances:
    """Changes of predictions when a column is shuffled, of shape (n_columns, n_repeats)."""

    names: tuple[str, ...]  #: Names of the columns, as in ``model.inputs_``.
    #: Increase of the mean interval score, in units of the target.
    interval_score: FloatArray
    squared_error: FloatArray  #: Increase of the mean squared error of the point predictions.
    #: Mean absolute change of a row's width, in units of the target.
    width: FloatArray

    def to_frame(self) -> Any:
        """Means over the repeats as a pandas frame, the largest interval score first."""
        import pandas as pd

        measures = ("interval_score", "squared_error", "width")
        means = {name: getattr(self, name).mean(axis=1) for name in measures}
        frame = pd.DataFrame(means, index=pd.Index(self.names, name="column"))
        return frame.sort_values("interval_score", ascending=False)


def permutation_importance(
    model: IntervalRegressor,
    X: Any,
    y: ArrayLike,
    *,
    coverage: float | None = None,
    n_repeats: int = 5,
    random_state: int | None = 0,
) -> Importances:
    """Importance of each column for the intervals, point predictions and widths of a model.

    Parameters
    ----------
    model : IntervalRegressor
        A fitted model.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Rows that the model was not trained on, and their targets.
    coverage : float, optional
        Coverage of the intervals, the model's own by default.
    n_repeats : int, default 5
        Number of times that each column is shuffled.
    random_state : int, optional
        Seed of the shuffles.

    Raises
    ------
    ValueError
        If intervals of the coverage are infinite.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 2))
    >>> y = X[:, 0] + rng.normal(0, 0.1, 200)
    >>> model = IntervalRegressor(n_networks=5, epochs=40, random_state=0).fit(X, y)
    >>> permutation_importance(model, X, y).to_frame().index[0]
    'x0'
    """
    level = model.coverage if coverage is None else coverage
    table = as_table(X)
    targets = np.asarray(y, dtype=np.float64)
    baseline = _measure(model, table, targets, level)
    if not np.isfinite(baseline.width).all():
        raise ValueError(f"intervals of coverage {level:g} are infinite: use a smaller coverage")
    rng = np.random.default_rng(random_state)
    orders = [rng.permutation(len(targets)) for _ in range(n_repeats)]
    rows = np.arange(len(targets))
    changes = np.zeros((3, len(model.inputs_), n_repeats))
    for place, column in enumerate(model.inputs_):
        if column.used:
            for repeat, order in enumerate(orders):
                shuffled = with_values(table, rows, place, column.name, order)
                measured = _measure(model, shuffled, targets, level)
                changes[:, place, repeat] = (
                    measured.score - baseline.score,
                    measured.squared_error - baseline.squared_error,
                    np.abs(measured.width - baseline.width).mean(),
                )
    return Importances(tuple(column.name for column in model.inputs_), *changes)


@dataclass(frozen=True)
class _Measures:
    score: float
    squared_error: float
    width: FloatArray


def _measure(model: IntervalRegressor, table: Any, y: FloatArray, level: float) -> _Measures:
    """Interval score, squared error and widths, from one pass through the networks."""
    prediction = model.query(table, Query((level,)))
    lower, upper = prediction.bounds(level)
    score = interval_score(y, lower, upper, coverage=level)
    return _Measures(score, float(np.mean((prediction.point - y) ** 2)), upper - lower)


def with_values(
    table: Any, rows: NDArray[np.intp], place: int, name: str, sources: NDArray[np.intp]
) -> Any:
    """The subset ``rows`` of a table, with a column's values taken from the rows ``sources``."""
    if isinstance(table, np.ndarray):
        copy = table[rows]
        copy[:, place] = table[sources, place]
        return copy
    copy = table.iloc[rows].reset_index(drop=True)
    copy[_label(copy, name)] = column_of(table, place, name).iloc[sources].reset_index(drop=True)
    return copy


def column_of(table: Any, place: int, name: str) -> Any:
    """A column of a frame by its name, of an array by its index."""
    return table[:, place] if isinstance(table, np.ndarray) else table[_label(table, name)]


def _label(frame: Any, name: str) -> Any:
    return next(label for label in frame.columns if str(label) == name)


def as_table(X: Any) -> Any:
    """Rows as a pandas frame or an array."""
    table = X.to_pandas() if hasattr(X, "to_pandas") else X
    return table if hasattr(table, "columns") else np.asarray(table)
