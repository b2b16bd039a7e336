"""``calipers conformalize``: a guarantee for a model's intervals, from labelled rows held out."""

from typing import Annotated, Any

import typer

from calipers.cli import _table_options as common
from calipers.cli._measures import say_unbounded, unbounded
from calipers.cli._predict import ModelFolder
from calipers.cli._printing import print_json
from calipers.cli._row_options import RowOptions, with_row_options


@with_row_options
def conformalize_command(
    model: ModelFolder,
    data: common.Files,
    by: Annotated[
        str | None,
        typer.Option(
            help="Input for each of whose values, or bins, the coverage is to hold by itself; or "
            "'predicted width'."
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Column with labels of rows that belong together, such as a patient."),
    ] = None,
    shifted_to: Annotated[
        str | None,
        typer.Option(help="Table of inputs from where the model is used, if they differ."),
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option(
            help="Rows in the order of time, the latest last: after so many rows one counts half."
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Calibrate on top of what is there.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(help="Folder to write; the model's own by default.")
    ] = None,
    *,
    options: RowOptions,
) -> None:
    """Calibrate a model on rows it was not fitted on, so that its coverage is guaranteed.

    If the rows and new ones are exchangeable, intervals of 90% hold at least 90% of new targets on
    average, whatever the model; with --by in each kind of row, with --groups for new groups.
    """
    from calipers import load

    fitted = load(model)
    files, (table, values, left_out, _) = options.read(fitted, data)
    wanted: dict[str, Any] = {"by": by, "keep": keep, "half_life": half_life}
    if groups is not None:
        table.require(groups)
        wanted["groups"] = common.group_labels(table, groups)
    with common.refusing(table):
        if shifted_to is not None:
            new = common.read_files([shifted_to], options.form)[1]
            wanted["shifted_to"] = fitted.pick(new.frame)
        # Threads are for the work here, not part of the model that is written again.
        threads = fitted.n_jobs
        fitted.set_params(n_jobs=options.n_jobs)
        fitted.conformalize(fitted.pick(table.frame), values, **wanted)
    folder = out or model
    fitted.set_params(n_jobs=threads).save(folder)
    found = {"model": folder, "files": files} | fitted.about_["conformalized"]
    found |= {"rows_without_target": left_out, "unbounded": unbounded(fitted, [fitted.coverage])}
    if options.as_json:
        print_json(found)
    else:
        _show(found, by, groups)


def _show(found: dict[str, Any], by: str | None, groups: str | None) -> None:
    typer.echo(f"{found['model']}: conformalized on {found['rows']:,} rows")
    common.say_left_out(found["rows_without_target"])
    if groups is not None:
        typer.echo(f"  in {found['groups']:,} groups, which count as so many rows")
    elif found["effective_rows"] < found["rows"] - 0.5:
        typer.echo(f"  worth {found['effective_rows']:.4g} rows by their weights")
    if by is not None:
        own, kinds = found["kinds_with_a_guarantee"], found["kinds"]
        rest = "" if own == kinds else "; the others, with too few rows, that of all rows together"
        typer.echo(f"  {own} of {kinds} kinds of {by} have a guarantee of their own{rest}")
    if why := say_unbounded(found["unbounded"]):
        typer.echo(f"  {why}")
