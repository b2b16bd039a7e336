"""Reader of the first sheet of an Excel workbook, which needs openpyxl."""

import re
import zipfile
import zlib
from collections.abc import Iterator
from functools import reduce
from importlib.util import find_spec
from typing import IO, Any, BinaryIO, NoReturn

from calipers.tables._delimited import TextFormat
from calipers.tables._source import TableError

_MAX_BYTES = 2**29  # of a workbook when unpacked
_MAX_TEXT = 2**29  # characters in its cells
_MAX_CELLS = 2**25
_CHUNK = 2**20
_TAG = re.compile(rb"<(?:[^\s<>/:]*:)?(row|c)(?=[\s/>])([^<]*)")
_PLACE = re.compile(rb"\sr\s*=\s*[\"']([^\"']*)")


def excel_tables(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator[Any]:
    """Tables of up to ``rows`` rows from the first sheet, whose first row names the columns."""
    import pandas as pd
    import pyarrow as pa

    _check(raw, name)
    if find_spec("openpyxl") is None:  # what pandas reads workbooks with
        raise TableError(
            "this is an Excel workbook, which openpyxl reads: pip install 'calipers[excel]', or "
            "save the sheet as CSV",
            file=name,
        )
    try:
        sheet = pd.read_excel(raw, engine="openpyxl", dtype=object)
    except Exception as error:  # damaged files raise many kinds of exceptions
        raise TableError(f"the workbook cannot be read ({error})", file=name) from None
    size = sum(len(value) for _, values in sheet.items() for value in values if type(value) is str)
    if size > _MAX_TEXT:  # repeated texts are shared between cells, but not in a table
        _refuse(f"texts of {size:,} characters", name)
    sheet.columns = [str(column) for column in sheet.columns]
    sheet = sheet.infer_objects()
    for column, values in sheet.items():
        if values.dtype == object:  # text, perhaps mixed with numbers and dates
            sheet[column] = values.map(str, na_action="ignore")
    table = pa.Table.from_pandas(sheet, preserve_index=False)
    yield from (table.slice(i, rows) for i in range(0, table.num_rows, rows))


def _check(raw: BinaryIO, name: str) -> None:
    """Refuse archives that are not workbooks, or that unpack from kilobytes to gigabytes."""
    try:
        with zipfile.ZipFile(raw) as archive:
            entries = {entry.filename: entry.file_size for entry in archive.infolist()}
            if "xl/workbook.xml" not in entries:
                raise zipfile.BadZipFile
            if (size := sum(entries.values())) > _MAX_BYTES:
                _refuse(f"{size:,} bytes when unpacked", name)
            for entry in entries:
                if entry.startswith("xl/worksheets/") and entry.endswith(".xml"):
                    with archive.open(entry) as sheet:
                        _check_cells(sheet, name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        problem = f"this is a zip archive: extract it, or pipe it, unzip -p {name} | calipers ... -"
        raise TableError(problem, file=name) from None
    raw.seek(0)


def _check_cells(sheet: IO[bytes], name: str) -> None:
    """Refuse a sheet of too many cells, including empty cells that would be filled in."""
    rows = columns = cells = 0
    rest = b""
    while chunk := sheet.read(_CHUNK):
        whole, mark, rest = (rest + chunk).rpartition(b"<")
        rest = mark + rest
        if len(rest) > _CHUNK or b"\0" in chunk or b"<!DOCTYPE" in whole:
            _refuse("XML that no spreadsheet program writes", name)
        for kind, attributes in _TAG.findall(whole):
            cells += kind == b"c"
            for value in _PLACE.findall(attributes):
                place = re.fullmatch(rb"([A-Z]{0,3})(\d{0,7})", value.upper())
                if place is None:
                    _refuse(f"a cell at {value[:20]!r}", name)
                rows = max(rows, int(place[2] or 0))
                columns = max(columns, reduce(lambda n, letter: 26 * n + letter - 64, place[1], 0))
        if (most := max(cells, rows * columns)) > _MAX_CELLS:
            _refuse(f"a sheet of {most:,} cells", name)


def _refuse(what: str, name: str) -> NoReturn:
    raise TableError(f"the workbook has {what}: save the sheet as CSV", file=name)
