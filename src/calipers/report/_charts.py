"""Data of the charts, as plain JSON."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calipers import metrics
from calipers._arrays import FloatArray
from calipers._evaluation import LabelledPrediction
from calipers.bank import History
from calipers.report._format import Unit, rounded
from calipers.report._groups import Breakdown

_ROWS = 1500  # drawn; measures are computed from all rows
_EPOCHS = 150  # points of a training curve
_NETWORKS = 20


def sampled(labelled: LabelledPrediction) -> NDArray[np.intp]:
    """Return the rows to draw, sorted by prediction."""
    rows = np.arange(len(labelled))
    if len(rows) > _ROWS:
        rows = np.random.default_rng(0).choice(rows, _ROWS, replace=False)
    return rows[np.argsort(labelled.point[rows], kind="stable")]


def chart_data(
    labelled: LabelledPrediction,
    parts: Sequence[Breakdown],
    histories: Sequence[Any],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the data of all charts but those of the drivers."""
    rows = sampled(labelled)
    calibration = bars = uncertainty = None
    if labelled.pit is not None:
        curve, (counts, heights, band) = curve_and_band(labelled), pit_bars(labelled)
        calibration = {name: rounded(values) for name, values in curve._asdict().items()}
        bars = {"heights": rounded(heights), "counts": counts.tolist(), "band": list(band)}
    if labelled.aleatoric is not None and labelled.epistemic is not None:
        parts_of_std = {"aleatoric": labelled.aleatoric, "epistemic": labelled.epistemic}
        uncertainty = {name: rounded(values[rows]) for name, values in parts_of_std.items()}
    return {
        "coverage": labelled.coverage,
        "ties": labelled.ties is not None,
        "decimals": Unit.of(labelled.target).decimals,
        "intervals": {
            "names": [names[row] for row in rows],
            "target": rounded(labelled.target[rows]),
            "point": rounded(labelled.point[rows]),
            "levels": [_level(labelled, rows, i, level) for i, level in enumerate(labelled.levels)],
        },
        "calibration": calibration,
        "pit": bars,
        "groups": [
            [vars(group) | {"width": rounded(np.array([group.width]))[0]} for group in part.groups]
            for part in parts
        ],
        "uncertainty": uncertainty,
        "history": [_history(history) for history in histories[:_NETWORKS]],
    }


def _level(
    labelled: LabelledPrediction, rows: NDArray[np.intp], index: int, level: float
) -> dict[str, Any]:
    """Return the bounds of the rows drawn, and measures on all rows, at one level."""
    lower, upper = labelled.bounds[:, 0, index], labelled.bounds[:, 1, index]
    low, high = metrics.coverage_band(len(labelled), level)
    return {
        "coverage": float(level),
        "lower": rounded(lower[rows]),
        "upper": rounded(upper[rows]),
        "rate": float(labelled.covered(index).mean()),
        "band": [float(low), float(high)],
        "width": rounded(np.array([np.median(upper - lower)]))[0],
    }


class Curve(NamedTuple):
    """Observed against nominal coverage, and the range of the whole curve by chance."""

    nominal: FloatArray
    observed: FloatArray
    low: FloatArray
    high: FloatArray


def curve_and_band(labelled: LabelledPrediction) -> Curve:
    """Return the coverage rates at many coverages; 19 of 20 calibrated models stay in the range."""
    nominal, low, high = metrics.curve_band(len(labelled))
    return Curve(nominal, labelled.observed(nominal), low, high)


def pit_bars(
    labelled: LabelledPrediction,
) -> tuple[NDArray[np.intp], FloatArray, tuple[float, float]]:
    """Return counts and heights of the PIT histogram, and the range of all heights by chance.

    All bars of 19 of 20 calibrated models end in the range.
    """
    assert labelled.pit is not None  # noqa: S101 - for the type checker
    rows = len(labelled)
    bins = int(np.clip(rows // 10, 4, 20))  # so that each bar has some rows
    counts, _ = np.histogram(labelled.pit, bins=bins, range=(0, 1))
    band = metrics.pit_band(rows, bins, confidence=metrics.joint_confidence(rows, bins))
    return counts, counts / rows * bins, band


def _history(history: History) -> dict[str, Any]:
    """Return the losses of one network at some of its epochs."""
    curves = {}
    for name, field in (("train", "loss"), ("valid", "valid_loss")):
        finite = history[np.isfinite(history[field])]
        step = max(1, -(-len(finite) // _EPOCHS))
        kept = finite[::-step][::-1]  # always with the last epoch
        curves[name] = [kept["epoch"].tolist(), rounded(kept[field])]
    return curves
