"""Kinds of rows: categories or bins of an input, or bins of how wide the prediction is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray, IntArray
from calipers._schema import array_of, refuse, within

WIDTH = "predicted width"
"""Stands for bins of the width of predictions where a column could be named."""

# Values of a number from which on it is cut into bins, and the most kinds of any column.
FEW_VALUES, MOST_KINDS = 20, 100


def log_width(dist: Any) -> FloatArray:
    """Logarithm of the standard deviation of the members' mixture, of shape (n,)."""
    variance = dist.aleatoric_var + dist.epistemic_var
    return np.asarray(0.5 * np.log(np.maximum(variance, np.finfo(float).tiny)))


@dataclass(frozen=True, eq=False)
class RowKinds:
    """How rows are told apart."""

    #: (k,): Columns of the numbers that networks take; none for the width of predictions.
    columns: IntArray
    #: (kinds, k): What the columns hold in each kind, where kinds are categories; none where they
    #: are bins.
    values: FloatArray
    #: (bins - 1,): Between bins of the first of the columns, or of the logarithm of the width.
    edges: FloatArray
    #: Code in place of columns, from rows to whole numbers from 0.
    label: Callable[[FloatArray], ArrayLike] | None = None

    def __len__(self) -> int:
        return len(self.values) or len(self.edges) + 1

    @classmethod
    def of_columns(cls, X: FloatArray, columns: IntArray, bins: int) -> Self:
        """Kinds by an input: its categories, or bins of equal size where it is a number."""
        distinct = np.unique(X[:, columns], axis=0)
        most = FEW_VALUES if len(columns) == 1 else MOST_KINDS
        if len(distinct) <= most:
            return cls(columns, distinct, np.empty(0))
        return cls(columns[:1], np.empty((0, 1)), _edges(X[:, columns[0]], bins))

    @classmethod
    def of_width(cls, dist: Any, bins: int) -> Self:
        """Kinds by how wide predictions are, with as many rows each."""
        nothing = np.empty(0, np.intp)
        return cls(nothing, np.empty((0, 0)), _edges(log_width(dist), bins))

    def of_rows(self, dist: Any, X: FloatArray) -> IntArray:
        """Number of each row's kind, -1 for rows of no known one."""
        if self.label is not None:
            return np.asarray(self.label(X), np.intp)
        if not self.columns.size:
            return np.searchsorted(self.edges, log_width(dist), side="right")
        own = np.asarray(X, np.float64)[:, self.columns]
        if not len(self.values):
            return np.searchsorted(self.edges, own[:, 0], side="right")
        found = np.full(len(own), -1)
        for number, value in enumerate(self.values):
            found[(own == value).all(axis=1)] = number
        return found

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All there is to store, as plain arrays."""
        if self.label is not None:
            raise ValueError(
                "the model was conformalized by a function, which is code and not stored: name a "
                "column instead"
            )
        return {"columns": self.columns, "values": self.values, "edges": self.edges}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make one again of what ``to_arrays`` gave; a ``SchemaError`` says if it is another."""
        columns = array_of(arrays, "columns", "iu")
        values, edges = (array_of(arrays, name, "f") for name in ("values", "edges"))
        if columns.ndim != 1 or len(columns) > MOST_KINDS or edges.ndim != 1:
            refuse("array 'columns'", "a list of columns", columns.shape)
        within("columns", columns, 0, 10**6)
        if values.ndim != 2 or values.shape[1] != len(columns) or len(values) > MOST_KINDS:
            refuse("array 'values'", f"of {len(columns)} columns", values.shape)
        if len(edges) > MOST_KINDS or (np.diff(edges) <= 0).any():
            refuse("array 'edges'", "a short list in ascending order", edges)
        if len(values) and len(edges):
            refuse("array 'edges'", "empty for categories", edges)
        return cls(columns.astype(np.intp), values, edges)


def _edges(values: FloatArray, bins: int) -> FloatArray:
    levels = np.arange(1, max(bins, 1)) / max(bins, 1)
    return np.unique(np.quantile(values, levels, method="inverted_cdf"))
