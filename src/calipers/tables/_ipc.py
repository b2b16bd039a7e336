"""Arrow IPC from untrusted senders, whose size is bounded before it is decoded.

A few bytes of Arrow can stand for any number of them: compressed buffers, buffers and strings that
are referenced many times, dictionaries, views, nested types. pyarrow has no memory pool of limited
size, and cannot report what a message contains. Therefore the metadata, a FlatBuffer that pyarrow
has verified, is parsed here, and anything not understood is refused: versions other than V5 (V4
hides compression in custom metadata), compression, nested types, delta dictionaries, and bytes that
are referenced twice. Dictionaries and views are then expanded within the remaining bytes.
"""

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from calipers.tables._source import (
    BODY,
    EncodedError,
    Reserve,
    TableError,
    TableLimits,
    check_distinct,
    too_large,
)

_V5 = 4
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_TIMESTAMP = 10
_PLAIN_TYPES = {*range(1, 11), 15, 18, 19, 20, 23, 24}  # without children; no calendar intervals
_MAX_BATCHES = 1_024
_SCHEMA_BYTES = 2_048  # per allowed column: its name, and what pandas adds
_DICTIONARY_WORK = 64  # bytes of dictionaries validated over all batches, in units of limits.body


def read_arrow(body: bytes, limits: TableLimits, reserve: Reserve) -> pa.Table:
    """A stream or a file as a table of plain columns; extension types are left out."""
    try:
        # A file is a magic number followed by a stream.
        stream = pa.py_buffer(body).slice(8 if body.startswith(b"ARROW1") else 0)
        _check_messages(stream, limits)
        with pa.ipc.open_stream(stream) as reader:
            batches = _all_batches(reader, limits)
            columns = _Expander(limits, reserve)
            table = {
                field.name: columns.read([batch.column(i) for batch in batches], field.type)
                for i, field in enumerate(reader.schema)
                if not isinstance(field.type, pa.BaseExtensionType)
            }
        return pa.table(table)
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, IndexError, struct.error) as error:
        raise _not_arrow(" ".join(str(error).split())[:300]) from None


def _all_batches(reader: pa.RecordBatchStreamReader, limits: TableLimits) -> list[pa.RecordBatch]:
    """The batches, whose columns are checked to be as long as they claim; nothing is copied."""
    check_distinct(reader.schema.names, BODY)
    batches, rows = [], 0
    for batch in reader:
        batch.validate()
        rows += batch.num_rows
        limits.check(rows, len(reader.schema))
        batches.append(batch)
    return batches


class _Expander:
    """Expands columns, all of them together within the limit of a decoded table."""

    def __init__(self, limits: TableLimits, reserve: Reserve) -> None:
        self._limits, self._reserve = limits, reserve
        self._available = limits.decoded
        self._work = _DICTIONARY_WORK * limits.body

    def read(self, parts: list[pa.Array], kind: pa.DataType) -> pa.ChunkedArray:
        """One column from its parts in the batches."""
        return pa.chunked_array([self._plain(part) for part in parts], None if parts else kind)

    def _plain(self, array: pa.Array) -> pa.Array:
        """An array whose values share no bytes."""
        kind = array.type
        if pa.types.is_dictionary(kind):
            self._work -= array.dictionary.get_total_buffer_size()  # includes those of views
            if self._work < 0:
                raise too_large("the dictionaries are too long for so many batches: merge them")
        array.validate(full=True)
        if pa.types.is_dictionary(kind):
            values = self._plain(array.dictionary)
            self._take(_bytes_by_row(values).take(array.indices.fill_null(0)) if len(values) else 0)
            return values.take(array.indices)
        if kind in (pa.string_view(), pa.binary_view()):
            self._take(_view_lengths(array))
            return array.cast(pa.large_string() if kind == pa.string_view() else pa.large_binary())
        return array

    def _take(self, sizes: ArrayLike) -> None:
        """Reserve the bytes of values before they are expanded."""
        total = int(np.sum(np.asarray(sizes, dtype=np.int64)))
        self._available -= total
        if self._available < 0:
            raise too_large(
                f"with shared values expanded, the table has more than {self._limits.decoded:,} "
                "bytes: send fewer rows at a time"
            )
        self._reserve(total)


