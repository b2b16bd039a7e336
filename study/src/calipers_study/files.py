"""Atomic writing of files, and tables as CSV and Markdown."""

import contextlib
import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically: a process that is killed meanwhile leaves the old file, or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    with contextlib.suppress(OSError):  # Windows cannot open a folder
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_csv(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows of values as CSV, atomically."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    replace_file(path, text.getvalue().encode())


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1
) -> list[str]:
    """Lines of a Markdown table, in which all but the first ``left`` columns are right-aligned.

    Examples
    --------
    >>> markdown_table(["name", "number"], [["a", "1"]])
    ['| name | number |', '|---|---:|', '| a | 1 |']
    """
    marks = "|---" * left + "|---:" * (len(header) - left) + "|"
    first, *rest = ("| " + " | ".join(row) + " |" for row in (header, *rows))
    return [first, marks, *rest]
