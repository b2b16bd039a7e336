"""What commands on tables share: their options, reading with a bar, and what they print."""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

Files = Annotated[
    list[str],
    typer.Argument(
        help="Tables: CSV, TSV, Parquet, Feather or Arrow, also compressed. Names, patterns such "
        "as 'data/*.csv', or - for standard input.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What parts columns of text; found by default. 'tab' for a tabulator."),
]
Encoding = Annotated[str, typer.Option(help="How characters of text are encoded.")]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Jobs = Annotated[int, typer.Option("--n-jobs", help="Threads; -1 for all cores.")]


def make_form(delimiter: str | None, encoding: str) -> Any:
    """How text files are written, as the options say."""
    from calipers.tables import Form

    sign = "\t" if delimiter in ("tab", "\\t") else delimiter
    if sign is not None and len(sign) != 1:
        raise typer.BadParameter(f"a delimiter is one character, got {sign!r}")
    return Form(sign, encoding)


def shares(text: str | None, option: str) -> list[float] | None:
    """Numbers between 0 and 1, parted by commas.

    Examples
    --------
    >>> shares("0.5, 0.9", "--coverage")
    [0.5, 0.9]
    """
    if text is None:
        return None
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < share < 1 for share in found):
        raise typer.BadParameter(
            f"{option} takes numbers between 0 and 1, such as 0.5,0.9; got {text!r}"
        )
    return list(dict.fromkeys(found))


@contextmanager
def reading(files: Sequence[str], what: str = "reading") -> Iterator[Any]:
    """A bar over the bytes of some files; nothing for standard input."""
    from calipers._progress import progress

    size = sum(os.path.getsize(name) for name in files if os.path.isfile(name))  # noqa: PTH113, PTH202
    with progress(what, size, visible=size > 2**20) as report:
        yield report


def take_target(frame: Any, name: str, files: Any) -> Any:
    """The target as a series of finite numbers.

    Parameters
    ----------
    frame : pandas DataFrame
        The table.
    name : str
        Name of the target.
    files : Files
        Where the rows are from, for errors.
    """
    import numpy as np
    import pandas as pd

    from calipers._text import did_you_mean
    from calipers.preprocessing import DataError, read_number

    if name not in frame:
        raise files.placed(
            DataError(f"there is no column {name!r}{did_you_mean(name, frame)}{_seen(frame)}")
        )
    column = frame[name]
    try:
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            raise DataError("the target holds dates, and a model predicts numbers", column=name)
        values = read_number(column)
        gone = np.flatnonzero(np.isnan(values))
        if gone.size:
            raise DataError(
                f"the target is missing here ({gone.size:,} times in all): remove such rows",
                column=name,
                row=int(gone[0]),
            )
    except DataError as error:
        raise files.placed(error) from None
    return pd.Series(values, name=name)


def _seen(frame: Any) -> str:
    """What the columns are, for someone whose column is not among them."""
    names = [str(name) for name in frame]
    if len(names) == 1:
        return f"; the one column is {names[0]!r}: give the --delimiter if it should be more"
    if all(name.replace(".", "").replace("-", "").isdigit() for name in names):
        return "; the first line looks like data, and a header with names is needed"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"; the columns are {shown}"


def print_json(document: Any) -> None:
    """Print a document; what is not finite becomes null."""
    typer.echo(json.dumps(finite(document), ensure_ascii=False, indent=2))


def finite(value: Any) -> Any:
    """A document without infinities and NaN, which JSON lacks.

    Examples
    --------
    >>> finite({"width": float("inf"), "rows": 3})
    {'width': None, 'rows': 3}
    """
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_rows(header: Sequence[str], rows: Sequence[Sequence[Any]], *, err: bool = False) -> None:
    """Print rows in columns: numbers to the right, text to the left."""
    cells = [list(header), *([show(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    for row in cells:
        parts = [
            cell.rjust(width) if side else cell.ljust(width)
            for cell, width, side in zip(row, widths, right, strict=True)
        ]
        typer.echo("  " + "  ".join(parts).rstrip(), err=err)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or str(value).endswith("%")


def show(value: Any) -> str:
    """A value for people: four digits that matter, no more.

    Examples
    --------
    >>> show(1234.5678), show(0.00012345), show(12), show("flat"), show(None)
    ('1,235', '0.0001234', '12', 'flat', '')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
