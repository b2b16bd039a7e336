"""Limits on the size of tables from untrusted senders."""

from collections.abc import Callable
from dataclasses import dataclass

from calipers.tables._source import TooLargeError

BODY = "the body"
"""The name of bytes in memory in error messages."""

Reserve = Callable[[int], None]
"""Called with a number of bytes before they are allocated; raises if they are too many."""

_EXPANSION = 4  # of a table by decoding, at most; a wide character has 4 bytes too


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
        """Bytes of the decoded values."""
        return _EXPANSION * self.body

    def check(self, rows: int, columns: int) -> None:
        """Refuse a table that is too large."""
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
