"""Printing of JSON documents, tables in columns, and notes, as text that is safe for a terminal."""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from calipers._text import counted, few_digits, plain

if TYPE_CHECKING:
    from calipers._arrays import FloatArray

_WIDEST = 60  # characters of a cell; the last cell of a row may be longer


def print_json(document: object) -> None:
    """Print a document as JSON; numbers that are not finite become null."""
    typer.echo(json.dumps(with_nulls(document), ensure_ascii=False, indent=2))


def with_nulls(value: object) -> Any:
    """Return a document with None in place of infinities and NaN, which JSON lacks.

    >>> with_nulls({"width": float("inf"), "rows": 3})
    {'width': None, 'rows': 3}
    """
    return plain(value, other=lambda _: None)


def for_terminal(value: object) -> Any:
    """Return a document whose strings have passed through ``printable``."""
    if isinstance(value, dict):
        return {key: for_terminal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [for_terminal(item) for item in value]
    return printable(value) if isinstance(value, str) else value


def printable(text: str) -> str:
    r"""Return text with control characters escaped, so that names cannot control the terminal.

    >>> printable("\x1b[2Jgrösse\n")
    '\\x1b[2Jgrösse\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def as_notes() -> Iterator[None]:
    """Show warnings as ``note: ...``, without the file and line of code that Python adds."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: note(str(message))
        yield


def note(text: str) -> None:
    """Print a note on standard error, unless it is empty."""
    if text:
        typer.echo(f"note: {printable(' '.join(text.split()))}", err=True)


def print_rows(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as a table: numbers aligned to the right, text to the left."""
    header, rows = for_terminal(header), for_terminal(rows)
    cells = [list(header), *([few_digits(value) for value in row] for row in rows)]
    for row in cells:  # a long name would push all other columns out of sight
        row[:-1] = [c if len(c) <= _WIDEST else f"{c[: _WIDEST - 1]}…" for c in row[:-1]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    for row in cells:
        parts = [
            cell.rjust(width) if side else cell.ljust(width)
            for cell, width, side in zip(row, widths, right, strict=True)
        ]
        typer.echo("  " + "  ".join(parts).rstrip())


def describe_outside(count: int, *, trust: bool = False) -> str:
    """Return how many rows have values outside the training range; with ``trust``, also advice.

    >>> describe_outside(1, trust=True)
    '1 row has values outside the training range; trust its prediction less'
    >>> describe_outside(1200)
    '1,200 rows have values outside the training range'
    """
    verb, theirs = ("has", "its prediction") if count == 1 else ("have", "their predictions")
    text = f"{counted(count, 'row')} {verb} values outside the training range"
    return f"{text}; trust {theirs} less" if trust else text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or str(value).endswith("%")


def meaningful(values: "FloatArray", spread: float) -> "FloatArray":
    """Return predictions with seven significant digits, since networks compute in single precision.

    Digits are counted from the first of the value, or of the ``spread`` of the targets if that is
    smaller. All digits before the decimal point are kept, so that counts are exact.

    >>> import numpy as np
    >>> meaningful(np.array([209.49589563046715, 0.0, 1234567890.4, np.inf]), 300.0).tolist()
    [209.4959, 0.0, 1234567890.4, inf]
    >>> meaningful(np.array([1234567890.4]), 1e9).tolist()
    [1234567890.0]
    """
    import numpy as np

    with np.errstate(divide="ignore"):
        first = np.floor(np.log10(np.minimum(np.abs(values), spread)))
    unit = 10.0 ** np.clip(6 - first, 0, 22)  # larger powers of ten are not exact
    return np.rint(values * unit) / unit
