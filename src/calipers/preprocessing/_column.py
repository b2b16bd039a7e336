"""The description of a column of a table, and the error that names a place in one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calipers._text import did_you_mean

KINDS = ("number", "boolean", "category", "date", "constant", "identifier")
"""Kinds of columns; a model does not use the last two."""


class DataError(ValueError):
    """A table, or a value in it, that cannot be used.

    Parameters
    ----------
    problem : str
        What is wrong, and what would be right.
    column : str, optional
        Name of the column.
    row : int, optional
        Position of the row, from 0.

    Examples
    --------
    >>> raise DataError("'many' is not a number", column="rooms", row=3)
    Traceback (most recent call last):
    calipers.preprocessing._column.DataError: column 'rooms', row 3 (from 0): 'many' is not a number
    """

    def __init__(self, problem: str, *, column: str | None = None, row: int | None = None) -> None:
        self.problem, self.column, self.row = problem, column, row
        place = [] if column is None else [f"column {column!r}"]
        place += [] if row is None else [f"row {row} (from 0)"]
        super().__init__(f"{', '.join(place)}: {problem}" if place else problem)


@dataclass(frozen=True)
class Column:
    """Description of one column in the training data."""

    name: str  #: Its name; columns without one are called x0, x1 and so on.
    kind: str  #: One of ``KINDS``.
    #: Smallest and largest value and the median; dates as ISO strings, None for categories.
    low: float | str | None = None
    high: float | str | None = None
    typical: float | str | None = None
    #: The categories with an input each, most frequent first.
    categories: tuple[str, ...] = ()
    missing: bool = False  #: Whether values were missing.
    used: bool = True  #: Whether the model uses the column.
    note: str = ""  #: A remark for people; often empty.

    def to_document(self) -> dict[str, Any]:
        """The column as plain JSON."""
        return asdict(self) | {"categories": list(self.categories)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The column that ``to_document`` wrote."""
        return cls(**{**document, "categories": tuple(document["categories"])})


def check_kind(name: str, kind: str) -> None:
    """Refuse an unknown kind of column; how its text is written may follow the kind."""
    if kind.partition(" ")[0] not in KINDS:
        raise ValueError(
            f"kinds[{name!r}] must be one of {', '.join(KINDS)}; got {kind!r}"
            f"{did_you_mean(kind, KINDS)}"
        )


def describe_numbers(values: NDArray[Any], names: Sequence[str]) -> tuple[Column, ...]:
    """Describe each column of an array of finite numbers.

    >>> column, = describe_numbers(np.array([[1.0], [2.0], [9.0]]), ["size"])
    >>> column.low, column.typical, column.high
    (1.0, 2.0, 9.0)
    """
    return tuple(
        Column(
            str(name),
            "number",
            low=float(part.min()),
            high=float(part.max()),
            typical=float(np.median(part)),
            note="the same in every row" if part.min() == part.max() else "",
        )
        for name, part in zip(names, values.T, strict=True)
    )
