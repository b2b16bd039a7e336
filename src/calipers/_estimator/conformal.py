"""The steps of ``conformalize``, from held-out rows to a calibration with a guarantee."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import FloatArray
from calipers._estimator.inputs import Inputs
from calipers._estimator.model import Model
from calipers._estimator.row_checks import checked_weights, group_labels
from calipers._text import did_you_mean
from calipers.calibration import (
    CALIBRATIONS,
    WIDTH,
    CalibrationBy,
    CalibrationRows,
    Calibrator,
    DensityRatio,
    NetworkDistribution,
    Subgroups,
    effective_rows,
    rows_needed,
)
from calipers.ensemble import Ensemble


def conformal_ensemble(
    model: Model,
    X: ArrayLike,
    y: ArrayLike,
    *,
    keep: bool,
    row_weight: Callable[[FloatArray], FloatArray] | None,
    groups: ArrayLike | None,
    by: str | int | Callable[[FloatArray], ArrayLike] | None,
    sample_weight: ArrayLike | None,
    shifted_to: ArrayLike | None,
    half_life: float | None,
) -> tuple[Ensemble, dict[str, Any]]:
    """Calibrate the ensemble of a model on held-out rows; also return a summary as plain JSON."""
    _check_options(row_weight, groups, by, sample_weight, shifted_to, half_life)
    numbers, y = model.reader_.read_with_targets(model, X, y)
    if model.reader_.forest is not None:  # users' functions do not expect its predictions
        row_weight = None if row_weight is None else WithoutTreePredictions(row_weight)
        by = WithoutTreePredictions(by) if callable(by) else by
    before = model._ensemble.calibrations
    kept = before if keep else tuple(c for c in before if c.corrects_by)
    labels = None if groups is None else group_labels(groups, y)
    weights = _weights(numbers, row_weight, labels, sample_weight)
    if weights is not None and sample_weight is not None and weights.any():
        used = weights > 0  # the other rows count for nothing
        numbers, y, weights = numbers[used], y[used], weights[used]
    base = replace(model._ensemble, calibrations=kept).admitting(y, sample=True)
    dist = base.calibrated(numbers)
    scores = base.scores(dist, y, np.random.default_rng(_seed(model.random_state)))
    if half_life is not None:
        weights = 0.5 ** (np.arange(len(y), 0, -1) / half_life)
    if shifted_to is not None:
        row_weight, weights = DensityRatio.learn(numbers, model.reader_.read(model, shifted_to))
    units = np.arange(len(y)) if labels is None else labels
    # With a half-life, a new row is one step younger than the last, and has weight 1.
    new_weight = None if half_life is None else 1.0
    rows = CalibrationRows(scores, dist, numbers, units, weights, True, row_weight, new_weight)
    learned: tuple[Calibrator, ...]
    if by is None:
        learned = CALIBRATIONS[model.calibration].from_rows(rows)
    else:
        subgroups = find_subgroups(model.reader_, by, dist, numbers, model.coverage, labels)
        learned = (CalibrationBy.from_subgroups(subgroups, rows, model.coverage),)
    if row_weight is not None and learned[-1].row_weight is None:
        raise ValueError(
            f"calibration={model.calibration!r} takes no weights of new rows, as row_weight and "
            "shifted_to give"
        )
    ratio = weights if shifted_to is not None else None
    about = _summary(learned[-1], len(y), labels, ratio)
    return replace(base, calibrations=(*base.calibrations, *learned)), about


def _summary(
    learned: Calibrator,
    rows: int,
    groups: NDArray[np.intp] | None,
    ratio: FloatArray | None,
) -> dict[str, Any]:
    """Return what is recorded of a calibration on ``rows`` rows, as plain JSON.

    ``ratio`` is that of the densities of new rows and these, if it was learned.
    """
    about: dict[str, Any] = {"rows": rows, "effective_rows": float(effective_rows(learned))}
    if groups is not None:
        about["groups"] = len(np.unique(groups))
    if ratio is not None:
        about["largest_ratio"] = float(ratio.max())
    if isinstance(learned, CalibrationBy):
        place = learned.place
        about |= {"subgroups": len(place), "subgroups_with_a_guarantee": int((place > 0).sum())}
    return about


@dataclass(frozen=True)
class WithoutTreePredictions:
    """A function of rows, applied to them without their last input, the tree predictions."""

    function: Callable[[FloatArray], Any]

    def __call__(self, X: FloatArray) -> Any:
        """Apply the function to the other inputs."""
        return self.function(X[:, :-1])


def _seed(random_state: object) -> int:
    """Return a seed without drawing from a generator."""
    return int(random_state) if isinstance(random_state, Integral) else 0


def _check_options(
    row_weight: object,
    groups: object,
    by: object,
    weight: object,
    shifted_to: object,
    half_life: float | None,
) -> None:
    """Raise ValueError if options are invalid or cannot be combined."""
    counts_rows = isinstance(half_life, int | float | np.number) and 1 <= half_life < np.inf
    if half_life is not None and not counts_rows:
        raise ValueError(f"half_life must be a number of rows from 1 on, got {half_life!r}")
    weighting = {"row_weight": row_weight, "shifted_to": shifted_to, "sample_weight": weight}
    weighting["half_life"] = half_life
    weights = [name for name, value in weighting.items() if value is not None]
    if len(weights) > 1:
        raise ValueError(f"{weights[0]} and {weights[1]} both weight rows: give one of them")
    grouping = [n for n, v in (("groups", groups), ("by", by)) if v is not None]
    if weights and grouping:
        raise ValueError(f"{weights[0]} and {grouping[0]} cannot be combined: give one of them")


def _weights(
    X: FloatArray,
    row_weight: Callable[[FloatArray], FloatArray] | None,
    labels: NDArray[np.intp] | None,
    sample_weight: ArrayLike | None,
) -> FloatArray | None:
    """Weights of the rows as requested, or such that all groups have the same weight."""
    if row_weight is not None:
        return np.asarray(row_weight(X))
    if labels is not None:
        return 1.0 / np.bincount(labels)[labels]
    return None if sample_weight is None else checked_weights(sample_weight, X)


def find_subgroups(
    reader: Inputs,
    by: str | int | Callable[[FloatArray], ArrayLike],
    dist: NetworkDistribution,
    X: FloatArray,
    coverage: float,
    groups: NDArray[np.intp] | None,
) -> Subgroups:
    """Return subgroups, defined by a column, by the width of predictions or by a function."""
    units = len(X) if groups is None else len(np.unique(groups))
    bins = int(np.clip(units // (2 * rows_needed(coverage)), 1, 10))  # twice the rows needed
    if callable(by):
        seen = np.unique(np.asarray(by(X)))

        def label(rows: FloatArray) -> NDArray[np.intp]:
            labels = np.asarray(by(rows))
            place = np.minimum(np.searchsorted(seen, labels), len(seen) - 1)
            return np.where(seen[place] == labels, place, -1)

        no_columns = np.empty(0, np.intp)
        return Subgroups(no_columns, np.empty((len(seen), 0)), np.empty(0), label)
    names = [column.name for column in reader.columns]
    if by == WIDTH and by not in names:
        return Subgroups.of_width(dist, bins)
    return Subgroups.of_columns(X, columns_of(reader, by, names), bins)


def columns_of(reader: Inputs, by: object, names: list[str]) -> NDArray[np.intp]:
    """Columns of the encoded inputs that belong to the input ``by``."""
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
        if column.name == by and not column.repeats:
            raise ValueError(f"by is the input {by!r}, which is free text: it has no subgroups")
        if column.name == by:  # without words, which names of several subgroups may have
            return np.arange(start, start + width - len(getattr(encoder, "words", ())))
        start += width
    raise ValueError(f"by is the input {by!r}, which the model does not use")
