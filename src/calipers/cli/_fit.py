"""``calipers fit``: fit a model to a table, evaluate it on held-out rows, and save it."""

import os
import time
from typing import Any

import typer

from calipers._text import counted
from calipers.cli import _fit_options as fitting, _table_options as common
from calipers.cli._cluster import spread
from calipers.cli._columns import (
    note_leaks,
    note_outliers,
    print_table,
    say_groups,
    without_repeats,
)
from calipers.cli._fit_blocks import fit_in_blocks
from calipers.cli._fit_options import FitOptions
from calipers.cli._help import with_options
from calipers.cli._holdout import HoldOut, copies, say_copies, time_order
from calipers.cli._measures import measure, measure_targets, print_measures, print_targets
from calipers.cli._printing import for_terminal, note, print_json, say_support
from calipers.cli._settings_file import make_model


@with_options
def fit_command(options: FitOptions) -> None:
    """Fit a model to a table, evaluate and save it.

    The evaluation is on held-out rows. A minimal call is: calipers fit flats.csv --target price
    --out model
    """
    common.check_coverage(options.coverage)
    kinds = common.parse_kinds(options.types)
    if options.more_rows and len(options.target) > 1:
        raise typer.BadParameter("--more-rows works for one target only")
    options.check_folder()
    params = ("coverage", "time_budget", "bounds", "n_jobs")
    settings = {name: getattr(options, name) for name in params} | {"random_state": options.seed}
    model = make_model(options.config, settings)
    began = time.monotonic()
    from calipers.tables import find_files

    files = find_files(options.data)
    in_blocks = _are_large(files) if options.in_blocks is None else options.in_blocks
    result = (fit_in_blocks if in_blocks else _fit_in_memory)(model, files, kinds, options)
    result |= {"model": os.fspath(options.out), "seconds": round(time.monotonic() - began, 1)}
    if options.as_json:
        print_json(result)
    else:
        _print_end(result, options.target[0])


def _are_large(files: list[str]) -> bool:
    """Whether the files are so large that they are read in blocks by default."""
    existing = [name for name in files if name != "-" and os.path.exists(name)]  # noqa: PTH110
    return sum(os.path.getsize(name) for name in existing) >= fitting.LARGE  # noqa: PTH202


def _fit_in_memory(
    model: Any, files: list[str], kinds: dict[str, str], options: FitOptions
) -> dict[str, Any]:
    """Fit a model to a table, evaluate and save it; return the summary as plain JSON."""
    targets, several, budget = options.target, len(options.target) > 1, model.time_budget
    table = common.read_files(files, options.form)[1]
    labelled = common.take_targets(table, targets, kinds, options.missing_target)
    table, values = labelled.table, labelled.values
    inputs, holdout = _inputs_and_holdout(table, values, kinds, options)
    encoder, inputs = _fit_encoder(model.preprocessor, inputs, kinds, table)
    result = _describe(encoder, values, files, labelled)
    note_leaks(result["columns"], inputs, values)
    if not options.as_json:
        print_table(result)
    _check_bounds(model.bounds, values, table)
    model.set_params(preprocessor__kinds=encoder.kinds_)
    if several:
        from calipers.multitarget import MultiTargetRegressor

        model = MultiTargetRegressor(model)
    refit = len(values) <= fitting.REFIT_ROWS if options.refit is None else options.refit
    with spread(options.cluster), without_repeats(evaluated=holdout.fraction > 0):
        model, rows, evaluation = _train(model, inputs, values, holdout, refit)
        result["evaluation"] = evaluation
        if options.more_rows:
            from calipers.more_rows import worth_of_more_rows

            labels = None if holdout.labels is None else holdout.labels[rows]
            worth = worth_of_more_rows(model, inputs.iloc[rows], values.iloc[rows], labels)
            result["more_rows"] = model.about_["more_rows"] = str(worth)
    models = dict(zip(targets, getattr(model, "models_", [model]), strict=True))
    for name, single in models.items():
        own = evaluation["targets"][name] if several and evaluation else evaluation
        single.set_params(time_budget=budget)  # as given, although each fit had its share of it
        single.about_ |= options.about(files, len(values), name, labelled.kinds[name], own)
    model.save(options.out)
    note_outliers(model, table, values, rows)
    note(say_groups(model))
    return result | {"support": {name: str(single.support_) for name, single in models.items()}}


