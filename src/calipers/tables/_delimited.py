"""Reader and writer of delimited text; columns are read as text, not converted."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Self

from calipers.tables._compression import TextStream
from calipers.tables._source import TableError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.csv

DELIMITERS = ",;\t|"

_HEAD = 2**16  # bytes from which the delimiter is detected
_MAX_ROW_BYTES = 2**22  # most bytes in a row
_ROWS = 2**16  # that are written at a time, whose text takes several times its bytes
_BEHIND_SPACES = r'^ +"([^"]*)" *$'  # pyarrow does not treat such values as quoted
_UNCLOSED = "a quotation mark is opened and never closed"


@dataclass(frozen=True)
class TextFormat:
    """How text files are written."""

    delimiter: str | None = None  #: Separates columns; detected from the first lines by default.
    encoding: str = "utf-8"  #: Encoding of the characters.


def text_tables(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator["pa.Table"]:
    """Tables of up to ``rows`` rows from delimited text, with all columns as text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as reader

    stream = TextStream(raw, form.encoding, name)
    delimiter, header = _look(head := _head(stream), form.delimiter, name)
    aligned = f"{delimiter} " in head and ' "' in head  # columns are padded with spaces
    invalid: list[pyarrow.csv.InvalidRow] = []

    def keep(row: "pyarrow.csv.InvalidRow") -> str:
        invalid.append(row)
        return "error"

    types = {f"f{i}": pa.string() for i in range(len(header))}
    try:
        batches = reader.open_csv(
            io.BufferedReader(stream, _HEAD),
            reader.ReadOptions(
                use_threads=False, block_size=_MAX_ROW_BYTES, autogenerate_column_names=True
            ),
            reader.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=keep
            ),
            reader.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True),
        )
        first, seen = True, 0
        for batch in batches:
            table = pa.Table.from_batches([batch])
            seen += table.num_rows - first
            table, first = table.slice(int(first)), False
            _check_quotes(table, stream.quotes, seen, name)
            if aligned:  # pyarrow keeps quotation marks that follow spaces
                columns = (pc.replace_substring_regex(c, _BEHIND_SPACES, r"\1") for c in table)
                table = pa.table(list(columns), names=table.column_names)
            table = table.rename_columns(header)
            yield from (table.slice(i, rows) for i in range(0, table.num_rows, rows))
    except pa.ArrowInvalid as error:
        _explain(error, invalid, len(header), name, stream.quotes)


def _head(stream: TextStream) -> str:
    """The first lines: at least the header, however long it is."""
    size = _HEAD
    while True:
        data = stream.peek(size)
        text = data.decode(errors="ignore")
        unquoted = text.lstrip("\r\n").split('"')[::2]
        ended = any("\n" in part or "\r" in part for part in unquoted)
        if ended or len(data) < size or size >= _MAX_ROW_BYTES:
            return text
        size *= 4


def _look(head: str, delimiter: str | None, name: str) -> tuple[str, list[str]]:
    """The delimiter and the names of the columns, from the first lines."""
    if not head.strip():
        raise TableError("the file is empty", file=name)
    if head.lstrip()[:1] in "{[":
        raise TableError("this is JSON, not a table: write it as CSV or Parquet", file=name)
    if head.lstrip()[:1] == "<":
        raise TableError("this is HTML or XML, not a table: was an error page saved?", file=name)
    delimiter = delimiter or _sniff(head)
    try:
        header = next(row for row in _rows(head, delimiter) if row)
    except (csv.Error, StopIteration):
        problem = "the first line must be a header: names of columns, separated by a delimiter"
        raise TableError(problem, file=name) from None
    plain = (re.sub(_BEHIND_SPACES, r"\1", cell).strip() for cell in header)
    names = [cell or f"column {i}" for i, cell in enumerate(plain, start=1)]
    return delimiter, names


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=None), delimiter=delimiter)


def _sniff(head: str) -> str:
    r"""The delimiter that splits the first lines into the most columns, and all into equally many.

    >>> _sniff("a;b\n1,5;2,5\n"), _sniff("a\n1\n")
    (';', ',')
    """
    best, most = ",", 1
    cut = head.rfind("\n") + 1 if len(head) > _HEAD // 2 else 0
    whole = head[:cut] or head
    for delimiter in DELIMITERS:
        try:
            counts = [len(r) for r in _rows(whole, delimiter) if r]
        except csv.Error:
            continue
        if not counts:
            continue
        same = counts[:200].count(counts[0]) / len(counts[:200])
        if same * (counts[0] - 1) > most - 1 and same > 0.8:
            best, most = delimiter, int(counts[0])
    return best


def _check_quotes(table: "pa.Table", quotes: int, seen: int, name: str) -> None:
    """Refuse a quotation mark that is never closed, which turns all that follows into one value."""
    if quotes % 2 and table.num_rows:
        last = table.slice(table.num_rows - 1).to_pylist()[0]
        if any(value and "\n" in value for value in last.values()):
            raise TableError(_UNCLOSED, file=name, row=seen)


def _explain(
    error: Exception, invalid: list["pyarrow.csv.InvalidRow"], columns: int, name: str, quotes: int
) -> NoReturn:
    """Raise a ``TableError`` that says what is wrong with text that pyarrow cannot read."""
    row, problem = None, f"cannot be read: {error}"
    if invalid:
        found = invalid[0]
        row = None if found.number is None else found.number - 1
        problem = (
            f"the row has {found.actual_columns} values, but the header names {columns} columns"
        )
        if quotes % 2 and "\n" in found.text:
            problem = _UNCLOSED
    elif "straddl" in str(error):
        problem = f"a row has more than {_MAX_ROW_BYTES:,} bytes: is a quotation mark not closed?"
    elif "Empty CSV" in str(error):
        problem = "the file has a header but no rows"
    raise TableError(problem, file=name, row=row) from None


class TextWriter:
    """A writer of delimited text that quotes only values that need it.

    The writer of pyarrow quotes all text, including numbers that are passed through as text.
    """

    def __init__(self, out: BinaryIO, schema: "pa.Schema", *, delimiter: str) -> None:
        import pyarrow as pa

        self._out, self._delimiter = out, delimiter
        self._write([self._cells(pa.array([name])) for name in schema.names])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the file open, since the caller opened it."""

    def write_table(self, table: "pa.Table") -> None:
        for start in range(0, table.num_rows, _ROWS):
            rows = table.slice(start, _ROWS)
            self._write([self._cells(column) for column in rows.columns])

    def _cells(self, column: "pa.Array | pa.ChunkedArray") -> "pa.Array | pa.ChunkedArray":
        import pyarrow as pa
        import pyarrow.compute as pc

        text = column.cast(pa.large_string())
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            return pc.fill_null(text, "")
        needs_quotes = pc.match_substring_regex(text, f'[{self._delimiter}"\r\n]|^$')
        doubled = pc.replace_substring(text, '"', '""')
        mark = pa.scalar('"', text.type)
        quoted = pc.binary_join_element_wise(mark, doubled, mark, pa.scalar("", text.type))
        return pc.fill_null(pc.if_else(needs_quotes, quoted, text), "")

    def _write(self, cells: list["pa.Array | pa.ChunkedArray"]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        between = pa.scalar(self._delimiter, pa.large_string())
        lines = pc.binary_join_element_wise(*cells, between).to_pylist()
        self._out.write("".join(f"{line}\n" for line in lines).encode())
