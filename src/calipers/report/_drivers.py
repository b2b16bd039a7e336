"""The inputs that drive point predictions and widths: importances and dependence curves."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from calipers.importance import Dependence, dependence, permutation_importance
from calipers.regressor import IntervalRegressor
from calipers.report._format import Unit, brief, rounded
from calipers.report._labelled import LabelledPrediction

_FEWEST_ROWS = 20  # fewer say nothing
_ROWS = 1000  # shuffled; a random sample if there are more
_REPEATS = 3
_MOST_INPUTS = 100  # shuffling more of them would take minutes
_BARS = 10
_CURVES = 6
_VALUES = 16


@dataclass(frozen=True)
class Driver:
    """The importance of one input."""

    name: str
    point: float  # increase of the root mean squared error when it is shuffled
    width: float  # mean absolute change of a width when it is shuffled


@dataclass(frozen=True, eq=False)
class Drivers:
    """Importances of all inputs, and the curves of the most important."""

    inputs: list[Driver]  # used inputs, in the order of the table
    curves: list[Dependence]  # by their importance for the interval score

    def bars(self, measure: str) -> list[tuple[str, float]]:
        """Return the largest importances by "point" or "width", without negligible ones."""
        pairs = sorted(
            ((driver.name, getattr(driver, measure)) for driver in self.inputs), key=lambda p: -p[1]
        )
        return [(name, value) for name, value in pairs[:_BARS] if value > 0.01 * pairs[0][1] > 0]


def find_drivers(model: IntervalRegressor, X: Any, labelled: LabelledPrediction) -> Drivers | None:
    """Return importances and dependence curves; None with too few rows or too many inputs."""
    used = [column.name for column in model.inputs_ if column.used]
    measurable = len(labelled) >= _FEWEST_ROWS and np.isfinite(labelled.width).all()
    if not measurable or not 0 < len(used) <= _MOST_INPUTS:
        return None
    rows = np.random.default_rng(0).permutation(len(labelled))[:_ROWS]
    table, target = _safe_indexing(X, rows), labelled.target[rows]
    importances = permutation_importance(model, table, target, n_repeats=_REPEATS)
    mse = float(np.mean((labelled.point[rows] - target) ** 2))
    increases = np.sqrt(np.maximum(mse + importances.squared_error.mean(axis=1), 0)) - np.sqrt(mse)
    widths, scores = importances.width.mean(axis=1), importances.interval_score.mean(axis=1)
    inputs = [
        Driver(name, float(point), float(width))
        for name, point, width in zip(importances.names, increases, widths, strict=True)
        if name in used
    ]
    best = [i for i in np.argsort(-scores, kind="stable") if scores[i] > 0][:_CURVES]
    curves = [dependence(model, table, importances.names[i], n_values=_VALUES) for i in best]
    return Drivers(inputs, curves)


def driver_sentence(drivers: Drivers, unit: Unit) -> str:
    """Return sentences on the most important input for point predictions and for widths."""
    points, widths = drivers.bars("point"), drivers.bars("width")
    if not points:
        return "No input matters for the point predictions: shuffling any of them does no harm."
    name, value = points[0]
    text = (
        f"The point predictions depend most on {name}: shuffling it increases their typical error "
        f"by {unit.write(value)}."
    )
    if not widths:
        return f"{text} The widths are the same for all rows."
    name, value = widths[0]
    return (
        f"{text} The widths depend most on {name}: shuffling it changes a width by "
        f"{unit.write(value)} on average."
    )


def driver_data(drivers: Drivers | None) -> dict[str, Any] | None:
    """Return the data of the charts, as plain JSON."""
    if drivers is None:
        return None
    bars = {measure: drivers.bars(measure) for measure in ("point", "width")}
    return {
        "bars": {
            measure: {
                "names": [name for name, _ in part],
                "values": rounded(np.array([v for _, v in part])),
            }
            for measure, part in bars.items()
        },
        "curves": [_curve_data(curve) for curve in drivers.curves],
    }


def _curve_data(curve: Dependence) -> dict[str, Any]:
    return {
        "steps": curve.kind in ("boolean", "category"),
        "labels": [_label(curve, i) for i in range(len(curve.values))],
        "positions": [float(value) for value in curve.positions],
        "lower": rounded(curve.lower),
        "point": rounded(curve.point),
        "upper": rounded(curve.upper),
    }


def _label(curve: Dependence, i: int) -> str:
    if curve.kind == "date":
        return brief(np.datetime64(int(curve.positions[i]), "s"))
    if curve.kind == "boolean":
        return "yes" if curve.positions[i] else "no"
    return brief(curve.values[i] if curve.kind == "category" else float(curve.positions[i]))
