"""``calipers evaluate``: how good a model is on labelled rows."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from calipers.cli import _table_options as common
from calipers.cli._measures import (
    measure,
    measure_groups,
    measure_targets,
    print_measures,
    print_targets,
)
from calipers.cli._predict import ModelFolder
from calipers.cli._printing import for_terminal, print_json, print_rows
from calipers.cli._report import cautions
from calipers.cli._row_options import RowOptions, with_row_options


@with_row_options
def evaluate_command(
    model: ModelFolder,
    data: common.Files,
    by: Annotated[
        str | None, typer.Option(help="Column for whose values coverage is shown one by one.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage to measure; the model's own by default.")
    ] = None,
    *,
    options: RowOptions,
) -> None:
    """Measure coverage, width and error of a model on rows whose target is known.

    The rows must not be those it was fitted on, or the measures flatter it.
    """
    common.check_coverage(coverage)
    from calipers.preprocessing import as_numbers

    fitted = options.load(model, several=True)
    if hasattr(fitted, "models_"):
        if by is not None:
            raise typer.BadParameter("--by is for one target: give it as --target")
        files, table = common.read_files(data, options.form)
        kinds = _kinds_of_targets(fitted) | common.parse_kinds(options.types)
        labelled = common.take_targets(table, list(kinds), kinds, options.missing_target)
        with labelled.table.placing():
            inputs = fitted.pick(labelled.table.frame)
            level = coverage or fitted.coverage
            found = measure_targets(fitted, inputs, labelled.values, level)
        found["rows_without_target"] = labelled.left_out
        _report(model, files, found, print_targets, options.as_json)
        return
    files, (table, values, left_out, _) = options.read(fitted, data)
    for text in cautions(fitted.about_, files):
        typer.echo(f"note: {text}", err=True)
    if by is not None:
        table.require(by)
    with table.placing():
        inputs = fitted.pick(table.frame)
        found, bounds = measure(fitted, inputs, values, coverage or fitted.coverage)
        found["rows_without_target"] = left_out
        found["rows_outside"] = int(fitted.outside(inputs).any(axis=1).sum())
    if by is not None:
        found["by"] = {
            "column": by,
            "groups": measure_groups(bounds, values, as_numbers(table.frame[by])),
        }
    _report(model, files, found, partial(_show, fitted.target_.name), options.as_json)


def _kinds_of_targets(model: Any) -> dict[str, Any]:
    """How the targets of a model of several were written when it was fitted."""
    return {
        own.target_.name: (own.about_.get("source") or {}).get("target_kind")
        for own in model.models_
    }


def _report(
    model: str, files: list[str], found: dict[str, Any], show: Callable[..., None], as_json: bool
) -> None:
    if as_json:
        print_json({"model": model, "files": files} | found)
        return
    typer.echo(f"On {found['rows']:,} rows:")
    common.say_left_out(found["rows_without_target"])
    show(found)


def _show(target: str, found: dict[str, Any]) -> None:
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
