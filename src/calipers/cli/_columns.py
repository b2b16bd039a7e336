"""What commands print about the columns of a table: kinds, leaks, outliers and groups."""

import shlex
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import typer

from calipers._outliers import FAR_TARGETS
from calipers._text import column_values
from calipers.cli._options import print_left_out
from calipers.cli._printing import note, print_rows
from calipers.multitarget import models_of
from calipers.preprocessing import Column, DataError

if TYPE_CHECKING:
    from calipers._arrays import IntArray
    from calipers.multitarget import MultiTargetRegressor
    from calipers.regressor import IntervalRegressor
    from calipers.tables import RowSource

_MAX_SHOWN = 60  # columns, one line each
_CATEGORIES = 4  # listed by name
_LEAK_ROWS = 5_000  # rows on which leaks are looked for
_MIN_RANKS = 20  # with fewer rows, an input may rank like the target by chance
_LEAK_CORRELATION = 0.9999  # rank correlation above which an input may be the target


def print_table(result: dict[str, Any]) -> None:
    """Print the files, the number of rows and the columns of a table."""
    files = result["files"]
    typer.echo(f"{files[0] if len(files) == 1 else f'{len(files)} files'}: {result['rows']:,} rows")
    print_left_out(result["rows_without_target"])
    print_columns(result.get("targets") or [result["target"]], result["columns"])
    typer.echo("")


def print_columns(targets: Sequence[dict[str, Any]], columns: Sequence[dict[str, Any]]) -> None:
    """Print one line per column; if there are very many, unused and noteworthy ones come first."""
    shown = columns
    if len(columns) > _MAX_SHOWN:
        shown = sorted(columns, key=lambda c: (c["used"], not c["note"]))[:_MAX_SHOWN]
    rows = [(c["name"], "target", column_values(c, _CATEGORIES), c["note"]) for c in targets]
    rows += [(c["name"], c["kind"], column_values(c, _CATEGORIES), _remark(c)) for c in shown]
    print_rows(("column", "kind", "values", "note"), rows)
    if len(shown) < len(columns):
        counts = Counter(column["kind"] for column in columns)
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
        typer.echo(f"  and {len(columns) - len(shown):,} more columns; in total {kinds}")


def _remark(column: dict[str, Any]) -> str:
    if not column["used"]:
        return ": ".join(filter(None, ["not used", column["note"]]))
    return "; ".join(filter(None, ["has missing values" * column["missing"], column["note"]]))


@contextmanager
def without_repeats(*, evaluated: bool) -> Iterator[None]:
    """Ignore warnings about what the command reports itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "aggregation=.* has no effect", UserWarning)
        warnings.filterwarnings("ignore", "y is far from all other targets", UserWarning)
        if evaluated:
            warnings.filterwarnings("ignore", "intervals of .* are infinite", UserWarning)
        yield


def note_leaks(columns: list[dict[str, Any]], inputs: pd.DataFrame, values: pd.DataFrame) -> None:
    """Add a note to each of ``columns`` that ranks the rows like a target, and so may leak it."""
    rows = np.arange(len(inputs))[:: max(1, len(inputs) // _LEAK_ROWS)]
    targets = values.iloc[rows].set_axis(rows, axis=0).rank()
    for column in columns:
        if Column.from_document(column).dtype.kind not in "fM":
            continue
        ranks = inputs[column["name"]].iloc[rows].set_axis(rows, axis=0).rank()
        present = ranks.notna()
        if present.sum() < _MIN_RANKS or ranks.nunique() < 0.5 * present.sum():
            continue
        for name in targets:
            correlation = np.corrcoef(ranks[present], targets[name][present])[0, 1]
            if abs(correlation) > _LEAK_CORRELATION:
                leak = f"ranks rows like {name!r}: --ignore it if it is not known beforehand"
                column["note"] = "; ".join(filter(None, [column["note"], leak]))


def note_outliers(
    model: "IntervalRegressor | MultiTargetRegressor",
    table: "RowSource",
    values: pd.DataFrame,
    rows: "IntArray",
) -> None:
    """Name outlying targets that the networks did not learn from, by their places in the files."""
    for name, single in zip(values, models_of(model), strict=True):
        outliers = single.about_.get("far_targets")
        if outliers is None:
            continue
        row = int(rows[outliers["rows"][0]])
        more = "" if outliers["count"] == 1 else f", and so are {outliers['count'] - 1:,} more"
        value = values[name].iloc[row]
        problem = f"{value:g} is far from all other targets{more}: {FAR_TARGETS}"
        note(str(table.placed(DataError(problem, column=str(name), row=row))))


def describe_groups(model: "IntervalRegressor | MultiTargetRegressor") -> str:
    """Return a warning about numeric codes of rows that may belong together, or ``""``."""
    names: list[str] = []
    for single in models_of(model):
        encoder = getattr(single, "preprocessor_", None)
        pairs = encoder.used_columns() if encoder else []
        # There are no levels if the model was fitted with groups.
        names += [c.name for c, reader in pairs if c.dtype.kind == "f" and reader.levels]
    if not names:
        return ""
    names = list(dict.fromkeys(names))
    like = "looks like a label" if len(names) == 1 else "look like labels"
    return (
        f"{', '.join(names)} {like} of groups, since rows with the same value are alike: if new "
        f"rows have new values, use --groups {shlex.quote(names[0])}"
    )
