"""Predictions for labelled rows, in blocks of rows."""

from copy import copy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_consistent_length, column_or_1d

from calipers._checks import FloatArray
from calipers._progress import progress
from calipers.prediction import Prediction, Query
from calipers.regressor import IntervalRegressor

_BLOCK = 2**14  # rows predicted at a time
_LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True, eq=False)
class LabelledPrediction:
    """Labelled rows and their predictions, all in the target's unit."""

    coverage: float  # nominal probability of the intervals that the report is about
    # (k,): coverages that the reader can choose, ``coverage`` among them, in rising order
    levels: FloatArray
    # (n,): observations and point estimates
    target: FloatArray
    point: FloatArray
    # (n, 2, k): lower and upper bounds for each of ``levels``; infinite where a coverage is not
    # supported
    bounds: FloatArray
    outside: NDArray[np.bool_]  # (n, inputs): values outside of what training has seen
    # (n,): probability integral transform, and the two parts of the standard deviation; None for
    # a model that gives bounds and no distribution
    pit: FloatArray | None
    aleatoric: FloatArray | None
    epistemic: FloatArray | None
    # whether targets have mass on single values, in which ``pit`` is then at random
    ties: bool = False

    def __len__(self) -> int:
        return len(self.target)

    @property
    def own(self) -> int:
        """Place of ``coverage`` among the levels."""
        return int(np.flatnonzero(self.levels == self.coverage)[0])

    @property
    def lower(self) -> FloatArray:
        """Lower bounds for ``coverage``."""
        return self.bounds[:, 0, self.own]

    @property
    def upper(self) -> FloatArray:
        """Upper bounds for ``coverage``."""
        return self.bounds[:, 1, self.own]

    @property
    def width(self) -> FloatArray:
        """Widths of the intervals for ``coverage``."""
        return self.upper - self.lower

    def held(self, place: int) -> NDArray[np.bool_]:
        """Whether each target lies in its interval for one of the levels, ties shared out."""
        if self.ties and self.pit is not None:
            return 2 * np.abs(self.pit - 0.5) <= self.levels[place]
        return (self.bounds[:, 0, place] <= self.target) & (self.target <= self.bounds[:, 1, place])

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each target lies in its interval for ``coverage``."""
        return (self.lower <= self.target) & (self.target <= self.upper)


def predict_labelled(
    model: IntervalRegressor, X: Any, y: Any, *, visible: bool
) -> LabelledPrediction:
    """Predict labelled rows with a fitted model."""
    target = _checked_target(X, y)
    model = copy(model)
    model.unsupported = "inf"  # a report shows what the rows do not support, and does not stop
    if not model.ensemble_.head.has_interval:
        raise ValueError(
            f"loss={model.loss!r} predicts points and no intervals, which is what a report is about"
        )
    has_dist = model.ensemble_.gives_distribution
    coverage = float(model.coverage)
    levels = np.unique([*_LEVELS, coverage]) if has_dist else np.array([coverage])
    parts, outside = [], []
    with progress("predicting", len(target), visible=visible) as report:
        for start in range(0, len(target), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(target)))
            at = target[rows] if has_dist else None
            query = Query(tuple(levels.tolist()), variance_parts=has_dist, at=at)
            found, beyond = model.query_and_check(_safe_indexing(X, rows), query)
            parts.append(found)
            outside.append(beyond)
            report(len(rows))
    found = Prediction.concatenate(parts)
    pit, ties = _pit(found)
    parts_of_variance = (found.aleatoric_variance, found.epistemic_variance)
    aleatoric, epistemic = (None if v is None else np.sqrt(v) for v in parts_of_variance)
    return LabelledPrediction(
        coverage,
        levels,
        target,
        found.point,
        cast(FloatArray, found.intervals),
        np.concatenate(outside),
        pit,
        aleatoric,
        epistemic,
        ties,
    )


def _pit(found: Prediction) -> tuple[FloatArray | None, bool]:
    """Probability integral transform, at random within the mass of a value; and if there is any."""
    if found.cdf is None or found.cdf_below is None:
        return found.cdf, False
    mass = found.cdf - found.cdf_below
    place = np.random.default_rng(0).random(len(mass))
    return found.cdf_below + place * mass, bool((mass > 1e-9).any())


def _checked_target(X: Any, y: Any) -> FloatArray:
    check_consistent_length(X, y)
    target = column_or_1d(y)
    if not len(target):
        raise ValueError("a report needs at least one row with a known target, got none")
    try:
        target = target.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold numbers: {error}") from None
    if bad := np.flatnonzero(~np.isfinite(target)).tolist():
        raise ValueError(f"y must be finite, got {target[bad[0]]} in row {bad[0]}")
    return target
