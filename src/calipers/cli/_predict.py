"""``calipers predict``: point predictions, intervals and quantiles for every row of a table."""

import json
from typing import Annotated, Any

import typer

from calipers._text import counted
from calipers.cli import _options as common
from calipers.cli._printing import describe_outside, print_json
from calipers.tables import find_files, format_of, known_endings, read_blocks, write_blocks

_STANDARD = "-"


def predict_command(
    model: common.ModelFolder,
    data: common.Files,
    out: Annotated[
        str,
        typer.Option(
            help=f"File to write; its ending gives the format: {known_endings()}; - writes CSV to "
            "standard output. With --cluster, a folder of Parquet files."
        ),
    ] = _STANDARD,
    coverage: Annotated[
        str | None, typer.Option(help="Coverages such as 0.5,0.9; the model's own by default.")
    ] = None,
    quantiles: Annotated[str | None, typer.Option(help="Quantiles such as 0.1,0.5,0.9.")] = None,
    keep: Annotated[
        str | None, typer.Option(help="Input columns to copy, such as id,day; or all.")
    ] = None,
    mark_outside: Annotated[
        bool,
        typer.Option(
            "--outside", help="Add a column that names the inputs outside the training range."
        ),
    ] = False,
    joint: Annotated[
        bool,
        typer.Option(
            "--joint", help="Intervals that contain all targets of a multi-target model together."
        ),
    ] = False,
    delimiter: common.Delimiter = None,
    encoding: common.Encoding = "utf-8",
    n_jobs: common.Jobs = -1,
    cluster: common.OnCluster = None,
    as_json: common.AsJSON = False,
) -> None:
    """Predict every row of a table, however large.

    The table is read and predicted in blocks. Numbers have seven significant digits in text
    files, and all digits in other formats. The output file appears under its name when it is
    complete: an interrupted run leaves no partial file; run the same command again. With --cluster,
    tables are Parquet files or folders of them, and the same command continues with the missing
    parts.
    """
    coverages = common.parse_fractions(coverage, "--coverage")
    levels = common.parse_fractions(quantiles, "--quantiles")
    from calipers.prediction import Query

    query = Query(None if coverages is None else tuple(coverages), tuple(levels or ()))
    if cluster is not None:
        if out == _STANDARD:
            raise typer.BadParameter("--cluster needs a folder as --out")
        if joint:
            raise typer.BadParameter("--joint does not work with --cluster")
        from calipers.cli._predict_parts import score_parts

        options = {"query": query, "keep": keep, "mark_outside": mark_outside}
        result = score_parts(model, data, out, options, cluster)
        (_report_json if as_json else _report)(result, out)
        return
    form = common.make_form(delimiter, encoding)
    as_text, files = format_of(out)[0].is_text, find_files(data)
    if out in files and out != _STANDARD:
        raise typer.BadParameter(f"{out} is both input and output: name another file")
    from calipers.cli._labelled import file_progress, load_any
    from calipers.cli._measures import unbounded
    from calipers.cli._scoring import RowScorer
    from calipers.multitarget import MultiTargetRegressor

    fitted = load_any(model, n_jobs)
    if joint and not isinstance(fitted, MultiTargetRegressor):
        raise typer.BadParameter(f"--joint needs a model of several targets, {model} has one")
    scorer = RowScorer(fitted, query, keep, mark_outside, as_text, joint)
    with file_progress(files, "predicting") as report, write_blocks(out) as write:
        for name in files:
            for table in scorer.score(read_blocks(name, form=form, report=report)):
                write(table)
    result = {"rows": scorer.rows, "out": out, "outside": scorer.outside_report()}
    if infinite := unbounded(fitted, [fitted.coverage] if coverages is None else coverages):
        result["unbounded"] = infinite
    (_report_json if as_json else _report)(result, out)


def _report_json(result: dict[str, Any], out: str) -> None:
    if out == _STANDARD:
        typer.echo(json.dumps(result, ensure_ascii=False), err=True)
    else:
        print_json(result)


def _report(result: dict[str, Any], out: str) -> None:
    """Print a summary on standard error, which keeps it out of pipes."""
    from calipers.cli._measures import describe_unbounded

    where = "" if out == _STANDARD else f", written to {out}"
    typer.echo(f"{counted(result['rows'], 'row')} predicted{where}", err=True)
    if why := describe_unbounded(result.get("unbounded")):
        typer.echo(why, err=True)
    outside = result["outside"]
    if outside["rows"]:
        columns = list(outside["columns"].items())
        shown = ", ".join(f"{name} ({count:,})" for name, count in columns[:8])
        more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
        typer.echo(f"{describe_outside(outside['rows'], trust=True)}: {shown}{more}", err=True)
    if unread := outside.get("unread"):
        cells = counted(unread["cells"], "cell")
        text = f"unreadable, so taken as missing: {cells}; the first: {unread['first']}"
        typer.echo(text, err=True)
