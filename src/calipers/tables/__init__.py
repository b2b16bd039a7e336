"""Tables in files: read whole or in blocks of rows, and written in one step.

CSV and other delimited text, Parquet, Feather and Arrow; compressed text too; standard input and
output under the name ``-``. What a file holds is told by its first bytes, not by its name. Columns
of text files are read as text first, so that a type is decided by all rows and not by the first
ones. Memory is bounded by the block, not by the file. Errors name file, row and column.
"""

from calipers.tables._open import TableError
from calipers.tables._parts import Part, find_parts, read_part
from calipers.tables._read import Block, Table, find_files, read_blocks, read_table
from calipers.tables._text import Form, text_tables, typed
from calipers.tables._write import FORMATS, format_of, write_blocks

__all__ = [
    "FORMATS",
    "Block",
    "Form",
    "Part",
    "Table",
    "TableError",
    "find_files",
    "find_parts",
    "format_of",
    "read_blocks",
    "read_part",
    "read_table",
    "text_tables",
    "typed",
    "write_blocks",
]
