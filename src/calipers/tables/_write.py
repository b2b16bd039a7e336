"""Writing of tables block by block; a file appears under its name only when it is complete."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from calipers._files import replacing
from calipers.tables._formats import format_of
from calipers.tables._source import STANDARD, TableError


@contextmanager
def write_blocks(name: str) -> Iterator[Callable[[Any], None]]:
    """Yield a function that writes one pyarrow table after the other to a file.

    The complete file appears under its name when the ``with`` block ends; if the block raises, an
    existing file remains unchanged.

    Parameters
    ----------
    name : str
        Path, whose ending selects the format, or ``-`` for CSV on standard output.

    Raises
    ------
    TableError
        If the file cannot be written there.
    """
    form, compression = format_of(name)
    with ExitStack() as stack:
        raw = stack.enter_context(_destination(name))
        out = stack.enter_context(compression.open_to_write(raw)) if compression else raw
        make = form.write
        assert make is not None  # noqa: S101 - names only select formats that can be written
        writers: list[Any] = []

        def write(table: Any) -> None:
            if not writers:
                writers.append(stack.enter_context(make(out, table.schema)))
            writers[0].write_table(table)
            if name == STANDARD:
                out.flush()

        yield write


@contextmanager
def _destination(name: str) -> Iterator[BinaryIO]:
    if name == STANDARD:
        if sys.stdout is None:
            raise TableError("is closed", file="standard output")
        yield sys.stdout.buffer
        return
    path = Path(name)
    if path.is_dir():
        raise TableError("cannot be written: it is a folder", file=name)
    if not path.parent.is_dir():
        raise TableError(f"cannot be written: there is no folder {str(path.parent)!r}", file=name)
    opened = replacing(path)
    try:
        file = opened.__enter__()
    except OSError as error:
        raise TableError(f"cannot be written: {error.strerror or error}", file=name) from None
    with ExitStack() as stack:
        stack.push(opened)
        yield file
