"""Errors of tables: what is wrong, with its file, row and column."""

from functools import partial
from typing import Any

STANDARD = "-"
"""The name of standard input and output."""


class TableError(ValueError):
    """A table that cannot be read or used, with its file and, where they are known, row and column.

    Examples
    --------
    >>> raise TableError("'many' is not a number", file="flats.csv", row=3, column="rooms")
    Traceback (most recent call last):
    calipers.tables._errors.TableError: flats.csv, row 3, column 'rooms': 'many' is not a number
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
    """A table with more rows or columns than are allowed."""
