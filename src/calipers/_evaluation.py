"""Labelled rows and their predictions, by which commands and reports evaluate a model."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from calipers import metrics
from calipers._arrays import FloatArray, IntArray
from calipers._estimator import checked_target
from calipers._progress import progress
from calipers.distributions import Support
from calipers.prediction import Prediction, Query
from calipers.preprocessing import DataError, refuse_unread
from calipers.regressor import IntervalRegressor

_BLOCK = 2**14  # rows predicted at a time
_LEVELS = (0.5, 0.8, 0.9, 0.95)
_BINS = 6
_BIN_ROWS = 20  # fewer rows cannot tell a rate near one from one


@dataclass(frozen=True, eq=False)
class LabelledPrediction:
    """Labelled rows and their predictions, all in the target's unit."""

    coverage: float  # nominal probability of the intervals that are evaluated
    levels: FloatArray  # (k,): further coverages, ascending, with ``coverage``
    # (n,): observations and point estimates
    target: FloatArray
    point: FloatArray
    # (n, 2, k): lower and upper bounds at each of ``levels``; infinite if calibration does not
    # support the coverage
    bounds: FloatArray
    outside: NDArray[np.bool_]  # (n, inputs): values outside the training range
    # (n,): probability integral transform, and the two standard deviations; None for a model that
    # gives bounds, but no distribution
    pit: FloatArray | None
    aleatoric: FloatArray | None
    epistemic: FloatArray | None
    # (2, n): distribution function just below and at the targets, if any has positive probability;
    # ``pit`` is then random between the two
    ties: FloatArray | None = None
    support: Support = Support()  # noqa: RUF009 - a frozen value; what the target can take

    def __len__(self) -> int:
        return len(self.target)

    @property
    def own_level(self) -> int:
        """Index of ``coverage`` among the levels."""
        return self.index_of(self.coverage)

    def index_of(self, level: float) -> int:
        """Index of one of the levels."""
        return int(np.flatnonzero(self.levels == level)[0])

    @property
    def lower(self) -> FloatArray:
        """Lower bounds for ``coverage``."""
        return self.bounds[:, 0, self.own_level]

    @property
    def upper(self) -> FloatArray:
        """Upper bounds for ``coverage``."""
        return self.bounds[:, 1, self.own_level]

    @property
    def width(self) -> FloatArray:
        """Widths of the intervals for ``coverage``."""
        return self.upper - self.lower

    def covered(self, index: int) -> FloatArray:
        """Return 1 for each target in its interval at one level, 0 for others, and ties in part."""
        if self.ties is not None:
            below, at = self.ties
            return metrics.shared_coverage(below, at, self.levels[index])
        lower, upper = self.bounds[:, 0, index], self.bounds[:, 1, index]
        return ((lower <= self.target) & (self.target <= upper)).astype(float)

    def observed(self, nominal: FloatArray) -> FloatArray:
        """Return the coverage rates of central intervals at any levels, with ties in part."""
        assert self.pit is not None  # noqa: S101 - for the type checker
        below, at = (self.pit, self.pit) if self.ties is None else self.ties
        return metrics.shared_coverage(below, at, nominal[:, np.newaxis]).mean(axis=1)

    @property
    def excluded(self) -> int:
        """Number of targets that the model takes for impossible."""
        return int((~self.support.holds(self.target)).sum())

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each target lies in its interval for ``coverage``."""
        return (self.lower <= self.target) & (self.target <= self.upper)

    def by_group(self, group: IntArray) -> metrics.GroupedCoverage:
        """Return coverage, with ties in part, and width in groups of rows, by their number."""
        grouped = metrics.coverage_by_group(self.target, self.lower, self.upper, group)
        covered = self.covered(self.own_level)
        rates = [covered[group == number].mean() for number in grouped.group]
        return grouped._replace(coverage_rate=np.array(rates))


def value_bins(values: FloatArray) -> tuple[IntArray, list[tuple[float, float]]]:
    """Return the bin of each value, and the smallest and largest value of each bin.

    Bins have about equally many rows, and enough of them to measure coverage. Missing values have
    the number after the last bin.

    >>> value_bins(np.array([3.0, np.nan, 1.0, 2.0]))
    (array([0, 1, 0, 0]), [(1.0, 3.0)])
    """
    present = ~np.isnan(values)
    if not present.any():
        return np.zeros(len(values), np.intp), []
    n_bins = max(1, min(_BINS, int(present.sum()) // _BIN_ROWS))
    number, code = np.unique(metrics.quantile_bins(values[present], n_bins), return_inverse=True)
    codes = np.full(len(values), len(number))
    codes[present] = code
    parts = (values[codes == i] for i in range(len(number)))
    return codes, [(float(part.min()), float(part.max())) for part in parts]


def predict_labelled(
    model: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike,
    *,
    coverage: float | None = None,
    levels: Sequence[float] = _LEVELS,
    visible: bool = False,
) -> LabelledPrediction:
    """Predict labelled rows with a fitted model; by default for the coverage of the model."""
    target = checked_target(X, y)
    model = copy(model)
    model.unsupported = "inf"  # unsupported coverages are shown instead of raising an error
    if not model.ensemble_.head.has_interval:
        raise ValueError(
            f"loss={model.loss!r} gives point predictions, but no intervals to evaluate"
        )
    has_dist = model.ensemble_.gives_distribution
    coverage = float(model.coverage if coverage is None else coverage)
    nominal = np.unique([*levels, coverage] if has_dist else [coverage])
    at = target if has_dist else None
    query = Query(tuple(nominal.tolist()), variance_parts=has_dist, at=at)
    prediction, outside = _predict_blocks(model, X, query, len(target), visible)
    ties = None
    if prediction.has_ties:
        ties = np.stack([cast(FloatArray, prediction.cdf_below), cast(FloatArray, prediction.cdf)])
    variances = (prediction.aleatoric_variance, prediction.epistemic_variance)
    aleatoric, epistemic = (None if v is None else np.sqrt(v) for v in variances)
    return LabelledPrediction(
        coverage=coverage,
        levels=nominal,
        target=target,
        point=prediction.point,
        bounds=cast(FloatArray, prediction.intervals),
        outside=outside,
        pit=_pit(prediction),
        aleatoric=aleatoric,
        epistemic=epistemic,
        ties=ties,
        support=model.support_,
    )


def _predict_blocks(
    model: IntervalRegressor, X: ArrayLike, query: Query, count: int, visible: bool
) -> tuple[Prediction, NDArray[np.bool_]]:
    """Predict ``count`` rows in blocks, with a progress bar; refuse cells that cannot be read."""
    at = None if query.at is None else np.asarray(query.at)
    blocks, outside = [], []
    with progress("predicting", count, visible=visible) as report:
        for start in range(0, count, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, count))
            block_query = query if at is None else replace(query, at=at[rows])
            part = _safe_indexing(X, rows)
            try:
                block, block_outside = model.query_and_check(
                    part, block_query, on_unread=refuse_unread
                )
            except DataError as error:
                row = None if error.row is None else error.row + start
                raise DataError(error.problem, column=error.column, row=row) from None
            blocks.append(block)
            outside.append(block_outside)
            report(len(rows))
    return Prediction.concatenate(blocks), np.concatenate(outside)


def _pit(prediction: Prediction) -> FloatArray | None:
    """Return the PIT, randomised within the mass of single values."""
    if prediction.cdf is None or prediction.cdf_below is None:
        return prediction.cdf
    mass = prediction.cdf - prediction.cdf_below
    uniform = np.random.default_rng(0).random(len(mass))
    return prediction.cdf_below + uniform * mass
