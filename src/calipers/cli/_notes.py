"""Warnings as one line each on standard error, and targets far from all others by their place."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

_LOOKED_AT = 5_000  # rows that are looked at for inputs that are the target
_FEWEST_RANKS = 20  # by fewer, an input may be in the order of the target by chance
_THE_SAME = 0.9999  # rank correlation of what says the same


def printable(text: str) -> str:
    r"""Text for a terminal, which control characters in names and categories could steer.

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
def without_repeats() -> Iterator[None]:
    """Leave out what the command says by itself: targets far from all others, and too few rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "y is far from all other targets", UserWarning)
        warnings.filterwarnings("ignore", "intervals of .* are infinite", UserWarning)
        yield


def note_leaks(columns: list[dict[str, Any]], inputs: Any, values: Any) -> None:
    """Note of inputs that rank rows as a target does: they may be it, by another name.

    Notes are set in the columns' documents; the inputs are each in its own type.
    """
    import numpy as np
    import pandas as pd

    rows = np.arange(len(inputs))[:: max(1, len(inputs) // _LOOKED_AT)]
    targets = pd.DataFrame(values).iloc[rows].set_axis(rows, axis=0).rank()
    for column in columns:
        if column["kind"] not in ("number", "date"):
            continue
        ranks = inputs[column["name"]].iloc[rows].set_axis(rows, axis=0).rank()
        known = ranks.notna()
        if known.sum() < _FEWEST_RANKS or ranks.nunique() < 0.5 * known.sum():
            continue
        for name in targets:
            together = abs(np.corrcoef(ranks[known], targets[name][known])[0, 1])
            if together > _THE_SAME:
                leak = f"ranks rows as {name!r} does: --ignore it if it is not known beforehand"
                column["note"] = "; ".join(filter(None, [column["note"], leak]))


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
