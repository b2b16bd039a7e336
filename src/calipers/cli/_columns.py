"""The table of columns that ``fit`` and ``inspect`` print."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer

from calipers.cli._printing import print_rows, show
from calipers.cli._table_options import say_left_out

_MOST_SHOWN = 60  # columns, one line each
_MOST_CATEGORIES = 4


def print_table(result: dict[str, Any]) -> None:
    """Print the files, the number of rows and the columns of a table."""
    files = result["files"]
    typer.echo(f"{files[0] if len(files) == 1 else f'{len(files)} files'}: {result['rows']:,} rows")
    say_left_out(result["rows_without_target"])
    print_columns(result.get("targets") or [result["target"]], result["columns"])
    typer.echo("")


def print_columns(targets: Sequence[dict[str, Any]], columns: Sequence[dict[str, Any]]) -> None:
    """Print one line per column; if there are very many, unused and noteworthy ones come first."""
    shown = columns
    if len(columns) > _MOST_SHOWN:
        shown = sorted(columns, key=lambda c: (c["used"], not c["note"]))[:_MOST_SHOWN]
    rows = [(target["name"], "target", _values(target), target["note"]) for target in targets]
    rows += [(c["name"], c["kind"], _values(c), _remark(c)) for c in shown]
    print_rows(("column", "kind", "values", "note"), rows)
    if len(shown) < len(columns):
        counts = Counter(column["kind"] for column in columns)
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
        typer.echo(f"  and {len(columns) - len(shown):,} more columns; in total {kinds}")


def _values(column: dict[str, Any]) -> str:
    """Return the range of a column, or its first categories."""
    if column["kind"] == "boolean" and column["low"] is not None:
        return "true, false"
    if column["low"] is not None:
        ends = (column["low"], column["high"])
        years = all(not isinstance(end, str) and end in range(1000, 3000) for end in ends)
        return " to ".join(f"{end:.0f}" if years else show(end) for end in ends)
    hidden = len(column["categories"]) - _MOST_CATEGORIES
    shown = ", ".join(column["categories"][:_MOST_CATEGORIES])
    return shown + (f" and {hidden:,} more" if hidden > 0 else "")


def _remark(column: dict[str, Any]) -> str:
    if not column["used"]:
        return ": ".join(filter(None, ["not used", column["note"]]))
    return "; ".join(filter(None, ["has missing values" * column["missing"], column["note"]]))
