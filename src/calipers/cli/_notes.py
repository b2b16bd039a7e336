"""Warnings as one line each on standard error, and targets far from all others by their place."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer


def printable(text: str) -> str:
    r"""Text for a terminal, which control characters in names and categories could steer.

    Examples
    --------
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
        warnings.showwarning = _show
        yield


def _show(message: Any, *_: Any, **__: Any) -> None:
    typer.echo(f"note: {printable(' '.join(str(message).split()))}", err=True)


@contextmanager
def without_far_targets() -> Iterator[None]:
    """Leave it to ``say_far_targets`` to name targets that are far from all others."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "y is far from all other targets", UserWarning)
        yield


def say_far_targets(model: Any, table: Any, values: Any, rows: Any) -> None:
    """Name targets that the model took for errors, by their places in the files."""
    import pandas as pd

    from calipers.preprocessing import DataError

    targets = pd.DataFrame(values)
    for name, own in zip(targets, getattr(model, "models_", [model]), strict=True):
        found = own.about_.get("far_targets")
        if found is None:
            continue
        row = int(rows[found["rows"][0]])
        more = "" if found["count"] == 1 else f", as are {found['count'] - 1:,} more"
        problem = (
            f"{targets[name].iloc[row]:g} is far from all other targets{more}: networks do not "
            "learn from it, calibration counts it, so that intervals of high coverage may be wide. "
            "Correct or leave out what is wrong; if such targets are real, fit their logarithm"
        )
        _show(table.placed(DataError(problem, column=str(name), row=row)))
