"""Calibration that follows a stream: coverage kept under drift, at every level at once."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import index
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers import _checks as checks
from calipers._checks import FloatArray
from calipers._schema import array_of, refuse, within
from calipers.calibration._calibrated import CalibratedMixture, Unsupported
from calipers.calibration._input_shift import InputShift
from calipers.calibration._learned import Learned, NetworkDistribution, median_and_scale, shifted
from calipers.calibration._level_map import KnotMap
from calipers.calibration._martingale import Martingale
from calipers.calibration._scores import normal_scores
from calipers.calibration._tracking import NORMAL, LevelTracker

_PARTS: dict[str, Any] = {"levels": LevelTracker, "shift": InputShift, "alarm": Martingale}
_LARGEST = 1e100
_FURTHEST = 1e30  # scores count up to this


@dataclass(frozen=True, eq=False)
class AdaptiveCoverage:
    """A calibration for streams, which learns from every row whose target becomes known.

    On top of what a model predicts it corrects the place of a distribution (a regression of recent
    errors on the inputs) and the score of every level (quantiles tracked by experts with several
    memories, with a margin that keeps the coverage of central intervals). There is no step size and
    no window to choose. The modules ``_input_shift`` and ``_tracking`` say how, and what is proven:
    over T rows, in any order and whatever the model, the coverage of each central interval that has
    a margin differs from nominal by at most a constant over T, as long as scores are bounded in
    units of their recent scale.

    An instance does not change: ``learn`` gives the next one.

    Examples
    --------
    A stream whose scale trebles:

    >>> from calipers.distributions import SplitNormal, SplitNormalMixture
    >>> rng = np.random.default_rng(0)
    >>> online, hits = AdaptiveCoverage.start(base_rows=1000), 0
    >>> for t in range(1000):
    ...     dist = SplitNormalMixture(SplitNormal([[0.0]], 1.0, 1.0))
    ...     y = rng.normal(0, 1 if t < 500 else 3, 1)
    ...     lower, upper = online.calibrated(dist).interval(0.9)
    ...     hits += int(lower[0] <= y[0] <= upper[0])
    ...     online = online.learn(dist, y).state
    >>> round(hits / 1000, 2), online.alarm.alarm
    (0.9, True)
    """

    levels: LevelTracker
    shift: InputShift
    #: Whether rows are still exchangeable, judged by the scores before the correction.
    alarm: Martingale
    base_rows: int  #: Calibration rows behind the model that is corrected.

    kind: ClassVar[str] = "adaptive"
    """Key in ``CALIBRATIONS``."""
    strict: ClassVar[bool] = False
    row_weight: ClassVar[None] = None

    @classmethod
    def start(
        cls, base_rows: int, center: FloatArray | None = None, unit: FloatArray | None = None
    ) -> Self:
        """Begin without a correction.

        Parameters
        ----------
        base_rows : int
            Calibration rows of the model, which decide what coverage is supported at first.
        center, unit : array of shape (inputs,), optional
            Standardise the inputs; without, the correction of place is the same for all rows.
        """
        return cls(
            LevelTracker.start(), InputShift.start(center, unit), Martingale.start(), base_rows
        )

    @property
    def n_rows(self) -> int:
        """Rows behind the correction, those of the model's own calibration included."""
        return self.base_rows + int(self.levels.rows)

    @cached_property
    def level_map(self) -> KnotMap:
        """The map from levels to scores for the next row."""
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
            dist = shifted(dist, self.shift.of_rows(inputs, _positive(median_and_scale(dist)[1])))
        return CalibratedMixture(dist, self.level_map, None, unsupported)

    def learn(
        self,
        dist: NetworkDistribution,
        y: ArrayLike,
        X: FloatArray | None = None,
        delay: int = 0,
        cells: FloatArray | None = None,
        made_by: "Sequence[AdaptiveCoverage] | None" = None,
    ) -> Learned:
        """Take in the targets of rows, one after the other.

        Parameters
        ----------
        dist : SplitNormalMixture or CalibratedMixture
            What the model predicts for them, before this correction.
        y : array-like of shape (n,)
            Their targets.
        X : array of shape (n, inputs), optional
            Their inputs, where ``start`` was given a centre and a unit.
        delay : int
            Rows that are predicted between a row and its target: each is predicted by what was
            known so many rows before it.
        cells : array of shape (2, n), optional
            Values between which each target would have been observed as the same value, infinite
            ones included, where targets have a mass of their own; ``y`` is then drawn in between.
        made_by : sequence of AdaptiveCoverage, optional
            The state that each row was predicted by, where that is known, in place of ``delay``.

        Returns
        -------
        Learned
            The next state, and what was predicted for each row before its target was known.
        """
        target = checks.finite("y", y)
        delay = min(_whole(delay), len(target))
        state = replace(self, **{name: deepcopy(getattr(self, name)) for name in _PARTS})
        median, own = median_and_scale(dist)
        scale = _positive(own)
        inputs = state.shift.standardised(np.zeros((len(target), 0)) if X is None else X)
        by, size, shifts, issued = np.zeros(len(target)), np.ones(len(target)), {}, {}
        for now, known in _lagged(len(target), delay):
            if now is not None:
                maker = state if made_by is None else made_by[now]
                shifts[now] = maker.shift.issue(inputs[now], scale[now])
                by[now] = shifts[now][-1]
            if known is not None:
                size[known] = state.shift.size(scale[known])
                error = target[known] - median[known]
                state.shift.learn(inputs[known], error, scale[known], shifts.pop(known))
        state.alarm.learn(normal_scores(dist, target))
        moved = shifted(dist, by)
        scores = normal_scores(moved, target)
        knots = np.empty((len(target), len(NORMAL)))
        z = np.clip(scores, -_FURTHEST, _FURTHEST)
        ends = _end_scores(moved, target, z, cells)
        for now, known in _lagged(len(target), delay):
            if now is not None:
                maker = state if made_by is None else made_by[now]
                issued[now] = maker.levels.issue()
                knots[now] = issued[now].scores
            if known is not None:
                state.levels.learn(z[known], ends[known], size[known], issued.pop(known))
        return Learned(state, moved, target, knots)

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether the rows are enough for the level ``p``."""
        return self.level_map.supports(p, weight)

    def fixed_scores(self, v: FloatArray) -> FloatArray:
        """Refuse: what changes with every row has no fixed form."""
        raise ValueError(
            "a model that was updated online has no ONNX form: its correction changes with rows"
        )

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Give all there is to store, as plain arrays."""
        found: dict[str, NDArray[np.generic]] = {"base_rows": np.asarray(self.base_rows)}
        for name in _PARTS:
            part = getattr(self, name)
            for field in fields(part):
                found[f"{name}.{field.name}"] = np.asarray(getattr(part, field.name))
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Make one again of what `to_arrays` gave; a `SchemaError` says if it is another."""
        given = {name: np.asarray(array) for name, array in arrays.items()}
        rows = array_of(given, "base_rows", "iu", ())
        within("base_rows", rows, 0, 2.0**53)
        inputs = array_of(given, "shift.center", "f").shape
        if len(inputs) != 1:
            refuse("array 'shift.center'", "a list", inputs)
        template = cls.start(int(rows), np.zeros(inputs), np.ones(inputs))
        if template.shift.center.shape != inputs:
            refuse("array 'shift.center'", "of fewer inputs", inputs)
        for name in _PARTS:
            part = getattr(template, name)
            for field in fields(part):
                key = f"{name}.{field.name}"
                stored = array_of(given, key, "f", np.shape(getattr(part, field.name)))
                _check(key, stored)
                setattr(part, field.name, np.array(stored, dtype=np.float64))
        with np.errstate(over="ignore"):
            within("shift.slope", template.shift.typical * template.shift.reach, 0, 1e150)
        return template


def _positive(scale: FloatArray) -> FloatArray:
    """Scales that can be divided by."""
    return np.maximum(scale, np.finfo(float).tiny)


def _end_scores(
    dist: NetworkDistribution, target: FloatArray, z: FloatArray, cells: FloatArray | None
) -> FloatArray:
    """Scores of both ends of the cells, of shape (n, 2)."""
    if cells is None:
        return np.stack([z, z], axis=1)
    finite = np.isfinite(cells)
    scores = [
        normal_scores(dist, np.where(f, c, target)) for f, c in zip(finite, cells, strict=True)
    ]
    return np.where(finite, np.clip(scores, -_FURTHEST, _FURTHEST), cells).T


def _whole(delay: Any) -> int:
    """A delay as a whole number of rows, or a sentence on why it is none."""
    try:
        rows = index(delay)
    except TypeError:
        rows = -1
    if rows < 0:
        raise ValueError(f"delay must be a whole number of rows from 0 on, got {delay!r}")
    return rows


def _lagged(rows: int, delay: int) -> Iterator[tuple[int | None, int | None]]:
    """Which row is predicted at each step, and which becomes known after it.

    >>> list(_lagged(3, 1))
    [(0, None), (1, 0), (2, 1), (None, 2)]
    """
    for t in range(rows + delay):
        yield (t if t < rows else None), (t - delay if t >= delay else None)


_POSITIVE = ("levels.scale", "shift.scale", "alarm.counts")
_SHARES = ("levels.weights", "shift.weights", "alarm.shares")
_COUNTS = ("levels.rows", "shift.rows", "alarm.rows", "levels.spread", "shift.spread", "shift.run")


def _check(key: str, array: NDArray[Any]) -> None:
    """Refuse numbers that no stream leads to."""
    low, high = -_LARGEST, _LARGEST
    if key in _POSITIVE:
        low = 1e-12
    elif key in _SHARES:
        low, high = 0.0, 1.0 + 1e-9
        if not np.allclose(array.sum(axis=0), 1.0, atol=1e-6):
            refuse(f"array {key!r}", "shares that add up to 1", array.sum(axis=0))
    elif key in _COUNTS:
        low = 0.0
    elif key == "shift.typical":
        low, high = 0.0, 1e150
    within(key, array, low, high)
    if key == "levels.shape" and (np.diff(array, axis=1) < 0).any():
        refuse(f"array {key!r}", "ascending along levels", array)
