"""Table files: read whole or in blocks of rows, and written atomically.

Supported are CSV and other delimited text, Parquet, Feather and Arrow, any of them compressed; the
first sheet of an Excel workbook where openpyxl is installed; standard input and output under the
name ``-``; and bytes in memory. The format of a file is recognised by its first bytes, not by its
name. Columns of text files stay text: ``calipers.preprocessing`` decides what it means, from all
rows. Except for workbooks, memory is bounded by the block, not by the file. Errors name file, row
and column.
"""

from calipers.tables._compression import COMPRESSIONS, Compression
from calipers.tables._delimited import TextFormat
from calipers.tables._formats import (
    FORMATS,
    FileFormat,
    format_names as format_names,
    format_of as format_of,
    known_endings as known_endings,
    write_blocks,
)
from calipers.tables._parts import Part as Part, find_parts as find_parts, read_part as read_part
from calipers.tables._read import (
    find_files,
    read_blocks,
    read_bytes as read_bytes,
    read_table,
    visible_paths as visible_paths,
    whole_lines as whole_lines,
)
from calipers.tables._source import (
    EncodedError as EncodedError,
    Reserve as Reserve,
    RowSource,
    TableError,
    TableLimits as TableLimits,
    TooLargeError as TooLargeError,
)

__all__ = [
    "COMPRESSIONS",
    "FORMATS",
    "Compression",
    "FileFormat",
    "RowSource",
    "TableError",
    "TextFormat",
    "find_files",
    "read_blocks",
    "read_table",
    "write_blocks",
]
