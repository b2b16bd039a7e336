"""Parquet in many files, divided into parts that any machine with access can read."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from calipers.tables._formats import parquet_tables
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
    path: str
    groups: list[int] | None  # row groups of the file; None for all
    start: int  # rows of the file before these
    values: dict[str, "pa.Scalar[Any]"]  # from names of folders such as ``year=2024``, by column


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
        for fragment in data.get_fragments():
            keys = ds.get_partition_keys(fragment.partition_expression)
            values = {
                field.name: pa.scalar(keys.get(field.name), field.type)
                for field in data.partitioning.schema
            }
            for groups, start in _runs(fragment):
                name = f"part-{len(parts):06d}.parquet"
                parts.append(Part(name, fragment.path, groups, start, values))
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


def _runs(fragment: "ds.ParquetFileFragment") -> Iterator[tuple[list[int] | None, int]]:
    """A large file as runs of row groups, with the rows before each; a small one as a whole."""
    if Path(fragment.path).stat().st_size <= _MAX_BYTES:
        yield None, 0
        return
    run: list[int] = []
    size = start = rows = 0
    for group in fragment.row_groups:
        if size >= _MAX_BYTES:
            yield run, start
            run, size, start = [], 0, rows
        run.append(group.id)
        size, rows = size + group.total_byte_size, rows + group.num_rows
    yield run, start


def read_part(part: Part) -> Iterator[RowSource]:
    """Rows of a part, block by block, with the columns from the names of its folders."""
    import pyarrow as pa

    start = part.start
    try:
        with Path(part.path).open("rb") as raw:
            for table in parquet_tables(raw, part.path, _ROWS, part.groups):
                check_distinct(table.column_names, part.path)
                rows = table.num_rows
                for name, value in part.values.items():
                    if name not in table.column_names:
                        table = table.append_column(name, pa.repeat(value, rows))
                if rows:
                    yield RowSource(table, ((part.path, -start),))
                start += rows
    except OSError as error:
        _refuse(error, part.path)


def _refuse(error: Exception, name: str) -> NoReturn:
    problem = f"the Parquet file cannot be read ({str(error).splitlines()[0]})"
    raise TableError(problem, file=name) from None
