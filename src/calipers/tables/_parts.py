"""Parquet in many files: parts that can be read one by one, on any machine that sees them."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from calipers.tables._open import TableError
from calipers.tables._read import RowSource, check_names, find_files

_LARGEST = 256 * 2**20  # bytes of a file that is one part
_ROWS = 2**16
_HIVE = re.compile(r"([^=/]+)=([^/]*)")
_NULL = "__HIVE_DEFAULT_PARTITION__"


class Part(NamedTuple):
    """Rows that are read in one piece.

    Attributes
    ----------
    name : str
        Name for a file of what is made of them.
    file : str
        File of the rows.
    groups : pair of int, optional
        Its row groups, from the first up to the second; all by default.
    values : dict
        Columns that the names of folders give, as in ``year=2024``.
    """

    name: str
    file: str
    groups: tuple[int, int] | None
    values: dict[str, Any]


def find_parts(names: Sequence[str]) -> tuple[list[Part], list[list[Any]]]:
    """Parts of Parquet files, and for each file its name, size and time of change.

    Parameters
    ----------
    names : sequence of str
        Files, patterns, or folders with files at any depth. Names of folders such as ``year=2024``
        are columns of the files below them: whole numbers where all values are, or else text.

    Raises
    ------
    TableError
        If a file is not there or not Parquet.
    """
    found: list[tuple[str, dict[str, str]]] = []
    for name in find_files(names):
        root = Path(name).absolute()
        files = _files_of(root) if root.is_dir() else [root]
        found += [(os.fspath(path), _folder_values(path, root)) for path in files]
    numbers = {key: True for _, values in found for key in values}
    for _, values in found:
        for key, value in values.items():
            numbers[key] &= value == _NULL or re.fullmatch(r"-?\d{1,18}", value) is not None
    parts: list[Part] = []
    sources: list[list[Any]] = []
    for file, texts in found:
        _check_parquet(file)
        status = Path(file).stat()
        sources.append([file, status.st_size, status.st_mtime_ns])
        typed = {key: _typed(value, numbers[key]) for key, value in texts.items()}
        for groups in _pieces(file, status.st_size):
            parts.append(Part(f"part-{len(parts):06d}.parquet", file, groups, typed))
    return parts, sources


def _files_of(folder: Path) -> list[Path]:
    """Parquet files under a folder, but those that are marked or hidden."""
    found = sorted(folder.rglob("*.parquet"))
    found = [p for p in found if not any(n[0] in "._" for n in p.relative_to(folder).parts)]
    if not found:
        raise TableError("there is no Parquet file in this folder", file=os.fspath(folder))
    return found


def _folder_values(path: Path, root: Path) -> dict[str, str]:
    """Values in the names of folders below a root, such as ``year=2024``."""
    if path == root:
        return {}
    matches = (_HIVE.fullmatch(name) for name in path.relative_to(root).parts[:-1])
    return {unquote(m[1]): unquote(m[2]) for m in matches if m}


def _typed(value: str, number: bool) -> int | str | None:
    if value == _NULL:
        return None
    return int(value) if number else value


def _check_parquet(file: str) -> None:
    """Refuse another file by its first bytes."""
    try:
        with open(file, "rb") as raw:  # noqa: PTH123
            magic = raw.read(4)
    except OSError as error:
        raise TableError(f"cannot be read: {error.strerror or error}", file=file) from None
    if magic != b"PAR1":
        raise TableError("this is not Parquet, which a cluster needs", file=file)


def _pieces(file: str, size: int) -> list[tuple[int, int] | None]:
    """Runs of row groups of a large file; a small one is taken whole, without opening it."""
    import pyarrow.parquet as pq

    if size <= _LARGEST:
        return [None]
    metadata = pq.read_metadata(file)
    pieces: list[tuple[int, int] | None] = []
    first = weight = 0
    for i in range(metadata.num_row_groups):
        weight += metadata.row_group(i).total_byte_size
        if weight >= _LARGEST or i + 1 == metadata.num_row_groups:
            pieces.append((first, i + 1))
            first, weight = i + 1, 0
    return pieces


def read_part(part: Part) -> Iterator[RowSource]:
    """Rows of a part, block by block, with the columns that its folders name.

    Raises
    ------
    TableError
        If the file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(part.file, pre_buffer=False) as file:
            first, last = part.groups or (0, file.num_row_groups)
            start = sum(file.metadata.row_group(i).num_rows for i in range(first))
            groups = list(range(first, last))
            check_names(file.schema_arrow.names, part.file)
            for batch in file.iter_batches(_ROWS, row_groups=groups, use_threads=False):
                table = pa.Table.from_batches([batch])
                own = {k: v for k, v in part.values.items() if k not in table.column_names}
                for name, value in own.items():
                    kind = pa.int64() if isinstance(value, int) else pa.string()
                    column = pa.array([value], kind).take(pa.array([0] * batch.num_rows))
                    table = table.append_column(name, column)
                if batch.num_rows:
                    yield RowSource(table, ((part.file, -start),))
                start += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        problem = f"the Parquet file cannot be read ({str(error).splitlines()[0]})"
        raise TableError(problem, file=part.file) from None
