"""Tables and models as commands read them: rows that have a target, their inputs and groups."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from calipers import load
from calipers._progress import progress
from calipers._text import counted, did_you_mean, digits
from calipers.cli._options import OnMissing
from calipers.distributions import Bounds
from calipers.multitarget import MultiTargetRegressor
from calipers.preprocessing import (
    DataError,
    as_text,
    learn_number,
)
from calipers.regressor import IntervalRegressor
from calipers.storage import read_model
from calipers.tables import RowSource, TableError, TextFormat, find_files, read_table


@contextmanager
def file_progress(files: Sequence[str], what: str = "reading") -> Iterator[Any]:
    """Show a progress bar over the bytes of some files; none for standard input or small files."""
    size = total_size(files)
    with progress(what, size, visible=size > 2**20) as report:
        yield report


def total_size(files: Sequence[str]) -> int:
    """Return the bytes of all files but standard input."""
    return sum(Path(name).stat().st_size for name in files if Path(name).is_file())


def read_files(data: Sequence[str], form: TextFormat) -> tuple[list[str], RowSource]:
    """Return the files that match names and patterns, and their rows as one table."""
    files = find_files(data)
    with file_progress(files) as report:
        return files, read_table(files, form=form, report=report)


class Labelled(NamedTuple):
    """Rows with a target, and the targets."""

    table: RowSource
    values: pd.DataFrame  # a column for each target
    left_out: int  # rows without a target
    kinds: dict[str, str]  # number format of each target, such as ``number 1,234.5``


def take_targets(
    table: RowSource,
    names: Sequence[str],
    kinds: dict[str, Any],
    missing: OnMissing = OnMissing.drop,
    *,
    whole: bool = True,
) -> Labelled:
    """Return the rows that have all targets, and a frame of the targets as finite numbers.

    Their number formats are removed from ``kinds``, or detected. ``whole`` says that the table is
    not just a block of the rows, so that at least one row must have a target.
    """
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise typer.BadParameter(f"--target names {twice[0]!r} twice")
    values: dict[str, Any] = {}
    formats: dict[str, str] = {}
    left_out = 0
    for name in names:
        with refusing(table):
            found, formats[name] = _numbers(table.frame, name, kinds.pop(name, None))
            present = ~np.isnan(found)
            absent = int((~present).sum())
            if whole and absent == len(present):
                raise DataError(f"the target is missing in all {absent:,} rows", column=name)
            if absent and missing == OnMissing.refuse:
                raise DataError(
                    f"the target is missing here (in {counted(absent, 'row')} in total): remove "
                    "such rows, or drop them with --missing-target drop",
                    column=name,
                    row=int(np.argmin(present)),
                )
        table, left_out = table.take(present) if absent else table, left_out + absent
        values = {other: column[present] for other, column in (values | {name: found}).items()}
    return Labelled(table, pd.DataFrame(values), left_out, formats)


def _numbers(frame: "pd.DataFrame", name: str, kind: str | None) -> tuple[Any, str]:
    """Return a target as numbers, NaN if missing, and its format such as ``number 1,234.5``."""
    if name not in frame:
        hint = did_you_mean(name, frame) + _columns(frame)
        raise DataError(f"there is no column {name!r}{hint}")
    return learn_number(frame[name], kind, (column for _, column in frame.items()))


@contextmanager
def refusing(table: RowSource) -> Iterator[None]:
    """Add the place in the files to errors in the data; other value errors become usage errors."""
    try:
        with table.placing():
            yield
    except TableError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def refuse_out_of_bounds(bounds: Bounds, values: pd.DataFrame, table: RowSource) -> None:
    """Refuse targets outside ``bounds``, naming the first by its place in the file."""
    if bounds is None or isinstance(bounds, str):
        return
    low = -np.inf if bounds[0] is None else bounds[0]
    high = np.inf if bounds[1] is None else bounds[1]
    for name, column in values.items():
        for row in (~column.between(low, high)).to_numpy().nonzero()[0][:1]:
            value, *ends = map(digits, (column.iloc[row], low, high))
            problem = f"{value} is outside the bounds {' to '.join(ends)}"
            raise table.placed(DataError(problem, column=str(name), row=int(row)))


def inputs_and_groups(
    table: RowSource, targets: Sequence[str], groups: str | None, ignored: Sequence[str] | None
) -> tuple[pd.DataFrame, NDArray[np.object_] | None]:
    """Return all other columns of a table, the inputs, as a frame; and group labels or None."""
    others = [*(ignored or []), *([groups] if groups else [])]
    for name in others:
        table.require(name)
    inputs = table.frame.drop(columns=list({*targets, *others}))
    if not len(inputs.columns):
        shown = ", ".join(map(repr, targets))
        raise table.placed(DataError(f"there is no column besides {shown} to learn from"))
    return inputs, None if groups is None else groups_in(table, groups)


def groups_in(table: RowSource, column: str) -> NDArray[np.object_]:
    """Return the group labels in ``column``, none of which may be missing."""
    labels = as_text(table.frame[column]).to_numpy(zero_copy_only=False)
    missing = [row for row, label in enumerate(labels) if label is None]
    if missing:
        raise table.placed(DataError("the group is missing", column=column, row=missing[0]))
    return labels


def _columns(frame: "pd.DataFrame") -> str:
    """Return a hint that lists the columns, for the error that one was not found."""
    names = [str(name) for name in frame]
    if len(names) == 1:
        return f"; the only column is {names[0]!r}: give --delimiter if there should be more"
    if all(name.replace(".", "").replace("-", "").isdigit() for name in names):
        return "; the first line looks like data, but it must be a header with column names"
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"; the columns are {shown}"


def load_any(folder: str, n_jobs: int) -> IntervalRegressor | MultiTargetRegressor:
    """Load a model of one or several targets, to predict with ``n_jobs`` threads."""
    if "targets" not in read_model(folder)[0]:
        return load(folder).set_params(n_jobs=n_jobs)
    model = MultiTargetRegressor.load(folder)
    for single in model.models_:
        single.set_params(n_jobs=n_jobs)
    return model


def load_single(folder: str) -> IntervalRegressor:
    """Load a model with its own parameters; refuse one of several targets."""
    refuse_several_targets([folder])
    return load(folder)


def refuse_several_targets(folders: Iterable[str | Path]) -> None:
    """Raise ``typer.BadParameter`` if the model of a folder predicts several targets."""
    for folder in folders:
        if "targets" not in read_model(folder)[0]:
            continue
        names = MultiTargetRegressor.load(folder).target_names_
        raise typer.BadParameter(
            f"{folder} predicts {', '.join(names)}, but this command takes models of one target: "
            f"fit one by calipers fit --target {shlex.quote(names[0])}"
        )
