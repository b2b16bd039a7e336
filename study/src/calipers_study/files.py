"""Files that appear whole or not at all, and tables as CSV."""

import contextlib
import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step: whoever is killed meanwhile leaves the old one, or none."""
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
    """Write rows of values as CSV, in one step."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    replace_file(path, text.getvalue().encode())
