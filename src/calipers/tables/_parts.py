"""Parquet in many files, divided into parts that any machine with access can read."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from calipers.tables._read import find_files, visible_paths
from calipers.tables._source import RowSource, TableError, check_distinct

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

_MAX_BYTES = 256 * 2**20  # bytes; larger files are divided
_ROWS = 2**16  # of a block


class Part(NamedTuple):
    """Rows that one task reads."""

    name: str  # file name for the output of the task
    # A file or some of its row groups, with the values in the names of its folders.
    fragment: "ds.ParquetFileFragment"
    fields: list["pa.Field"]  # columns from names of folders such as ``year=2024``


def find_parts(names: Sequence[str]) -> tuple[list[Part], list[list[Any]]]:
    """Parts of Parquet files; and for each file its name, size and modification time.

    ``names`` are files, patterns, or folders with files at any depth. Names of folders such as
    ``year=2024`` are columns of the files below them: integers if all values are, or else text.
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
        fields = list(data.partitioning.schema)
        for fragment in data.get_fragments():
            for part in _divided(fragment, Path(fragment.path).stat().st_size):
                parts.append(Part(f"part-{len(parts):06d}.parquet", part, fields))
    return parts, sources


def _files_of(folder: Path) -> list[Path]:
    """Parquet files under a folder, including links to missing ones, which cannot be read later."""
    paths = visible_paths(folder, "*.parquet")
    files = [path for path in paths if path.is_file() or not path.exists()]
    if not files:
        raise TableError("there is no Parquet file in this folder", file=os.fspath(folder))
    return files


def _checked(path: Path) -> list[Any]:
    """Name, size and modification time of a file, which must begin like Parquet."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
        status = path.stat()
    except OSError as error:
        raise TableError(f"cannot be read: {error.strerror or error}", file=str(path)) from None
    if magic != b"PAR1":
        problem = "this is not Parquet, the only format that a cluster reads"
        raise TableError(problem, file=str(path))
    return [str(path), status.st_size, status.st_mtime_ns]


def _divided(fragment: "ds.ParquetFileFragment", size: int) -> list["ds.ParquetFileFragment"]:
    """A large file as runs of row groups; a small one whole, without opening it."""
    if size <= _MAX_BYTES:
        return [fragment]
    runs: list[list[int]] = [[]]
    run_size = 0
    for group in fragment.row_groups:
        if run_size >= _MAX_BYTES:
            runs.append([])
            run_size = 0
        runs[-1].append(group.id)
        run_size += group.total_byte_size
    return [fragment.subset(row_group_ids=run) for run in runs]


def read_part(part: Part) -> Iterator[RowSource]:
    """Rows of a part, block by block, with the columns from the names of its folders."""
    import pyarrow as pa

    fragment = part.fragment
    try:
        stored = fragment.physical_schema
        check_distinct(stored.names, fragment.path)
        added = [field for field in part.fields if field.name not in stored.names]
        schema = pa.schema([*stored, *added])
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
