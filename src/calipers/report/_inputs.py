"""The inputs of the rows of a report, as the model understands them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.regressor import IntervalRegressor
from calipers.report._numbers import brief


@dataclass(frozen=True, eq=False)
class Input:
    """One input that the model uses.

    Attributes
    ----------
    name, kind : str
        As in ``calipers.preprocessing.Column``.
    cells : array of shape (n,)
        Numbers, dates in seconds since 1970, truth as 1 and 0, all NaN where missing; categories
        as text, None where missing.
    outside : array of bool of shape (n,)
        Values that training did not see.
    """

    name: str
    kind: str
    cells: NDArray[Any]
    outside: NDArray[np.bool_]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Whether each value is missing."""
        if self.kind == "category":
            return np.array([value is None for value in self.cells], dtype=bool)
        return np.isnan(self.cells)

    def write(self, value: Any) -> str:
        """A value as text."""
        if value is None or value != value:
            return "missing"
        if self.kind == "boolean":
            return "yes" if value else "no"
        return brief(np.datetime64(int(value), "s") if self.kind == "date" else value)


def read_inputs(model: IntervalRegressor, X: Any, outside: NDArray[np.bool_]) -> list[Input]:
    """Inputs of some rows that a model uses.

    Parameters
    ----------
    model : IntervalRegressor
        The model.
    X : table or array
        The rows, as ``predict`` takes them.
    outside : array of bool of shape (n, inputs)
        What ``model.outside`` says of them.
    """
    if hasattr(model, "preprocessor_"):
        values = model.preprocessor_.read(X)
    else:
        numbers = np.asarray(model.read(X)[0], dtype=np.float64)
        values = {column.name: numbers[:, i] for i, column in enumerate(model.inputs_)}
    return [
        Input(column.name, column.kind, values[column.name], outside[:, place])
        for place, column in enumerate(model.inputs_)
        if column.name in values
    ]
