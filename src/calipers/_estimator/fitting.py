"""Fitting on rows in memory, from a table to a trained and calibrated ensemble."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import FloatArray, IntArray
from calipers._checks import warn
from calipers._estimator.candidates import choose_shape
from calipers._estimator.joint_fits import Steps, Training
from calipers._estimator.model import Model
from calipers._estimator.training_rows import (
    TrainingRows,
    make_table,
    mark_outliers,
    read_rows,
    rows_without,
)
from calipers._estimator.tree_inputs import add_trees, starting_at_trees, with_fitted_trees
from calipers.bank import (
    Bank,
    BankPoints,
    ColumnPoints,
    Plan,
    Points,
    Program,
    Table,
    Upgraded,
    around_zero,
)
from calipers.calibration import infinite_reason
from calipers.crossfit import Fold, OutOfFold, calibrate, leave_rows_out
from calipers.distributions import Support, TargetMap
from calipers.ensemble import Ensemble
from calipers.networks import traits
from calipers.training import batch_size_of, make_program


def fit_rows(
    model: Model,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
) -> Steps[Ensemble]:
    """Fit a new ensemble or, with ``warm_start``, continue from the last one."""
    previous = vars(model).get("ensemble_") if model.warm_start else None
    if previous is not None:
        return (yield from _continue(model, previous, X, y, sample_weight, groups))
    original = read_rows(model, X, y, sample_weight, groups)
    model.about_["split"] = {"seed": original.seed, "rows": original.fingerprint}
    rows = _rows_by_fold(model, original)
    program = make_program(model, rows.table_inputs, len(rows.used))
    rows, first = yield from add_trees(model, program, rows)
    if program.in_size < rows.inputs.shape[-1]:  # tree predictions are another input
        program = starting_at_trees(make_program(model, rows.table_inputs, len(rows.used)))
    program, target_map = yield from choose_shape(model, program, rows, first)
    table = make_table(program, rows, target_map)
    return (yield from train_ensemble(model, program, table, rows, target_map=target_map))


def _continue(
    model: Model,
    previous: Ensemble,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
) -> Steps[Ensemble]:
    """Train the networks of an ensemble further, with its inputs, units and shape."""
    bank, target_map = previous.bank, previous.target_map
    if isinstance(bank, Upgraded):
        raise ValueError("an upgraded model cannot be trained further: set warm_start=False")
    trees = model.about_.get("trees", {})
    given = (X, y, sample_weight, groups)
    original = read_rows(model, *given, reset=False, earlier=previous.support)
    rows = _rows_by_fold(model, original)
    if model.reader_.forest is not None:
        model.about_["trees"] = trees
        rows = with_fitted_trees(model, rows, trees.get("rows", ""))
    program = replace(  # more rows might allow larger networks, but the trained ones stay
        make_program(model, rows.table_inputs, len(rows.used)),
        network=bank.program.network,
        components=bank.program.components,
    )
    table = make_table(program, rows, target_map, bank.units)
    steps = train_ensemble(model, program, table, rows, previous=bank, target_map=target_map)
    return (yield from steps)


def _rows_by_fold(model: Model, original: TrainingRows) -> TrainingRows:
    """Split the rows into folds, each with its own encoding, and set gross errors aside."""
    folds = original.split(model.cv, model.n_networks)
    return mark_outliers(model, original.encoded_by_fold(folds, original.seed))


def _without(fold: Fold, rows: NDArray[np.intp]) -> Fold:
    """Remove ``rows`` from the training rows of a fold, unless no others are left."""
    return fold._replace(train=rows_without(fold.train, rows))


def _plans(
    model: Model,
    program: Program,
    rows: TrainingRows,
    fold_of: NDArray[np.intp],
    previous: Bank | None,
) -> list[Plan]:
    """Return the plans of the networks of all folds, which train on no gross errors.

    If folds leave rows out, these networks calibrate; others, trained on all rows, predict, and
    their plans come last.
    """
    cleaned = [_without(fold, rows.outliers) for fold in rows.folds]
    trainings = [([cleaned[i] for i in fold_of], fold_of, rows.seed)]
    if leave_rows_out(rows.folds):
        whole = _without(Fold(rows.used, rows.used[:0]), rows.outliers)
        last = np.full(model.n_networks, len(rows.folds))
        trainings.append(([whole] * model.n_networks, last, rows.seed + 1))
    options: dict[str, Any] = {
        "batch_size": batch_size_of(model, len(rows.used)),
        "previous": previous,
        "smooth": traits(program.network).smooth,
    }
    return [
        plan
        for members, versions, seed in trainings
        for plan in rows.plans(model, members, versions, seed, **options)
    ]


def train_ensemble(
    model: Model,
    program: Program,
    table: Table,
    rows: TrainingRows,
    *,
    previous: Bank | None = None,
    source: BankPoints | ColumnPoints | Points | None = None,
    target_map: TargetMap | None = None,
) -> Steps[Ensemble]:
    """Train the networks of all folds in turn, around the predictions of ``source`` if given."""
    folds = rows.folds
    fold_of = np.arange(model.n_networks) % len(folds)
    plans = _plans(model, program, rows, fold_of, previous)
    if source is not None:
        plans = [around_zero(plan, table) for plan in plans]
    trained = yield Training(program, table, plans)
    count = model.n_networks
    held_out, ensemble = (
        ensemble_of(model, part if source is None else Upgraded(source, part), support, target_map)
        for part, support in (
            (trained[:count], rows.support),
            (trained[-count:], replace(rows.support, atoms=())),  # held-out rows give them mass
        )
    )
    if model.cv is None:
        return ensemble
    inputs = rows.inputs[: len(folds)]
    if ensemble.head.has_interval:
        data = (inputs, rows.y, rows.weights, rows.groups)
        ensemble, predictions = calibrated(
            model, ensemble, held_out, folds, fold_of, *data, seed=rows.seed, surplus=rows.surplus
        )
    else:
        points = [held_out.bank.predict(X)["point"] for X in inputs]
        predictions = OutOfFold.of_points(points, folds, fold_of, model.coverage)
    model._out_of_fold = predictions
    return ensemble


def calibrated(
    model: Model,
    ensemble: Ensemble,
    held_out: Ensemble,
    folds: Sequence[Fold],
    fold_of: IntArray,
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray | None = None,
    groups: IntArray | None = None,
    *,
    seed: int,
    surplus: FloatArray | None = None,
) -> tuple[Ensemble, OutOfFold | None]:
    """Calibrate the ensemble by the networks of ``held_out``, see ``crossfit.calibrate``.

    Also returns the out-of-fold predictions. Warns if there are too few rows for finite intervals
    of the model's coverage.
    """
    calibrations, predictions = calibrate(
        held_out, folds, fold_of, X, y, weights, model.calibration, groups, seed, surplus
    )
    last = calibrations[-1]
    if model.unsupported == "inf" and not last.supports(0.5 * (1.0 - model.coverage)):
        warn(infinite_reason([model.coverage], last))
    support = ensemble.support if predictions is None else predictions.support
    return replace(ensemble, calibrations=calibrations, support=support), predictions


def ensemble_of(
    model: Model, bank: Bank | Upgraded, support: Support, target_map: TargetMap | None
) -> Ensemble:
    """Return the ensemble of these networks, with the parameters of the model."""
    return Ensemble(
        bank,
        model.coverage,
        model.aggregation,
        n_jobs=model.n_jobs,
        support=support,
        target_map=target_map,
    )
