"""Rows of a request with its query, and their prediction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.prediction import Prediction, Query

Columns = dict[str, NDArray[Any]]
"""The columns of a table by name, each of shape (rows,): numbers, times or objects."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of one request."""

    columns: Columns
    rows: int
    query: Query

    def __len__(self) -> int:
        return self.rows


@dataclass(frozen=True, eq=False)
class ServedPrediction:
    """The prediction of some rows, with all that is recorded about it."""

    prediction: Prediction  # as requested
    outside: NDArray[np.bool_]  # (rows, inputs): which values are outside the training range
    # (rows, 2): bounds at the model's own coverage, which the monitor watches
    bounds: NDArray[np.float64] | None
    # (rows, encoded inputs): inputs of the networks, for updates when labels arrive
    inputs: NDArray[np.float64] | None = None
    # number of updates that the model had learnt from: for all rows, or for each row
    version: int | NDArray[np.intp] = 0

    def __len__(self) -> int:
        return len(self.outside)

    def __getitem__(self, rows: Any) -> "ServedPrediction":
        bounds = None if self.bounds is None else self.bounds[rows]
        inputs = None if self.inputs is None else self.inputs[rows]
        version = np.broadcast_to(self.version, len(self))[rows]
        return ServedPrediction(self.prediction[rows], self.outside[rows], bounds, inputs, version)


def join(answers: Sequence[ServedPrediction]) -> ServedPrediction:
    """Concatenate the predictions of consecutive rows."""
    if len(answers) == 1:
        return answers[0]
    bounds = [answer.bounds for answer in answers if answer.bounds is not None]
    inputs = [answer.inputs for answer in answers if answer.inputs is not None]
    return ServedPrediction(
        Prediction.concatenate([answer.prediction for answer in answers]),
        np.concatenate([answer.outside for answer in answers]),
        np.concatenate(bounds) if bounds else None,
        np.concatenate(inputs) if inputs else None,
        np.concatenate([np.broadcast_to(answer.version, len(answer)) for answer in answers]),
    )


def served_prediction(
    prediction: Prediction, outside: NDArray[np.bool_], query: Query, own_coverage: float
) -> ServedPrediction:
    """Return the prediction of a query to which the model's own coverage had been appended."""
    if prediction.intervals is None:
        return ServedPrediction(prediction, outside, None)
    bounds = np.stack(prediction.bounds(own_coverage), axis=1)
    requested = len(prediction.coverages if query.coverages is None else query.coverages)
    return ServedPrediction(prediction.with_coverages(requested), outside, bounds)
