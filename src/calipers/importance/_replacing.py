"""Tables of rows whose columns are given other values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def with_values(
    table: Any, rows: NDArray[np.intp], place: int, name: str, sources: NDArray[np.intp]
) -> Any:
    """Some rows of a table, in which a column has the values that it has in other rows."""
    if isinstance(table, np.ndarray):
        copy = table[rows]
        copy[:, place] = table[sources, place]
        return copy
    copy = table.iloc[rows].reset_index(drop=True)
    copy[_label(copy, name)] = column_of(table, place, name).iloc[sources].reset_index(drop=True)
    return copy


def column_of(table: Any, place: int, name: str) -> Any:
    """A column of a frame by its name, of an array by its place."""
    return table[:, place] if isinstance(table, np.ndarray) else table[_label(table, name)]


def _label(frame: Any, name: str) -> Any:
    return next(label for label in frame.columns if str(label) == name)


def as_table(X: Any) -> Any:
    """A pandas frame or an array."""
    table = X.to_pandas() if hasattr(X, "to_pandas") else X
    return table if hasattr(table, "columns") else np.asarray(table)
