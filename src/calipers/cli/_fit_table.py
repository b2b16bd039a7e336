"""``calipers fit`` on a table in memory: encoding, evaluation on held-out rows, fit, notes."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from calipers._arrays import IntArray
from calipers.cli import _columns as columns, _labelled as reading
from calipers.cli._fit import REFIT_ROWS, FitOptions
from calipers.cli._holdout import HoldOut, copies, time_order
from calipers.cli._measures import measure, measure_targets
from calipers.cli._options import cluster_at
from calipers.cli._printing import note
from calipers.more_rows import worth_of_more_rows
from calipers.multitarget import MultiTargetRegressor, models_of
from calipers.preprocessing import TableEncoder, describe_numbers, how_written
from calipers.regressor import IntervalRegressor
from calipers.tables import RowSource


def fit_in_memory(
    model: IntervalRegressor, files: list[str], kinds: dict[str, str], options: FitOptions
) -> dict[str, Any]:
    """Fit a model to a table, evaluate and save it; return the summary as plain JSON."""
    targets, several, budget = options.target, len(options.target) > 1, model.time_budget
    table = reading.read_files(files, options.form)[1]
    labelled = reading.take_targets(table, targets, kinds, options.missing_target)
    table, values, _, formats = labelled
    inputs, holdout = _inputs_and_holdout(table, values, kinds, options)
    encoder = clone(model.preprocessor)
    with reading.refusing(table):  # the whole table, to give each input its own type
        learned = encoder.set_params(kinds=(encoder.kinds or {}) | kinds).learn(inputs)
    inputs = learned.typed()
    result = _describe(encoder, values, files, labelled)
    columns.note_leaks(result["columns"], inputs, values)
    if not options.as_json:
        columns.print_table(result)
    reading.refuse_out_of_bounds(model.bounds, values, table)
    encoder.set_params(kinds=encoder.kinds_)
    model.set_params(preprocessor__kinds=encoder.kinds_)
    refit = len(values) <= REFIT_ROWS if options.refit is None else options.refit
    with cluster_at(options.cluster), columns.without_repeats(evaluated=holdout.fraction > 0):
        fitted, rows, evaluation = _train(model, inputs, values, holdout, refit, learned)
        result["evaluation"] = evaluation
        if options.more_rows:
            labels = None if holdout.labels is None else holdout.labels[rows]
            y = values.iloc[rows, 0]
            worth = worth_of_more_rows(model, inputs.iloc[rows], y, labels)
            result["more_rows"] = model.about_["more_rows"] = str(worth)
    models = dict(zip(targets, models_of(fitted), strict=True))
    for name, single in models.items():
        own = evaluation["targets"][name] if several and evaluation else evaluation
        single.set_params(time_budget=budget)  # the given one, of which each fit had a part
        options.describe(single, files, len(values), name, formats[name], own)
    fitted.save(options.out)
    columns.note_outliers(fitted, table, values, rows)
    note(columns.describe_groups(fitted))
    return result | {"support": {name: str(single.support_) for name, single in models.items()}}


def _inputs_and_holdout(
    table: RowSource,
    values: pd.DataFrame,
    kinds: dict[str, str],
    options: FitOptions,
) -> tuple[Any, HoldOut]:
    """Return the inputs of a table, and how to hold rows out; refuse what cannot be learned."""
    inputs, labels = reading.inputs_and_groups(
        table, options.target, options.groups, options.ignore
    )
    ends = values.agg(["min", "max"])
    options.check_learnable(table, len(values), {str(name): tuple(ends[name]) for name in ends})
    name, times = options.time_column, None
    if name is not None:
        times = time_order(table, name, kinds)
        if name not in inputs:
            kinds.pop(name, None)
    return inputs, HoldOut(options.test_fraction, labels, times, name)


def _train(
    model: IntervalRegressor,
    X: pd.DataFrame,
    y: pd.DataFrame,
    holdout: HoldOut,
    refit: bool,
    learned: Any,
) -> tuple[IntervalRegressor | MultiTargetRegressor, IntArray, dict[str, Any] | None]:
    """Return the model to save, the rows it was fitted on, and its measures on the others.

    A fit to all rows takes the table that was ``learned`` in place of ``X``, its frame.
    """
    everything, labels, several = np.arange(len(y)), holdout.labels, y.shape[1] > 1
    fitted = MultiTargetRegressor(model) if several else model
    targets = y if several else y.iloc[:, 0]
    if holdout.fraction == 0:
        return fitted.fit(learned, targets, groups=labels), everything, None
    train, test = holdout.split(len(y), model.random_state)
    fits = (2 if refit else 1) * y.shape[1]
    if fits > 1 and model.time_budget is not None:
        model.set_params(time_budget=model.time_budget / fits)
    train_labels = None if labels is None else labels[train]
    fitted.fit(X.iloc[train], targets.iloc[train], groups=train_labels)
    measures = _measured(fitted, X.iloc[test], y.iloc[test])
    same = copies(X, y.iloc[:, 0], train, test)
    measures |= {"copies": same, "last_by": holdout.time_column}
    if refit:
        fitted.fit(learned, targets, groups=labels)
    return fitted, everything if refit else train, measures | {"refitted": refit}


def _measured(
    model: IntervalRegressor | MultiTargetRegressor, X: pd.DataFrame, y: pd.DataFrame
) -> dict[str, Any]:
    if isinstance(model, MultiTargetRegressor):
        return measure_targets(model, X, y, model.coverage)
    return measure(model, X, y.iloc[:, 0].to_numpy(), model.coverage)[0]


def _describe(
    encoder: TableEncoder,
    values: pd.DataFrame,
    files: list[str],
    labelled: reading.Labelled,
) -> dict[str, Any]:
    names = list(map(str, values))
    targets = [column.to_document() for column in describe_numbers(values.to_numpy(), names)]
    for target, kind in zip(targets, labelled.kinds.values(), strict=True):
        target["note"] = how_written(kind)
    return {
        "files": files,
        "rows": len(values),
        "rows_without_target": labelled.left_out,
        **({"target": targets[0]} if len(targets) == 1 else {"targets": targets}),
        "columns": [column.to_document() for column in encoder.columns_],
    }
