"""The inputs that drive point predictions and widths: importances and dependence curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import _safe_indexing

from calipers._arrays import FloatArray
from calipers._evaluation import LabelledPrediction
from calipers.importance import Dependence, dependence, permutation_importance
from calipers.regressor import IntervalRegressor
from calipers.report._format import Unit, rounded, write_cell

_MIN_ROWS = 20  # with fewer, importances are noise
_ROWS = 1000  # shuffled; a random sample if there are more
_REPEATS = 3
_MAX_INPUTS = 100  # shuffling more of them would take minutes
_BARS = 10
_CURVES = 6
_VALUES = 16


@dataclass(frozen=True, eq=False)
class Drivers:
    """The most important inputs for point predictions and for widths, and curves of some."""

    # "point": increase of the root mean squared error when the input is shuffled; "width": mean
    # absolute change of a width. The largest first, without negligible ones.
    bars: dict[str, list[tuple[str, float]]]
    curves: list[Dependence]  # by their importance for the interval score


def find_drivers(
    model: IntervalRegressor, X: ArrayLike, labelled: LabelledPrediction
) -> Drivers | None:
    """Return importances and dependence curves; None with too few rows or too many inputs."""
    used = sum(column.used for column in model.inputs_)
    measurable = len(labelled) >= _MIN_ROWS and np.isfinite(labelled.width).all()
    if not measurable or not 0 < used <= _MAX_INPUTS:
        return None
    rows = np.random.default_rng(0).permutation(len(labelled))[:_ROWS]
    table, target = _safe_indexing(X, rows), labelled.target[rows]
    found = permutation_importance(model, table, target, n_repeats=_REPEATS)
    mse = float(np.mean((labelled.point[rows] - target) ** 2))
    increases = np.sqrt(np.maximum(mse + found.squared_error.mean(axis=1), 0)) - np.sqrt(mse)
    bars = {
        "point": largest(found.names, increases),
        "width": largest(found.names, found.width.mean(axis=1)),
    }
    scores = found.interval_score.mean(axis=1)
    best = [i for i in np.argsort(-scores, kind="stable") if scores[i] > 0][:_CURVES]
    return Drivers(bars, [dependence(model, table, found.names[i], n_values=_VALUES) for i in best])


def largest(names: Sequence[str], values: FloatArray) -> list[tuple[str, float]]:
    """Return the largest importances by name; inputs that the model does not use have 0."""
    pairs = sorted(zip(names, values.tolist(), strict=True), key=lambda pair: -pair[1])[:_BARS]
    return [(name, value) for name, value in pairs if value > 0.01 * pairs[0][1] > 0]


def driver_sentence(drivers: Drivers, unit: Unit) -> str:
    """Return sentences on the most important input for point predictions and for widths."""
    points, widths = drivers.bars["point"], drivers.bars["width"]
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
    return {
        "bars": {
            measure: {
                "names": [name for name, _ in part],
                "values": rounded(np.array([v for _, v in part])),
            }
            for measure, part in drivers.bars.items()
        },
        "curves": [_curve_data(curve) for curve in drivers.curves],
    }


def _curve_data(curve: Dependence) -> dict[str, Any]:
    return {
        "steps": curve.dtype.kind in "bO",
        "labels": [
            write_cell(value if curve.dtype == object else float(place), curve.dtype)
            for value, place in zip(curve.values, curve.positions, strict=True)
        ],
        "positions": [float(value) for value in curve.positions],
        "lower": rounded(curve.lower),
        "point": rounded(curve.point),
        "upper": rounded(curve.upper),
    }
