"""What commands on tables share: their options, reading with a bar, and rows with a target."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer

from calipers.tables import FORMATS

Files = Annotated[
    list[str],
    typer.Argument(
        help=f"Tables: {', '.join(FORMATS)}, also compressed. Names, patterns such as "
        "'data/*.csv', or - for standard input."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What parts columns of text; found by default. 'tab' for a tabulator."),
]
Encoding = Annotated[str, typer.Option(help="How characters of text are encoded.")]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        help="Kind of a column, such as zip=category, 'price=number 1,234.5' or "
        "'day=date %d/%m/%Y'; may be repeated.",
    ),
]


Target = Annotated[
    str | None, typer.Option(help="Column with the truth; the model's own by default.")
]
Groups = Annotated[
    str | None, typer.Option(help="Column whose equal values belong together; no input.")
]
Ignored = Annotated[
    list[str] | None, typer.Option("--ignore", "--id", help="Column to leave out; may be repeated.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
_FEWEST = 20  # rows without which nothing can be learnt and evaluated


class OnMissing(StrEnum):
    """What is done with rows that lack the target."""

    drop = "drop"
    refuse = "refuse"


MissingTarget = Annotated[
    OnMissing, typer.Option(help="Whether rows without a target are left out or refused.")
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def _threads(count: int) -> int:
    if count == 0:
        raise typer.BadParameter("0 threads do nothing: give a number of them, or -1 for all cores")
    return count


Jobs = Annotated[
    int, typer.Option("--n-jobs", callback=_threads, help="Threads; -1 for all cores.")
]


def make_form(delimiter: str | None, encoding: str) -> Any:
    """How text files are written, as the options say."""
    from calipers.tables import TextFormat

    sign = "\t" if delimiter in ("tab", "\\t") else delimiter
    if sign is not None and (len(sign) != 1 or not sign.isascii() or sign in '"\r\n'):
        words = "a delimiter is one character of ASCII, no quotation mark and no end of a line"
        raise typer.BadParameter(f"{words}, got {sign!r}")
    return TextFormat(sign, encoding)


def parse_kinds(types: list[str] | None) -> dict[str, str]:
    """Kinds of columns from ``name=kind``.

    >>> parse_kinds(["zip=category", "day=date %d/%m/%Y"])
    {'zip': 'category', 'day': 'date %d/%m/%Y'}
    """
    kinds = {}
    for text in types or []:
        name, sign, kind = text.rpartition("=")
        if not sign or not name:
            raise typer.BadParameter(f"--type takes name=kind, such as zip=category; got {text!r}")
        kinds[name] = kind
    return kinds


def shares(text: str | None, option: str) -> list[float] | None:
    """Numbers between 0 and 1, parted by commas.

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


def check_coverage(coverage: float | None) -> None:
    """Refuse a coverage that is no probability, or so near to 0 or 1 that no model has it."""
    if coverage is not None and not 1e-9 <= coverage <= 1 - 1e-9:
        raise typer.BadParameter(f"--coverage lies between 0 and 1, got {coverage}")


@contextmanager
def reading(files: Sequence[str], what: str = "reading") -> Iterator[Any]:
    """A bar over the bytes of some files; nothing for standard input."""
    from calipers._progress import progress

    size = sum(os.path.getsize(name) for name in files if os.path.isfile(name))  # noqa: PTH113, PTH202
    with progress(what, size, visible=size > 2**20) as report:
        yield report


def read_files(data: Sequence[str], form: Any) -> tuple[list[str], Any]:
    """Files that names and patterns stand for, and their rows."""
    from calipers.tables import find_files, read_table

    files = find_files(data)
    with reading(files) as report:
        return files, read_table(files, form=form, report=report)


class Labelled(NamedTuple):
    """Rows whose target is known."""

    table: Any
    values: Any
    left_out: int  # rows that lacked one
    kinds: dict[str, str]  # how each target is written, such as ``number 1,234.5``


