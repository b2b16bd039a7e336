"""Upgrading a regressor: the source of point predictions, and its errors on held-out rows."""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import PredefinedSplit
from sklearn.utils.validation import check_is_fitted

from calipers._estimator.fitting import train_ensemble
from calipers._estimator.joint_fits import Steps
from calipers._estimator.model import Model
from calipers._estimator.training_rows import (
    TrainingRows,
    mark_outliers,
    read_rows,
    set_outliers_aside,
)
from calipers._estimator.tree_inputs import with_fitted_trees
from calipers._estimator.wrapped import (
    Regressor,
    cross_fitted_points,
    fitted,
    is_fitted,
    points_of,
)
from calipers.bank import Bank, BankPoints, ColumnPoints, Points, error_table
from calipers.crossfit import Fold, leave_rows_out, make_folds, out_of_fold_points
from calipers.ensemble import Ensemble
from calipers.heads import HEADS
from calipers.networks import Around
from calipers.objectives import LOSSES
from calipers.preprocessing import find_target_encoding
from calipers.training import make_program, objective_of

_FOLDS = 5  # in which a regressor is fitted if the model has no folds


class Errors(NamedTuple):
    """Errors of point predictions on held-out rows."""

    rows: TrainingRows  # with the errors as their target
    source: BankPoints | ColumnPoints | Points
    head_inputs: NDArray[np.floating[Any]]  # inputs of the new networks, in a bank's table


def upgrade_rows(
    model: Model,
    points: Any,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
    *,
    adapt: float,
    fresh: bool,
) -> Steps[Ensemble]:
    """Train networks for the intervals around the point predictions of ``points``."""
    head, given = _head_around_points(model), (X, y, sample_weight, groups)
    if isinstance(points, type(model)):
        rows, source, head_inputs = _errors_of_model(model, points, given, fresh)
    elif hasattr(points, "predict") and not isinstance(points, type):
        rows, source, head_inputs = _errors_of_regressor(model, points, given, fresh)
    elif hasattr(points, "held_out"):
        rows, source, head_inputs = _errors_of_points(model, points, given)
    else:
        raise TypeError(f"points must be a regressor with predict, got {type(points).__name__}")
    if objective_of(model).scales(rows.y)[0] != "identity":
        raise ValueError(
            "an upgrade keeps point predictions on the target's own scale: set "
            "loss__scale='identity'"
        )
    rows = mark_outliers(model, rows)
    weights = None if rows.weights is None else rows.in_table(rows.weights)
    table = error_table(head_inputs, rows.in_table(rows.target), weights)
    program = make_program(model, head_inputs, len(rows.used))
    network = Around(program.network, cast(int, HEADS[head].point_at), float(adapt))
    program = replace(program, network=network, head=head)
    return (yield from train_ensemble(model, program, table, rows, source=source))


def _errors_of_regressor(
    model: Model, regressor: Regressor, given: tuple[Any, ...], fresh: bool
) -> Errors:
    """Errors of a regressor of another library, whose predictions become the last input."""
    data = read_rows(model, *given)
    folds = data.split(model.cv, model.n_networks)
    data = _add_points(model, regressor, given[0], data, folds, fresh)
    rows = data.encoded_by_fold(folds, data.seed)
    rows = rows._replace(target=rows.y - data.X[:, -1])
    return Errors(rows, ColumnPoints(), rows.table_inputs)


def _errors_of_points(model: Model, points: Points, given: tuple[Any, ...]) -> Errors:
    """Errors of networks that calipers did not train, on rows that each has not seen."""
    data = read_rows(model, *given, use_targets=False)
    folds = data.split(model.cv, model.n_networks)
    point, head_inputs = points(data.X)
    if points.held_out is None:
        point = np.atleast_2d(point).mean(axis=0)
    else:
        split = PredefinedSplit(points.held_out[data.used])
        point_folds = data.split(split, model.n_networks)
        point = out_of_fold_points(point, point_folds, np.arange(len(point)) % len(point_folds))
        folds = folds if model.cv is None else point_folds
    rows = data.encoded_by_fold(folds, data.seed)
    return Errors(rows._replace(target=rows.y - point), points, head_inputs)


def _errors_of_model(model: Model, points: Model, given: tuple[Any, ...], fresh: bool) -> Errors:
    """Errors of the networks of an ``IntervalRegressor``, on rows that each has not seen.

    New networks have the same inputs and the same folds, or are trained on all rows if the model
    has no folds.
    """
    bank = _read_as(model, points)
    data = read_rows(model, *given, reset=False, use_targets=False)
    folds = data.split(model.cv, model.n_networks)
    point_folds = _folds_of_points(model, points, data, fresh)
    if point_folds is None:  # no network has seen any of the rows
        rows = _with_inputs_for_new_rows(model, points, data)
        rows = rows._replace(folds=folds, surplus=None)
        point = bank.predict(rows.table_inputs)["point"].mean(axis=0)
    else:
        encoder = model.reader_.encoder
        if encoder is not None and encoder.knows_targets:
            values = encoder.read(model.reader_.table(model, given[0]))
            parts = (values, data.X, data.y, data.weights, data.groups)
            data = data._replace(encoding=find_target_encoding(encoder, *parts))
        rows = _with_inputs_of(model, points, data, point_folds)
        by_fold = [bank.predict(X)["point"] for X in rows.inputs]
        point = out_of_fold_points(by_fold, point_folds, np.arange(len(bank)) % len(point_folds))
        if model.cv is None:
            rows = _with_inputs_of(model, points, data, folds)
    rows = rows._replace(target=rows.y - point)
    return Errors(rows, BankPoints(bank), rows.table_inputs)


