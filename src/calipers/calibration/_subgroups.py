"""Subgroups of rows: categories or bins of an input, or bins of the predicted width."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._checks import FloatArray, IntArray
from calipers._schema import array_of, refuse, within

WIDTH = "predicted width"
"""Name given in place of a column to form subgroups by the width of predictions."""

# A numeric column with more distinct values is binned; no column has more than MAX_SUBGROUPS.
MAX_DISTINCT, MAX_SUBGROUPS = 20, 100


def log_width(dist: Any) -> FloatArray:
    """Logarithm of the standard deviation of the members' mixture, of shape (n,)."""
    variance = dist.aleatoric_var + dist.epistemic_var
    return np.asarray(0.5 * np.log(np.maximum(variance, np.finfo(float).tiny)))


@dataclass(frozen=True, eq=False)
class Subgroups:
    """Definition of the subgroups, which are numbered from 0."""

    #: (k,): Columns of the encoded inputs; empty for the width of predictions.
    columns: IntArray
    #: (subgroups, k): Values of the columns in each subgroup, where subgroups are categories; empty
    #: where they are bins.
    values: FloatArray
    #: (bins - 1,): Edges between bins of the first column, or of the logarithm of the width.
    edges: FloatArray
    #: Function used in place of columns, from rows to subgroup numbers.
    label: Callable[[FloatArray], ArrayLike] | None = None

    def __len__(self) -> int:
        return len(self.values) or len(self.edges) + 1

    @classmethod
    def of_columns(cls, X: FloatArray, columns: IntArray, bins: int) -> Self:
        """Subgroups by an input: its categories, or bins of equal counts for a numeric input."""
        distinct = np.unique(X[:, columns], axis=0)
        limit = MAX_DISTINCT if len(columns) == 1 else MAX_SUBGROUPS
        if len(distinct) <= limit:
            return cls(columns, distinct, np.empty(0))
        return cls(columns[:1], np.empty((0, 1)), _edges(X[:, columns[0]], bins))

    @classmethod
    def of_width(cls, dist: Any, bins: int) -> Self:
        """Subgroups by the width of predictions, with equal numbers of rows."""
        no_columns = np.empty(0, np.intp)
        return cls(no_columns, np.empty((0, 0)), _edges(log_width(dist), bins))

    def of_rows(self, dist: Any, X: FloatArray) -> IntArray:
        """Subgroup number of each row, -1 for rows of an unseen subgroup."""
        if self.label is not None:
            return np.asarray(self.label(X), np.intp)
        if not self.columns.size:
            return np.searchsorted(self.edges, log_width(dist), side="right")
        inputs = np.asarray(X, np.float64)[:, self.columns]
        if not len(self.values):
            return np.searchsorted(self.edges, inputs[:, 0], side="right")
        code = np.full(len(inputs), -1)
        for number, value in enumerate(self.values):
            code[(inputs == value).all(axis=1)] = number
        return code

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """State to store, as plain arrays."""
        if self.label is not None:
            raise ValueError(
                "the model was conformalized by a function, which cannot be stored; to save the "
                "model, name a column instead"
            )
        return {"columns": self.columns, "values": self.values, "edges": self.edges}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Restore subgroups from ``to_arrays``; raise ``SchemaError`` if they are malformed."""
        columns = array_of(arrays, "columns", "iu")
        values, edges = (array_of(arrays, name, "f") for name in ("values", "edges"))
        if columns.ndim != 1 or len(columns) > MAX_SUBGROUPS:
            refuse("array 'columns'", "a list of columns", columns.shape)
        within("columns", columns, 0, 10**6)
        if values.ndim != 2 or values.shape[1] != len(columns) or len(values) > MAX_SUBGROUPS:
            refuse("array 'values'", f"of {len(columns)} columns", values.shape)
        if edges.ndim != 1 or len(edges) > MAX_SUBGROUPS or (np.diff(edges) <= 0).any():
            refuse("array 'edges'", f"at most {MAX_SUBGROUPS} numbers in ascending order", edges)
        if len(values) and len(edges):
            refuse("array 'edges'", "empty for categories", edges)
        return cls(columns.astype(np.intp), values, edges)


def _edges(values: FloatArray, bins: int) -> FloatArray:
    levels = np.arange(1, max(bins, 1)) / max(bins, 1)
    return np.unique(np.quantile(values, levels, method="inverted_cdf"))
