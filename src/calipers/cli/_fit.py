"""``calipers fit``: fit a model to a table, evaluate it on held-out rows, and save it."""

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from calipers.cli import _table_options as common
from calipers.cli._cluster import OnCluster, spread
from calipers.cli._columns import print_columns
from calipers.cli._fit_blocks import InBlocks, are_large, fit_in_blocks
from calipers.cli._holdout import HoldOut, copies, say_copies, time_order
from calipers.cli._measures import measure, measure_targets, print_measures, print_targets
from calipers.cli._notes import note_leaks, note_outliers, without_repeats
from calipers.cli._printing import finite, for_terminal, print_json, rows_text, say_support
from calipers.cli._settings_file import Bounds, make_model

_REFIT_ROWS = 20_000  # up to which a second fit, on all rows, is worth its time by default


def fit_command(
    data: common.Files,
    target: Annotated[
        list[str],
        typer.Option(help="Column to predict; repeat it for several targets with joint intervals."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    coverage: Annotated[
        float | None, typer.Option(help="Nominal coverage of the intervals, such as 0.95.")
    ] = None,
    bounds: Bounds = None,
    time_budget: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Seconds that training may take; shared between the evaluation fit and the final "
            "one, and between targets.",
        ),
    ] = None,
    seed: common.Seed = 0,
    config: Annotated[
        Path | None, typer.Option(help="Parameters of IntervalRegressor in a TOML file.")
    ] = None,
    groups: common.Groups = None,
    time_column: Annotated[
        str | None,
        typer.Option(help="Column of dates or numbers; the latest rows by it are held out."),
    ] = None,
    ignore: common.Ignored = None,
    types: common.Types = None,
    missing_target: common.MissingTarget = common.OnMissing.drop,
    test_fraction: Annotated[
        float,
        typer.Option(min=0.0, max=0.9, help="Fraction of rows held out for evaluation, or 0."),
    ] = 0.2,
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Whether the model is refitted on all rows after the evaluation; by default up to "
            f"{_REFIT_ROWS:,} rows.",
        ),
    ] = None,
    more_rows: Annotated[
        bool,
        typer.Option(
            "--more-rows", help="Estimate the benefit of more rows, from a fit to half of them."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that is already in the folder.")
    ] = False,
    in_blocks: InBlocks = None,
    delimiter: common.Delimiter = None,
    encoding: common.Encoding = "utf-8",
    n_jobs: common.Jobs = -1,
    cluster: OnCluster = None,
    as_json: common.AsJSON = False,
) -> None:
    """Fit a model to a table, evaluate and save it.

    The evaluation is on held-out rows. A minimal call is: calipers fit flats.csv --target price
    --out model
    """
    common.check_coverage(coverage)
    kinds = common.parse_kinds(types)
    if more_rows and len(target) > 1:
        raise typer.BadParameter("--more-rows works for one target only")
    _check_folder(out, overwrite)
    form = common.make_form(delimiter, encoding)
    params = {"coverage": coverage, "time_budget": time_budget, "bounds": bounds}
    model = make_model(config, params | {"random_state": seed, "n_jobs": n_jobs})
    began = time.monotonic()
    from calipers.more_rows import worth_of_more_rows
    from calipers.tables import find_files, read_table

    files = find_files(data)
    if are_large(files) if in_blocks is None else in_blocks:
        unsupported: dict[str, Any] = {
            "--groups": groups,
            "--time-column": time_column,
            "--more-rows": more_rows,
            "--cluster": cluster,
            "--refit": refit,
            "a second --target": target[1:],
        }
        result = fit_in_blocks(
            model,
            files,
            target[0],
            out,
            form,
            kinds,
            ignore or [],
            missing_target,
            test_fraction,
            unsupported,
            as_json,
        )
        result["seconds"] = round(time.monotonic() - began, 1)
        if as_json:
            print_json(result)
        else:
            _print_columns(result, files)
            _print_end(result, target[0])
        return
    with common.reading(files) as report:
        table = read_table(files, form=form, report=report)
    if len(target) > 1:
        labelled = common.take_targets(table, target, kinds, missing_target)
    else:
        labelled = common.take_target(table, target[0], kinds.pop(target[0], None), missing_target)
    table, values = labelled.table, labelled.values
    inputs, labels = _inputs_and_groups(table, values, groups, ignore or [])
    times = None if time_column is None else time_order(table, time_column, kinds)
    kinds = {name: kind for name, kind in kinds.items() if name in inputs or name != time_column}
    encoder, inputs = _fit_encoder(model.preprocessor, inputs, kinds, table)
    result = _describe(encoder, values, files, labelled)
    note_leaks(result["columns"], inputs, values)
    if not as_json:
        _print_columns(result, files)
    _check_bounds(model.bounds, values, table)
    model.set_params(preprocessor__kinds=encoder.kinds_)
    if len(target) > 1:
        from calipers.multitarget import MultiTargetRegressor

        model = MultiTargetRegressor(model)
    refit = len(values) <= _REFIT_ROWS if refit is None else refit
    holdout = HoldOut(test_fraction, labels, times, time_column)
    rows = holdout.fitted(len(values), seed, refit)
    with spread(cluster), without_repeats():
        model, result["evaluation"] = _train(model, inputs, values, holdout, refit)
        if more_rows:
            fitted_labels = None if labels is None else labels[rows]
            worth = worth_of_more_rows(model, inputs.iloc[rows], values.iloc[rows], fitted_labels)
            result["more_rows"] = str(worth)
    models = getattr(model, "models_", [model])
    for name, single in zip(target, models, strict=True):
        evaluation = result["evaluation"]
        if len(target) > 1 and evaluation is not None:
            evaluation = evaluation["targets"][name]
        single.about_ |= {
            "evaluation": finite(evaluation),
            "source": {
                "files": files,
                "rows": len(values),
                "target": name,
                "target_kind": labelled.kinds[name],
                "groups": groups,
                "time_column": time_column,
            },
        }
    if more_rows:
        model.about_["more_rows"] = result["more_rows"]
    model.save(out)
    note_outliers(model, table, values, rows)
    supports = [str(single.support_) for single in models]
    result["support"] = dict(zip(target, supports, strict=True))
    result |= {"model": os.fspath(out), "seconds": round(time.monotonic() - began, 1)}
    if as_json:
        print_json(result)
    else:
        _print_end(result, target[0])