def take_target(
    table: Any,
    name: str,
    kind: str | None = None,
    missing: OnMissing = OnMissing.drop,
    *,
    whole: bool = True,
) -> Labelled:
    """The target as finite numbers, and the rows that have one.

    ``kind`` is how it is written, such as ``number 1,234.5``; found by default. ``whole`` says that
    these are all rows, of which one at least must have a target.
    """
    import numpy as np
    import pandas as pd

    from calipers._text import did_you_mean
    from calipers.preprocessing import DataError, is_in_thousands, learn_number

    frame = table.frame
    if name not in frame:
        raise table.placed(
            DataError(f"there is no column {name!r}{did_you_mean(name, frame)}{_seen(frame)}")
        )
    with refusing(table):
        others = (frame[other] for other in frame if other != name)
        if kind is None and is_in_thousands(frame[name], others):
            kind = "number 1.234,5"
        values, kind = learn_number(frame[name], kind)
        there = ~np.isnan(values)
        lacking = int((~there).sum())
        if whole and lacking == len(there):
            raise DataError(f"the target is missing in all {lacking:,} rows", column=name)
        if lacking and missing == OnMissing.refuse:
            raise DataError(
                f"the target is missing here ({lacking:,} times in all): remove such rows, or "
                "leave them out by --missing-target drop",
                column=name,
                row=int(np.argmin(there)),
            )
    kept = table.take(there) if lacking else table
    return Labelled(kept, pd.Series(values[there], name=name), lacking, {name: kind})


@contextmanager
def refusing(table: Any) -> Iterator[None]:
    """Let errors in the rows leave the block with their place in the files, others as wrong use."""
    from calipers.tables import TableError

    try:
        with table.placing():
            yield
    except TableError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def check_learnable(table: Any, rows: int, spans: dict[str, tuple[float, float]]) -> None:
    """Refuse rows that teach nothing: too few, or with a target whose span is a point."""
    from calipers.preprocessing import DataError

    if rows < _FEWEST:
        shown = f"{rows} row" + ("" if rows == 1 else "s")
        raise table.placed(
            DataError(f"{shown} cannot teach a model: at least {_FEWEST} are needed")
        )
    for name, (low, high) in spans.items():
        if low == high:
            problem = f"the target is always {low:g}: nothing to learn"
            raise table.placed(DataError(problem, column=name))


def drop_columns(table: Any, targets: Sequence[str], others: Sequence[str]) -> Any:
    """The inputs of a table, as a frame: all columns but some, which must be there."""
    from calipers.preprocessing import DataError

    for name in others:
        table.require(name)
    inputs = table.frame.drop(columns=list({*targets, *others}))
    if not len(inputs.columns):
        shown = ", ".join(map(repr, targets))
        raise table.placed(DataError(f"there is no column beside {shown} to learn from"))
    return inputs


def group_labels(table: Any, column: str | None) -> Any:
    """Labels of groups, none of which may be missing; None without a column of them."""
    from calipers.preprocessing import DataError, as_text

    if column is None:
        return None
    labels = as_text(table.frame[column]).to_numpy(zero_copy_only=False)
    lacking = [row for row, label in enumerate(labels) if label is None]
    if lacking:
        raise table.placed(DataError("the group is missing", column=column, row=lacking[0]))
    return labels


def take_targets(
    table: Any, names: Sequence[str], kinds: dict[str, str], missing: OnMissing = OnMissing.drop
) -> Labelled:
    """The targets as finite numbers, a column each, and the rows that have all of them.

    How they are written is taken out of ``kinds``, or found.
    """
    import pandas as pd

    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise typer.BadParameter(f"--target names {twice[0]!r} twice")
    own = {name: kinds.pop(name, None) for name in names}
    left_out = 0
    for name, kind in own.items():
        table, _, lacking, _ = take_target(table, name, kind, missing)
        left_out += lacking
    found = {name: take_target(table, name, kind) for name, kind in own.items()}
    values = pd.DataFrame({name: part[1] for name, part in found.items()})
    written = {name: part.kinds[name] for name, part in found.items()}
    return Labelled(table, values, left_out, written)


def target_of(model: Any, name: str | None, types: list[str] | None) -> tuple[str, str | None]:
    """Name of the target of a fitted model, and how it is written: as asked, or as fit found it."""
    name = name or model.target_.name
    kinds = parse_kinds(types)
    others = [other for other in kinds if other != name]
    if others:
        raise typer.BadParameter(f"--type is for the target {name!r} alone, got {others[0]!r}")
    source = model.about_.get("source") or {}
    known = source.get("target_kind") if source.get("target") == name else None
    return name, kinds.get(name, known)


def say_left_out(count: int) -> None:
    """Say how many rows lacked a target."""
    if count:
        rows = "row without a target was" if count == 1 else "rows without a target were"
        typer.echo(f"{count:,} {rows} left out")


def _seen(frame: Any) -> str:
    """What the columns are, for someone whose column is not among them."""
    names = [str(name) for name in frame]
    if len(names) == 1:
        return f"; the one column is {names[0]!r}: give the --delimiter if it should be more"
    if all(name.replace(".", "").replace("-", "").isdigit() for name in names):
        return "; the first line looks like data, and a header with names is needed"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"; the columns are {shown}"
