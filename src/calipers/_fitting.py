"""The steps of ``fit`` and ``upgrade``: checked rows in, a trained and calibrated ensemble out.

``model`` is an ``IntervalRegressor``, whose parameters say what to do.
"""

import hashlib
import math
import warnings
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import PredefinedSplit
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from calipers import storage
from calipers._checks import refuse_masked
from calipers._inputs import learn_inputs
from calipers._progress import progress
from calipers.bank import (
    Bank,
    BankPoints,
    Points,
    Program,
    Table,
    Upgraded,
    around_zero,
    train,
)
from calipers.crossfit import Fold, OutOfFold, calibrate, leave_rows_out, make_folds
from calipers.ensemble import Ensemble
from calipers.heads import HEADS
from calipers.objectives import LOSSES
from calipers.preprocessing import describe_numbers
from calipers.training import (
    batch_size_of,
    check_parameters,
    make_plans,
    objective_of,
    out_of_time,
    time_report,
)

FloatArray = NDArray[np.float64]

_UNKNOWN_ROWS = (
    "these are not the rows that points was fitted on in folds, so calibration could take rows "
    "that it knows for new ones: pass those rows, or say fresh=True if it has seen none of these, "
    "or set cv=None and conformalize on rows that it has not seen"
)


class TrainingRows(NamedTuple):
    """Checked training data, and the seed that splits it."""

    X: FloatArray
    y: FloatArray
    weights: FloatArray | None
    groups: NDArray[np.intp] | None
    used: NDArray[np.intp]
    seed: int

    def folds(self, cv: Any, n_networks: int, seed: int | None = None) -> list[Fold]:
        """Folds of the rows that are used."""
        own = self.seed if seed is None else seed
        return make_folds(cv, self.used, self.X, self.y, self.groups, n_networks, own)

    @property
    def fingerprint(self) -> str:
        """Name of exactly these rows, for what was once done with them."""
        digest = hashlib.sha256()
        counted = None if self.weights is None else self.weights > 0
        for part in (self.X, self.y, counted, self.groups):
            digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def read_rows(
    model: Any, X: Any, y: Any, sample_weight: Any, groups: Any, *, reset: bool
) -> TrainingRows:
    """Check parameters and data; learn how to read inputs if ``reset``."""
    check_parameters(model)
    for stale in ("ensemble_", "_out_of_fold"):  # an interrupted fit must not leave half of two
        model.__dict__.pop(stale, None)
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"y holds several targets (shape {shape}), and a model predicts one: fit one "
            "model per target, for instance by sklearn.multioutput.MultiOutputRegressor"
        )
    weights = None if sample_weight is None else _weights(X, sample_weight)
    name: Any = getattr(y, "name", None) or next(iter(getattr(y, "columns", [])), None)
    if reset:
        model.reader_, X, y = learn_inputs(model, X, y, weights)
    else:
        X, y = model.reader_.read_with_targets(model, X, y)
    used = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    (model.target_,) = describe_numbers(y[used, None], ["y" if name is None else str(name)])
    model.about_ = {
        "fitted_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": len(y),
        "versions": storage.versions(),
    }
    if groups is not None:
        groups = _numbered_groups(X, groups)
    seed = int(check_random_state(model.random_state).randint(2**31))
    return TrainingRows(X, y, weights, groups, used, seed)