def _inputs_and_holdout(
    table: Any, values: Any, kinds: dict[str, str], options: FitOptions
) -> tuple[Any, HoldOut]:
    """Return the inputs of a table, and how to hold rows out; refuse what cannot be learnt."""
    import pandas as pd

    inputs, labels = common.inputs_and_groups(table, options.target, options.groups, options.ignore)
    ends = pd.DataFrame(values).agg(["min", "max"])
    options.check_learnable(table, len(values), {str(name): tuple(ends[name]) for name in ends})
    name, times = options.time_column, None
    if name is not None:
        times = time_order(table, name, kinds)
        if name not in inputs:
            kinds.pop(name, None)
    return inputs, HoldOut(options.test_fraction, labels, times, name)


def _check_bounds(bounds: Any, values: Any, table: Any) -> None:
    """Refuse targets outside ``bounds``, naming the first by its place in the file."""
    from calipers.preprocessing import DataError

    if bounds is None or isinstance(bounds, str):
        return
    low, high = (
        end if end is not None else sign * float("inf")
        for end, sign in zip(bounds, (-1, 1), strict=True)
    )
    for name, column in values.to_frame().items() if values.ndim == 1 else values.items():
        for row in (~column.between(low, high)).to_numpy().nonzero()[0][:1]:
            problem = f"{column.iloc[row]:g} is outside the bounds {low:g} to {high:g}"
            raise table.placed(DataError(problem, column=name, row=int(row)))


def _fit_encoder(encoder: Any, inputs: Any, kinds: dict[str, str], table: Any) -> Any:
    """Return an encoder fitted to the whole table, and the inputs, each with its own type."""
    from sklearn.base import clone

    with common.refusing(table):
        fitted = clone(encoder).set_params(kinds=(encoder.kinds or {}) | kinds)
        return fitted, fitted.fit_typed(inputs)


def _train(model: Any, X: Any, y: Any, holdout: HoldOut, refit: bool) -> tuple[Any, Any, Any]:
    """Return the model to save, the rows it was fitted on, and its measures on the others."""
    import numpy as np

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
    encoder: Any, values: Any, files: list[str], labelled: common.Labelled
) -> dict[str, Any]:
    import pandas as pd

    from calipers.preprocessing import describe_numbers

    table = pd.DataFrame(values)
    targets = [c.to_document() for c in describe_numbers(table.to_numpy(), list(map(str, table)))]
    for target, kind in zip(targets, labelled.kinds.values(), strict=True):
        example = kind.partition(" ")[2]
        note = "clock times as hours" if example == "10:30" else f"numbers written like {example}"
        target["note"] = note if example else ""
    return {
        "files": files,
        "rows": len(values),
        "rows_without_target": labelled.left_out,
        **({"target": targets[0]} if len(targets) == 1 else {"targets": targets}),
        "columns": [column.to_document() for column in encoder.columns_],
    }


def _print_end(result: dict[str, Any], target: str) -> None:
    """Print the evaluation of the model, and where it was saved."""
    result, target = for_terminal(result), for_terminal(target)
    measures = result["evaluation"]
    if measures is None:
        typer.echo("No rows were held out, so the model was not evaluated.")
    else:
        last = "" if measures["last_by"] is None else f"the last by {measures['last_by']}, "
        held_out = counted(measures["rows"], "row").replace(" ", " held-out ")
        typer.echo(f"On {held_out}, {last}which the model has not seen:")
        typer.echo(say_copies(measures), nl=False)
        if "targets" in measures:
            print_targets(measures)
        else:
            print_measures(measures, target)
        typer.echo("")
        rows = result["rows"]
        if measures["refitted"]:
            typer.echo(
                f"The saved model was refitted on all {rows:,} rows; these figures are of the "
                "model before that."
            )
        else:
            train_rows = rows - measures["rows"]
            typer.echo(
                f"The saved model is the one evaluated, fitted on the other {train_rows:,} rows."
            )
    if "more_rows" in result:
        typer.echo(result["more_rows"])
    for name, support in result["support"].items():
        typer.echo(f"{say_support(name, support)} (change with --bounds).")
    typer.echo(f"saved in {result['model']} after {result['seconds']:.0f} s")
