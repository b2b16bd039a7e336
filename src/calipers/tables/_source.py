"""Rows with their origin, so that errors can name file and row; and limits on untrusted tables."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from calipers._text import did_you_mean, same_names

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

if TYPE_CHECKING:  # the command line, which lists the formats, starts faster without them
    import numpy as np
    from numpy.typing import NDArray

    from calipers.preprocessing import DataError

STANDARD = "-"  # the name of standard input and output
BODY = "the body"  # the name of bytes in memory in error messages


class TableError(ValueError):
    """A table that cannot be read or used, with its file and, where known, row and column.

    Examples
    --------
    >>> raise TableError("'many' is not a number", file="flats.csv", row=3, column="rooms")
    Traceback (most recent call last):
    calipers.tables._source.TableError: flats.csv, row 3, column 'rooms': 'many' is not a number
    """

    def __init__(
        self, problem: str, *, file: str, row: int | None = None, column: str | None = None
    ) -> None:
        self.problem, self.file, self.row, self.column = problem, file, row, column
        place = "standard input" if file == STANDARD else file
        place += "" if row is None else f", row {row:,}"
        place += "" if column is None else f", column {column!r}"
        super().__init__(f"{place}: {problem}")

    def __reduce__(self) -> tuple[Callable[[str], "TableError"], tuple[str]]:
        """Support pickling, so that the error can come from another machine."""
        make = partial(type(self), file=self.file, row=self.row, column=self.column)
        return make, (self.problem,)


class TooLargeError(TableError):
    """A table with more rows, columns or bytes than are allowed."""


class EncodedError(TableError):
    """A table in an encoding that is not accepted from untrusted senders."""


@dataclass(frozen=True, eq=False)
class RowSource:
    """Rows and the files that they come from."""

    table: "pa.Table"  #: The rows; all columns of text files are text.
    #: Each file, and the row of the table at which it begins; negative in a later block of it.
    files: tuple[tuple[str, int], ...]
    #: Which rows of the files these are, counted through all files; None for all.
    rows: "NDArray[np.int64] | None" = None

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The rows as a pandas frame, unless pandas cannot represent them (``TableError``)."""
        try:
            return self.table.to_pandas()
        except (ValueError, TypeError, LookupError, OverflowError, NotImplementedError) as error:
            reason = " ".join(str(error).split())[:200]
            problem = f"the columns cannot be converted to pandas ({reason})"
            raise TableError(problem, file=self.files[0][0]) from None

    @property
    def row_numbers(self) -> "NDArray[np.int64]":
        """Number of each row, counted from 1 through all files."""
        import numpy as np

        return 1 + (np.arange(self.table.num_rows) if self.rows is None else self.rows)

    def take(self, chosen: "NDArray[np.bool_]") -> "RowSource":
        """The rows where ``chosen`` is True, which keep their positions in error messages."""
        import pyarrow as pa

        rows = self.row_numbers[chosen] - 1
        return RowSource(self.table.filter(pa.array(chosen)), self.files, rows)

    def placed(self, error: "DataError") -> TableError:
        """The error with its position in the files."""
        file, start = self.files[0]
        if error.row is None:
            name = file if len(self.files) == 1 else f"{file} and {len(self.files) - 1} more"
            return TableError(error.problem, file=name, column=error.column)
        row = error.row if self.rows is None else int(self.rows[error.row])
        file, start = next(entry for entry in reversed(self.files) if entry[1] <= row)
        return TableError(error.problem, file=file, row=row - start + 1, column=error.column)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Raise any ``DataError`` of the block with its position in the files."""
        from calipers.preprocessing import DataError

        try:
            yield
        except DataError as error:
            raise self.placed(error) from None

    def require(self, column: str) -> None:
        """Refuse rows that lack a column."""
        from calipers.preprocessing import DataError

        if column not in self.frame:
            hint = did_you_mean(column, self.frame)
            raise self.placed(DataError(f"there is no column {column!r}{hint}"))


def check_distinct(names: list[str], name: str) -> None:
    """Refuse a table with two columns of the same name; ``name`` is the table's name in errors."""
    if problem := same_names("there is more than one column", names):
        raise TableError(problem, file=name)


Reserve = Callable[[int], None]
"""Called with a number of bytes before they are allocated; raises if they are too many."""


@dataclass(frozen=True)
class TableLimits:
    """Largest allowed size of a table.

    >>> TableLimits(body=100, rows=10, columns=5, cells=20).check(3, 4)
    """

    body: int  # bytes as sent
    rows: int
    columns: int
    cells: int  # rows times columns

    @property
    def decoded(self) -> int:
        """Most bytes of the decoded values; a wide character has 4 bytes too."""
        return 4 * self.body

    def check(self, rows: int, columns: int) -> None:
        if columns > self.columns:
            raise too_large(f"the table has more than {self.columns:,} columns")
        if rows > self.rows:
            raise too_large(f"the table has more than {self.rows:,} rows")
        if rows * columns > self.cells:
            raise too_large(
                f"the table has more than {self.cells:,} values: send fewer rows at a time"
            )


def too_large(problem: str) -> TooLargeError:
    """The error for a table in memory that is too large, or would be when decoded."""
    return TooLargeError(problem, file=BODY)
