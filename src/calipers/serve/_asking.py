"""What is asked about some rows, and the arrays that answer it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.prediction import Prediction, Query

Values = NDArray[Any]

Columns = dict[str, Values]
"""A table by columns, each of shape (rows,): numbers, times or objects."""

Answer = dict[str, Values]
"""Arrays by name with the rows along the first axis, so that answers are cut and joined alike.

``point``, ``lower`` and ``upper`` (of the model's own coverage), ``outside`` (rows, inputs), and
what was asked: ``intervals`` (rows, 2, coverages), ``quantiles`` (rows, levels), ``members``
(rows, 3, members), ``density`` (rows, 2, points).
"""


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of one request."""

    columns: Columns
    rows: int
    ask: Query

    def __len__(self) -> int:
        return self.rows


def join(answers: Sequence[Answer]) -> Answer:
    """One answer from those of consecutive rows."""
    if len(answers) == 1:
        return answers[0]
    return {name: np.concatenate([a[name] for a in answers]) for name in answers[0]}


def answer_of(prediction: Prediction, outside: Values, ask: Query, own: float) -> Answer:
    """What is written and recorded; ``own`` is the coverage that the monitor watches."""
    answer: Answer = {"point": prediction.point, "outside": outside}
    if prediction.intervals is not None:
        answer["lower"], answer["upper"] = prediction.bounds(own)
        asked = len(prediction.coverages if ask.coverages is None else ask.coverages)
        if asked:
            answer["intervals"] = prediction.intervals[:, :, :asked]
    for name in ("quantiles", "members", "density"):
        if (values := getattr(prediction, name)) is not None:
            answer[name] = values
    return answer
