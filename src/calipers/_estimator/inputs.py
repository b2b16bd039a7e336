"""Convert a model's inputs to numbers: arrays unchanged, tables through an encoder."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_X_y, validate_data

from calipers._arrays import BoolArray, FloatArray
from calipers._checks import refuse_masked, warn
from calipers._estimator.column_names import by_position, column_names
from calipers._estimator.row_checks import check_size, readable_target
from calipers._estimator.wrapped import Regressor, points_of
from calipers._schema import anything, list_of, one_of
from calipers.preprocessing import (
    Column,
    Forest,
    LearnedTable,
    OnUnread,
    TableEncoder,
    accept,
    check_column,
    describe_numbers,
    holds_more_than_numbers,
    is_frame,
    numeric_code_columns,
    pick_numbers,
    refuse_same_names,
    refuse_unread,
)

if TYPE_CHECKING:
    import pandas as pd

    from calipers._estimator.model import Model

_FLOATS = [np.float64, np.float32]


@dataclass(frozen=True, eq=False)
class Inputs:
    """The fitted conversion of inputs to numbers."""

    columns: tuple[Column, ...]  # kind, range and categories of each column in training
    # encodes tables as numbers; without one, inputs are numbers
    encoder: TableEncoder | None = None
    # a regressor of another library, whose predictions are an additional last input
    regressor: Regressor | None = None
    # trees grown with the networks, likewise; at most one of the two is present
    forest: Forest | None = None

    def read(
        self, estimator: "Model", X: ArrayLike, on_unread: OnUnread = refuse_unread
    ) -> FloatArray:
        """Inputs as finite numbers; ``estimator`` has the column names and is named in errors."""
        if self.encoder is None:
            numbers = _as_numbers(estimator, X)
        else:
            values = self.encoder.read(self.table(estimator, X), on_unread)
            numbers = self.encoder.encode(values)
        return self._with_points(X, numbers, estimator.n_jobs)

    def table(self, estimator: "Model", X: ArrayLike) -> ArrayLike:
        """Inputs as the encoder takes them, by position for a model fitted without names."""
        if hasattr(estimator, "feature_names_in_"):
            return X
        names = [column.name for column in self.columns]
        return by_position(estimator, X, names, [c.name for c in self.columns if c.used])

    def _with_points(self, X: ArrayLike, numbers: FloatArray, n_jobs: int | None = 1) -> FloatArray:
        if self.forest is not None:
            return np.column_stack([numbers, self.forest.predict(numbers, n_jobs)])
        if self.regressor is None:
            return numbers
        return np.column_stack([numbers, points_of(self.regressor, X, len(numbers))])

    def read_with_targets(
        self, estimator: "Model", X: ArrayLike, y: ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        """Inputs and targets as finite numbers."""
        found = self.read_rows(estimator, X, y)
        return found.numbers, found.y

    def read_rows(self, estimator: "Model", X: Any, y: ArrayLike) -> "EncodedRows":
        """Inputs and targets as finite numbers, with the values of the columns."""
        y = readable_target(y, X)
        if self.encoder is None:
            numbers, y = _as_numbers(estimator, X, y)
            found = EncodedRows(numbers, np.asarray(y, np.float64))
        else:
            learned = isinstance(X, LearnedTable)  # by the encoder of another fit
            values = X.cells if learned else self.encoder.read(self.table(estimator, X))
            found = _encoded(estimator, self.encoder, values, y)
        return found._replace(numbers=self._with_points(X, found.numbers, estimator.n_jobs))

    def read_and_check(
        self, estimator: "Model", X: ArrayLike, on_unread: OnUnread = refuse_unread
    ) -> tuple[FloatArray, BoolArray]:
        """Inputs as finite numbers, and the mask of values not seen in training, by column.

        A few cells that cannot be read are missing and in the mask if ``on_unread`` accepts them.
        """
        numbers, outside = self._checked(estimator, X, on_unread)
        return self._with_points(X, numbers, estimator.n_jobs), outside

    def outside(self, estimator: "Model", X: ArrayLike) -> BoolArray:
        """Mask of values not seen in training, by column, without the cost of predictions."""
        return self._checked(estimator, X, accept)[1]

    def _checked(
        self, estimator: "Model", X: ArrayLike, on_unread: OnUnread
    ) -> tuple[FloatArray, BoolArray]:
        if self.encoder is not None:
            return self.encoder.transform_and_check(self.table(estimator, X), on_unread)
        numbers = _as_numbers(estimator, X)
        return numbers, self._outside(numbers)

    def read_columns(
        self, table: Mapping[str, NDArray[Any]]
    ) -> tuple[FloatArray, BoolArray] | None:
        """What ``read_and_check`` returns, from columns by name; None unless all are numeric.

        If any is missing or not finite, a frame is needed to read them or to report what is wrong.
        Making and reading one takes several times as long as predicting a row.
        """
        if self.encoder is not None or self.regressor is not None:
            return None
        columns = [table[column.name] for column in self.columns if column.name in table]
        if len(columns) < len(self.columns) or any(v.dtype != np.float64 for v in columns):
            return None
        numbers = np.stack(columns, axis=1)
        if not np.isfinite(numbers).all():
            return None
        return self._with_points(numbers, numbers), self._outside(numbers)

    @cached_property
    def _range(self) -> tuple[FloatArray, FloatArray]:
        low, high = (np.array([getattr(c, end) for c in self.columns]) for end in ("low", "high"))
        return low, high

    def _outside(self, numbers: FloatArray) -> BoolArray:
        low, high = self._range
        return (low > numbers) | (high < numbers)

    def cells(self, estimator: "Model", X: ArrayLike) -> dict[str, NDArray[Any]]:
        """The columns that the model uses, as numbers or, for categories, text."""
        if self.encoder is not None:
            return dict(self.encoder.read(self.table(estimator, X)))
        numbers = np.asarray(_as_numbers(estimator, X), dtype=np.float64)
        return {column.name: numbers[:, i] for i, column in enumerate(self.columns)}

    def pick(self, frame: "pd.DataFrame", *, named: bool) -> "pd.DataFrame | NDArray[Any]":
        """The model's inputs in a frame; ``named`` if the model was fitted on named columns."""
        if self.encoder is not None:
            return frame
        numbers = pick_numbers(frame, [column.name for column in self.columns])
        return numbers if named else numbers.to_numpy()

    @property
    def width(self) -> int:
        """Number of columns that ``read`` returns."""
        encoder = self.encoder
        encoded = len(self.columns) if encoder is None else len(encoder.get_feature_names_out())
        return encoded + (self.regressor is not None) + (self.forest is not None)

    def to_document(self) -> dict[str, Any]:
        """Return the fitted state as plain JSON."""
        return {
            "columns": None if self.encoder else [column.to_document() for column in self.columns],
            "preprocessor": None if self.encoder is None else self.encoder.to_document(),
            **({} if self.regressor is None else {"regressor": type(self.regressor).__name__}),
            **({} if self.forest is None else {"trees": len(self.forest)}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Rebuild the inputs from ``to_document``, without the regressor, which is not stored."""
        if document["preprocessor"] is None:
            list_of(anything, least=1)(document["columns"], "inputs.columns")
            for i, column in enumerate(document["columns"]):
                check_column(column, f"inputs.columns[{i}]")
                one_of("number")(column["kind"], f"inputs.columns[{i}].kind")
            return cls(tuple(map(Column.from_document, document["columns"])))
        encoder = TableEncoder.from_document(document["preprocessor"])
        return cls(encoder.columns_, encoder)


class EncodedRows(NamedTuple):
    """Labelled rows as numbers, and what their target encoding is learned from."""

    numbers: FloatArray
    y: FloatArray
    values: Mapping[str, NDArray[Any]] = {}  #: Of the columns, where an encoder has read them.
    repeated: list[int] | None = None  #: Columns that are numeric codes, where these are known.


def learn_table(
    preprocessor: TableEncoder | str | None, X: Any, weights: FloatArray | None
) -> LearnedTable | None:
    """Fit an encoder to a table, whatever its targets are; None if it contains only numbers.

    Rows of weight 0 are read, not learned from.
    """
    if isinstance(X, LearnedTable):
        return X
    encoder = _encoder_for(preprocessor, X)
    return None if encoder is None else _learned(encoder, X, weights)


def _learned(encoder: TableEncoder, X: ArrayLike, weights: FloatArray | None) -> LearnedTable:
    if weights is None or weights.all():
        return encoder.learn(X)
    return LearnedTable(encoder, encoder.fit(_safe_indexing(X, np.flatnonzero(weights))).read(X))


def read_together(
    models: Sequence["Model"], X: ArrayLike, on_unread: OnUnread
) -> tuple[list[FloatArray], BoolArray]:
    """The inputs of models of the same columns, and the mask of values not seen in training.

    Rows that encoders read are read once.
    """
    readers = [model.reader_ for model in models]
    encoders = [reader.encoder for reader in readers if reader.encoder is not None]
    if len(encoders) < len(models):
        numbers, outside = readers[0].read_and_check(models[0], X, on_unread)
        return [numbers, *(model.reader_.read(model, X, accept) for model in models[1:])], outside
    values, outside = encoders[0].read_and_check(readers[0].table(models[0], X), on_unread)
    parts = zip(models, readers, encoders, strict=True)
    return [r._with_points(X, e.encode(values), m.n_jobs) for m, r, e in parts], outside


def learn_inputs(
    estimator: "Model",
    X: Any,
    y: ArrayLike,
    weights: FloatArray | None,
    use_targets: bool = False,
) -> tuple[Inputs, EncodedRows]:
    """Fit the conversion of inputs, and convert the rows by it.

    Rows of weight 0 are converted, not learned from. With ``use_targets``, an array with numeric
    codes is treated as a table. Sets ``n_features_in_`` and ``feature_names_in_`` of ``estimator``.
    """
    _check_order(X, y)
    y = readable_target(y, X)
    if (targets := np.asarray(y)).dtype.kind in "fiu":  # before sums of them overflow
        check_size(targets.astype(np.float64).ravel())
    table, repeated = learn_table(estimator.preprocessor, X, weights), None
    if table is None:
        numbers, y = _as_numbers(estimator, X, y, reset=True)
        y = np.asarray(y, np.float64)
        seen = slice(None) if weights is None else weights > 0
        unnamed = [f"x{i}" for i in range(numbers.shape[1])]
        if use_targets and estimator.preprocessor is not None:
            subset = numbers[seen]
            repeated = numeric_code_columns(subset, dict(enumerate(subset.T)), y[seen])
        if not repeated:
            names = getattr(estimator, "feature_names_in_", unnamed)
            return Inputs(describe_numbers(numbers[seen], names)), EncodedRows(numbers, y)
        names = column_names(X) if is_frame(X) else unnamed
        table = _learned(TableEncoder(kinds=dict.fromkeys(names, "number")), X, weights)
    encoder = copy(table.encoder)  # which may learn a target encoding
    if repeated is None:  # otherwise scikit-learn has set them
        estimator.n_features_in_ = encoder.n_features_in_
        estimator.feature_names_in_ = encoder.feature_names_in_
    rows = _encoded(estimator, encoder, table.cells, y)
    return Inputs(encoder.columns_, encoder), rows._replace(repeated=repeated)


def _encoded(
    estimator: "Model", encoder: TableEncoder, values: Mapping[str, NDArray[Any]], y: ArrayLike
) -> EncodedRows:
    """The rows with these values of their columns; ``estimator`` is named in errors."""
    options: dict[str, Any] = {"dtype": _FLOATS, "y_numeric": True, "estimator": estimator}
    numbers, y = check_X_y(encoder.encode(values), y, **options)
    return EncodedRows(numbers, np.asarray(y, np.float64), values)


def _check_order(X: Any, y: Any) -> None:
    """Warn if X and y are frames with the same index in a different order."""
    if not all(hasattr(getattr(part, "index", None), "sort_values") for part in (X, y)):
        return
    if len(X.index) != len(y.index) or X.index.equals(y.index):
        return
    try:
        same = X.index.sort_values().equals(y.index.sort_values())
    except TypeError:  # labels of several types cannot be sorted
        return
    if same:
        warn(
            "X and y have the same index in another order: rows are matched by position; use "
            "y.loc[X.index] to match them by index"
        )


def _encoder_for(preprocessor: TableEncoder | str | None, X: ArrayLike) -> TableEncoder | None:
    """Return an unfitted encoder for ``X``, or None if it contains only numbers."""
    if isinstance(preprocessor, str):  # "auto"
        return TableEncoder() if holds_more_than_numbers(X) else None
    return None if preprocessor is None else clone(preprocessor)


def _as_numbers(
    estimator: "Model", X: Any, y: Any = "no_validation", *, reset: bool = False
) -> Any:
    """Read finite numbers as scikit-learn does; errors also say what to do."""
    if not reset and isinstance(y, str) and (ready := _ready(estimator, X)) is not None:
        return ready
    refuse_masked("X", X)
    framed, options = is_frame(X), {"reset": reset, "dtype": _FLOATS}
    if framed:
        refuse_same_names("the table has more than one column", column_names(X))
    if not isinstance(y, str):
        options["y_numeric"] = True
    try:
        return validate_data(estimator, X, y, **options)
    except np.exceptions.DTypePromotionError:  # dates together with numbers
        raise ValueError(
            f"X does not contain only numbers. {_remedy(estimator, framed, reset)}"
        ) from None
    except TypeError as error:
        if "float" not in str(error) or hasattr(X, "toarray"):
            raise
        hint = "if X is a list of records or a dict of columns, pass pandas.DataFrame(X)"
        raise TypeError(f"{error}; {hint}") from None
    except ValueError as error:
        problem = str(error).partition("\n")[0].rstrip(".")
        if problem.startswith("Input X contains infinity"):
            infinite = np.isinf(np.asarray(X, dtype=np.float64)).reshape(len(X), -1).any(axis=1)
            if infinite.any():
                raise ValueError(f"{problem}: row {infinite.argmax()} (from 0)") from None
        if not problem.startswith(("could not convert", "Input X contains NaN")):
            raise
        raise ValueError(f"{problem}. {_remedy(estimator, framed, reset)}") from None


def _ready(estimator: "Model", X: Any) -> FloatArray | None:
    """Return new rows if scikit-learn would do so unchanged, or None; its checks take longer."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and type(X).__name__ == "DataFrame" and hasattr(X, "to_numpy"):
        if list(X.columns) != names.tolist():
            return None
        X = X.to_numpy()
    elif names is not None:
        return None
    fits = type(X) is np.ndarray and X.dtype in _FLOATS and X.ndim == 2 and len(X) > 0
    if not fits or X.shape[1] != estimator.n_features_in_ or not np.isfinite(X).all():
        return None
    return X


def _remedy(estimator: "Model", framed: bool, fitting: bool) -> str:
    """Advice for inputs that are not numbers."""
    name = type(estimator).__name__
    if not fitting:
        return (
            f"The model was fitted on numbers alone: fit it with "
            f"{name}(preprocessor=TableEncoder()) if new rows may have text or missing values."
        )
    if framed:
        return f"{name}(preprocessor='auto') reads text, dates and missing values."
    return (
        f"An array must contain finite numbers: pass a pandas or polars frame, in which {name} "
        "reads text, dates and missing values, or set preprocessor=TableEncoder()."
    )
