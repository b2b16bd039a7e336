"""How much a table may hold whose sender is not trusted."""

from collections.abc import Callable
from dataclasses import dataclass

from calipers.tables._source import TooLargeError

BODY = "the body"
"""What errors call bytes in memory."""

Reserve = Callable[[int], None]
"""Called with a number of bytes before they are allocated; raises if they are too many."""

_EXPANSION = 4  # a decoded table against the longest body; also the bytes of a wide character


@dataclass(frozen=True)
class TableLimits:
    """Most of what a table may have.

    >>> TableLimits(body=100, rows=10, columns=5, cells=20).check(3, 4)
    """

    body: int  # bytes as it is sent
    # cells are rows times columns
    rows: int
    columns: int
    cells: int

    @property
    def decoded(self) -> int:
        """Bytes of values that are written out."""
        return _EXPANSION * self.body

    def check(self, rows: int, columns: int) -> None:
        """Refuse a table that is too large."""
        if columns > self.columns:
            raise too_large(f"the table has more than {self.columns:,} columns")
        if rows > self.rows:
            raise too_large(f"the table has more than the {self.rows:,} rows allowed")
        if rows * columns > self.cells:
            raise too_large(
                f"the table has more than {self.cells:,} values: send fewer rows at a time"
            )


def too_large(problem: str) -> TooLargeError:
    """The error for bytes in memory that are too many, or would become so."""
    return TooLargeError(problem, file=BODY)
