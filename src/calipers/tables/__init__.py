"""Tables in files: read whole or in blocks of rows, and written in one step.

CSV and other delimited text, Parquet, Feather and Arrow; compressed text too; the first sheet of an
Excel workbook where openpyxl is installed; standard input and output under the name ``-``; bytes in
memory by the same readers. What a file holds is told by its first bytes, not by its name. Columns
of text files stay text: what it means is decided in ``calipers.preprocessing``, by all rows. Memory
is bounded by the block, not by the file, but for workbooks. Errors name file, row and column.
"""

from calipers.tables._open import TableError, TooLargeError
from calipers.tables._parts import Part, find_parts, read_part
from calipers.tables._read import find_files, read_blocks, read_bytes, read_table
from calipers.tables._source import RowSource
from calipers.tables._text import TextFormat
from calipers.tables._write import FORMATS, format_of, write_blocks

__all__ = [
    "FORMATS",
    "Part",
    "RowSource",
    "TableError",
    "TextFormat",
    "TooLargeError",
    "find_files",
    "find_parts",
    "format_of",
    "read_blocks",
    "read_bytes",
    "read_part",
    "read_table",
    "write_blocks",
]