def _bytes_by_row(values: pa.Array) -> pa.Array:
    """Upper bound of the bytes of each value of a plain array."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_fixed_size_binary)
    if any(has(values.type) for has in (*kinds, pa.types.is_binary, pa.types.is_large_binary)):
        return pc.binary_length(values).fill_null(0).cast(pa.int64())
    return pa.array(np.full(len(values), 32))  # the widest number, a decimal


def _view_lengths(array: pa.Array) -> ArrayLike:
    """Bytes of each value of a view: the first of the four integers that make up a view."""
    if not len(array):
        return 0
    views = np.frombuffer(array.buffers()[1], dtype="<i4").reshape(-1, 4)
    return views[array.offset : array.offset + len(array), 0]


def _check_messages(stream: pa.Buffer, limits: TableLimits) -> None:
    """Refuse a stream with a message that could expand."""
    batches = 0
    for message in pa.ipc.MessageReader.open_stream(stream):
        data = message.metadata.to_pybytes()
        root = _follow(data, 0)
        if _number(data, root, 0, "<h") != _V5:
            raise _encoded("the Arrow messages are not of version V5: write them with Arrow 1.0+")
        kind, header = _number(data, root, 1, "<B"), _child(data, root, 2)
        if kind == _SCHEMA:
            _check_schema(data, header, limits)
            continue
        batches += 1
        if batches > _MAX_BATCHES:
            raise too_large(f"the table has more than {_MAX_BATCHES:,} batches: merge them")
        if kind == _DICTIONARY:
            if _number(data, header, 2, "<B"):
                raise _encoded("the Arrow dictionaries grow by deltas: send them whole")
            header = _child(data, header, 1)
        elif kind != _BATCH:
            raise _not_arrow("a message is not part of a table")
        _check_batch(data, header, message.body.size)


def _check_schema(data: bytes, schema: int, limits: TableLimits) -> None:
    """Refuse too many columns, nested columns, and texts that are referenced more than once."""
    if _number(data, schema, 0, "<h"):
        raise _encoded("the Arrow numbers are big-endian: send them little-endian")
    if len(data) > _SCHEMA_BYTES * limits.columns:
        raise too_large(f"the Arrow schema has more than {_SCHEMA_BYTES:,} bytes per column")
    limits.check(1, _count(data, schema, 1))
    available = len(data) - _pairs(data, schema, 2, len(data))
    for field in _vector(data, schema, 1):
        start, size = _text(data, field, 0)
        kind = _number(data, field, 2, "<B")
        if kind not in _PLAIN_TYPES or _count(data, field, 5):
            shown = data[start : start + min(size, 100)].decode(errors="replace")
            raise TableError("nested or encoded: leave it out", file=BODY, column=shown)
        if kind == _TIMESTAMP:
            size += _text(data, _child(data, field, 3), 1)[1]
        available -= size + _pairs(data, field, 6, available)
        if available < 0:
            raise _not_arrow("its schema repeats itself")


def _check_batch(data: bytes, batch: int, size: int) -> None:
    """Refuse compression and overlapping buffers."""
    if _field(data, batch, 3):
        raise _encoded("the Arrow buffers are compressed: send them uncompressed")
    place = _field(data, batch, 2)
    if not place:
        return
    start = _follow(data, place)
    (count,) = struct.unpack_from("<I", data, start)
    lengths = np.frombuffer(data, dtype="<i8", count=2 * count, offset=start + 4)[1::2]
    if count and (lengths.min() < 0 or lengths.max() > size or int(lengths.sum()) > size):
        raise _not_arrow("its buffers are longer than it is")


def _not_arrow(why: str) -> TableError:
    return TableError(f"this is not Arrow IPC: {why}", file=BODY)


def _encoded(problem: str) -> EncodedError:
    return EncodedError(problem, file=BODY)


def _follow(data: bytes, place: int) -> int:
    return int(place + struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Position of a field of a FlatBuffer table, 0 if it is absent."""
    layout = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, layout)[0]:
        return 0
    offset = struct.unpack_from("<H", data, layout + 4 + 2 * number)[0]
    return int(table + offset) if offset else 0


def _number(data: bytes, table: int, number: int, form: str) -> int:
    place = _field(data, table, number)
    return int(struct.unpack_from(form, data, place)[0]) if place else 0


def _child(data: bytes, table: int, number: int) -> int:
    """Position of the table that a field refers to."""
    place = _field(data, table, number)
    if not place:
        raise ValueError("a message is incomplete")
    return _follow(data, place)


def _count(data: bytes, table: int, number: int) -> int:
    """Length of a vector."""
    place = _field(data, table, number)
    return int(struct.unpack_from("<I", data, _follow(data, place))[0]) if place else 0


def _vector(data: bytes, table: int, number: int) -> Iterator[int]:
    """Positions of the tables in a vector."""
    for i in range(_count(data, table, number)):
        start = _child(data, table, number)
        yield _follow(data, start + 4 + 4 * i)


def _text(data: bytes, table: int, number: int) -> tuple[int, int]:
    """Position and length of a text."""
    place = _field(data, table, number)
    return (_follow(data, place) + 4, _count(data, table, number)) if place else (0, 0)


def _pairs(data: bytes, table: int, number: int, limit: int) -> int:
    """Bytes of the keys and values of custom metadata, counted until they exceed ``limit``."""
    size = 0
    for pair in _vector(data, table, number):
        size += 8 + _text(data, pair, 0)[1] + _text(data, pair, 1)[1]
        if size > limit:
            break
    return size
