"""``calipers evaluate``: coverage, width and error of a model on labelled rows."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from calipers._text import counted
from calipers.cli import _table_options as common
from calipers.cli._help import with_options
from calipers.cli._measures import (
    measure,
    measure_groups,
    measure_targets,
    print_measures,
    print_targets,
)
from calipers.cli._model_options import ModelFolder, RowOptions
from calipers.cli._printing import for_terminal, print_json, print_rows, say_outside
from calipers.cli._report import cautions


@with_options
def evaluate_command(
    model: ModelFolder,
    data: common.Files,
    by: Annotated[
        str | None, typer.Option(help="Show coverage for each value of this column, too.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage to measure; the model's own by default.")
    ] = None,
    *,
    options: RowOptions,
) -> None:
    """Measure coverage, width and error on labelled rows.

    The rows must not be those that the model was fitted on, or the measures are too optimistic.
    """
    common.check_coverage(coverage)
    import pandas as pd

    from calipers.preprocessing import as_numbers

    fitted = options.load(model, several=True)
    level, several = coverage or fitted.coverage, hasattr(fitted, "models_")
    if several and by is not None:
        raise typer.BadParameter("--by works for one target: choose it with --target")
    files, (table, values, left_out, _) = options.read(fitted, data)
    if several:
        with table.placing():
            inputs = fitted.pick(table.frame)
            measures = measure_targets(fitted, inputs, pd.DataFrame(values), level)
        measures["rows_without_target"] = left_out
        _report(model, files, measures, print_targets, options.as_json)
        return
    for text in cautions(fitted.about_, files):
        typer.echo(f"note: {text}", err=True)
    if by is not None:
        table.require(by)
    with table.placing():
        inputs = fitted.pick(table.frame)
        measures, labelled = measure(fitted, inputs, values, level)
        measures["rows_without_target"] = left_out
        measures["rows_outside"] = int(labelled.outside.any(axis=1).sum())
    if by is not None:
        bounds = (labelled.lower, labelled.upper)
        groups = measure_groups(bounds, values, as_numbers(table.frame[by]))
        measures["by"] = {"column": by, "groups": groups}
    _report(model, files, measures, partial(_show, fitted.target_.name), options.as_json)


def _report(
    model: str, files: list[str], measures: dict[str, Any], show: Callable[..., None], as_json: bool
) -> None:
    if as_json:
        print_json({"model": model, "files": files} | measures)
        return
    typer.echo(f"On {counted(measures['rows'], 'row')}:")
    common.say_left_out(measures["rows_without_target"])
    show(measures)


def _show(target: str, measures: dict[str, Any]) -> None:
    print_measures(measures, for_terminal(target))
    if measures["rows_outside"]:
        typer.echo(f"\n  {say_outside(measures['rows_outside'])}")
    if "by" in measures:
        typer.echo("")
        rows = [
            (group["group"], group["rows"], f"{group['coverage_rate']:.1%}", group["mean_width"])
            for group in measures["by"]["groups"]
        ]
        print_rows((measures["by"]["column"], "rows", "observed", "mean width"), rows)
