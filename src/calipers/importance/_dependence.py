"""Partial dependence of point predictions and intervals on one column."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._checks import FloatArray
from calipers.importance._permutation import as_table, column_of, with_values
from calipers.prediction import Query
from calipers.regressor import IntervalRegressor


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

    def to_frame(self) -> Any:
        """The curve as a pandas frame, with a row for each value."""
        import pandas as pd

        columns = {"lower": self.lower, "point": self.point, "upper": self.upper}
        return pd.DataFrame(columns, index=pd.Index(self.values, name=self.name))


def dependence(
    model: IntervalRegressor,
    X: Any,
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
        Maximum number of values: quantiles of numbers and dates, the most frequent categories.
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
    table, level = as_table(X), model.coverage if coverage is None else coverage
    place, info = _find_column(model, column)
    cells = model.reader_.cells(model, table)[info.name]
    sources, positions = _values(cells, info.kind, n_values)
    if len(sources) == 0:
        raise ValueError(f"column {info.name!r} has no value in these rows")
    rows = np.random.default_rng(random_state).permutation(len(cells))[:n_rows]
    repeated = np.tile(rows, len(sources))
    changed = with_values(table, repeated, place, info.name, np.repeat(sources, len(rows)))
    prediction = model.query(changed, Query((level,)))
    lower, upper = prediction.bounds(level)
    lower, point, upper = (
        array.reshape(len(sources), -1).mean(axis=1) for array in (lower, prediction.point, upper)
    )
    values = np.asarray(column_of(table, place, info.name))[sources]
    return Dependence(info.name, info.kind, values, positions, lower, point, upper, level)


def _find_column(model: IntervalRegressor, column: str | int) -> tuple[int, Any]:
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


def _values(cells: NDArray[Any], kind: str, limit: int) -> tuple[NDArray[np.intp], FloatArray]:
    """Rows that hold typical values of a column, one for each value, and the plot positions."""
    if kind == "category":
        present = np.flatnonzero([cell is not None for cell in cells])
        _, first, counts = np.unique(
            cells[present].astype(str), return_index=True, return_counts=True
        )
        order = np.argsort(-counts, kind="stable")[:limit]
        return present[first[order]], np.arange(float(len(order)))
    numbers = np.asarray(cells, dtype=np.float64)
    present = np.flatnonzero(np.isfinite(numbers))
    ranked = present[np.argsort(numbers[present], kind="stable")]
    if len(ranked) > limit:
        ranked = ranked[np.linspace(0, len(ranked) - 1, limit).round().astype(int)]
    values, first = np.unique(numbers[ranked], return_index=True)
    return ranked[first], values
