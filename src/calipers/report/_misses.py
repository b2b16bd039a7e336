"""The rows farthest outside of their intervals, and what is unusual about them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calipers.report._answers import Answers
from calipers.report._inputs import Input

_MOST = 12
_FAR = 0.02  # share of the rows that makes a value one of the highest, lowest or rarest
_NAMED = 4  # unusual values named


@dataclass(frozen=True)
class Miss:
    """A row outside of its interval.

    Attributes
    ----------
    name : str
        Label of the row.
    target, point, lower, upper : float
        What was observed and what was predicted.
    distance, widths : float
        How far it is outside, in the target's unit and in half widths of its interval.
    notable : str
        What is unusual about its inputs.
    inputs : list of (str, str)
        Their names and values.
    """

    name: str
    target: float
    point: float
    lower: float
    upper: float
    distance: float
    widths: float
    notable: str
    inputs: list[tuple[str, str]]


def worst_misses(answers: Answers, inputs: Sequence[Input], names: Sequence[str]) -> list[Miss]:
    """The rows farthest outside, in the target's unit, the worst first.

    Parameters
    ----------
    answers : Answers
        The rows.
    inputs : sequence of Input
        Inputs that the model uses.
    names : sequence of str
        Label of each row.
    """
    distance = np.maximum(answers.lower - answers.target, answers.target - answers.upper)
    outside = np.flatnonzero(distance > 0)
    worst = outside[np.argsort(-distance[outside], kind="stable")][:_MOST]
    half = np.maximum(answers.width / 2, np.finfo(float).tiny)
    unusual = [_unusual(one, worst) for one in inputs]
    return [
        Miss(
            names[row],
            float(answers.target[row]),
            float(answers.point[row]),
            float(answers.lower[row]),
            float(answers.upper[row]),
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
