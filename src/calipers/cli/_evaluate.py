"""``calipers evaluate``: coverage, width and error of a model on labelled rows."""

from typing import Annotated, Any

import typer

from calipers._text import counted
from calipers.cli import _options as common
from calipers.cli._help import with_options
from calipers.cli._printing import describe_outside, for_terminal, print_json, print_rows


@with_options
def evaluate_command(
    model: common.ModelFolder,
    data: common.Files,
    by: Annotated[
        str | None, typer.Option(help="Show coverage for each value of this column, too.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage to measure; the model's own by default.")
    ] = None,
    *,
    options: common.RowOptions,
) -> None:
    """Measure coverage, width and error on labelled rows.

    The rows must not be those that the model was fitted on, or the measures are too optimistic.
    """
    common.check_fractions("--coverage", coverage)
    from calipers.cli import _measures as measuring
    from calipers.cli._holdout import cautions
    from calipers.multitarget import MultiTargetRegressor
    from calipers.preprocessing import as_numbers

    fitted = options.load(model, several=True)
    level = coverage or fitted.coverage
    several = isinstance(fitted, MultiTargetRegressor)
    if several and by is not None:
        raise typer.BadParameter("--by works for one target: choose it with --target")
    files, (table, values, left_out, _) = options.read(fitted, data)
    for text in [] if several else cautions(fitted.about_, files):
        typer.echo(f"note: {text}", err=True)
    if by is not None:
        table.require(by)
    with table.placing():
        inputs = fitted.pick(table.frame)
        if several:
            measures = measuring.measure_targets(fitted, inputs, values, level)
        else:
            measures, labelled = measuring.measure(fitted, inputs, values, level)
    measures["rows_without_target"] = left_out
    if not several:
        measures["rows_outside"] = int(labelled.outside.any(axis=1).sum())
    if by is not None:
        bounds = (labelled.lower, labelled.upper)
        groups = measuring.measure_groups(bounds, values, as_numbers(table.frame[by]))
        measures["by"] = {"column": by, "groups": groups}
    if options.as_json:
        print_json({"model": model, "files": files} | measures)
        return
    typer.echo(f"On {counted(measures['rows'], 'row')}:")
    common.print_left_out(left_out)
    if several:
        measuring.print_targets(measures)
    else:
        measuring.print_measures(measures, for_terminal(fitted.target_.name))
        _show_rest(measures)


def _show_rest(measures: dict[str, Any]) -> None:
    """Print what only an evaluation measures: rows outside the training range, and groups."""
    if measures["rows_outside"]:
        typer.echo(f"\n  {describe_outside(measures['rows_outside'])}")
    if "by" in measures:
        typer.echo("")
        rows = [
            (group["group"], group["rows"], f"{group['coverage_rate']:.1%}", group["mean_width"])
            for group in measures["by"]["groups"]
        ]
        print_rows((measures["by"]["column"], "rows", "observed", "mean width"), rows)
