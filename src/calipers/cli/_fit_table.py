"""``calipers fit`` on a table in memory: encoding, evaluation on held-out rows, fit, notes."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from calipers.cli import _columns as columns, _labelled as reading
from calipers.cli._fit import REFIT_ROWS, FitOptions
from calipers.cli._holdout import HoldOut, copies, time_order
from calipers.cli._measures import measure, measure_targets
from calipers.cli._options import cluster_at
from calipers.cli._printing import note
from calipers.distributions import Bounds
from calipers.more_rows import worth_of_more_rows
from calipers.multitarget import MultiTargetRegressor, models_of
from calipers.preprocessing import DataError, TableEncoder, describe_numbers, how_written
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
    with reading.refusing(table):  # fitted to the whole table, to give each input its own type
        inputs = encoder.set_params(kinds=(encoder.kinds or {}) | kinds).fit_typed(inputs)
    result = _describe(encoder, values, files, labelled)
    columns.note_leaks(result["columns"], inputs, values)
    if not options.as_json:
        columns.print_table(result)
    _check_bounds(model.bounds, values, table)
    model.set_params(preprocessor__kinds=encoder.kinds_)
    if several:
        model = MultiTargetRegressor(model)
    refit = len(values) <= REFIT_ROWS if options.refit is None else options.refit
    with cluster_at(options.cluster), columns.without_repeats(evaluated=holdout.fraction > 0):
        model, rows, evaluation = _train(model, inputs, values, holdout, refit)
        result["evaluation"] = evaluation
        if options.more_rows:
            labels = None if holdout.labels is None else holdout.labels[rows]
            worth = worth_of_more_rows(model, inputs.iloc[rows], values.iloc[rows], labels)
            result["more_rows"] = model.about_["more_rows"] = str(worth)
    models = dict(zip(targets, models_of(model), strict=True))
    for name, single in models.items():
        own = evaluation["targets"][name] if several and evaluation else evaluation
        single.set_params(time_budget=budget)  # the given one, of which each fit had a part
        options.describe(single, files, len(values), name, formats[name], own)
    model.save(options.out)
    columns.note_outliers(model, table, values, rows)
    note(columns.describe_groups(model))
    return result | {"support": {name: str(single.support_) for name, single in models.items()}}


def _inputs_and_holdout(
    table: RowSource,
    values: "pd.Series[Any] | pd.DataFrame",
    kinds: dict[str, str],
    options: FitOptions,
) -> tuple[Any, HoldOut]:
    """Return the inputs of a table, and how to hold rows out; refuse what cannot be learned."""
    inputs, labels = reading.inputs_and_groups(
        table, options.target, options.groups, options.ignore
    )
    ends = pd.DataFrame(values).agg(["min", "max"])
    options.check_learnable(table, len(values), {str(name): tuple(ends[name]) for name in ends})
    name, times = options.time_column, None
    if name is not None:
        times = time_order(table, name, kinds)
        if name not in inputs:
            kinds.pop(name, None)
    return inputs, HoldOut(options.test_fraction, labels, times, name)


def _check_bounds(
    bounds: Bounds, values: "pd.Series[Any] | pd.DataFrame", table: RowSource
) -> None:
    """Refuse targets outside ``bounds``, naming the first by its place in the file."""
    if bounds is None or isinstance(bounds, str):
        return
    low = -np.inf if bounds[0] is None else bounds[0]
    high = np.inf if bounds[1] is None else bounds[1]
    for name, column in pd.DataFrame(values).items():
        for row in (~column.between(low, high)).to_numpy().nonzero()[0][:1]:
            problem = f"{column.iloc[row]:g} is outside the bounds {low:g} to {high:g}"
            raise table.placed(DataError(problem, column=str(name), row=int(row)))


def _train(
    model: Any,
    X: pd.DataFrame,
    y: Any,
    holdout: HoldOut,
    refit: bool,
) -> tuple[Any, Any, Any]:
    """Return the model to save, the rows it was fitted on, and its measures on the others."""
    everything, labels = np.arange(len(y)), holdout.labels
    if holdout.fraction == 0:
        return model.fit(X, y, groups=labels), everything, None
    estimator = getattr(model, "estimator", model)
    train, test = holdout.split(len(y), estimator.random_state)
    fits = (2 if refit else 1) * np.atleast_2d(y.iloc[0]).shape[1]
    if fits > 1 and estimator.time_budget is not None:
        estimator.set_params(time_budget=estimator.time_budget / fits)
    train_labels = None if labels is None else labels[train]
    model.fit(X.iloc[train], y.iloc[train], groups=train_labels)
    if y.ndim == 1:
        measures, _ = measure(model, X.iloc[test], np.asarray(y)[test], model.coverage)
    else:
        measures = measure_targets(model, X.iloc[test], y.iloc[test], model.coverage)
    first = y if y.ndim == 1 else y.iloc[:, 0]
    measures |= {"copies": copies(X, first, train, test), "last_by": holdout.time_column}
    if refit:
        model.fit(X, y, groups=labels)
    return model, everything if refit else train, measures | {"refitted": refit}


def _describe(
    encoder: TableEncoder,
    values: "pd.Series[Any] | pd.DataFrame",
    files: list[str],
    labelled: reading.Labelled,
) -> dict[str, Any]:
    table = pd.DataFrame(values)
    targets = [c.to_document() for c in describe_numbers(table.to_numpy(), list(map(str, table)))]
    for target, kind in zip(targets, labelled.kinds.values(), strict=True):
        target["note"] = how_written(kind)
    return {
        "files": files,
        "rows": len(values),
        "rows_without_target": labelled.left_out,
        **({"target": targets[0]} if len(targets) == 1 else {"targets": targets}),
        "columns": [column.to_document() for column in encoder.columns_],
    }
