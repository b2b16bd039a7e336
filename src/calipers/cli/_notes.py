"""Notes on standard error, one line each: warnings, leaking inputs and outlying targets."""

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

_LEAK_ROWS = 5_000  # rows on which leaks are looked for
_FEWEST_RANKS = 20  # with fewer rows, an input may rank like the target by chance
_LEAK_CORRELATION = 0.9999  # rank correlation above which an input may be the target


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


@contextmanager
def without_repeats(*, evaluated: bool) -> Iterator[None]:
    """Ignore warnings about outlying targets, and about too few rows, which an evaluation words."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "y is far from all other targets", UserWarning)
        if evaluated:
            warnings.filterwarnings("ignore", "intervals of .* are infinite", UserWarning)
        yield


def note_leaks(columns: list[dict[str, Any]], inputs: Any, values: Any) -> None:
    """Add a note to each of ``columns`` that ranks the rows like a target, and so may leak it.

    ``inputs`` are the typed inputs.
    """
    import numpy as np
    import pandas as pd

    rows = np.arange(len(inputs))[:: max(1, len(inputs) // _LEAK_ROWS)]
    targets = pd.DataFrame(values).iloc[rows].set_axis(rows, axis=0).rank()
    for column in columns:
        if column["kind"] not in ("number", "date"):
            continue
        ranks = inputs[column["name"]].iloc[rows].set_axis(rows, axis=0).rank()
        present = ranks.notna()
        if present.sum() < _FEWEST_RANKS or ranks.nunique() < 0.5 * present.sum():
            continue
        for name in targets:
            correlation = np.corrcoef(ranks[present], targets[name][present])[0, 1]
            if abs(correlation) > _LEAK_CORRELATION:
                leak = f"ranks rows like {name!r}: --ignore it if it is not known beforehand"
                column["note"] = "; ".join(filter(None, [column["note"], leak]))


def note_outliers(model: Any, table: Any, values: Any, rows: Any) -> None:
    """Name outlying targets that the networks did not learn from, by their places in the files."""
    import pandas as pd

    from calipers.preprocessing import DataError

    targets = pd.DataFrame(values)
    for name, single in zip(targets, getattr(model, "models_", [model]), strict=True):
        outliers = single.about_.get("far_targets")
        if outliers is None:
            continue
        row = int(rows[outliers["rows"][0]])
        more = "" if outliers["count"] == 1 else f", and so are {outliers['count'] - 1:,} more"
        problem = (
            f"{targets[name].iloc[row]:g} is far from all other targets{more}: networks do not "
            "learn from outliers, but calibration counts them, so intervals of high coverage may "
            "be wide. Correct or remove wrong values; if such targets are real, fit their logarithm"
        )
        note(str(table.placed(DataError(problem, column=str(name), row=row))))


def say_groups(model: Any) -> str:
    """Return a warning about numeric codes, by which rows may belong together, or ``""``.

    Codes are looked for only if the model was fitted without groups.
    """
    names: list[str] = []
    for single in getattr(model, "models_", [model]):
        encoder = getattr(single, "preprocessor_", None)
        pairs = encoder.used_columns() if encoder else []
        names += [c.name for c, reader in pairs if c.kind == "number" and reader.levels]
    if not names:
        return ""
    shown = ", ".join(dict.fromkeys(names))
    return (
        f"{shown} looks like a label of groups, since rows with the same value are alike: if new "
        f"rows have new values of it, use --groups {shlex.quote(names[0])}"
    )
