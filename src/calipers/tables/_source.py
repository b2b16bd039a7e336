"""Rows that know where they are from, so that errors name file and row."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # so that the command line, which lists the formats, starts without them
    import numpy as np
    from numpy.typing import NDArray

    from calipers.preprocessing import DataError

STANDARD = "-"
"""The name of standard input and output."""


class TableError(ValueError):
    """A table that cannot be read or used, with its file and, where they are known, row and column.

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

    def __reduce__(self) -> Any:
        """Let the error come from another machine."""
        make = partial(type(self), file=self.file, row=self.row, column=self.column)
        return make, (self.problem,)


class TooLargeError(TableError):
    """A table with more rows, columns or bytes than are allowed."""


class EncodedError(TableError):
    """A table in a form that is not read from senders who are not trusted."""


@dataclass(frozen=True, eq=False)
class RowSource:
    """Rows, and where they are from."""

    table: Any  #: The rows; all columns of text files are text, as it stands there.
    #: Each file, and the row of the table at which it begins; below 0 in a later block of it.
    files: tuple[tuple[str, int], ...]
    #: Which rows of the files these are, counted through all files; all by default.
    rows: "NDArray[np.int64] | None" = None

    @cached_property
    def frame(self) -> Any:
        """The rows as a pandas frame.

        Raises
        ------
        TableError
            If the table's own notes for pandas are damaged, or a value has no place in a frame.
        """
        try:
            return self.table.to_pandas()
        except (ValueError, TypeError, LookupError, OverflowError, NotImplementedError) as error:
            words = " ".join(str(error).split())[:200]
            problem = f"the columns cannot be read as a frame ({words})"
            raise TableError(problem, file=self.files[0][0]) from None

    @property
    def row_numbers(self) -> "NDArray[np.int64]":
        """Number of each row as people count, from 1, through all files."""
        import numpy as np

        return 1 + (np.arange(self.table.num_rows) if self.rows is None else self.rows)

    def take(self, chosen: "NDArray[np.bool_]") -> "RowSource":
        """Some of the rows, which keep their places in errors."""
        import pyarrow as pa

        rows = self.row_numbers[chosen] - 1
        return RowSource(self.table.filter(pa.array(chosen)), self.files, rows)

    def placed(self, error: "DataError") -> TableError:
        """An error in the rows, with its place in the files."""
        file, start = self.files[0]
        if error.row is None:
            name = file if len(self.files) == 1 else f"{file} and {len(self.files) - 1} more"
            return TableError(error.problem, file=name, column=error.column)
        row = error.row if self.rows is None else int(self.rows[error.row])
        file, start = next(entry for entry in reversed(self.files) if entry[1] <= row)
        return TableError(error.problem, file=file, row=row - start + 1, column=error.column)

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Let errors in the rows leave the block with their place in the files."""
        from calipers.preprocessing import DataError

        try:
            yield
        except DataError as error:
            raise self.placed(error) from None

    def require(self, column: str) -> None:
        """Refuse rows without a column."""
        from calipers._text import did_you_mean
        from calipers.preprocessing import DataError

        if column not in self.frame:
            hint = did_you_mean(column, self.frame)
            raise self.placed(DataError(f"there is no column {column!r}{hint}"))


def check_distinct(names: list[str], name: str) -> None:
    """Refuse a table with two columns of one name; ``name`` is what errors call the table."""
    column, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        problem = f"there is more than one column {column!r}: give each its own name"
        raise TableError(problem, file=name)
