"""Parquet in many files: parts that can be read one by one, on any machine that sees them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from calipers.tables._read import find_files
from calipers.tables._source import RowSource, TableError, check_distinct

_LARGEST = 256 * 2**20  # bytes of a file that is one part
_ROWS = 2**16


class Part(NamedTuple):
    """Rows that are read in one piece."""

    name: str  # name for a file of what is made of them
    # file of the rows, or some of its row groups, with the values that its folders name
    fragment: Any
    fields: list[Any]  # columns that the names of folders give, as in ``year=2024``


def find_parts(names: Sequence[str]) -> tuple[list[Part], list[list[Any]]]:
    """Parts of Parquet files, and for each file its name, size and time of change.

    Names are files, patterns, or folders with files at any depth. Names of folders such as
    ``year=2024`` are columns of the files below them: whole numbers where all values are, or else
    text.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    parts: list[Part] = []
    sources: list[list[Any]] = []
    for name in find_files(names):
        root = Path(name).absolute()
        files = _files_of(root) if root.is_dir() else [root]
        sources += [_checked(path) for path in files]
        base = os.fspath(root if root.is_dir() else root.parent)
        paths = [os.fspath(path) for path in files]
        try:
            check_distinct(pq.read_schema(paths[0]).names, paths[0])
            data = ds.dataset(paths, format="parquet", partitioning="hive", partition_base_dir=base)
        except (pa.ArrowException, OSError) as error:
            _refuse(error, name)
        named = list(data.partitioning.schema)
        for fragment in data.get_fragments():
            for piece in _pieces(fragment, Path(fragment.path).stat().st_size):
                parts.append(Part(f"part-{len(parts):06d}.parquet", piece, named))
    return parts, sources


def _files_of(folder: Path) -> list[Path]:
    """Parquet files under a folder, but those that are marked or hidden; no folders and pipes."""
    found = sorted(p for p in folder.rglob("*.parquet") if p.is_file() or not p.exists())
    found = [p for p in found if not any(n[0] in "._" for n in p.relative_to(folder).parts)]
    if not found:
        raise TableError("there is no Parquet file in this folder", file=os.fspath(folder))
    return found


def _checked(path: Path) -> list[Any]:
    """Name, size and time of change of a file, which is Parquet by its first bytes."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
        status = path.stat()
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise TableError(problem, file=os.fspath(path)) from None
    if magic != b"PAR1":
        raise TableError("this is not Parquet, which a cluster needs", file=os.fspath(path))
    return [os.fspath(path), status.st_size, status.st_mtime_ns]


def _pieces(fragment: Any, size: int) -> list[Any]:
    """Runs of row groups of a large file; a small one is taken whole, without opening it."""
    if size <= _LARGEST:
        return [fragment]
    runs: list[list[int]] = [[]]
    weight = 0
    for group in fragment.row_groups:
        if weight >= _LARGEST:
            runs.append([])
            weight = 0
        runs[-1].append(group.id)
        weight += group.total_byte_size
    return [fragment.subset(row_group_ids=run) for run in runs]


def read_part(part: Part) -> Iterator[RowSource]:
    """Rows of a part, block by block, with the columns that its folders name."""
    import pyarrow as pa

    fragment = part.fragment
    try:
        own = fragment.physical_schema
        check_distinct(own.names, fragment.path)
        schema = pa.schema([*own, *(field for field in part.fields if field.name not in own.names)])
        first = fragment.row_groups[0].id if fragment.row_groups else 0
        start = sum(fragment.metadata.row_group(i).num_rows for i in range(first))
        for batch in fragment.to_batches(schema, batch_size=_ROWS, use_threads=False):
            if batch.num_rows:
                yield RowSource(pa.Table.from_batches([batch]), ((fragment.path, -start),))
            start += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        _refuse(error, fragment.path)


def _refuse(error: Exception, name: str) -> NoReturn:
    problem = f"the Parquet file cannot be read ({str(error).splitlines()[0]})"
    raise TableError(problem, file=name) from None
