"""Importances and dependence curves of inputs, for point predictions and for interval widths.

``permutation_importance`` shuffles a column, so that it carries no information about its row, and
measures how much predictions get worse [1]_. Correlated columns can replace each other, so that
each looks less important than they are together. ``dependence`` sets a column to one value after
another in every row and averages the predictions (partial dependence). Both combine values that may
never occur together.

References
----------
.. [1] A. Fisher, C. Rudin and F. Dominici, "All models are wrong, but many are useful: learning a
   variable's importance by studying an entire class of prediction models simultaneously", JMLR 20
   (177), 2019.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from calipers._arrays import FloatArray
from calipers._estimator.row_checks import checked_target
from calipers.metrics import interval_score
from calipers.prediction import Query
from calipers.preprocessing import Column, with_words
from calipers.regressor import IntervalRegressor

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Dependence", "Importances", "dependence", "permutation_importance"]


@dataclass(frozen=True, eq=False)
class Importances:
    """Changes of predictions when a column is shuffled, of shape (n_columns, n_repeats)."""

    names: tuple[str, ...]  #: Names of the columns, as in ``model.inputs_``.
    #: Increase of the mean interval score, in units of the target.
    interval_score: FloatArray
    squared_error: FloatArray  #: Increase of the mean squared error of the point predictions.
    #: Mean absolute change of a row's width, in units of the target.
    width: FloatArray

    def to_frame(self) -> "pd.DataFrame":
        """Means over the repeats as a pandas frame, the largest interval score first."""
        import pandas as pd

        measures = ("interval_score", "squared_error", "width")
        means = {name: getattr(self, name).mean(axis=1) for name in measures}
        frame = pd.DataFrame(means, index=pd.Index(self.names, name="column"))
        return frame.sort_values("interval_score", ascending=False)


def permutation_importance(
    model: IntervalRegressor,
    X: ArrayLike,
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
    table = _as_table(X)
    targets = checked_target(X, y)
    score, squared_error, widths = _measure(model, table, targets, level)
    if not np.isfinite(widths).all():
        raise ValueError(f"intervals of coverage {level:g} are infinite: use a smaller coverage")
    rng = np.random.default_rng(random_state)
    orders = [rng.permutation(len(targets)) for _ in range(n_repeats)]
    rows = np.arange(len(targets))
    changes = np.zeros((3, len(model.inputs_), n_repeats))
    for place, column in enumerate(model.inputs_):
        if column.used:
            at = _position(table, place, column.name)
            for repeat, order in enumerate(orders):
                shuffled = _with_values(table, rows, at, order)
                worse, larger, moved = _measure(model, shuffled, targets, level)
                change = np.abs(moved - widths).mean()
                changes[:, place, repeat] = worse - score, larger - squared_error, change
    return Importances(tuple(column.name for column in model.inputs_), *changes)


def _measure(
    model: IntervalRegressor, table: "pd.DataFrame | NDArray[Any]", y: FloatArray, level: float
) -> tuple[float, float, FloatArray]:
    """Interval score, squared error and widths, from one pass through the networks."""
    prediction = model.query(table, Query((level,)))
    lower, upper = prediction.bounds(level)
    score = interval_score(y, lower, upper, coverage=level)
    return score, float(np.mean((prediction.point - y) ** 2)), upper - lower


@dataclass(frozen=True, eq=False)
class Dependence:
    """Mean predictions at several values of one column, with all other columns unchanged."""

    #: Name of the column, and its kind, one of ``calipers.preprocessing.KINDS``.
    name: str
    kind: str
    values: NDArray[Any]  #: (n_values,): Values of the column, as in the table.
    #: (n_values,): Positions of the values in a plot: the numbers themselves, dates in seconds
    #: since 1970, booleans as 1 and 0, and categories as 0, 1, 2, the most frequent first.
    positions: FloatArray
    #: (n_values,): Means over the rows.
    lower: FloatArray
    point: FloatArray
    upper: FloatArray
    coverage: float  #: Coverage of the intervals.

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the column's values, see ``Column.dtype``."""
        return Column(self.name, self.kind).dtype

    def to_frame(self) -> "pd.DataFrame":
        """The curve as a pandas frame, with a row for each value."""
        import pandas as pd

        columns = {"lower": self.lower, "point": self.point, "upper": self.upper}
        return pd.DataFrame(columns, index=pd.Index(self.values, name=self.name))


