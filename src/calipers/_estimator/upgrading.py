"""Upgrading a regressor: the source of point predictions, and its errors on held-out rows."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
from sklearn.model_selection import PredefinedSplit
from sklearn.utils.validation import check_is_fitted

from calipers._estimator.fitting import train_ensemble
from calipers._estimator.model import Model
from calipers._estimator.together import Steps
from calipers._estimator.training_rows import (
    TrainingRows,
    mark_outliers,
    read_rows,
    set_outliers_aside,
)
from calipers._estimator.tree_inputs import with_fitted_trees
from calipers._estimator.wrapped import (
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

Source = BankPoints | Points

_FOLDS = 5  # in which a regressor is fitted if the model has no folds


def upgrade_rows(
    model: Model,
    points: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    *,
    adapt: float,
    fresh: bool,
) -> Steps[Ensemble]:
    """Train networks for the intervals around the point predictions of ``points``."""
    head = _head_around_points(model)
    source = _source(model, points)
    head_inputs: Any
    column = isinstance(source, ColumnPoints)  # other sources have fixed inputs
    reset = not isinstance(source, BankPoints)
    data = read_rows(model, X, y, sample_weight, groups, reset=reset, use_targets=column)
    folds = data.split(model.cv, model.n_networks)
    if isinstance(source, ColumnPoints):
        rows = _errors_of_regressor(model, points, X, data, folds, fresh)
        head_inputs = rows.table_inputs
    elif (point_folds := _folds_of_points(model, points, data, fresh)) is None:
        rows, head_inputs = _errors_on_new_rows(model, points, source, data, folds)
    else:
        encoder = model.reader_.encoder
        if encoder is not None and encoder.knows_targets:
            encoding = find_target_encoding(encoder, X, data.X, data.y, data.weights, data.groups)
            data = data._replace(encoding=encoding)
        rows, head_inputs = _errors_out_of_fold(model, points, source, data, folds, point_folds)
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
    model: Model, regressor: Any, X: Any, data: TrainingRows, folds: list[Fold], fresh: bool
) -> TrainingRows:
    """Errors of a regressor of another library, whose predictions become the last input."""
    data = _add_points(model, regressor, X, data, folds, fresh)
    rows = data.encoded_by_fold(folds, data.seed)
    return rows._replace(target=rows.y - data.X[:, -1])


def _errors_on_new_rows(
    model: Model, points: Any, source: Source, data: TrainingRows, folds: list[Fold]
) -> tuple[TrainingRows, Any]:
    """Errors on rows that no network of ``points`` was trained on, and the inputs of new ones."""
    rows = data.encoded_by_fold(folds, data.seed)
    if model.reader_.forest is not None:
        if points.about_.get("trees", {}).get("rows") == data.fingerprint:
            whole = [Fold(data.used, data.used[:0])]  # for each row, trees not grown on it
            rows = _with_inputs_of(model, points, data, whole)._replace(folds=folds)
        else:
            rows = with_fitted_trees(model, rows)
    point, head_inputs = source(rows.table_inputs)
    return rows._replace(target=rows.y - np.atleast_2d(point).mean(axis=0)), head_inputs


def _errors_out_of_fold(
    model: Model,
    points: Any,
    source: Source,
    data: TrainingRows,
    folds: list[Fold],
    point_folds: list[Fold],
) -> tuple[TrainingRows, Any]:
    """Errors on rows that each network of ``points`` was not trained on, and inputs of new ones.

    New networks have the same folds, or are trained on all rows if the model has no folds.
    """
    rows = _with_inputs_of(model, points, data, point_folds)
    member_points, head_inputs = source(rows.table_inputs)
    networks = len(member_points)
    by_fold = member_points.reshape(networks, -1, len(data.y)).swapaxes(0, 1)
    point = out_of_fold_points(by_fold, point_folds, np.arange(networks) % len(point_folds))
    if model.cv is None:
        shared, rows = len(rows.inputs) == 1, _with_inputs_of(model, points, data, folds)
        head_inputs = head_inputs if shared else source(rows.table_inputs)[1]
    return rows._replace(target=rows.y - point), head_inputs


def _with_inputs_of(
    model: Model, points: Any, data: TrainingRows, folds: list[Fold]
) -> TrainingRows:
    """Return rows with the inputs that ``points`` had in each fold."""
    seed = points.about_["split"]["seed"] if isinstance(points, type(model)) else data.seed
    rows = data.encoded_by_fold(folds, seed)
    if model.reader_.forest is None:
        return rows
    marked = set_outliers_aside(rows._replace(seed=seed))
    grown = with_fitted_trees(model, marked, data.fingerprint)
    return grown._replace(outliers=data.outliers)


def _source(model: Model, points: Any) -> Source | ColumnPoints:
    """Return the source of point predictions.

    If ``points`` is an ``IntervalRegressor``, ``model`` reads inputs as it does.
    """
    if not isinstance(points, type(model)):
        if hasattr(points, "predict") and not isinstance(points, type):
            return ColumnPoints()
        if hasattr(points, "held_out"):
            return cast(Points, points)
        raise TypeError(f"points must be a regressor with predict, got {type(points).__name__}")
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
    return BankPoints(bank)


def _add_points(
    model: Model, regressor: Any, X: Any, data: TrainingRows, folds: list[Fold], fresh: bool
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
    model: Model, points: Any, data: TrainingRows, fresh: bool
) -> list[Fold] | None:
    """Folds in which ``points`` was fitted on exactly these rows; None if the rows are new."""
    if not isinstance(points, type(model)):
        if points.held_out is None:
            return None
        return data.split(PredefinedSplit(points.held_out[data.used]), model.n_networks)
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
