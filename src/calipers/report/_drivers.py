"""What drives the points and what drives the widths, as the report shows it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from calipers.importance import Dependence, dependence, permutation_importance
from calipers.regressor import IntervalRegressor
from calipers.report._format import Unit, brief, rounded
from calipers.report._labelled import LabelledPrediction

_FEWEST = 20  # rows; fewer say nothing
_ROWS = 1000  # shuffled; drawn at random where there are more
_REPEATS = 3
_INPUTS = 100  # more than these are not shuffled one by one: it would take minutes
_BARS = 10
_CURVES = 6
_VALUES = 16


@dataclass(frozen=True)
class Driver:
    """What one input is worth to the model."""

    name: str
    point: float  # by how much the root mean squared error grows without it
    width: float  # how far a width moves without it, on average


@dataclass(frozen=True, eq=False)
class Drivers:
    """Inputs by what they are worth, and the curves of the most important."""

    inputs: list[Driver]  # those that the model uses, in the order of the table
    curves: list[Dependence]  # by what the inputs are worth for the interval score

    def bars(self, measure: str) -> list[tuple[str, float]]:
        """The largest by "point" or "width", without what is worth next to nothing."""
        pairs = sorted(
            ((one.name, getattr(one, measure)) for one in self.inputs), key=lambda p: -p[1]
        )
        return [(name, value) for name, value in pairs[:_BARS] if value > 0.01 * pairs[0][1] > 0]


def find_drivers(model: IntervalRegressor, X: Any, labelled: LabelledPrediction) -> Drivers | None:
    """Importances and dependence curves; None with too few rows or too many inputs."""
    used = [column.name for column in model.inputs_ if column.used]
    measurable = len(labelled) >= _FEWEST and np.isfinite(labelled.width).all()
    if not measurable or not 0 < len(used) <= _INPUTS:
        return None
    rows = np.random.default_rng(0).permutation(len(labelled))[:_ROWS]
    table, target = _safe_indexing(X, rows), labelled.target[rows]
    found = permutation_importance(model, table, target, n_repeats=_REPEATS)
    before = float(np.mean((labelled.point[rows] - target) ** 2))
    grown = np.sqrt(np.maximum(before + found.squared_error.mean(axis=1), 0)) - np.sqrt(before)
    widths, scores = found.width.mean(axis=1), found.interval_score.mean(axis=1)
    inputs = [
        Driver(name, float(point), float(width))
        for name, point, width in zip(found.names, grown, widths, strict=True)
        if name in used
    ]
    best = [place for place in np.argsort(-scores, kind="stable") if scores[place] > 0][:_CURVES]
    curves = [dependence(model, table, found.names[place], n_values=_VALUES) for place in best]
    return Drivers(inputs, curves)


def driver_sentence(found: Drivers, unit: Unit) -> str:
    """The input that matters most to the points, and the one that matters most to the widths."""
    points, widths = found.bars("point"), found.bars("width")
    if not points:
        return "No input is worth anything for the points: without any of them they are as good."
    name, value = points[0]
    text = (
        f"The points owe most to {name}: without it their typical error grows by "
        f"{unit.write(value)}."
    )
    if not widths:
        return f"{text} The widths are the same for all rows."
    name, value = widths[0]
    return (
        f"{text} The widths owe most to {name}: without it a row's width moves by "
        f"{unit.write(value)} on average."
    )


def driver_data(found: Drivers | None) -> dict[str, Any] | None:
    """What the charts draw, as plain JSON."""
    if found is None:
        return None
    bars = {measure: found.bars(measure) for measure in ("point", "width")}
    return {
        "bars": {
            measure: {
                "names": [name for name, _ in part],
                "values": rounded(np.array([v for _, v in part])),
            }
            for measure, part in bars.items()
        },
        "curves": [_curve(one) for one in found.curves],
    }


def _curve(one: Dependence) -> dict[str, Any]:
    return {
        "steps": one.kind in ("boolean", "category"),
        "labels": [_label(one, place) for place in range(len(one.values))],
        "positions": [float(value) for value in one.positions],
        "lower": rounded(one.lower),
        "point": rounded(one.point),
        "upper": rounded(one.upper),
    }


def _label(one: Dependence, place: int) -> str:
    if one.kind == "date":
        return brief(np.datetime64(int(one.positions[place]), "s"))
    if one.kind == "boolean":
        return "yes" if one.positions[place] else "no"
    return brief(one.values[place] if one.kind == "category" else float(one.positions[place]))
