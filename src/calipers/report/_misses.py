"""Inputs as the model reads them, and the worst misses with their unusual inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from calipers._evaluation import LabelledPrediction
from calipers.preprocessing import Column
from calipers.regressor import IntervalRegressor
from calipers.report._format import write_cell

_MAX_MISSES = 12
_UNUSUAL = 0.02  # fraction of rows below which a value is among the highest, lowest or rarest
_NAMED = 4  # unusual values named


@dataclass(frozen=True, eq=False)
class Input:
    """One input that the model uses."""

    of: Column
    # (n,): numbers, dates in seconds since 1970, booleans as 1 and 0, all NaN if missing;
    # categories and text as text, None if missing
    cells: NDArray[Any]
    outside: NDArray[np.bool_]  # (n,): values outside the training range

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Whether each value is missing."""
        if self.of.dtype == object:
            return np.array([value is None for value in self.cells], dtype=bool)
        return np.isnan(self.cells)

    def write(self, value: object) -> str:
        """Return a value as text."""
        return write_cell(value, self.of.dtype)


def read_inputs(model: IntervalRegressor, X: ArrayLike, outside: NDArray[np.bool_]) -> list[Input]:
    """Return the inputs that a model uses."""
    values = model.reader_.cells(model, X)
    return [
        Input(column, values[column.name], outside[:, i])
        for i, column in enumerate(model.inputs_)
        if column.name in values
    ]


@dataclass(frozen=True)
class Miss:
    """A row outside its interval."""

    name: str
    notable: str  # description of unusual inputs; "" if there are none
    inputs: list[tuple[str, str]]  # names and values
    target: float
    point: float
    lower: float
    upper: float
    # distance from the interval, in the target's unit and in half widths of the interval
    distance: float
    widths: float


def worst_misses(
    labelled: LabelledPrediction, inputs: Sequence[Input], names: Sequence[str]
) -> list[Miss]:
    """Return the rows farthest outside, in the target's unit, the worst first."""
    distance = np.maximum(labelled.lower - labelled.target, labelled.target - labelled.upper)
    outside = np.flatnonzero(distance > 0)
    worst = outside[np.argsort(-distance[outside], kind="stable")][:_MAX_MISSES]
    widths = distance[worst] / np.maximum(labelled.width[worst] / 2, np.finfo(float).tiny)
    columns = (labelled.target, labelled.point, labelled.lower, labelled.upper, distance)
    numbers = np.column_stack([*(column[worst] for column in columns), widths]).tolist()
    unusual = [_unusual(one, worst) for one in inputs]
    misses = []
    for i, row in enumerate(worst):
        cells = [(one.name, one.write(one.cells[row])) for one in inputs]
        notable = _notable([texts[i] for texts in unusual])
        misses.append(Miss(names[row], notable, cells, *numbers[i]))
    return misses


def _notable(texts: list[str]) -> str:
    texts = sorted(filter(None, texts), key=lambda text: "training" not in text)
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return ", ".join(texts[:_NAMED]) + more


def _unusual(column: Input, rows: NDArray[np.intp]) -> list[str]:
    """Return what is unusual about an input in some rows, compared with all; "" if nothing is."""
    series = pd.Series(column.cells)
    frequency = series.map(series.value_counts(normalize=True)).to_numpy(dtype=float)
    missing, texts = column.missing, []
    for row in rows:
        value, remark = column.cells[row], ""
        if column.outside[row]:
            remark = "never so in training" if missing[row] else "outside the training range"
        elif not missing[row] and column.of.dtype.kind not in "bO":
            low, high = np.mean(column.cells <= value), np.mean(column.cells >= value)
            remark = "among the lowest" if low <= _UNUSUAL else ""
            remark = "among the highest" if high <= _UNUSUAL else remark
        elif not missing[row] and column.of.repeats:
            remark = "rare" if frequency[row] < _UNUSUAL else ""
        texts.append(f"{column.name} {column.write(value)}, {remark}" if remark else "")
    return texts
