"""Upgrading a regressor: the source of point predictions, and its errors on held-out rows.

``model`` is always an ``IntervalRegressor``.
"""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import PredefinedSplit
from sklearn.utils.validation import check_is_fitted

from calipers._checks import FloatArray
from calipers._estimator.fitting import train_ensemble
from calipers._estimator.together import Steps
from calipers._estimator.training_rows import (
    TrainingRows,
    mark_outliers,
    read_rows,
    set_outliers_aside,
)
from calipers._estimator.tree_inputs import Rows, with_fitted_trees
from calipers._estimator.wrapped import (
    fitted,
    is_fitted,
    is_regressor,
    out_of_fold_points,
    points_of,
)
from calipers.bank import Bank, BankPoints, ColumnPoints, Points, error_table
from calipers.crossfit import Fold, leave_rows_out, make_folds, out_of_fold_points as points_by_fold
from calipers.ensemble import Ensemble
from calipers.heads import HEADS
from calipers.networks import Around
from calipers.objectives import LOSSES
from calipers.preprocessing import find_target_encoding
from calipers.training import make_program, objective_of

_FOLDS = 5  # in which a regressor is fitted if the model has no folds


class Errors(NamedTuple):
    """Training data of the networks that learn intervals."""

    data: TrainingRows
    folds: list[Fold]  # of the networks
    head_inputs: NDArray[np.floating[Any]]  # (rows, inputs): inputs of the networks
    # (rows,): errors of point predictions by networks or regressors not trained on the row
    errors: FloatArray


