"""TableEncoder: the scikit-learn transformer over the columns of a table."""

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval as Within
from sklearn.utils.validation import check_is_fitted

from calipers._text import did_you_mean
from calipers.preprocessing._column import KINDS, Column, DataError
from calipers.preprocessing._encoders import ENCODERS, Encoder
from calipers.preprocessing._learn import kind_of, learn, read_number

FloatArray = NDArray[np.float64]


class TableEncoder(TransformerMixin, BaseEstimator):
    """Numbers from a table as it comes.

    - Numbers stay as they are. Where they are missing, the median stands in and a column of its own
      says so. A column with far outliers passes through ``asinh``.
    - Booleans become 1 and 0.
    - Categories become ones and zeros, one column for each frequent one; rare and unseen ones share
      a column.
    - Dates become days since the first one, with sine and cosine of year, week and day where the
      dates span more than one.
    - Text that can be read as numbers (``"1,234.5"``, ``"12%"``) or dates in one way only is read.
    - Constant columns and those that name rows are left out, and ``columns_`` says so.

    Later tables may have their columns in another order, further columns, unseen categories, and
    missing values where training had none.

    Parameters
    ----------
    kinds : mapping of str to str, optional
        Kinds of columns that are known better than the values tell, such as
        ``{"zip": "category", "store": "identifier"}``; see ``calipers.preprocessing.KINDS``. How
        text is written may follow: ``"number 1.234,5"``, ``"date %d/%m/%Y"``.
    max_categories : int, default 30
        Most categories of a column with an input each.
    min_frequency : int, default 2
        Rows that a category must have to get one.

    Attributes
    ----------
    columns_ : tuple of Column
        What training saw in each column.
    kinds_ : dict of str to str
        Kind of each column, as ``kinds`` takes it.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Their names.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"size": [30.0, None, 55.0], "kind": ["flat", "house", "flat"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['size', 'size (missing)', 'kind=flat', 'kind=house']
    >>> encoder.transform(pd.DataFrame({"kind": ["castle"], "size": [40.0]}))
    array([[40.,  0.,  0.,  0.]])
    >>> encoder.outside(pd.DataFrame({"kind": ["castle"], "size": [40.0]}))
    array([[False,  True]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kinds": [Mapping, None],
        "max_categories": [Within(Integral, 1, None, closed="left")],
        "min_frequency": [Within(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        kinds: Mapping[str, str] | None = None,
        max_categories: int = 30,
        min_frequency: int = 2,
    ) -> None:
        self.kinds = kinds
        self.max_categories = max_categories
        self.min_frequency = min_frequency

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find out what the columns hold.

        Parameters
        ----------
        X : pandas, polars or Arrow table, or array-like of shape (n_samples, n_columns)
            The table.
        y : ignored

        Raises
        ------
        DataError
            If a column cannot be used; the message says where and why.
        """
        self._validate_params()
        frame = _as_frame(X)
        kinds = self._checked_kinds(frame)
        learnt = [
            learn(frame[name], kinds.get(name), self.max_categories, self.min_frequency)
            for name in frame
        ]
        self.columns_ = tuple(column for column, _ in learnt)
        self._encoders: tuple[Encoder, ...] = tuple(encoder for _, encoder in learnt)
        if not any(column.used for column in self.columns_):
            notes = "; ".join(f"{column.name!r} {column.note}" for column in self.columns_)
            raise DataError(f"no column can be used: {notes} (n_samples={len(frame)})")
        self._set_names()
        return self

    def _set_names(self) -> None:
        pairs = zip(self.columns_, self._encoders, strict=True)
        self.kinds_ = {column.name: kind_of(column.kind, encoder) for column, encoder in pairs}
        self.n_features_in_ = len(self.columns_)
        self.feature_names_in_ = np.array([column.name for column in self.columns_], dtype=object)

    def _checked_kinds(self, frame: Any) -> Mapping[str, str]:
        kinds = self.kinds or {}
        for name, kind in kinds.items():
            if name not in frame:
                raise DataError(
                    f"kinds names the column {name!r}, which is not there"
                    f"{did_you_mean(name, frame)}"
                )
            if kind.partition(" ")[0] not in KINDS:
                raise ValueError(
                    f"kinds[{name!r}] must be one of {', '.join(KINDS)}; got {kind!r}"
                    f"{did_you_mean(kind, KINDS)}"
                )
        return kinds

    def transform(self, X: Any) -> FloatArray:
        """Numbers of a table, of shape (n_samples, n_features_out).

        Raises
        ------
        DataError
            If columns are missing or hold what cannot be read.
        """
        parts = [encoder.encode(values) for _, encoder, values in self._read(X, used=True)]
        return np.concatenate(parts, axis=1)

    def read(self, X: Any) -> dict[str, NDArray[Any]]:
        """Values of the columns that are used, as ``transform`` understands them.

        Numbers and booleans as floats, dates as seconds since 1970, NaN where they are missing;
        categories as text, None where they are missing.
        """
        return {self.columns_[place].name: values for place, _, values in self._read(X, used=True)}

    def used_columns(self) -> list[tuple[Column, Encoder]]:
        """The columns that are used, each with what makes numbers of its values."""
        check_is_fitted(self, "columns_")
        pairs = zip(self.columns_, self._encoders, strict=True)
        return [(column, encoder) for column, encoder in pairs if column.used]

    def outside(self, X: Any) -> NDArray[np.bool_]:
        """Which values training did not see, of shape (n_samples, n_columns).

        Numbers and dates beyond the range, unseen categories, another value in a constant column,
        and missing values where there were none.
        """
        return self.transform_and_check(X)[1]

    def transform_and_check(self, X: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
        """What ``transform`` and ``outside`` give, reading the table once."""
        parts, found = [], np.zeros((len(_as_frame(X)), len(self.columns_)), dtype=bool)
        for place, encoder, values in self._read(X, used=False):
            parts.append(encoder.encode(values))  # of no columns where the column is not used
            found[:, place] = encoder.outside(values)
        return np.concatenate(parts, axis=1), found

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the numbers that ``transform`` gives."""
        check_is_fitted(self, "columns_")
        names = [
            name
            for column, encoder in zip(self.columns_, self._encoders, strict=True)
            for name in encoder.names(column.name)
        ]
        return np.array(names, dtype=object)

    def _read(self, X: Any, *, used: bool) -> Iterator[tuple[int, Encoder, Any]]:
        """Position, encoder and values of each column that is used, or that is there."""
        check_is_fitted(self, "columns_")
        frame = _as_frame(X, self.columns_)
        _check_names(frame, [column.name for column in self.columns_ if column.used])
        for place, (column, encoder) in enumerate(zip(self.columns_, self._encoders, strict=True)):
            if column.used or (not used and column.name in frame):
                yield place, encoder, encoder.read(frame[column.name])

    def to_document(self) -> dict[str, Any]:
        """What was learnt, as plain JSON."""
        check_is_fitted(self, "columns_")
        parameters = {
            "kinds": None if self.kinds is None else dict(self.kinds),
            "max_categories": int(self.max_categories),
            "min_frequency": int(self.min_frequency),
        }
        columns = [
            {"column": column.to_document(), "encoder": vars(encoder)}
            for column, encoder in zip(self.columns_, self._encoders, strict=True)
        ]
        return {"parameters": parameters, "columns": columns}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The encoder that ``to_document`` wrote."""
        encoder = cls(**document["parameters"])
        columns = document["columns"]
        encoder.columns_ = tuple(Column.from_document(entry["column"]) for entry in columns)
        encoder._encoders = tuple(
            ENCODERS[entry["column"]["kind"]](**entry["encoder"]) for entry in columns
        )
        encoder._set_names()
        return encoder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def pick_numbers(frame: Any, names: Sequence[str]) -> Any:
    """Some columns of a frame as numbers, none of which may be missing.

    Raises
    ------
    DataError
        If a column, or a number, is missing or cannot be read.
    """
    import pandas as pd

    frame = _as_frame(frame)
    _check_names(frame, names)
    found = {name: read_number(frame[name]) for name in names}
    for name, values in found.items():
        gone = np.flatnonzero(np.isnan(values))
        if gone.size:
            raise DataError("the number is missing", column=name, row=int(gone[0]))
    return pd.DataFrame(found, index=frame.index)


def _check_names(frame: Any, names: Sequence[str]) -> None:
    lacking = [name for name in names if name not in frame]
    if lacking:
        shown = ", ".join(f"{name!r}{did_you_mean(name, frame)}" for name in lacking[:5])
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        columns = "column" if len(lacking) == 1 else "columns"
        raise DataError(f"the table lacks the {columns} {shown}{more}")


def _as_frame(X: Any, columns: tuple[Column, ...] = ()) -> Any:
    """A table as a pandas frame with distinct names of columns as text."""
    import pandas as pd

    if not isinstance(X, pd.DataFrame):
        X = X.to_pandas() if hasattr(X, "to_pandas") else _named(X, columns)
    if not all(X.shape):
        what = "feature(s)" if X.shape[0] else "sample(s)"
        raise DataError(
            f"a table with 0 {what} (shape={X.shape}) while a minimum of 1 is required."
        )
    frame = X.set_axis([str(name) for name in X.columns], axis=1)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"the table has more than one column {twice[0]!r}: give each its own name")
    return frame


def _named(X: Any, columns: tuple[Column, ...]) -> Any:
    """An array as a frame; without names of its own, it has those of training or x0, x1, ..."""
    import pandas as pd

    if hasattr(X, "toarray"):
        raise TypeError("sparse input is not supported: pass X.toarray()")
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
