"""The steps of ``conformalize``: held-out rows in, a calibration with a guarantee out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from calipers._checks import FloatArray, refuse_masked
from calipers._inputs import Inputs
from calipers._row_labels import group_labels
from calipers._text import did_you_mean
from calipers.calibration import (
    CALIBRATIONS,
    WIDTH,
    Calibration,
    CalibrationBy,
    Calibrator,
    DensityRatio,
    RowKinds,
    WidthCalibration,
    rows_needed,
)
from calipers.ensemble import Ensemble


def conformal_ensemble(
    model: Any,
    X: Any,
    y: Any,
    *,
    keep: bool,
    row_weight: Callable[[FloatArray], FloatArray] | None,
    groups: Any,
    by: Any,
    sample_weight: Any,
    shifted_to: Any,
    half_life: float | None,
) -> tuple[Ensemble, dict[str, Any]]:
    """The ensemble of a model, calibrated on held-out rows; and what there is to say about it."""
    _check_options(row_weight, groups, by, sample_weight, shifted_to, half_life)
    numbers, y = model.reader_.read_with_targets(model, X, y)
    if model.reader_.forest is not None:  # of which users' functions know nothing
        row_weight = None if row_weight is None else WithoutPoints(row_weight)
        by = WithoutPoints(by) if callable(by) else by
    before = model._ensemble.calibrations  # what depends on the row is no matter of levels
    kept = before if keep else tuple(c for c in before if c.kind == WidthCalibration.kind)
    base = replace(model._ensemble, calibrations=kept).taking(y)
    dist = base.calibrated(numbers)
    scores = base.scores(dist, y, np.random.default_rng(_seed(model.random_state)))
    labels = None if groups is None else group_labels(groups, y)
    weights = _weights(numbers, row_weight, labels, sample_weight)
    if half_life is not None:
        weights = 0.5 ** (np.arange(len(y), 0, -1) / half_life)
    if shifted_to is not None:
        row_weight, weights = DensityRatio.learn(numbers, model.reader_.read(model, shifted_to))
    found: Calibrator
    if by is not None:
        code, kinds = row_kinds(model.reader_, by, dist, numbers, model.coverage, labels)
        found = CalibrationBy.from_kinds(kinds, code, scores, weights, labels, model.coverage)
    else:
        kind = CALIBRATIONS[model.calibration]
        make = kind if hasattr(kind, "from_scores") else Calibration
        options = {} if labels is None else {"units": labels}
        found = make.from_scores(scores, weights, strict=True, row_weight=row_weight, **options)
        if half_life is not None and isinstance(found, Calibration):
            # A new row is one step younger than the last, and weighs 1.
            found = replace(found, n_effective=found.total_weight)
    about = {"rows": len(y), "effective_rows": float(getattr(found, "n_effective", len(y)))}
    if labels is not None:
        about["groups"] = len(np.unique(labels))
    if shifted_to is not None and weights is not None:
        about["largest_ratio"] = float(weights.max())
    if isinstance(found, CalibrationBy):
        about["kinds"] = len(found.place)
        about["kinds_with_a_guarantee"] = int((found.place > 0).sum())
    return replace(base, calibrations=(*base.calibrations, found)), about


@dataclass(frozen=True)
class WithoutPoints:
    """A function of rows that leaves out their last number, the points of trees."""

    function: Callable[[FloatArray], Any]

    def __call__(self, X: FloatArray) -> Any:
        """What the function makes of the other numbers."""
        return self.function(X[:, :-1])


def _seed(random_state: Any) -> int:
    """A number for what is drawn, which leaves a generator as it is."""
    return int(random_state) if isinstance(random_state, Integral) else 0


def _check_options(
    row_weight: Any, groups: Any, by: Any, weight: Any, shifted_to: Any, half_life: Any
) -> None:
    given = {"row_weight": row_weight, "shifted_to": shifted_to, "sample_weight": weight}
    given["half_life"] = half_life
    if half_life is not None and not 1 <= half_life < np.inf:
        raise ValueError(f"half_life must be a number of rows from 1 on, got {half_life!r}")
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ValueError(f"{names[0]} and {names[1]} both weigh rows: give one of them")
    others = [n for n, v in (("groups", groups), ("by", by)) if v is not None]
    if names and others:
        raise ValueError(f"{names[0]} and {others[0]} cannot be combined: give one of them")


def _weights(
    X: FloatArray, row_weight: Any, labels: NDArray[np.intp] | None, sample_weight: Any
) -> FloatArray | None:
    """Weights of the rows: those given, or so that each group counts as one."""
    if row_weight is not None:
        return np.asarray(row_weight(X))
    if labels is not None:
        return 1.0 / np.bincount(labels)[labels]
    if sample_weight is None:
        return None
    refuse_masked("sample_weight", sample_weight)
    return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)


def row_kinds(
    reader: Inputs,
    by: Any,
    dist: Any,
    X: FloatArray,
    coverage: float,
    groups: NDArray[np.intp] | None,
) -> tuple[NDArray[np.intp], RowKinds]:
    """Kinds of rows by a column, by the width of predictions or by a function; and each row's."""
    units = len(X) if groups is None else len(np.unique(groups))
    needed = rows_needed(coverage)
    bins = int(np.clip(units // (2 * needed), 1, 10))  # with rows to spare in each
    if callable(by):
        labels = np.asarray(by(X))
        known = np.unique(labels)

        def label(rows: FloatArray) -> NDArray[np.intp]:
            found = np.asarray(by(rows))
            place = np.minimum(np.searchsorted(known, found), len(known) - 1)
            return np.where(known[place] == found, place, -1)

        nothing = np.empty(0, np.intp)
        kinds = RowKinds(nothing, np.empty((len(known), 0)), np.empty(0), label)
        return label(X), kinds
    names = [column.name for column in reader.columns]
    if by == WIDTH and by not in names:
        kinds = RowKinds.of_width(dist, bins)
    else:
        kinds = RowKinds.of_columns(X, columns_of(reader, by, names), bins)
    return kinds.of_rows(dist, X), kinds


def columns_of(reader: Inputs, by: Any, names: list[str]) -> NDArray[np.intp]:
    """Columns of the numbers that networks take which come from one input."""
    if isinstance(by, (int, np.integer)) and not isinstance(by, bool) and 0 <= by < len(names):
        by = names[by]
    if not isinstance(by, str) or by not in names:
        hint = did_you_mean(by, names) if isinstance(by, str) else ""
        raise ValueError(
            f"by must be the name or number of an input, {WIDTH!r} or a function of rows, "
            f"got {by!r}{hint}"
        )
    if reader.encoder is None:
        return np.array([names.index(by)])
    start = 0
    for column, encoder in reader.encoder.used_columns():
        width = len(encoder.names(column.name))
        if column.name == by:
            return np.arange(start, start + width)
        start += width
    raise ValueError(f"by names the input {by!r}, which the model does not use")
