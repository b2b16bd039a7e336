"""``calipers report``: what a model is worth, as a page to look at."""

from pathlib import Path
from typing import Annotated

import typer

from calipers.cli import _table_options as common
from calipers.cli._holdout import say_copies
from calipers.cli._measures import is_measured
from calipers.cli._predict import ModelFolder
from calipers.cli._printing import print_json
from calipers.cli._row_options import RowOptions, with_row_options


@with_row_options
def report_command(
    model: ModelFolder,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Tables of rows whose target is known and that the model has not seen. Names, "
            "patterns such as 'data/*.csv', or - for standard input."
        ),
    ] = None,
    named: Annotated[list[str] | None, typer.Option("--data", hidden=True)] = None,
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Headline of the page.")] = None,
    *,
    options: RowOptions,
) -> None:
    """Write one HTML file that shows how far the intervals of a model can be trusted.

    It opens in any browser without a network. Charts show at most 1,500 rows; every number is of
    all rows.
    """
    check_place(out)
    data = [*(data or []), *(named or [])]
    if not data:
        raise typer.BadParameter("name the table, as in: calipers report model new.csv")
    from calipers.report import write

    fitted = options.load(model)
    files, (table, values, left_out, _) = options.read(fitted, data)
    where = files[0] if len(files) == 1 else f"{len(files)} files"
    source = "standard input" if where == "-" else where
    with table.placing():
        inputs = fitted.pick(table.frame)
        if hasattr(inputs, "index"):
            inputs = inputs.set_axis(table.row_numbers)
        warnings = cautions(fitted.about_, files)
        write(fitted, inputs, values, out, title=title, source=source, cautions=warnings)
    if options.as_json:
        found = {"model": model, "files": files, "rows": len(values)}
        print_json(found | {"rows_without_target": left_out, "out": str(out)})
    else:
        typer.echo(f"{len(values):,} rows evaluated, written to {out}")
        common.say_left_out(left_out)


def check_place(out: Path, such_as: str = "report.html") -> None:
    """Refuse a place for a file before the work, not after."""
    if out.is_dir():
        raise typer.BadParameter(f"{out} is a folder: --out names a file, such as {such_as}")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {str(out.parent)!r} for {out.name}")


def cautions(about: dict[str, object], files: list[str]) -> list[str]:
    """What the reader must know before anything else."""
    source = about.get("source")
    known = source.get("files", []) if isinstance(source, dict) else []
    found = []
    evaluation = about.get("evaluation")
    if is_measured(evaluation) and say_copies(evaluation):
        found = [
            f"Of the {evaluation['rows']:,} rows that were held out when the model was fitted, "
            f"{evaluation['copies']:,} had the inputs and the target of a row of training. If "
            "there are such copies among these rows, what follows flatters the model."
        ]
    same = {Path(name).resolve() for name in known} & {Path(name).resolve() for name in files}
    if not same:
        return found
    names = ", ".join(sorted(path.name for path in same))
    return [
        *found,
        f"The model was fitted on rows of {names}, which evaluate it here too: what follows "
        "flatters it. Evaluate it on rows that it has not seen.",
    ]