def train_ensemble(
    model: Any,
    program: Program,
    table: Table,
    data: TrainingRows,
    folds: list[Fold],
    *,
    previous: Bank | None = None,
    source: BankPoints | Points | None = None,
) -> Ensemble:
    """Train one network after another of each fold, around the points of ``source`` if any."""
    fold_of = np.arange(model.n_networks) % len(folds)
    rows = [([folds[i] for i in fold_of], data.seed)]
    if leave_rows_out(folds):  # those networks calibrate, and others, which know all rows, predict
        rows.append(([Fold(data.used, data.used[:0])] * model.n_networks, data.seed + 1))
    batch_size = batch_size_of(model, len(data.used))
    rest: dict[str, Any] = {"batch_size": batch_size, "previous": previous}
    plans = [
        plan
        for given, seed in rows
        for plan in make_plans(model, given, data.weights, data.groups, seed, **rest)
    ]
    if source is not None:
        plans = [around_zero(plan, table) for plan in plans]
    total = sum(plan.settings.epochs for plan in plans)
    with progress("training", total, visible=bool(model.verbose)) as report:
        seconds = model.time_budget or math.inf
        trained = train(program, table, plans, n_jobs=model.n_jobs, report=report, seconds=seconds)
    if model.time_budget is not None:
        model.about_["time_budget"] = spent = time_report(trained, plans, model.time_budget)
        if text := out_of_time(spent):
            warnings.warn(text, UserWarning, stacklevel=3)
    count = model.n_networks
    held_out, ensemble = (
        Ensemble(
            part if source is None else Upgraded(source, part),
            model.coverage,
            model.aggregation,
            n_jobs=model.n_jobs,
        )
        for part in (trained[:count], trained[-count:])
    )
    if model.cv is None:
        return ensemble
    if not ensemble.head.has_interval:
        points = held_out.bank.predict(data.X)["point"]
        model._out_of_fold = OutOfFold.of_points(points, folds, fold_of, model.coverage)
        return ensemble
    found, model._out_of_fold = calibrate(
        held_out, folds, fold_of, data.X, data.y, data.weights, model.calibration
    )
    return replace(ensemble, calibrations=(found,))


def networks_to_continue(model: Any) -> Bank | None:
    """Networks of an earlier fit, where training is to go on from them."""
    before = vars(model).get("ensemble_")
    if not model.warm_start or before is None:
        return None
    if isinstance(before.bank, Upgraded):
        raise ValueError("an upgraded model cannot go on from where it is: set warm_start=False")
    return cast(Bank, before.bank)


def take_points(model: Any, points: Any) -> BankPoints | Points:
    """Where points come from; the reading of inputs of a model of ours becomes one's own."""
    if not isinstance(points, type(model)):
        return cast(Points, points)
    check_is_fitted(points, "ensemble_")
    bank = points.ensemble_.bank
    if not isinstance(bank, Bank) or points.ensemble_.head.has_interval:
        raise ValueError(
            "points must be a model fitted for points alone, IntervalRegressor(loss='mse'), "
            f"got one with loss={points.loss!r}"
        )
    if len(bank) != model.n_networks:
        raise ValueError(
            f"every network of points gets an interval: n_networks must be {len(bank)}, "
            f"got {model.n_networks}"
        )
    for name in ("reader_", "n_features_in_", "feature_names_in_"):
        model.__dict__.pop(name, None)
        if hasattr(points, name):
            setattr(model, name, getattr(points, name))
    return BankPoints(bank)


def folds_of_points(
    model: Any, points: Any, data: TrainingRows, networks: int, fresh: bool
) -> list[Fold] | None:
    """Folds in which the points were fitted on these very rows; None if they are new rows."""
    if not isinstance(points, type(model)):
        if points.held_out is None:
            return None
        return data.folds(PredefinedSplit(points.held_out[data.used]), model.n_networks)
    split = points.about_.get("split", {}) if points.cv is not None else {}
    if split and split["rows"] == data.fingerprint:
        folds = data.folds(points.cv, networks, split["seed"])
        if not leave_rows_out(folds):
            return folds
    if not fresh and model.cv is not None:
        raise ValueError(_UNKNOWN_ROWS)
    return None


def head_around_points(model: Any) -> str:
    """Head of networks that learn the interval around a known point."""
    head = objective_of(model).head
    around = HEADS[head].around_point
    if around is None:
        good = sorted(n for n, known in LOSSES.items() if HEADS[known.head].around_point)
        raise ValueError(f"a loss over the head {head!r} trains no interval: choose one of {good}")
    return around


def _weights(X: Any, sample_weight: ArrayLike) -> FloatArray | None:
    """Weights with mean 1 over the rows that count; None where all are equal."""
    refuse_masked("sample_weight", sample_weight)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must be positive for at least one row, got zeros only")
    if np.all(weights == weights[0]):
        return None
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):  # numbers near the largest there is
        weights = weights / weights.max()
    return weights / weights[weights > 0].mean()


def _numbered_groups(X: Any, groups: ArrayLike) -> NDArray[np.intp]:
    """Labels of groups as numbers from 0."""
    refuse_masked("groups", groups)
    labels = column_or_1d(groups)
    check_consistent_length(X, labels)
    try:
        return np.unique(labels, return_inverse=True)[1]
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels})
        raise ValueError(
            f"groups must hold labels of one type, got {' and '.join(kinds)}: make all of them "
            "text, or all of them numbers"
        ) from None