def dependence(
    model: IntervalRegressor,
    X: ArrayLike,
    column: str | int,
    *,
    coverage: float | None = None,
    n_values: int = 20,
    n_rows: int = 200,
    random_state: int | None = 0,
) -> Dependence:
    """Mean point and mean interval at each of several values of a column.

    Parameters
    ----------
    model : IntervalRegressor
        A fitted model.
    X : array-like of shape (n_samples, n_features)
        Rows to average over, and to take the values of the column from.
    column : str or int
        Name of the column, as in ``model.inputs_``, or its index.
    coverage : float, optional
        Coverage of the intervals, the model's own by default.
    n_values : int, default 20
        Maximum number of values: quantiles of numbers and dates, the most frequent categories,
        and a text for each of the most frequent words.
    n_rows : int, default 200
        Maximum number of rows to average over, drawn at random.
    random_state : int, optional
        Seed of the draw.

    Raises
    ------
    ValueError
        If there is no such column, the model does not use it, or it has no value in these rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 2))
    >>> y = X[:, 0] + rng.normal(0, 0.1, 200)
    >>> model = IntervalRegressor(n_networks=5, epochs=40, random_state=0).fit(X, y)
    >>> curve = dependence(model, X, "x0")
    >>> bool(curve.point[-1] > curve.point[0] + 1)
    True
    """
    table, level = _as_table(X), model.coverage if coverage is None else coverage
    place, info = _find_column(model, column)
    cells = model.reader_.cells(model, table)[info.name]
    sources, positions = _values(cells, info, n_values)
    if len(sources) == 0:
        raise ValueError(f"column {info.name!r} has no value in these rows")
    rows = np.random.default_rng(random_state).permutation(len(cells))[:n_rows]
    repeated = np.tile(rows, len(sources))
    at = _position(table, place, info.name)
    changed = _with_values(table, repeated, at, np.repeat(sources, len(rows)))
    prediction = model.query(changed, Query((level,)))
    lower, upper = prediction.bounds(level)
    lower, point, upper = (
        array.reshape(len(sources), -1).mean(axis=1) for array in (lower, prediction.point, upper)
    )
    values = np.asarray(_safe_indexing(table, at, axis=1))[sources]
    return Dependence(info.name, info.kind, values, positions, lower, point, upper, level)


def _find_column(model: IntervalRegressor, column: str | int) -> tuple[int, Column]:
    """Index and description of a column that the model uses."""
    names = [info.name for info in model.inputs_]
    known = column in names if isinstance(column, str) else -len(names) <= column < len(names)
    if not known:
        raise ValueError(f"there is no column {column!r}; the model's inputs are {names}")
    place = names.index(column) if isinstance(column, str) else range(len(names))[column]
    info = model.inputs_[place]
    if not info.used:
        raise ValueError(f"the model does not use column {info.name!r}: {info.note}")
    return place, info


def _values(cells: NDArray[Any], info: Column, limit: int) -> tuple[NDArray[np.intp], FloatArray]:
    """Rows that hold typical values of a column, one for each value, and the plot positions."""
    if not info.repeats:  # a row for each of the most frequent words
        found = with_words(cells, info.categories)
        rows = found.argmax(axis=0)[found.any(axis=0)]
        rows = np.array(list(dict.fromkeys(rows))[:limit], dtype=np.intp)
        return rows, np.arange(float(len(rows)))
    if info.dtype == object:
        values = cells.tolist()
        counts = Counter(value for value in values if value is not None)
        frequent = sorted(counts, key=lambda value: (-counts[value], value))[:limit]
        rows = np.array([values.index(value) for value in frequent], dtype=np.intp)
        return rows, np.arange(float(len(rows)))
    numbers = np.asarray(cells, dtype=np.float64)
    present = np.flatnonzero(np.isfinite(numbers))
    ranked = present[np.argsort(numbers[present], kind="stable")]
    if len(ranked) > limit:
        ranked = ranked[np.linspace(0, len(ranked) - 1, limit).round().astype(int)]
    values, first = np.unique(numbers[ranked], return_index=True)
    return ranked[first], values


def _with_values(
    table: "pd.DataFrame | NDArray[Any]", rows: NDArray[np.intp], at: int, sources: NDArray[np.intp]
) -> "pd.DataFrame | NDArray[Any]":
    """The subset ``rows`` of a table, with a column's values taken from the rows ``sources``."""
    if isinstance(table, np.ndarray):
        array = table[rows]
        array[:, at] = table[sources, at]
        return array
    frame: Any = table.iloc[rows].reset_index(drop=True)
    frame.isetitem(at, table.iloc[sources, at].reset_index(drop=True))
    return frame


def _position(table: "pd.DataFrame | NDArray[Any]", place: int, name: str) -> int:
    """Index of a column: that of its name in a frame, whose columns may be in another order."""
    names = [] if isinstance(table, np.ndarray) else list(map(str, table.columns))
    return names.index(name) if name in names else place


def _as_table(X: ArrayLike) -> "pd.DataFrame | NDArray[Any]":
    """Rows as a pandas frame or an array."""
    table: Any = X.to_pandas() if hasattr(X, "to_pandas") else X
    return table if hasattr(table, "columns") else np.asarray(table)
