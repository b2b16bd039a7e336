"""The first sheet of an Excel workbook as tables of some rows each, by an optional reader."""

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, BinaryIO

from calipers.tables._delimited import TextFormat
from calipers.tables._source import TableError


def excel_tables(raw: BinaryIO, name: str, form: TextFormat, rows: int) -> Iterator[Any]:
    """Tables from the first sheet of a workbook, whose first row names the columns."""
    import pandas as pd
    import pyarrow as pa

    if not _is_workbook(raw):
        way = f"unzip -p {name} | calipers ... -"
        raise TableError(f"this is a zip archive: extract it, or pipe it, {way}", file=name)
    if find_spec("openpyxl") is None:  # what pandas reads workbooks with
        raise TableError(
            "this is an Excel workbook, which openpyxl reads: pip install 'calipers[excel]', or "
            "save the sheet as CSV",
            file=name,
        )
    try:
        sheet = pd.read_excel(raw, engine="openpyxl")
    except Exception as error:  # of many kinds, where a file is damaged
        raise TableError(f"the workbook cannot be read ({error})", file=name) from None
    sheet.columns = [str(column) for column in sheet.columns]
    for column, values in sheet.items():
        if values.dtype == object:  # texts, or texts among numbers and dates
            sheet[column] = values.map(str, na_action="ignore")
    table = pa.Table.from_pandas(sheet, preserve_index=False)
    yield from (table.slice(i, rows) for i in range(0, table.num_rows, rows))


def _is_workbook(raw: BinaryIO) -> bool:
    """Whether a zip archive is a workbook of Excel; leaves the file at its beginning."""
    try:
        with zipfile.ZipFile(raw) as archive:
            found = "xl/workbook.xml" in archive.namelist()
    except zipfile.BadZipFile:
        found = False
    raw.seek(0)
    return found
