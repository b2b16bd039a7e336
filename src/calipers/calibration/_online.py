"""Adaptive conformal inference for streams: coverage under drift, at all levels at once."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers import _checks as checks
from calipers._arrays import FloatArray
from calipers._schema import array_of, refuse, within
from calipers.calibration._calibrated import CalibratedMixture, Unsupported, normal_scores
from calipers.calibration._calibrator import Calibrator
from calipers.calibration._input_shift import InputShift
from calipers.calibration._learned import Learned, NetworkDistribution, median_and_scale, shifted
from calipers.calibration._level_map import KnotMap
from calipers.calibration._martingale import Martingale
from calipers.calibration._tracking import MAX_SCORE, NORMAL, LevelTracker

if TYPE_CHECKING:
    from calipers.onnx import Graph, Parts, Value

_PARTS = ("levels", "shift", "alarm")  # the mutable fields of a state
# Limits of stored arrays, beyond which no stream leads.
_MAX_STATE = 1e100
_FRACTIONS = ("levels.weights", "shift.weights", "alarm.shares")
_COUNTS = ("levels.rows", "shift.rows", "alarm.rows", "levels.spread", "shift.spread", "shift.run")
_LIMITS = {
    **dict.fromkeys(("levels.scale", "shift.scale", "alarm.counts"), (1e-12, _MAX_STATE)),
    **dict.fromkeys(_FRACTIONS, (0.0, 1.0 + 1e-9)),
    **dict.fromkeys(_COUNTS, (0.0, _MAX_STATE)),
    "shift.typical": (0.0, 1e150),
}


@dataclass(frozen=True, eq=False)
class AdaptiveCoverage(Calibrator):
    """An online calibration, which learns from every row whose target becomes known.

    It corrects the location of a predicted distribution (by a regression of recent errors on the
    inputs) and the score of every level (by quantiles that experts with several memories track, and
    a margin that maintains the coverage of central intervals). There is no step size and no window
    to choose. The modules ``_input_shift`` and ``_tracking`` describe the method and what is
    proven: over T rows, in any order and whatever the model, the coverage of each central interval
    that has a margin differs from nominal by at most a constant over T, as long as scores are
    bounded in units of their recent scale. Where the target has point masses, it is at most that
    much below nominal.

    Instances are immutable: ``learn`` returns the next state.

    Examples
    --------
    A stream whose scale triples:

    >>> from calipers.distributions import SplitNormal, SplitNormalMixture
    >>> rng = np.random.default_rng(0)
    >>> online, hits = AdaptiveCoverage.start(base_rows=1000), 0
    >>> for t in range(400):
    ...     dist = SplitNormalMixture(SplitNormal([[0.0]], 1.0, 1.0))
    ...     y = rng.normal(0, 1 if t < 200 else 3, 1)
    ...     lower, upper = online.calibrated(dist).interval(0.9)
    ...     hits += int(lower[0] <= y[0] <= upper[0])
    ...     online = online.learn(dist, y).state
    >>> round(hits / 400, 2), online.alarm.alarm
    (0.9, True)
    """

    levels: LevelTracker
    shift: InputShift
    #: Test of whether rows are still exchangeable, on the scores before the correction.
    alarm: Martingale
    base_rows: int  #: Calibration rows of the model that is corrected.

    kind: ClassVar[str] = "adaptive"
    in_fit: ClassVar[bool] = False

    @classmethod
    def start(
        cls, base_rows: int, center: FloatArray | None = None, unit: FloatArray | None = None
    ) -> Self:
        """Return the initial state, without a correction.

        Parameters
        ----------
        base_rows : int
            Calibration rows of the model, which decide what coverage is supported at first.
        center, unit : array of shape (inputs,), optional
            Location and scale that standardise the inputs. Without them the correction of the
            location is the same for all rows.
        """
        return cls(
            LevelTracker.start(), InputShift.start(center, unit), Martingale.start(), base_rows
        )

    @property
    def n_rows(self) -> int:  # type: ignore[override]  # which others have as a field
        """Number of rows learned from, including those of the model's own calibration."""
        return self.base_rows + int(self.levels.rows)

    def level_map(self) -> KnotMap:
        """The map between levels and scores for the next row."""
        return self._level_map

    @cached_property
    def _level_map(self) -> KnotMap:
        return KnotMap.through(NORMAL, self.levels.issue().scores, self.n_rows)

    def calibrated(
        self,
        dist: NetworkDistribution,
        X: FloatArray | None = None,
        unsupported: Unsupported = "inf",
    ) -> CalibratedMixture:
        """Correct the distributions that were predicted for the rows ``X``."""
        inputs = self.shift.standardised(np.zeros((len(dist), 0)) if X is None else X)
        if self.shift.rows:
            dist = shifted(dist, self.shift.of_rows(inputs, median_and_scale(dist)[1]))
        return CalibratedMixture(dist, self._level_map, unsupported=unsupported)

    def learn(
        self,
        dist: NetworkDistribution,
        y: ArrayLike,
        X: FloatArray | None = None,
        delay: int = 0,
        cells: FloatArray | None = None,
        predicted_by: "Sequence[AdaptiveCoverage] | None" = None,
    ) -> Learned:
        """Learn from the targets of rows, one after the other.

        Parameters
        ----------
        dist : SplitNormalMixture or CalibratedMixture
            Predictions of the model for the rows, before this correction.
        y : array-like of shape (n,)
            Targets of the rows.
        X : array of shape (n, inputs), optional
            Inputs of the rows, where ``start`` was given a centre and a unit.
        delay : int
            Number of later rows that are predicted before a row's target becomes known.
        cells : array of shape (2, n), optional
            Values, possibly infinite, between which each target would have been observed as the
            same value, where the target has point masses; ``y`` is then drawn in between.
        predicted_by : sequence of AdaptiveCoverage, optional
            The state with which each row was predicted, if known; replaces ``delay``.

        Returns
        -------
        Learned
            The next state, and the prediction for each row before its target was known.
        """
        target = checks.finite("y", y)
        state = replace(self, **{name: deepcopy(getattr(self, name)) for name in _PARTS})
        median, scale = median_and_scale(dist)
        inputs = state.shift.standardised(np.zeros((len(target), 0)) if X is None else X)
        by, size, shifts, issued = np.zeros(len(target)), np.ones(len(target)), {}, {}
        states = [state] * len(target) if predicted_by is None else predicted_by
        for new, labelled in lagged(len(target), delay):
            if new is not None:
                shifts[new] = states[new].shift.issue(inputs[new], scale[new])
                by[new] = shifts[new][-1]
            if labelled is not None:
                size[labelled] = state.shift.size(scale[labelled])
                error = target[labelled] - median[labelled]
                state.shift.learn(inputs[labelled], error, scale[labelled], shifts.pop(labelled))
        state.alarm.learn(normal_scores(dist, target))
        moved = shifted(dist, by)
        knots = np.empty((len(target), len(NORMAL)))
        z = np.clip(normal_scores(moved, target), -MAX_SCORE, MAX_SCORE)
        ends = _end_scores(moved, target, z, cells)
        for new, labelled in lagged(len(target), delay):
            if new is not None:
                issued[new] = states[new].levels.issue()
                knots[new] = issued[new].scores
            if labelled is not None:
                past = issued.pop(labelled)
                state.levels.learn(z[labelled], ends[labelled], size[labelled], past)
        return Learned(state, moved, target, knots)

    def reach(self, level: float) -> float:
        return super().reach(level) + self.shift.reach

    def check_inputs(self, inputs: int) -> None:
        size = len(self.shift.center)
        if size not in (0, inputs):
            refuse("array 'shift.center'", f"of {inputs} inputs, or none", size)

    def onnx(self, graph: "Graph", X: "Value", mixture: "Parts") -> None:
        """There is no form in an ONNX graph."""
        raise ValueError(
            "a model that was updated online cannot be exported to ONNX: its correction changes "
            "with every row"
        )

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        arrays = {key: np.asarray(getattr(part, field)) for key, part, field in _arrays(self)}
        return {"base_rows": np.asarray(self.base_rows), **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        rows = array_of(arrays, "base_rows", "iu", (), 0, 2.0**53)
        inputs = array_of(arrays, "shift.center", "f").shape
        if len(inputs) != 1:
            refuse("array 'shift.center'", "a list", inputs)
        state = cls.start(int(rows), np.zeros(inputs), np.ones(inputs))
        if state.shift.center.shape != inputs:
            refuse("array 'shift.center'", "of fewer inputs", inputs)
        for key, part, field in _arrays(state):
            limits = _LIMITS.get(key, (-_MAX_STATE, _MAX_STATE))
            array = array_of(arrays, key, "f", np.shape(getattr(part, field)), *limits)
            if key in _FRACTIONS and not np.allclose(array.sum(axis=0), 1.0, atol=1e-6):
                refuse(f"array {key!r}", "fractions that add up to 1", array.sum(axis=0))
            if key == "levels.shape" and (np.diff(array, axis=1) < 0).any():
                refuse(f"array {key!r}", "ascending along levels", array)
            setattr(part, field, np.array(array, dtype=np.float64))
        with np.errstate(over="ignore"):
            within("shift.slope", state.shift.typical * state.shift.reach, 0, 1e150)
        return state


def _arrays(state: AdaptiveCoverage) -> Iterator[tuple[str, Any, str]]:
    """Yield the key of each stored array, the object that holds it, and the name of its field."""
    for name in _PARTS:
        part = getattr(state, name)
        yield from ((f"{name}.{field.name}", part, field.name) for field in fields(part))


def _end_scores(
    dist: NetworkDistribution, target: FloatArray, z: FloatArray, cells: FloatArray | None
) -> FloatArray:
    """Normal scores of both ends of the cells, of shape (n, 2)."""
    if cells is None:
        return np.stack([z, z], axis=1)
    finite = np.isfinite(cells)
    scores = [
        normal_scores(dist, np.where(f, c, target)) for f, c in zip(finite, cells, strict=True)
    ]
    return np.where(finite, np.clip(scores, -MAX_SCORE, MAX_SCORE), cells).T


def _whole(delay: SupportsIndex) -> int:
    """``delay`` as an integer; raise ValueError if it is not a number of rows."""
    try:
        rows = index(delay)
    except TypeError:
        rows = -1
    if rows < 0:
        raise ValueError(f"delay must be a whole number of rows from 0 on, got {delay!r}")
    return rows


def lagged(rows: int, delay: SupportsIndex) -> Iterator[tuple[int | None, int | None]]:
    """Yield, for each step, the row that is predicted and the row whose target becomes known.

    >>> list(lagged(3, 1))
    [(0, None), (1, 0), (2, 1), (None, 2)]
    """
    delay = min(_whole(delay), rows)
    for t in range(rows + delay):
        yield (t if t < rows else None), (t - delay if t >= delay else None)
