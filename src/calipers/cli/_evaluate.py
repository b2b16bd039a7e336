"""``calipers evaluate``: coverage, width and error of a model on labelled rows."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from calipers._text import counted
from calipers.cli import _options as common
from calipers.cli._help import with_options
from calipers.cli._printing import describe_outside, for_terminal, print_json

if TYPE_CHECKING:
    import pandas as pd

    from calipers.regressor import IntervalRegressor
    from calipers.tables import RowSource


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

    fitted = options.load_any(model)
    level, several = coverage or fitted.coverage, isinstance(fitted, MultiTargetRegressor)
    if several and by is not None:
        raise typer.BadParameter("--by works for one target: choose it with --target")
    files, (table, values, left_out, _) = options.read(fitted, data)
    if by is not None:
        table.require(by)
    with table.placing():
        if isinstance(fitted, MultiTargetRegressor):
            inputs = fitted.pick(table.frame)
            measures = measuring.measure_targets(fitted, inputs, values, level)
        else:
            for text in cautions(fitted.about_, files):
                typer.echo(f"note: {text}", err=True)
            measures = _measured(fitted, table, values.iloc[:, 0], level, by)
    measures["rows_without_target"] = left_out
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


def _measured(
    model: "IntervalRegressor",
    table: "RowSource",
    y: "pd.Series[Any]",
    coverage: float,
    by: str | None,
) -> dict[str, Any]:
    """Return the measures of a model of one target, by the values of a column if one is named."""
    from calipers.cli._by_column import column_as_read, measure_groups
    from calipers.cli._measures import measure

    measures, labelled = measure(model, model.pick(table.frame), y, coverage)
    measures["rows_outside"] = int(labelled.outside.any(axis=1).sum())
    if by is not None:
        groups = measure_groups(labelled, column_as_read(model, table.frame, by))
        measures["by"] = {"column": by, "groups": groups}
    return measures


def _show_rest(measures: dict[str, Any]) -> None:
    """Print what only an evaluation measures: rows outside the training range, and groups."""
    from calipers.cli._by_column import print_groups

    if measures["rows_outside"]:
        typer.echo(f"\n  {describe_outside(measures['rows_outside'])}")
    if "by" in measures:
        typer.echo("")
        print_groups(measures["by"]["column"], measures["by"]["groups"])