def _with_inputs_for_new_rows(model: Model, points: Model, data: TrainingRows) -> TrainingRows:
    """Return rows with the inputs that ``points`` has for new rows, the same in all folds."""
    whole = [Fold(data.used, data.used[:0])]
    if points.about_.get("trees", {}).get("rows") == data.fingerprint:
        # Points of a row are by trees that were not grown on it.
        return _with_inputs_of(model, points, data, whole)
    return with_fitted_trees(model, data.encoded_by_fold(whole, data.seed))


def _with_inputs_of(
    model: Model, points: Model, data: TrainingRows, folds: list[Fold]
) -> TrainingRows:
    """Return rows with the inputs that ``points`` had in each fold."""
    seed = points.about_["split"]["seed"]
    rows = data.encoded_by_fold(folds, seed)
    if model.reader_.forest is None:
        return rows
    marked = set_outliers_aside(rows._replace(seed=seed))
    grown = with_fitted_trees(model, marked, data.fingerprint)
    return grown._replace(outliers=data.outliers)


def _read_as(model: Model, points: Model) -> Bank:
    """Let ``model`` read inputs as ``points`` does, and return the networks of ``points``."""
    check_is_fitted(points, "ensemble_")
    bank = points.ensemble_.bank
    if not isinstance(bank, Bank) or points.ensemble_.head.has_interval:
        raise ValueError(
            "points must be a model fitted for points alone, IntervalRegressor(loss='mse'), "
            f"got one with loss={points.loss!r}"
        )
    if len(bank) != model.n_networks:
        raise ValueError(
            f"n_networks must be {len(bank)}, the number of networks of points, "
            f"got {model.n_networks}"
        )
    for name in ("reader_", "n_features_in_", "feature_names_in_"):
        model.__dict__.pop(name, None)
        if hasattr(points, name):
            setattr(model, name, getattr(points, name))
    return bank


def _add_points(
    model: Model,
    regressor: Regressor,
    X: ArrayLike,
    data: TrainingRows,
    folds: list[Fold],
    fresh: bool,
) -> TrainingRows:
    """Add a regressor's out-of-fold predictions to the rows as another input.

    For new rows, ``model.reader_`` adds the predictions of the regressor itself, which is fitted on
    all rows if it is not fitted yet.
    """
    if fresh:
        if not is_fitted(regressor):
            raise ValueError(
                f"fresh=True states that {type(regressor).__name__} was fitted on other rows, but "
                "it is not fitted"
            )
        points = points_of(regressor, X, len(data.y))
    else:
        points = cross_fitted_points(regressor, X, data.y, data.weights, folds)
        missing = data.used[np.isnan(points[data.used])]
        if missing.size:  # there are no folds, or they never hold these rows out
            folds = make_folds(_FOLDS, missing, data.X, data.y, data.groups, _FOLDS, data.seed)
            new_points = cross_fitted_points(regressor, X, data.y, data.weights, folds)
            points[missing] = new_points[missing]
        if not is_fitted(regressor):
            regressor = fitted(regressor, X, data.y, data.weights, data.used)
        missing = np.flatnonzero(np.isnan(points))  # weight 0, or too few rows for folds
        if missing.size:
            points[missing] = points_of(regressor, X, len(data.y))[missing]
    model.reader_ = replace(model.reader_, regressor=regressor)
    return data._replace(X=np.column_stack([data.X, points]))


def _folds_of_points(
    model: Model, points: Model, data: TrainingRows, fresh: bool
) -> list[Fold] | None:
    """Folds in which ``points`` was fitted on exactly these rows; None if the rows are new."""
    split = points.about_.get("split", {}) if points.cv is not None else {}
    if split and split["rows"] == data.fingerprint:
        folds = data.split(points.cv, model.n_networks, split["seed"])
        if not leave_rows_out(folds):
            return folds
    if not fresh and model.cv is not None:
        raise ValueError(
            "these are not the rows that points was fitted on in folds, so calibration might "
            "mistake training rows for new ones: pass those rows, or set fresh=True if points has "
            "seen none of these, or set cv=None and conformalize on rows that it has not seen"
        )
    return None


def _head_around_points(model: Model) -> str:
    """Head of networks that learn the interval around a given point prediction."""
    head = objective_of(model).head
    around = HEADS[head].around_point
    if around is None:
        good = sorted(n for n, loss in LOSSES.items() if HEADS[loss.head].around_point)
        raise ValueError(f"a loss over the head {head!r} trains no interval: choose one of {good}")
    return around
