"""``calipers fit``: a model from a table."""

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
from calipers.cli._notes import note_leaks, say_far_targets, without_repeats
from calipers.cli._printing import finite, for_terminal, print_json
from calipers.cli._settings_file import Bounds, make_model

_AFFORDABLE = 20_000  # rows up to which training a second time, on all of them, is worth it


def fit_command(
    data: common.Files,
    target: Annotated[
        list[str],
        typer.Option(help="Column to predict; repeated for several, with joint intervals."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    coverage: Annotated[
        float | None, typer.Option(help="Probability that an interval is to hold.")
    ] = None,
    bounds: Bounds = None,
    time_budget: Annotated[
        float | None, typer.Option(min=1.0, help="Seconds that training may take.")
    ] = None,
    seed: common.Seed = 0,
    config: Annotated[
        Path | None, typer.Option(help="Parameters of IntervalRegressor in a TOML file.")
    ] = None,
    groups: common.Groups = None,
    time_column: Annotated[
        str | None,
        typer.Option(help="Column of dates or numbers by which the last rows are held out."),
    ] = None,
    ignore: common.Ignored = None,
    types: common.Types = None,
    missing_target: common.MissingTarget = common.OnMissing.drop,
    test_fraction: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of rows held out to evaluate; 0: none.")
    ] = 0.2,
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Whether the saved model is fitted again on all rows after the evaluation; by "
            f"default up to {_AFFORDABLE:,} rows.",
        ),
    ] = None,
    more_rows: Annotated[
        bool,
        typer.Option(
            "--more-rows", help="Say what more rows would be worth, by a fit to half of them."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that is in the folder.")
    ] = False,
    in_blocks: InBlocks = None,
    delimiter: common.Delimiter = None,
    encoding: common.Encoding = "utf-8",
    n_jobs: common.Jobs = -1,
    cluster: OnCluster = None,
    as_json: common.AsJSON = False,
) -> None:
    """Fit a model to a table, evaluate it on rows held out, and save it in a folder.

    ``calipers fit flats.csv --target price --out model`` is all that is needed.
    """
    kinds = common.parse_kinds(types)
    if more_rows and len(target) > 1:
        raise typer.BadParameter("--more-rows is for one target")
    _check_folder(out, overwrite)
    form = common.make_form(delimiter, encoding)
    given = {"coverage": coverage, "time_budget": time_budget, "bounds": bounds}
    model = make_model(config, given | {"random_state": seed, "n_jobs": n_jobs})
    began = time.monotonic()
    from calipers.more_rows import worth_of_more_rows
    from calipers.tables import find_files, read_table

    files = find_files(data)
    if are_large(files) if in_blocks is None else in_blocks:
        unable: dict[str, Any] = {
            "--groups": groups,
            "--time-column": time_column,
            "--more-rows": more_rows,
        }
        unable |= {"--cluster": cluster, "--refit": refit, "a second --target": target[1:]}
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
            unable,
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
    inputs, labels = _parts(table, values, groups, ignore or [])
    times = None if time_column is None else time_order(table, time_column, kinds)
    kinds = {name: kind for name, kind in kinds.items() if name in inputs or name != time_column}
    encoder, inputs = _learn(model.preprocessor, inputs, kinds, table)
    result = _describe(encoder, values, files, labelled)
    note_leaks(result["columns"], inputs, values)
    if not as_json:
        _print_columns(result, files)
    _check_bounds(model.bounds, values, table)
    model.set_params(preprocessor__kinds=encoder.kinds_)
    if len(target) > 1:
        from calipers.multitarget import MultiTargetRegressor

        model = MultiTargetRegressor(model)
    refit = len(values) <= _AFFORDABLE if refit is None else refit
    holdout = HoldOut(test_fraction, labels, times, time_column)
    rows = holdout.fitted(len(values), seed, refit)
    with spread(cluster), without_repeats():
        model, result["evaluation"] = _train(model, inputs, values, holdout, refit)
        if more_rows:
            own = None if labels is None else labels[rows]
            worth = worth_of_more_rows(model, inputs.iloc[rows], values.iloc[rows], own)
            result["more_rows"] = str(worth)
    for name, own in zip(target, getattr(model, "models_", [model]), strict=True):
        found = result["evaluation"]
        if len(target) > 1:
            found = None if found is None else found["targets"][name]
        own.about_ |= {
            "evaluation": finite(found),
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
    say_far_targets(model, table, values, rows)
    supports = [str(own.support_) for own in getattr(model, "models_", [model])]
    result["support"] = dict(zip(target, supports, strict=True))
    result |= {"model": os.fspath(out), "seconds": round(time.monotonic() - began, 1)}
    if as_json:
        print_json(result)
    else:
        _print_end(result, target[0])


def _check_folder(out: Path, overwrite: bool) -> None:
    """Refuse a folder for the model before the work, not after."""
    from calipers.storage import ModelFileError

    if out.exists() and not out.is_dir():
        raise ModelFileError(f"{out} is a file: a model needs a folder of its own")
    if (out / "model.json").exists() and not overwrite:
        raise ModelFileError(f"{out} holds a model: name another folder, or give --overwrite")
    if out.exists() and not (out / "model.json").exists() and any(out.iterdir()):
        raise ModelFileError(f"{out} holds other files: name a new or empty folder")
    place = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not place.is_dir():
        raise ModelFileError(f"{out} cannot be made: {place} is a file")
    if not os.access(place, os.W_OK):
        raise ModelFileError(f"{out} cannot be made: {place} is not writable")


def _parts(table: Any, values: Any, groups: str | None, ignore: list[str]) -> Any:
    """Inputs, and labels of groups."""
    import pandas as pd

    targets = pd.DataFrame(values)
    names = list(map(str, targets))
    inputs = common.drop_columns(table, names, [*ignore, *([groups] if groups else [])])
    ends = zip(targets.min(), targets.max(), strict=True)
    common.check_learnable(table, len(targets), dict(zip(names, ends, strict=True)))
    return inputs, common.group_labels(table, groups)


def _check_bounds(bounds: Any, values: Any, table: Any) -> None:
    """Refuse targets outside of the bounds given, naming the first by its place in the file."""
    from calipers.preprocessing import DataError

    if bounds is None or isinstance(bounds, str):
        return
    low, high = (
        end if end is not None else sign * float("inf")
        for end, sign in zip(bounds, (-1, 1), strict=True)
    )
    for name, column in values.to_frame().items() if values.ndim == 1 else values.items():
        for row in (~column.between(low, high)).to_numpy().nonzero()[0][:1]:
            problem = f"{column.iloc[row]:g} is not within the bounds {low:g} to {high:g}"
            raise table.placed(DataError(problem, column=name, row=int(row)))


def _learn(encoder: Any, inputs: Any, kinds: dict[str, str], table: Any) -> Any:
    """What the columns of the whole table are, and the inputs with each in its own type."""
    from sklearn.base import clone

    with common.refusing(table):
        fitted = clone(encoder).set_params(kinds=(encoder.kinds or {}) | kinds)
        return fitted, fitted.fit_typed(inputs)


def _train(
    model: Any, X: Any, y: Any, holdout: HoldOut, refit: bool
) -> tuple[Any, dict[str, Any] | None]:
    """The model to save, and what it is worth on rows that it has not seen."""
    import numpy as np

    labels = holdout.labels
    if holdout.fraction == 0:
        return model.fit(X, y, groups=labels), None
    train, test = holdout.split(len(y), getattr(model, "estimator", model).random_state)
    fits = (2 if refit else 1) * np.atleast_2d(y.iloc[0]).shape[1]
    own = getattr(model, "estimator", model)
    if fits > 1 and own.time_budget is not None:
        own.set_params(time_budget=own.time_budget / fits)
    picked = None if labels is None else labels[train]
    model.fit(X.iloc[train], y.iloc[train], groups=picked)
    if y.ndim == 1:
        found, _ = measure(model, X.iloc[test], np.asarray(y)[test], model.coverage)
    else:
        found = measure_targets(model, X.iloc[test], y.iloc[test], model.coverage)
    first = y if y.ndim == 1 else y.iloc[:, 0]
    found |= {"copies": copies(X, first, train, test), "last_by": holdout.time_column}
    if refit:
        model.fit(X, y, groups=labels)
    return model, found | {"refitted": refit}


def _describe(
    encoder: Any, values: Any, files: list[str], labelled: common.Labelled
) -> dict[str, Any]:
    import pandas as pd

    from calipers.preprocessing import describe_numbers

    table = pd.DataFrame(values)
    targets = [c.to_document() for c in describe_numbers(table.to_numpy(), list(map(str, table)))]
    for target, kind in zip(targets, labelled.kinds.values(), strict=True):
        written = kind.partition(" ")[2]
        how = "clock times as hours" if written == "10:30" else f"numbers written like {written}"
        target["note"] = how if written else ""
    return {
        "files": files,
        "rows": len(values),
        "rows_without_target": labelled.left_out,
        **({"target": targets[0]} if len(targets) == 1 else {"targets": targets}),
        "columns": [column.to_document() for column in encoder.columns_],
    }


def _print_columns(result: dict[str, Any], files: list[str]) -> None:
    """Show the columns that were found."""
    targets = result.get("targets") or [result["target"]]
    where = files[0] if len(files) == 1 else f"{len(files)} files"
    typer.echo(f"{where}: {result['rows']:,} rows")
    common.say_left_out(result["rows_without_target"])
    print_columns(targets, result["columns"])
    typer.echo("")


def _print_end(result: dict[str, Any], target: str) -> None:
    result, target = for_terminal(result), for_terminal(target)
    found = result["evaluation"]
    if found is None:
        typer.echo("No rows were held out, so nothing is known of how good the model is.")
    else:
        last = "" if found["last_by"] is None else f"the last by {found['last_by']}, "
        typer.echo(f"On {found['rows']:,} rows held out, {last}which the model had not seen:")
        typer.echo(say_copies(found), nl=False)
        if "targets" in found:
            print_targets(found)
        else:
            print_measures(found, target)
        typer.echo("")
        rows = result["rows"]
        if found["refitted"]:
            typer.echo(f"The saved model was then fitted again, on all {rows:,} rows.")
        else:
            rest = rows - found["rows"]
            typer.echo(f"The saved model is the one evaluated, fitted on the other {rest:,} rows.")
    if "more_rows" in result:
        typer.echo(result["more_rows"])
    for name, values in result["support"].items():
        typer.echo(f"Values of {name} are taken to be {values} (--bounds says otherwise).")
    typer.echo(f"saved in {result['model']} after {result['seconds']:.0f} s")
