"""``TableEncoder``, the scikit-learn transformer of tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval as Within
from sklearn.utils.validation import check_is_fitted

from calipers._arrays import FloatArray
from calipers._text import did_you_mean
from calipers.preprocessing._column import Column, DataError, as_frame, check_kind, check_names
from calipers.preprocessing._column_encoder import Encoder
from calipers.preprocessing._document import check_table
from calipers.preprocessing._encoders import ENCODERS
from calipers.preprocessing._kinds import IN_THOUSANDS, in_thousands
from calipers.preprocessing._learn import FEWEST_ROWS, learn
from calipers.preprocessing._numbers import kind_of
from calipers.preprocessing._unread import OnUnread, UnreadCells, refuse_unread

if TYPE_CHECKING:
    import pandas as pd


@dataclass(kw_only=True, eq=False, repr=False)
class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode the columns of any table as numbers.

    - Numbers stay as they are. Missing ones are imputed by the median and marked in a column of
      their own. A column with far outliers is transformed by ``asinh``. In a model, numeric codes
      (store numbers, postcodes: rows with the same value have more in common than nearby values
      explain) are also target-encoded, see ``target_encoding``.
    - Booleans become 1 and 0.
    - Categories are one-hot encoded if they are frequent; rare and unseen ones share a column.
      Where some of many have no column of their own, the frequency of a category is added, and in
      a model the mean and spread of the targets of these, see ``target_encoding``.
    - Dates become days since the first one, with sine and cosine of year, week and day where the
      dates span more than one.
    - Text is read if it can be understood in one way only as numbers (``"1,234.5"``, ``"$12"``),
      clock times (``"10:30"``, as hours) or dates.
    - Free text has an input for each of its frequent words, and so have words in the names of
      categories that are mostly rare. The text itself is not stored.
    - Constant columns and identifiers of rows are left out, and ``columns_`` says so.

    Later tables may have their columns in another order, further columns, unseen categories, and
    missing values where training had none.

    Parameters
    ----------
    kinds : mapping of str to str, optional
        Kinds of columns that are not detected, or detected wrongly, such as
        ``{"zip": "category", "store": "identifier"}``; see ``calipers.preprocessing.KINDS``. How
        text is written may follow: ``"number 1.234,5"``, ``"number 10:30"``,
        ``"date %d/%m/%Y"``.
    max_categories : int, optional
        Most categories of a column that are one-hot encoded. By default up to 30; of more, all but
        one, at most the 60 most frequent ones, or up to 300 that have 20 rows or more.
    min_frequency : int, optional
        Rows that a category must have for that, and for its name to be stored: of others, digests
        are stored, and they count as unseen. By default 2, but a model that learns the targets of
        categories does so of all of them, and stores their names.
    target_encoding : bool, default True
        Whether a model that the encoder is part of (``IntervalRegressor(preprocessor=...)``) learns
        the mean and spread of the targets of each category that has no column of its own, where
        there are more than ``max_categories`` or 30, and of each numeric code. The encoder alone
        never looks at targets.

    Attributes
    ----------
    columns_ : tuple of Column
        Description of each column.
    kinds_ : dict of str to str
        Kind of each column, as ``kinds`` takes it.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns.

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

    kinds: Mapping[str, str] | None = None
    max_categories: int | None = None
    min_frequency: int | None = None
    target_encoding: bool = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kinds": [Mapping, None],
        "max_categories": [Within(Integral, 1, None, closed="left"), None],
        "min_frequency": [Within(Integral, 1, None, closed="left"), None],
        "target_encoding": ["boolean"],
    }

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the kinds and encodings of the columns.

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
        self.learn(X)
        return self

    def fit_transform(self, X: ArrayLike, y: object = None) -> FloatArray:
        """Fit, and return what ``transform`` would, reading every column once."""
        return self.encode(self.learn(X).cells)

    def fit_typed(self, X: ArrayLike) -> "pd.DataFrame":
        """Fit, and return the table with every column in its own type, reading it once.

        The frame has floats, datetimes and categoricals in place of text, and None in columns
        that identify rows. Encoders with ``kinds=encoder.kinds_`` that are fitted to parts of it,
        as in a cross-validation, learn the same as from the table without parsing text again.
        """
        frame = as_frame(X)
        return self.learn(frame).typed().set_axis(frame.index)

    def learn(self, X: ArrayLike) -> "LearnedTable":
        """Fit, and return the table with the values of all columns, which ``encode`` takes."""
        self._validate_params()
        frame = as_frame(X)
        kinds = self._checked_kinds(frame)
        learned = []
        columns = [series for _, series in frame.items()]
        grouped = in_thousands((part for part in columns if part.name not in kinds), columns)
        for series in columns:
            kind = IN_THOUSANDS if series.name in grouped else kinds.get(str(series.name))
            result = learn(series, kind, self.max_categories, self.min_frequency or FEWEST_ROWS)
            if series.name in grouped:
                note = f"{result.column.note}, since other columns have decimal commas"
                result = result._replace(column=replace(result.column, note=note))
            learned.append(result)
        self.columns_ = tuple(column for column, _, _ in learned)
        self._encoders: tuple[Encoder, ...] = tuple(encoder for _, encoder, _ in learned)
        if not any(column.used for column in self.columns_):
            notes = "; ".join(f"{column.name!r} {column.note}" for column in self.columns_)
            raise DataError(f"no column can be used: {notes} (n_samples={len(frame)})")
        self._set_names()
        return LearnedTable(self, {column.name: values for column, _, values in learned})

    def _set_names(self) -> None:
        pairs = zip(self.columns_, self._encoders, strict=True)
        self.kinds_ = {column.name: kind_of(column.kind, encoder) for column, encoder in pairs}
        self.n_features_in_ = len(self.columns_)
        self.feature_names_in_ = np.array([column.name for column in self.columns_], dtype=object)

    def _checked_kinds(self, frame: "pd.DataFrame") -> Mapping[str, str]:
        kinds = self.kinds or {}
        for name, kind in kinds.items():
            if name not in frame:
                raise DataError(
                    f"kinds names the column {name!r}, which the table does not have"
                    f"{did_you_mean(name, frame)}"
                )
            check_kind(name, kind)
        return kinds

    def transform(self, X: ArrayLike) -> FloatArray:
        """The table as numbers, of shape (n_samples, n_features_out).

        Raises
        ------
        DataError
            If columns are missing, or hold values that cannot be read.
        """
        return self.encode(self.read(X))

    def encode(self, values: Mapping[str, NDArray[Any]]) -> FloatArray:
        """Values of the columns, as ``read`` returns them, as the numbers of ``transform``."""
        pairs = zip(self.columns_, self._encoders, strict=True)
        parts = [encoder.encode(values[column.name]) for column, encoder in pairs if column.used]
        return np.concatenate(parts, axis=1)

    def read(self, X: ArrayLike, on_unread: OnUnread = refuse_unread) -> dict[str, NDArray[Any]]:
        """Values of the columns that are used, as ``transform`` reads them.

        Numbers and booleans as floats, dates as seconds since 1970, NaN where they are missing;
        categories as text, None where they are missing. ``on_unread`` is called with the
        cells of a column that cannot be read, which then are missing, unless they are more than a
        tenth.
        """
        return self._read(X, used=True, on_unread=on_unread)

    def used_columns(self) -> list[tuple[Column, Encoder]]:
        """The columns that are used, each with its encoder."""
        check_is_fitted(self, "columns_")
        pairs = zip(self.columns_, self._encoders, strict=True)
        return [(column, encoder) for column, encoder in pairs if column.used]

    def outside(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Mask of values that were not seen in training, of shape (n_samples, n_columns).

        These are numbers and dates outside the range, unseen categories, another value in a
        constant column, and missing values where there were none.
        """
        return self.transform_and_check(X)[1]

    def transform_and_check(
        self, X: ArrayLike, on_unread: OnUnread = refuse_unread
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        """The results of ``transform`` and ``outside``, reading the table once.

        Unreadable cells that ``on_unread`` accepts are missing, and marked in the mask.
        """
        values, outside = self.read_and_check(X, on_unread)
        return self.encode(values), outside

    def read_and_check(
        self, X: ArrayLike, on_unread: OnUnread = refuse_unread
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        """The results of ``read``, of all columns that are present, and ``outside``."""
        found: list[UnreadCells] = []

        def mark(cells: UnreadCells) -> None:
            on_unread(cells)
            found.append(cells)

        values = self._read(X, used=False, on_unread=mark)
        rows = len(next(iter(values.values())))
        outside = np.zeros((rows, len(self.columns_)), dtype=bool)
        for i, (column, encoder) in enumerate(zip(self.columns_, self._encoders, strict=True)):
            if column.name in values:
                outside[:, i] = encoder.outside(values[column.name])
        names = [column.name for column in self.columns_]
        for cells in found:
            outside[cells.rows, names.index(cells.column)] = True
        return values, outside

    @property
    def knows_targets(self) -> bool:
        """Whether a target encoding has been learned."""
        return any(getattr(encoder, "means", None) for encoder in self._encoders)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Names of the columns that ``transform`` returns."""
        check_is_fitted(self, "columns_")
        names = [
            name
            for column, encoder in zip(self.columns_, self._encoders, strict=True)
            for name in encoder.names(column.name)
        ]
        return np.array(names, dtype=object)

    def _read(self, X: ArrayLike, *, used: bool, on_unread: OnUnread) -> dict[str, NDArray[Any]]:
        """Values of each column: only of those ``used``, or of all present."""
        check_is_fitted(self, "columns_")
        frame = as_frame(X, self.columns_)
        check_names(map(str, frame), [column.name for column in self.columns_ if column.used])
        return {
            column.name: encoder.read(frame[column.name], on_unread)
            for column, encoder in zip(self.columns_, self._encoders, strict=True)
            if column.used or (not used and column.name in frame)
        }

    def to_document(self) -> dict[str, Any]:
        """The fitted encoder as plain JSON."""
        check_is_fitted(self, "columns_")
        parameters = {
            "kinds": None if self.kinds is None else dict(self.kinds),
            "max_categories": None if self.max_categories is None else int(self.max_categories),
            "min_frequency": None if self.min_frequency is None else int(self.min_frequency),
            "target_encoding": bool(self.target_encoding),
        }
        columns = [
            {"column": column.to_document(), "encoder": vars(encoder)}
            for column, encoder in zip(self.columns_, self._encoders, strict=True)
        ]
        return {"parameters": parameters, "columns": columns}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The encoder that ``to_document`` wrote; a ``SchemaError`` names what is malformed."""
        check_table(document)
        encoder = cls(**document["parameters"])
        columns = document["columns"]
        encoder.columns_ = tuple(Column.from_document(entry["column"]) for entry in columns)
        encoder._encoders = tuple(
            ENCODERS[entry["column"]["kind"]](**entry["encoder"]) for entry in columns
        )
        encoder._set_names()
        return encoder

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags


@dataclass(frozen=True, eq=False)
class LearnedTable:
    """A table that an encoder was fitted to; fits that are given it do not learn it again."""

    encoder: TableEncoder
    cells: Mapping[str, NDArray[Any]]  # values of the columns, as the encoder reads them

    def __len__(self) -> int:
        return len(next(iter(self.cells.values())))

    def typed(self) -> "pd.DataFrame":
        """The table with every column in its own type, see ``TableEncoder.fit_typed``."""
        import pandas as pd

        return pd.DataFrame({c.name: _typed(self.cells[c.name], c) for c in self.encoder.columns_})


def _typed(
    values: NDArray[Any], column: Column
) -> "pd.Series[Any] | pd.Categorical | NDArray[Any]":
    """Values that an encoder has read, in the pandas type for the column."""
    import pandas as pd

    if column.dtype.kind == "M":
        missing = np.isnan(values)
        times = np.where(missing, 0, np.round(values * 1e6)).astype("datetime64[us]")
        return pd.Series(times).mask(missing)
    return pd.Categorical(values) if values.dtype == object else values
