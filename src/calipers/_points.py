"""The steps of ``upgrade``: where points come from, and how far they are off on held-out rows.

``model`` is an ``IntervalRegressor``, whose parameters say what to do.
"""

import warnings
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import PredefinedSplit
from sklearn.utils.validation import check_is_fitted

from calipers._checks import FloatArray
from calipers._fitting import TrainingRows, read_rows, without_errors
from calipers._tree_inputs import Rows, with_known_trees
from calipers._wrapped import fitted, is_fitted, is_regressor, out_of_fold_points, points_of
from calipers.bank import Bank, BankPoints, ColumnPoints, Points
from calipers.crossfit import Fold, leave_rows_out, make_folds, out_of_fold_points as points_by_fold
from calipers.heads import HEADS
from calipers.objectives import LOSSES
from calipers.preprocessing import large_categories
from calipers.training import objective_of

_FOLDS = 5  # in which a regressor is fitted where the model has none
_UNKNOWN_ROWS = (
    "these are not the rows that points was fitted on in folds, so calibration could take rows "
    "that it knows for new ones: pass those rows, or say fresh=True if it has seen none of these, "
    "or set cv=None and conformalize on rows that it has not seen"
)


class Errors(NamedTuple):
    """What networks that give intervals learn from."""

    source: BankPoints | ColumnPoints | Points  # where points come from
    data: TrainingRows
    folds: list[Fold]  # the folds of the networks
    seen: NDArray[np.floating[Any]]  # (rows, inputs): what they see
    # (rows,): what points miss by, those of networks or regressors that have not seen a row
    errors: FloatArray


def errors_of_points(
    model: Any, points: Any, X: Any, y: Any, sample_weight: Any, groups: Any, fresh: bool
) -> Errors:
    """How far points are off on the rows of ``upgrade``, which are checked."""
    source = take_points(model, points)
    own = isinstance(source, ColumnPoints)  # others were made for the inputs that they know
    reset = not isinstance(source, BankPoints)
    data = read_rows(model, X, y, sample_weight, groups, reset=reset, use_targets=own)
    folds = data.folds(model.cv, model.n_networks)
    if own:
        data = add_points(model, points, X, data, folds, fresh)
        known = data.X[:, -1]
        data, folds = data.encoded_by_fold(folds, data.seed)
        errors = data.y - np.tile(known, len(data.y) // len(known))
        return Errors(source, data, folds, data.X, errors)
    given = folds_of_points(model, points, data, fresh)
    if given is None:
        if reset is False and model.reader_.forest is not None:
            if points.about_.get("trees", {}).get("rows") == data.fingerprint:
                data, folds = _by_fold(model, points, data, folds, points.about_["split"]["seed"])
            else:
                data = with_known_trees(model, Rows(data, data.y, folds), data).data
        known, seen = source(data.X)
        return Errors(source, data, folds, seen, data.y - np.atleast_2d(known).mean(axis=0))
    seed, encoder = data.seed, model.reader_.encoder
    if isinstance(source, BankPoints) and encoder is not None and encoder.knows_targets:
        seed = points.about_["split"]["seed"]
        found = large_categories(encoder, X, data.X, data.y, data.weights, data.groups)
        data = data._replace(categories=found)
    rows, copies = _by_fold(model, points, data, given, seed)
    points_of_all, seen = source(rows.X)
    fold_of = np.arange(len(points_of_all)) % len(given)
    held_out = points_by_fold(points_of_all, copies, fold_of)
    known = held_out[: len(data.y)].copy()
    for fold, copy in zip(given, copies, strict=True):
        known[fold.held_out] = held_out[copy.held_out]
    if model.cv is None:
        rows, copies = _by_fold(model, points, data, folds, seed)
        seen = seen if rows is data else source(rows.X)[1]
    return Errors(source, rows, copies, seen, rows.y - np.tile(known, len(rows.y) // len(known)))


def _by_fold(
    model: Any, points: Any, data: TrainingRows, folds: list[Fold], seed: int
) -> tuple[TrainingRows, list[Fold]]:
    """Rows as the networks of points saw them in each fold, and the folds among them."""
    rows, copies = data.encoded_by_fold(folds, seed)
    if getattr(points, "reader_", None) is None or points.reader_.forest is None:
        return rows, copies
    told = model.about_.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of errors, which were told of in that fit
        marked, goal = without_errors(model, rows)
    model.about_ = told
    given = data._replace(seed=points.about_["split"]["seed"])
    found = with_known_trees(model, Rows(marked, goal, copies), given, data.fingerprint)
    return found.data._replace(far=data.far), found.folds


def take_points(model: Any, points: Any) -> BankPoints | ColumnPoints | Points:
    """Where points come from; the reading of inputs of a model of ours becomes one's own."""
    if is_regressor(points) and not isinstance(points, type(model)):
        return ColumnPoints()
    if hasattr(points, "held_out"):
        return cast(Points, points)
    if not isinstance(points, type(model)):
        raise TypeError(f"points must be a regressor, which predicts, got {type(points).__name__}")
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


def add_points(
    model: Any, regressor: Any, X: Any, data: TrainingRows, folds: list[Fold], fresh: bool
) -> TrainingRows:
    """Rows with a regressor's points as one input more, none of a row that it was fitted on.

    The model's inputs get the points of the regressor itself, fitted on all rows if it is not yet.
    """
    if fresh:
        if not is_fitted(regressor):
            raise ValueError(
                f"fresh=True says that {type(regressor).__name__} was fitted on other rows, but it "
                "is not fitted"
            )
        points = points_of(regressor, X, len(data.y))
    else:
        points = out_of_fold_points(regressor, X, data.y, data.weights, folds)
        rest = data.used[np.isnan(points[data.used])]
        if rest.size:  # without folds, or in folds that never hold them out
            own = make_folds(_FOLDS, rest, data.X, data.y, data.groups, _FOLDS, data.seed)
            found = out_of_fold_points(regressor, X, data.y, data.weights, own)
            points[rest] = found[rest]
        if not is_fitted(regressor):
            regressor = fitted(regressor, X, data.y, data.weights, data.used)
        unknown = np.flatnonzero(np.isnan(points))  # of weight 0, or too few for folds
        if unknown.size:
            points[unknown] = points_of(regressor, X, len(data.y))[unknown]
    model.reader_ = replace(model.reader_, regressor=regressor)
    return data._replace(X=np.column_stack([data.X, points]))


def folds_of_points(model: Any, points: Any, data: TrainingRows, fresh: bool) -> list[Fold] | None:
    """Folds in which the points were fitted on these very rows; None if they are new rows."""
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
