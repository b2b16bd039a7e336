"""``calipers conformalize``: a coverage guarantee for a model, from held-out labelled rows."""

from typing import Annotated, Any

import typer

from calipers._text import counted
from calipers.cli import _options as common
from calipers.cli._help import with_options
from calipers.cli._printing import print_json


@with_options
def conformalize_command(
    model: common.ModelFolder,
    data: common.Files,
    by: Annotated[
        str | None,
        typer.Option(
            help="Guarantee the coverage separately for each value, or bin, of this input; or of "
            "'predicted width'."
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Column that says which rows belong together, such as a patient's id."),
    ] = None,
    shifted_to: Annotated[
        str | None,
        typer.Option(
            help="Table of unlabelled inputs from where the model is used, if their distribution "
            "differs (covariate shift)."
        ),
    ] = None,
    half_life: Annotated[
        float | None,
        typer.Option(
            help="Number of rows after which the weight of a row has halved; rows must be in time "
            "order, the latest last."
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Calibrate on top of the present calibration.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(help="Folder to write; by default the model is replaced.")
    ] = None,
    *,
    options: common.RowOptions,
) -> None:
    """Calibrate on held-out rows, for guaranteed coverage.

    The rows must not be those that the model was fitted on. If they are exchangeable with new rows,
    90% intervals contain at least 90% of new targets on average, whatever the model: with --by in
    each subgroup, with --groups for new groups.
    """
    from calipers.cli import _labelled as reading, _measures as measuring

    fitted = reading.load_single(model)
    files, (table, values, left_out, _) = options.read(fitted, data)
    kwargs: dict[str, Any] = {"by": by, "keep": keep, "half_life": half_life}
    if groups is not None:
        table.require(groups)
        kwargs["groups"] = reading.groups_in(table, groups)
    with reading.refusing(table):
        if shifted_to is not None:
            new = reading.read_files([shifted_to], options.form)[1]
            kwargs["shifted_to"] = fitted.pick(new.frame)
        # --n-jobs is for the work here; the saved model keeps its own parameter.
        n_jobs = fitted.n_jobs
        fitted.set_params(n_jobs=options.n_jobs)
        fitted.conformalize(fitted.pick(table.frame), values.iloc[:, 0], **kwargs)
    folder = out or model
    fitted.set_params(n_jobs=n_jobs).save(folder)
    result = {"model": folder, "files": files} | fitted.about_["conformalized"]
    unbounded = measuring.unbounded(fitted, [fitted.coverage])
    result |= {"rows_without_target": left_out, "unbounded": unbounded}
    if options.as_json:
        print_json(result)
    else:
        _show(result, by, groups)
        if why := measuring.describe_unbounded(unbounded):
            typer.echo(f"  {why}")


def _show(result: dict[str, Any], by: str | None, groups: str | None) -> None:
    typer.echo(f"{result['model']}: conformalized on {counted(result['rows'], 'row')}")
    common.print_left_out(result["rows_without_target"])
    if groups is not None:
        typer.echo(f"  in {result['groups']:,} groups, each of which counts as one row")
    elif result["effective_rows"] < result["rows"] - 0.5:
        typer.echo(f"  with their weights, an effective {result['effective_rows']:.4g} rows")
    if by is not None:
        guaranteed, subgroups = result["subgroups_with_a_guarantee"], result["subgroups"]
        others = "; the others have too few rows and share that of all rows"
        typer.echo(
            f"  {guaranteed} of {subgroups} subgroups by {by} have their own guarantee"
            f"{'' if guaranteed == subgroups else others}"
        )