def upgrade_rows(
    model: Any,
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
    reads = {"reset": not isinstance(source, BankPoints)}  # otherwise as ``points`` reads
    reads["use_targets"] = isinstance(source, ColumnPoints)  # other sources have fixed inputs
    data = read_rows(model, X, y, sample_weight, groups, **reads)
    folds = data.folds(model.cv, model.n_networks)
    if isinstance(source, ColumnPoints):
        rows = _errors_of_regressor(model, points, X, data, folds, fresh)
    elif (point_folds := _folds_of_points(model, points, data, fresh)) is None:
        rows = _errors_on_new_rows(model, points, source, data, folds)
    else:
        rows = _errors_out_of_fold(model, points, source, X, data, folds, point_folds)
    data, folds, head_inputs, errors = rows
    if objective_of(model).scales(data.y)[0] != "identity":
        raise ValueError(
            "an upgrade keeps point predictions on the target's own scale: set "
            "loss__scale='identity'"
        )
    data, errors = mark_outliers(model, data, errors)
    table = error_table(head_inputs, errors, data.weights)
    program = make_program(model, head_inputs, len(data.used))
    network = Around(program.network, cast(int, HEADS[head].point_at), float(adapt))
    program = replace(program, network=network, head=head)
    return (yield from train_ensemble(model, program, table, data, folds, source=source))


def _errors_of_regressor(
    model: Any, regressor: Any, X: Any, data: TrainingRows, folds: list[Fold], fresh: bool
) -> Errors:
    """Errors of a regressor of another library, whose predictions become the last input."""
    data = _add_points(model, regressor, X, data, folds, fresh)
    point = data.X[:, -1]
    data, folds = data.encoded_by_fold(folds, data.seed)
    return Errors(data, folds, data.X, data.y - np.tile(point, data.copies))


def _errors_on_new_rows(
    model: Any, points: Any, source: BankPoints | Points, data: TrainingRows, folds: list[Fold]
) -> Errors:
    """Errors of all networks of ``points`` on rows that none of them was trained on."""
    if model.reader_.forest is not None:
        if points.about_.get("trees", {}).get("rows") == data.fingerprint:
            seed = points.about_["split"]["seed"]
            data, folds = _with_inputs_of(model, points, data, folds, seed)
        else:
            data = with_fitted_trees(model, Rows(data, data.y, folds), data).data
    point, head_inputs = source(data.X)
    return Errors(data, folds, head_inputs, data.y - np.atleast_2d(point).mean(axis=0))


def _errors_out_of_fold(
    model: Any,
    points: Any,
    source: BankPoints | Points,
    X: Any,
    data: TrainingRows,
    folds: list[Fold],
    point_folds: list[Fold],
) -> Errors:
    """Errors of the networks of ``points`` on the rows that each was not trained on.

    The new networks have the same folds, or train on all rows if the model has no folds.
    """
    seed, encoder = data.seed, model.reader_.encoder
    if isinstance(source, BankPoints) and encoder is not None and encoder.knows_targets:
        seed = points.about_["split"]["seed"]
        encoding = find_target_encoding(encoder, X, data.X, data.y, data.weights, data.groups)
        data = data._replace(encoding=encoding)
    rows, copies = _with_inputs_of(model, points, data, point_folds, seed)
    member_points, head_inputs = source(rows.X)
    fold_of = np.arange(len(member_points)) % len(point_folds)
    held_out = points_by_fold(member_points, copies, fold_of)
    point = held_out[: len(data.y)].copy()
    for fold, copy in zip(point_folds, copies, strict=True):
        point[fold.held_out] = held_out[copy.held_out]
    if model.cv is None:
        rows, copies = _with_inputs_of(model, points, data, folds, seed)
        head_inputs = head_inputs if rows is data else source(rows.X)[1]
    return Errors(rows, copies, head_inputs, rows.y - np.tile(point, rows.copies))


def _with_inputs_of(
    model: Any, points: Any, data: TrainingRows, folds: list[Fold], seed: int
) -> tuple[TrainingRows, list[Fold]]:
    """Return rows with the inputs that ``points`` had in each fold, and the folds."""
    rows, copies = data.encoded_by_fold(folds, seed)
    if model.reader_.forest is None:
        return rows, copies
    marked = Rows(*set_outliers_aside(rows, rows.y), copies)
    original = data._replace(seed=points.about_["split"]["seed"])
    result = with_fitted_trees(model, marked, original, data.fingerprint)
    return result.data._replace(outliers=data.outliers), result.folds


def _source(model: Any, points: Any) -> BankPoints | ColumnPoints | Points:
    """Return the source of point predictions.

    If ``points`` is an ``IntervalRegressor``, ``model`` reads inputs as it does.
    """
    if is_regressor(points) and not isinstance(points, type(model)):
        return ColumnPoints()
    if hasattr(points, "held_out"):
        return cast(Points, points)
    if not isinstance(points, type(model)):
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
    model: Any, regressor: Any, X: Any, data: TrainingRows, folds: list[Fold], fresh: bool
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
        points = out_of_fold_points(regressor, X, data.y, data.weights, folds)
        missing = data.used[np.isnan(points[data.used])]
        if missing.size:  # there are no folds, or they never hold these rows out
            folds = make_folds(_FOLDS, missing, data.X, data.y, data.groups, _FOLDS, data.seed)
            new_points = out_of_fold_points(regressor, X, data.y, data.weights, folds)
            points[missing] = new_points[missing]
        if not is_fitted(regressor):
            regressor = fitted(regressor, X, data.y, data.weights, data.used)
        missing = np.flatnonzero(np.isnan(points))  # weight 0, or too few rows for folds
        if missing.size:
            points[missing] = points_of(regressor, X, len(data.y))[missing]
    model.reader_ = replace(model.reader_, regressor=regressor)
    return data._replace(X=np.column_stack([data.X, points]))


def _folds_of_points(model: Any, points: Any, data: TrainingRows, fresh: bool) -> list[Fold] | None:
    """Folds in which ``points`` was fitted on exactly these rows; None if the rows are new."""
    if not isinstance(points, type(model)):
        if points.held_out is None:
            return None
        return data.folds(PredefinedSplit(points.held_out[data.used]), model.n_networks)
    split = points.about_.get("split", {}) if points.cv is not None else {}
    if split and split["rows"] == data.fingerprint:
        folds = data.folds(points.cv, model.n_networks, split["seed"])
        if not leave_rows_out(folds):
            return folds
    if not fresh and model.cv is not None:
        raise ValueError(
            "these are not the rows that points was fitted on in folds, so calibration might "
            "mistake training rows for new ones: pass those rows, or set fresh=True if points has "
            "seen none of these, or set cv=None and conformalize on rows that it has not seen"
        )
    return None


def _head_around_points(model: Any) -> str:
    """Head of networks that learn the interval around a given point prediction."""
    head = objective_of(model).head
    around = HEADS[head].around_point
    if around is None:
        good = sorted(n for n, loss in LOSSES.items() if HEADS[loss.head].around_point)
        raise ValueError(f"a loss over the head {head!r} trains no interval: choose one of {good}")
    return around
