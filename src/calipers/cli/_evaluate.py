"""``calipers evaluate``: how good a model is on labelled rows."""

from typing import Annotated, Any

import typer

from calipers.cli._measures import (
    measure,
    measure_groups,
    measure_targets,
    print_measures,
    print_targets,
)
from calipers.cli._predict import ModelFolder, load_any
from calipers.cli._table_options import (
    AsJSON,
    Delimiter,
    Encoding,
    Files,
    Jobs,
    MissingTarget,
    OnMissing,
    Types,
    for_terminal,
    make_form,
    parse_kinds,
    print_json,
    print_rows,
    reading,
    say_left_out,
    take_target,
    take_targets,
    target_of,
)


def evaluate_command(
    model: ModelFolder,
    data: Files,
    by: Annotated[
        str | None, typer.Option(help="Column for whose values coverage is shown one by one.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column with the truth; the model's own by default.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage to measure; the model's own by default.")
    ] = None,
    types: Types = None,
    missing_target: MissingTarget = OnMissing.drop,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    n_jobs: Jobs = -1,
    as_json: AsJSON = False,
) -> None:
    """Measure coverage, width and error of a model on rows whose target is known.

    The rows must not be those it was fitted on, or the measures flatter it.
    """
    if coverage is not None and not 0 < coverage < 1:
        raise typer.BadParameter(f"--coverage lies between 0 and 1, got {coverage:g}")
    form = make_form(delimiter, encoding)
    from calipers._text import did_you_mean
    from calipers.preprocessing import DataError, as_numbers
    from calipers.tables import find_files, read_table

    files = find_files(data)
    fitted = load_any(model, n_jobs)
    if hasattr(fitted, "models_"):
        if by is not None or target is not None:
            raise typer.BadParameter("--by and --target are for models of one target")
        with reading(files) as report:
            table = read_table(files, form=form, report=report)
        kinds = _kinds_of_targets(fitted) | parse_kinds(types)
        found = _several(fitted, take_targets(table, list(kinds), kinds, missing_target), coverage)
        print_json({"model": model, "files": files} | found) if as_json else _show_several(found)
        return
    name, kind = target_of(fitted, target, types)
    with reading(files) as report:
        table = read_table(files, form=form, report=report)
    table, values, left_out, _ = take_target(table, name, kind, missing_target)
    if by is not None and by not in table.frame:
        raise table.placed(DataError(f"there is no column {by!r}{did_you_mean(by, table.frame)}"))
    try:
        inputs = fitted.pick(table.frame)
        found, bounds = measure(fitted, inputs, values, coverage or fitted.coverage)
        found["rows_without_target"] = left_out
        found["rows_outside"] = int(fitted.outside(inputs).any(axis=1).sum())
    except DataError as error:
        raise table.placed(error) from None
    if by is not None:
        found["by"] = {
            "column": by,
            "groups": measure_groups(bounds, values, as_numbers(table.frame[by])),
        }
    if as_json:
        print_json({"model": model, "files": files} | found)
    else:
        _show(found, fitted.target_.name)


def _kinds_of_targets(model: Any) -> dict[str, Any]:
    """How the targets of a model of several were written when it was fitted."""
    return {
        own.target_.name: (own.about_.get("source") or {}).get("target_kind")
        for own in model.models_
    }


def _several(model: Any, labelled: Any, coverage: float | None) -> dict[str, Any]:
    from calipers.preprocessing import DataError

    try:
        inputs = model.pick(labelled.table.frame)
        found = measure_targets(model, inputs, labelled.values, coverage or model.coverage)
    except DataError as error:
        raise labelled.table.placed(error) from None
    return found | {"rows_without_target": labelled.left_out}


def _show_several(found: dict[str, Any]) -> None:
    typer.echo(f"On {found['rows']:,} rows:")
    say_left_out(found["rows_without_target"])
    print_targets(found)


def _show(found: dict[str, Any], target: str) -> None:
    typer.echo(f"On {found['rows']:,} rows:")
    say_left_out(found["rows_without_target"])
    print_measures(found, for_terminal(target))
    if found["rows_outside"]:
        typer.echo(f"\n  {found['rows_outside']:,} rows are outside what training saw")
    if "by" in found:
        typer.echo("")
        rows = [
            (group["group"], group["rows"], f"{group['coverage_rate']:.1%}", group["mean_width"])
            for group in found["by"]["groups"]
        ]
        print_rows((found["by"]["column"], "rows", "observed", "mean width"), rows)
