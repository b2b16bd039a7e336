"""Readers and writers of Parquet and Arrow."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from calipers.tables._delimited import TextFormat
from calipers.tables._source import TableError


def parquet_tables(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator[Any]:
    """Tables of up to ``rows`` rows from a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _reading("Parquet", name):
        file = pq.ParquetFile(raw, pre_buffer=False)
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            batch.validate(full=True)
            yield pa.Table.from_batches([batch])


def arrow_tables(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator[Any]:
    """Tables of up to ``rows`` rows from Arrow, a file or a stream."""
    import pyarrow as pa

    with _reading("Arrow", name):
        if raw.peek(6)[:6] == b"ARROW1":  # type: ignore[attr-defined]
            file = pa.ipc.open_file(raw)
            batches = (file.get_batch(i) for i in range(file.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(raw))
        for batch in batches:
            batch.validate(full=True)  # a damaged offset would point outside the file's memory
            table = pa.Table.from_batches([batch])
            yield from (table.slice(i, rows) for i in range(0, table.num_rows, rows))


@contextmanager
def _reading(what: str, name: str) -> Iterator[None]:
    """Raise a ``TableError`` for a file that cannot be read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        problem = f"the {what} file is damaged or cut off ({str(error).splitlines()[0]})"
        raise TableError(problem, file=name) from None


def parquet_writer(out: Any, schema: Any) -> Any:
    """A writer of Parquet."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(out, schema)


def arrow_writer(out: Any, schema: Any) -> Any:
    """A writer of Arrow, as a file."""
    import pyarrow as pa

    return pa.ipc.new_file(out, schema)
