"""Rows of a request with its query, and the prediction that answers them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.prediction import Prediction, Query

Columns = dict[str, NDArray[Any]]
"""A table by columns, each of shape (rows,): numbers, times or objects."""


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
    """What is written and recorded about some rows."""

    prediction: Prediction  # what was asked
    outside: NDArray[np.bool_]  # (rows, inputs): which values training did not see
    # (rows, 2): bounds of the model's own coverage, which the monitor watches
    bounds: NDArray[np.float64] | None
    # (rows, encoded inputs): what the networks saw, for labels to teach by
    inputs: NDArray[np.float64] | None = None
    # of the model, for all rows or each: how often it had learnt
    version: int | NDArray[np.intp] = 0

    def __len__(self) -> int:
        return len(self.outside)

    def __getitem__(self, rows: Any) -> "ServedPrediction":
        bounds = None if self.bounds is None else self.bounds[rows]
        inputs = None if self.inputs is None else self.inputs[rows]
        version = np.broadcast_to(self.version, len(self))[rows]
        return ServedPrediction(self.prediction[rows], self.outside[rows], bounds, inputs, version)


def join(answers: Sequence[ServedPrediction]) -> ServedPrediction:
    """One answer from those of consecutive rows."""
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
    prediction: Prediction, outside: NDArray[np.bool_], query: Query, own: float
) -> ServedPrediction:
    """The answer to a query that was asked with the model's own coverage at its end."""
    if prediction.intervals is None:
        return ServedPrediction(prediction, outside, None)
    bounds = np.stack(prediction.bounds(own), axis=1)
    asked = len(prediction.coverages if query.coverages is None else query.coverages)
    return ServedPrediction(prediction.with_coverages(asked), outside, bounds)
