"""How points and intervals move with one column."""

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
    """How predictions move with one column, everything else as it is in the rows."""

    #: The column, and what it holds, one of ``calipers.preprocessing.KINDS``.
    name: str
    kind: str
    values: NDArray[Any]  #: (n_values,): Values of the column, as they stand in the table.
    #: (n_values,): Where to draw them: the numbers themselves, dates in seconds since 1970, truth
    #: as 1 and 0, and for categories 0, 1, 2, the most frequent first.
    positions: FloatArray
    #: (n_values,): Means over the rows.
    lower: FloatArray
    point: FloatArray
    upper: FloatArray
    coverage: float  #: Coverage of the intervals.

    def to_frame(self) -> Any:
        """The curve as a pandas frame, a row for each value."""
        import pandas as pd

        found = {"lower": self.lower, "point": self.point, "upper": self.upper}
        return pd.DataFrame(found, index=pd.Index(self.values, name=self.name))


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
        Rows to average over; the values come from them too.
    column : str or int
        Name of the column, as in ``model.inputs_``, or its place.
    coverage : float, optional
        Coverage of the intervals, the model's own by default.
    n_values : int, default 20
        At most so many values: quantiles of numbers and dates, the most frequent categories.
    n_rows : int, default 200
        At most so many rows are averaged over, drawn at random.
    random_state : int, optional
        Seeds the draw.

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
    place, known = _find_column(model, column)
    own = model.reader_.cells(model, table)[known.name]
    rows, positions = _values(own, known.kind, n_values)
    if len(rows) == 0:
        raise ValueError(f"column {known.name!r} has no value in these rows")
    drawn = np.random.default_rng(random_state).permutation(len(own))[:n_rows]
    many = np.tile(drawn, len(rows))
    given = with_values(table, many, place, known.name, np.repeat(rows, len(drawn)))
    found = model.query(given, Query((level,)))
    lower, upper = found.bounds(level)
    low, mid, high = (
        part.reshape(len(rows), -1).mean(axis=1) for part in (lower, found.point, upper)
    )
    values = np.asarray(column_of(table, place, known.name))[rows]
    return Dependence(known.name, known.kind, values, positions, low, mid, high, level)


def _find_column(model: IntervalRegressor, column: str | int) -> tuple[int, Any]:
    """Place and description of a column that the model uses."""
    names = [one.name for one in model.inputs_]
    if isinstance(column, str) and column not in names:
        raise ValueError(f"there is no column {column!r}; the model's inputs are {names}")
    place = names.index(column) if isinstance(column, str) else range(len(names))[column]
    known = model.inputs_[place]
    if not known.used:
        raise ValueError(f"the model does not use column {known.name!r}: {known.note}")
    return place, known


def _values(cells: NDArray[Any], kind: str, most: int) -> tuple[NDArray[np.intp], FloatArray]:
    """Rows whose values are typical of a column, one for each value, and where to draw them."""
    if kind == "category":
        present = np.flatnonzero([cell is not None for cell in cells])
        _, first, counts = np.unique(
            cells[present].astype(str), return_index=True, return_counts=True
        )
        order = np.argsort(-counts, kind="stable")[:most]
        return present[first[order]], np.arange(float(len(order)))
    numbers = np.asarray(cells, dtype=np.float64)
    present = np.flatnonzero(np.isfinite(numbers))
    ranked = present[np.argsort(numbers[present], kind="stable")]
    if len(ranked) > most:
        ranked = ranked[np.linspace(0, len(ranked) - 1, most).round().astype(int)]
    values, first = np.unique(numbers[ranked], return_index=True)
    return ranked[first], values
