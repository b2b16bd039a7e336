"""``calipers report``: the evaluation of a model as an HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from calipers._text import counted
from calipers.cli import _options as common
from calipers.cli._help import with_options
from calipers.cli._printing import print_json


@with_options
def report_command(
    model: common.ModelFolder,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables of labelled rows that were not used for training. Names, patterns such as "
            "'data/*.csv', or - for standard input."
        ),
    ] = None,
    named: Annotated[list[str] | None, typer.Option("--data", hidden=True)] = None,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    *,
    options: common.RowOptions,
) -> None:
    """Write an HTML report on how far intervals can be trusted.

    It is one file, which opens in any browser and needs no network. Charts show at most 1,500 rows;
    all numbers are computed from all rows.
    """
    check_place(out)
    data = [*(data or []), *(named or [])]
    if not data:
        raise typer.BadParameter("name a table, as in: calipers report model new.csv")
    import pandas as pd

    from calipers.cli._columns import describe_groups
    from calipers.cli._holdout import cautions
    from calipers.report import write

    fitted = options.load(model)
    files, (table, values, left_out, _) = options.read(fitted, data)
    where = files[0] if len(files) == 1 else f"{len(files)} files"
    source = "standard input" if where == "-" else where
    with table.placing():
        inputs = fitted.pick(table.frame)
        if isinstance(inputs, pd.DataFrame):
            inputs = inputs.set_axis(table.row_numbers)
        warnings = [*cautions(fitted.about_, files), *filter(None, [describe_groups(fitted)])]
        write(fitted, inputs, values.iloc[:, 0], out, title=title, source=source, cautions=warnings)
    if options.as_json:
        result = {"model": model, "files": files, "rows": len(values)}
        print_json(result | {"rows_without_target": left_out, "out": str(out)})
    else:
        typer.echo(f"{counted(len(values), 'row')} evaluated, written to {out}")
        common.print_left_out(left_out)


def check_place(out: Path, such_as: str = "report.html") -> None:
    """Refuse an unsuitable path for a file before the work, not after."""
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder: --out takes a file, such as {such_as}")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {str(out.parent)!r} for {out.name}")
