"""Cells that cannot be read: an error, or missing values where rows are predicted.

A few of them in new rows must not refuse all predictions, but never go unnoticed. Many are a change
of format, and stay an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from calipers._arrays import AnyIntArray
from calipers._checks import warn
from calipers._text import counted
from calipers.preprocessing._column import DataError

if TYPE_CHECKING:
    import pandas as pd

FEW = 0.1  # largest fraction of the values of a column that may be unreadable in rows to predict


@dataclass(frozen=True, eq=False)
class UnreadCells:
    """The cells of a column that cannot be read."""

    column: str
    rows: AnyIntArray  # from 0
    problem: str  # of the first

    @property
    def error(self) -> DataError:
        """The error that names the first of them."""
        return DataError(self.problem, column=self.column, row=int(self.rows[0]))


OnUnread: TypeAlias = Callable[[UnreadCells], object]
"""Called with the cells of a column that cannot be read, which then count as missing; may raise."""


def refuse_unread(cells: UnreadCells) -> None:
    """Raise the error of the first cell."""
    raise cells.error


def accept(cells: UnreadCells) -> None:
    """Let the cells count as missing."""


def tell_unread(
    series: "pd.Series[Any]",
    rows: AnyIntArray,
    present: int,
    problem: str,
    on_unread: OnUnread,
) -> None:
    """Report unreadable ``rows`` of a column with so many values; refuse more than ``FEW``."""
    cells = UnreadCells(str(series.name), rows, problem)
    (on_unread if len(rows) <= FEW * present else refuse_unread)(cells)


def warn_unread(found: Sequence[UnreadCells]) -> None:
    """Warn once of all cells that could not be read, if there are any."""
    if found:
        more = [f"{counted(len(cells.rows), 'cell')} in {cells.column!r}" for cells in found]
        warn(f"unreadable, so taken as missing: {', '.join(more)}; {found[0].error}")
