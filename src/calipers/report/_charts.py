"""Data of the charts, as plain JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers import metrics
from calipers.report._format import Unit, rounded
from calipers.report._groups import Breakdown
from calipers.report._labelled import LabelledPrediction

_ROWS = 1500  # drawn; measures are computed from all rows
_EPOCHS = 150  # points of a training curve
_NETWORKS = 20
_NOMINAL = np.round(np.arange(1, 40) / 40, 3)


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
        "calibration": _calibration(labelled),
        "pit": _pit(labelled),
        "groups": [
            [vars(group) | {"width": rounded(np.array([group.width]))[0]} for group in part.groups]
            for part in parts
        ],
        "uncertainty": _uncertainty(labelled, rows),
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


def _calibration(labelled: LabelledPrediction) -> dict[str, Any] | None:
    if labelled.pit is None:
        return None
    low, high = metrics.coverage_band(len(labelled), _NOMINAL)
    return {
        "nominal": _NOMINAL.tolist(),
        "observed": rounded(labelled.observed(_NOMINAL)),
        "low": rounded(low),
        "high": rounded(high),
    }


def pit_bins(rows: int) -> int:
    """Return a number of bars for the PIT histogram such that each has some rows."""
    return int(np.clip(rows // 10, 4, 20))


def _pit(labelled: LabelledPrediction) -> dict[str, Any] | None:
    if labelled.pit is None:
        return None
    bins = pit_bins(len(labelled))
    counts, _ = np.histogram(labelled.pit, bins=bins, range=(0, 1))
    heights = counts / len(labelled) * bins
    return {
        "heights": rounded(heights),
        "counts": counts.tolist(),
        "band": list(metrics.pit_band(len(labelled), bins)),
    }


def _uncertainty(labelled: LabelledPrediction, rows: NDArray[np.intp]) -> dict[str, Any] | None:
    if labelled.aleatoric is None or labelled.epistemic is None:
        return None
    return {
        "aleatoric": rounded(labelled.aleatoric[rows]),
        "epistemic": rounded(labelled.epistemic[rows]),
    }


def _history(history: Any) -> dict[str, Any]:
    """Return the losses of one network at some of its epochs."""
    curves = {}
    for name, field in (("train", "loss"), ("valid", "valid_loss")):
        finite = history[np.isfinite(history[field])]
        step = max(1, -(-len(finite) // _EPOCHS))
        kept = finite[::-step][::-1]  # always with the last epoch
        curves[name] = [kept["epoch"].tolist(), rounded(kept[field])]
    return curves