def _check_folder(out: Path, overwrite: bool) -> None:
    """Refuse an unsuitable folder for the model before the work, not after."""
    from calipers.storage import ModelFileError

    if out.exists() and not out.is_dir():
        raise ModelFileError(f"{out} is a file: a model needs a folder of its own")
    if (out / "model.json").exists() and not overwrite:
        raise ModelFileError(
            f"{out} already contains a model: name another folder, or give --overwrite"
        )
    if out.exists() and not (out / "model.json").exists() and any(out.iterdir()):
        raise ModelFileError(f"{out} already contains other files: name a new or empty folder")
    parent = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not parent.is_dir():
        raise ModelFileError(f"{out} cannot be created: {parent} is a file")
    if not os.access(parent, os.W_OK):
        raise ModelFileError(f"{out} cannot be created: {parent} is not writable")


def _inputs_and_groups(table: Any, values: Any, groups: str | None, ignore: list[str]) -> Any:
    """Return the inputs of a table and its group labels; refuse targets that cannot be learnt."""
    import pandas as pd

    targets = pd.DataFrame(values)
    names = list(map(str, targets))
    inputs = common.drop_columns(table, names, [*ignore, *([groups] if groups else [])])
    ends = zip(targets.min(), targets.max(), strict=True)
    common.check_learnable(table, len(targets), dict(zip(names, ends, strict=True)))
    return inputs, common.group_labels(table, groups)


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


def _train(
    model: Any, X: Any, y: Any, holdout: HoldOut, refit: bool
) -> tuple[Any, dict[str, Any] | None]:
    """Return the model to save, and its measures on the held-out rows."""
    import numpy as np

    labels = holdout.labels
    if holdout.fraction == 0:
        return model.fit(X, y, groups=labels), None
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
    return model, measures | {"refitted": refit}


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


def _print_columns(result: dict[str, Any], files: list[str]) -> None:
    """Print the columns of the table."""
    targets = result.get("targets") or [result["target"]]
    where = files[0] if len(files) == 1 else f"{len(files)} files"
    typer.echo(f"{where}: {result['rows']:,} rows")
    common.say_left_out(result["rows_without_target"])
    print_columns(targets, result["columns"])
    typer.echo("")


def _print_end(result: dict[str, Any], target: str) -> None:
    """Print the evaluation of the model, and where it was saved."""
    result, target = for_terminal(result), for_terminal(target)
    measures = result["evaluation"]
    if measures is None:
        typer.echo("No rows were held out, so the model was not evaluated.")
    else:
        last = "" if measures["last_by"] is None else f"the last by {measures['last_by']}, "
        held_out = rows_text(measures["rows"]).replace(" ", " held-out ")
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
