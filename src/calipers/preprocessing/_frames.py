"""Conversion of tables to pandas frames with distinct names, and selection of columns by name."""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from calipers._checks import refuse_masked
from calipers._text import did_you_mean
from calipers.preprocessing._column import Column, DataError
from calipers.preprocessing._learn import read_number


def pick_numbers(frame: Any, names: Sequence[str]) -> Any:
    """The columns ``names`` of a frame as numbers, none of which may be missing."""
    import pandas as pd

    frame = as_frame(frame)
    check_names(frame, names)
    columns = {name: read_number(frame[name]) for name in names}
    for name, values in columns.items():
        missing = np.flatnonzero(np.isnan(values))
        if missing.size:
            raise DataError("the number is missing", column=name, row=int(missing[0]))
    return pd.DataFrame(columns, index=frame.index)


def check_names(frame: Any, names: Sequence[str]) -> None:
    """Refuse a frame that lacks one of the columns ``names``."""
    lacking = [name for name in names if name not in frame]
    if lacking:
        shown = ", ".join(f"{name!r}{did_you_mean(name, frame)}" for name in lacking[:5])
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        columns = "column" if len(lacking) == 1 else "columns"
        raise DataError(f"the table lacks the {columns} {shown}{more}")


def is_frame(X: Any) -> bool:
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


def as_frame(X: Any, columns: tuple[Column, ...] = ()) -> Any:
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
    duplicates = frame.columns[frame.columns.duplicated()]
    if len(duplicates):
        problem = f"the table has more than one column {duplicates[0]!r}: give each its own name"
        raise DataError(problem)
    return _without_arrow_types(frame)


def _without_arrow_types(frame: Any) -> Any:
    """The frame with NumPy's or pandas' own types for some of Arrow that pandas cannot handle."""
    import pandas as pd

    is_other = (pa.types.is_dictionary, pa.types.is_duration, pa.types.is_null)
    others = {
        name: pa.array(frame[name]).to_pandas().set_axis(frame.index)
        for name, dtype in frame.dtypes.items()
        if isinstance(dtype, pd.ArrowDtype) and any(is_(dtype.pyarrow_dtype) for is_ in is_other)
    }
    return frame.assign(**others) if others else frame


def _named(X: Any, columns: tuple[Column, ...]) -> Any:
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
        raise DataError(
            f"X has {values.shape[1]} features, but TableEncoder is expecting {len(columns)} "
            "features as input"
        )
    names = [c.name for c in columns] or [f"x{i}" for i in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=names)
    return frame.infer_objects()
