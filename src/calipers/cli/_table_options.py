"""Options of commands on tables, and the reading of tables and of their targets."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer

from calipers._text import counted
from calipers.tables import format_names

Files = Annotated[
    list[str],
    typer.Argument(
        help=f"Tables: {format_names()}, optionally compressed. Names, patterns such as "
        "'data/*.csv', or - for standard input."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Column delimiter of text files, 'tab' for a tab; detected by default."),
]
Encoding = Annotated[str, typer.Option(help="Character encoding of text files.")]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        help="Type of a column, such as zip=category, 'price=number 1,234.5' or "
        "'day=date %d/%m/%Y'; may be repeated.",
    ),
]


Target = Annotated[
    str | None,
    typer.Option(help="Column of the target; by default the one the model was fitted to."),
]
Groups = Annotated[
    str | None,
    typer.Option(
        help="Column of groups: their rows stay on one side of every split, and the column is not "
        "an input."
    ),
]
Ignored = Annotated[
    list[str] | None,
    typer.Option("--ignore", "--id", help="Column that is not an input; may be repeated."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
FEWEST_ROWS = 20
"""Number of rows from which a part of them says anything about a model; fits take fewer."""


class OnMissing(StrEnum):
    """What happens to rows without a target."""

    drop = "drop"
    refuse = "refuse"


MissingTarget = Annotated[
    OnMissing, typer.Option(help="Whether rows without a target are dropped or refused.")
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _threads(count: int) -> int:
    if count == 0:
        raise typer.BadParameter("must not be 0: give the number of threads, or -1 for all cores")
    return count


Jobs = Annotated[
    int, typer.Option("--n-jobs", callback=_threads, help="Number of threads; -1 for all cores.")
]


def make_form(delimiter: str | None, encoding: str) -> Any:
    """Return the format of text files from the options."""
    from calipers.tables import TextFormat

    char = "\t" if delimiter in ("tab", "\\t") else delimiter
    if char is not None and (len(char) != 1 or not char.isascii() or char in '"\r\n'):
        raise typer.BadParameter(
            f"--delimiter takes one ASCII character, no quotation mark or line break; got {char!r}"
        )
    return TextFormat(char, encoding)


def parse_kinds(types: list[str] | None) -> dict[str, str]:
    """Parse the types of columns, given as ``name=kind``.

    >>> parse_kinds(["zip=category", "day=date %d/%m/%Y"])
    {'zip': 'category', 'day': 'date %d/%m/%Y'}
    """
    if not types:
        return {}
    from calipers._text import did_you_mean
    from calipers.preprocessing import KINDS

    kinds = {}
    for text in types:
        name, sign, kind = text.rpartition("=")
        if not sign or not name:
            raise typer.BadParameter(f"--type takes name=kind, such as zip=category; got {text!r}")
        word = kind.partition(" ")[0]  # a format may follow
        if word not in KINDS:
            raise typer.BadParameter(
                f"--type {text}: {word!r} is not a type; use {', '.join(KINDS[:-1])} or "
                f"{KINDS[-1]}{did_you_mean(word, KINDS)}"
            )
        kinds[name] = kind
    return kinds


def parse_fractions(text: str | None, option: str) -> list[float] | None:
    """Parse distinct numbers between 0 and 1, separated by commas.

    >>> parse_fractions("0.5, 0.9", "--coverage")
    [0.5, 0.9]
    """
    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < 1 for value in values):
        raise typer.BadParameter(
            f"{option} takes numbers between 0 and 1, such as 0.5,0.9; got {text!r}"
        )
    return list(dict.fromkeys(values))


def check_coverage(coverage: float | None) -> None:
    """Refuse a coverage that is not a probability, or too close to 0 or 1 for any model."""
    if coverage is not None and not 1e-9 <= coverage <= 1 - 1e-9:
        raise typer.BadParameter(
            f"--coverage must be between 0 and 1, such as 0.95; got {coverage:.12g}"
        )


@contextmanager
def reading(files: Sequence[str], what: str = "reading") -> Iterator[Any]:
    """Show a progress bar over the bytes of some files; none for standard input or small files."""
    from calipers._progress import progress

    size = sum(os.path.getsize(name) for name in files if os.path.isfile(name))  # noqa: PTH113, PTH202
    with progress(what, size, visible=size > 2**20) as report:
        yield report


def read_files(data: Sequence[str], form: Any) -> tuple[list[str], Any]:
    """Return the files that match names and patterns, and their rows as one table."""
    from calipers.tables import find_files, read_table

    files = find_files(data)
    with reading(files) as report:
        return files, read_table(files, form=form, report=report)


class Labelled(NamedTuple):
    """Rows with a target, and the targets."""

    table: Any
    values: Any
    left_out: int  # rows without a target
    kinds: dict[str, str]  # number format of each target, such as ``number 1,234.5``


def take_target(
    table: Any,
    name: str,
    kind: str | None = None,
    missing: OnMissing = OnMissing.drop,
    *,
    whole: bool = True,
) -> Labelled:
    """Return the rows that have a target, and the target as finite numbers.

    ``kind`` is its number format, such as ``number 1,234.5``; detected by default. ``whole`` says
    that the table is not just a block of the rows, so that at least one row must have a target.
    """
    import numpy as np
    import pandas as pd

    from calipers._text import did_you_mean
    from calipers.preprocessing import DataError, is_in_thousands, learn_number

    frame = table.frame
    if name not in frame:
        raise table.placed(
            DataError(f"there is no column {name!r}{did_you_mean(name, frame)}{_columns(frame)}")
        )
    with refusing(table):
        others = (frame[other] for other in frame if other != name)
        if kind is None and is_in_thousands(frame[name], others):
            kind = "number 1.234,5"
        values, kind = learn_number(frame[name], kind)
        present = ~np.isnan(values)
        left_out = int((~present).sum())
        if whole and left_out == len(present):
            raise DataError(f"the target is missing in all {left_out:,} rows", column=name)
        if left_out and missing == OnMissing.refuse:
            raise DataError(
                f"the target is missing here (in {counted(left_out, 'row')} in total): remove such "
                "rows, or drop them with --missing-target drop",
                column=name,
                row=int(np.argmin(present)),
            )
    labelled = table.take(present) if left_out else table
    return Labelled(labelled, pd.Series(values[present], name=name), left_out, {name: kind})


@contextmanager
def refusing(table: Any) -> Iterator[None]:
    """Add the place in the files to errors in the data; other value errors become usage errors."""
    from calipers.tables import TableError

    try:
        with table.placing():
            yield
    except TableError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def inputs_and_groups(
    table: Any, targets: Sequence[str], groups: str | None, ignored: Sequence[str] | None
) -> tuple[Any, Any]:
    """Return the inputs of a table as a frame, and its group labels or None.

    Inputs are all columns but ``targets``, ``groups`` and ``ignored``; no label may be missing.
    """
    from calipers.preprocessing import DataError

    others = [*(ignored or []), *([groups] if groups else [])]
    for name in others:
        table.require(name)
    inputs = table.frame.drop(columns=list({*targets, *others}))
    if not len(inputs.columns):
        shown = ", ".join(map(repr, targets))
        raise table.placed(DataError(f"there is no column besides {shown} to learn from"))
    return inputs, None if groups is None else group_labels(table, groups)


def group_labels(table: Any, column: str) -> Any:
    """Return the group labels in ``column``, none of which may be missing."""
    from calipers.preprocessing import DataError, as_text

    labels = as_text(table.frame[column]).to_numpy(zero_copy_only=False)
    missing = [row for row, label in enumerate(labels) if label is None]
    if missing:
        raise table.placed(DataError("the group is missing", column=column, row=missing[0]))
    return labels


def take_targets(
    table: Any, names: Sequence[str], kinds: dict[str, str], missing: OnMissing = OnMissing.drop
) -> Labelled:
    """Return the rows that have all targets, and the targets as finite numbers.

    Several targets are columns of a frame. Their number formats are removed from ``kinds``, or
    detected.
    """
    import pandas as pd

    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise typer.BadParameter(f"--target names {twice[0]!r} twice")
    formats = {name: kinds.pop(name, None) for name in names}
    if len(names) == 1:
        return take_target(table, names[0], formats[names[0]], missing)
    left_out = 0
    for name, kind in formats.items():
        table, _, dropped, _ = take_target(table, name, kind, missing)
        left_out += dropped
    parts = {name: take_target(table, name, kind) for name, kind in formats.items()}
    values = pd.DataFrame({name: part[1] for name, part in parts.items()})
    return Labelled(
        table, values, left_out, {name: part.kinds[name] for name, part in parts.items()}
    )


def say_left_out(count: int) -> None:
    """Print how many rows were dropped for lack of a target."""
    if count:
        rows = "row without a target was" if count == 1 else "rows without a target were"
        typer.echo(f"{count:,} {rows} left out")


def _columns(frame: Any) -> str:
    """Return a hint that lists the columns, for the error that one was not found."""
    names = [str(name) for name in frame]
    if len(names) == 1:
        return f"; the only column is {names[0]!r}: give --delimiter if there should be more"
    if all(name.replace(".", "").replace("-", "").isdigit() for name in names):
        return "; the first line looks like data, but it must be a header with column names"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"; the columns are {shown}"
