"""Tables as pandas frames, the description of a column, and the error with a bad value's place."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calipers._checks import refuse_masked
from calipers._text import did_you_mean, same_names

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("number", "boolean", "category", "text", "date", "constant", "identifier")
"""Kinds of columns; a model does not use the last two."""

_DTYPES = {"number": "float64", "boolean": "bool", "date": "datetime64[us]"}


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
    #: The categories, or words of text, with an input each, most frequent first.
    categories: tuple[str, ...] = ()
    missing: bool = False  #: Whether values were missing.
    used: bool = True  #: Whether the model uses the column.
    note: str = ""  #: Human-readable note; often empty.

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its values in a table: numbers, times, booleans or, for text, objects."""
        return np.dtype(_DTYPES.get(self.kind, object))

    @property
    def repeats(self) -> bool:
        """Whether rows have values in common, by which they can be grouped; not so in free text."""
        return self.kind != "text"

    def to_document(self) -> dict[str, Any]:
        """The column as plain JSON."""
        return asdict(self) | {"categories": list(self.categories)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
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


def check_names(present: Iterable[str], names: Sequence[str]) -> None:
    """Refuse a table with the columns ``present`` that lacks one of ``names``."""
    known = dict.fromkeys(present)  # in their order
    lacking = [name for name in names if name not in known]
    if lacking:
        shown = ", ".join(f"{name!r}{did_you_mean(name, known)}" for name in lacking[:5])
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        columns = "column" if len(lacking) == 1 else "columns"
        raise DataError(f"the table lacks the {columns} {shown}{more}")


def refuse_same_names(what: str, names: Iterable[str]) -> None:
    """Refuse several columns of one name; ``what`` says where they are."""
    if problem := same_names(what, names):
        raise DataError(problem)


def wrong_width(found: int, expected: int, who: str) -> DataError:
    """The error for rows with another number of columns, in the words of scikit-learn."""
    return DataError(f"X has {found} features, but {who} is expecting {expected} features as input")


def is_frame(X: object) -> bool:
    """Whether ``X`` is a frame of pandas or polars, or a table of Arrow.

    A lazy frame of polars, which holds no values yet, is refused.
    """
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a LazyFrame, which holds no values yet: collect() it first")
    pandas = sys.modules.get("pandas")  # if it is not imported, X cannot be one of its frames
    return hasattr(X, "to_pandas") or (pandas is not None and isinstance(X, pandas.DataFrame))


def holds_more_than_numbers(X: Any) -> bool:
    """Whether ``X`` is a frame with text, dates or missing values.

    >>> import pandas as pd
    >>> holds_more_than_numbers(pd.DataFrame({"size": [30.0, None]}))
    True
    >>> holds_more_than_numbers(pd.DataFrame({"size": [30.0, 55.0]}))
    False
    """
    if not is_frame(X):
        return False
    from pandas.api.types import is_numeric_dtype

    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    return not all(map(is_numeric_dtype, frame.dtypes)) or bool(frame.isna().to_numpy().any())


def as_frame(X: Any, columns: tuple[Column, ...] = ()) -> "pd.DataFrame":
    """A table as a pandas frame whose columns have distinct names, as text."""
    import pandas as pd

    if not is_frame(X) or not isinstance(X, pd.DataFrame):
        X = X.to_pandas() if hasattr(X, "to_pandas") else _named(X, columns)
    if not all(X.shape):
        what = "feature(s)" if X.shape[0] else "sample(s)"
        raise DataError(
            f"a table with 0 {what} (shape={X.shape}) while a minimum of 1 is required."
        )
    frame = X.set_axis([str(name) for name in X.columns], axis=1)
    refuse_same_names("the table has more than one column", frame.columns)
    return _without_arrow_types(frame)


def _without_arrow_types(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The frame with pandas' own types in place of those of Arrow that it has no operations for."""
    import pandas as pd

    others = {}
    for name, dtype in frame.dtypes.items():
        kind = dtype.pyarrow_dtype if isinstance(dtype, pd.ArrowDtype) else None
        if kind is not None and (pa.types.is_dictionary(kind) or pa.types.is_duration(kind)):
            others[str(name)] = pa.array(frame[name]).to_pandas().set_axis(frame.index)
    return frame.assign(**others) if others else frame


def _named(X: Any, columns: tuple[Column, ...]) -> "pd.DataFrame":
    """An array as a frame, with the names of the training columns or x0, x1, ..."""
    import pandas as pd

    if hasattr(X, "toarray"):
        raise TypeError("sparse input is not supported: pass X.toarray()")
    refuse_masked("X", X)
    values = np.asarray(X) if hasattr(X, "dtype") else np.asarray(X, dtype=object)
    if values.ndim != 2:
        raise ValueError(
            f"a table has rows and columns, got an array of shape {values.shape}. Reshape your data"
        )
    if columns and values.shape[1] != len(columns):
        raise wrong_width(values.shape[1], len(columns), "TableEncoder")
    names = [c.name for c in columns] or [f"x{i}" for i in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=names)
    return frame.infer_objects()
