"""The inputs of the rows as the model reads them, and what is unusual in the rows it missed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calipers.regressor import IntervalRegressor
from calipers.report._format import brief
from calipers.report._labelled import LabelledPrediction

_MOST = 12
_FAR = 0.02  # share of the rows that makes a value one of the highest, lowest or rarest
_NAMED = 4  # unusual values named


@dataclass(frozen=True, eq=False)
class Input:
    """One input that the model uses."""

    # as in ``calipers.preprocessing.Column``
    name: str
    kind: str
    # (n,): numbers, dates in seconds since 1970, truth as 1 and 0, all NaN where missing;
    # categories as text, None where missing
    cells: NDArray[Any]
    outside: NDArray[np.bool_]  # (n,): values that training did not see

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
    """Inputs of some rows that a model uses."""
    values = model.reader_.cells(model, X)
    return [
        Input(column.name, column.kind, values[column.name], outside[:, place])
        for place, column in enumerate(model.inputs_)
        if column.name in values
    ]


@dataclass(frozen=True)
class Miss:
    """A row outside of its interval."""

    name: str
    # what was observed and what was predicted
    target: float
    point: float
    lower: float
    upper: float
    # how far it is outside, in the target's unit and in half widths of its interval
    distance: float
    widths: float
    notable: str  # what is unusual about its inputs
    inputs: list[tuple[str, str]]  # their names and values


def worst_misses(
    labelled: LabelledPrediction, inputs: Sequence[Input], names: Sequence[str]
) -> list[Miss]:
    """The rows farthest outside, in the target's unit, the worst first."""
    distance = np.maximum(labelled.lower - labelled.target, labelled.target - labelled.upper)
    outside = np.flatnonzero(distance > 0)
    worst = outside[np.argsort(-distance[outside], kind="stable")][:_MOST]
    half = np.maximum(labelled.width / 2, np.finfo(float).tiny)
    unusual = [_unusual(one, worst) for one in inputs]
    return [
        Miss(
            names[row],
            float(labelled.target[row]),
            float(labelled.point[row]),
            float(labelled.lower[row]),
            float(labelled.upper[row]),
            float(distance[row]),
            float(distance[row] / half[row]),
            _notable([texts[i] for texts in unusual]),
            [(one.name, one.write(one.cells[row])) for one in inputs],
        )
        for i, row in enumerate(worst)
    ]


def _notable(texts: list[str]) -> str:
    found = [text for text in texts if text]
    found.sort(key=lambda text: "training" not in text)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more or "nothing unusual in its inputs"


def _unusual(one: Input, rows: NDArray[np.intp]) -> list[str]:
    """What is unusual about an input in some rows, compared with all; empty where nothing is."""
    series = pd.Series(one.cells)
    often = series.map(series.value_counts(normalize=True)).to_numpy(dtype=float)
    missing, texts = one.missing, []
    for row in rows:
        value, word = one.cells[row], ""
        if one.outside[row]:
            word = "which training did not see" if missing[row] else "outside of training"
        elif not missing[row] and one.kind in ("boolean", "category"):
            word = "rare" if often[row] < _FAR else ""
        elif not missing[row]:
            low, high = np.mean(one.cells <= value), np.mean(one.cells >= value)
            word = "among the lowest" if low <= _FAR else ""
            word = "among the highest" if high <= _FAR else word
        texts.append(f"{one.name} {one.write(value)}, {word}" if word else "")
    return texts
