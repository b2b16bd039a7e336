"""What a model knows of its inputs: how to read them, what training saw, what is outside of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, check_X_y, validate_data

from calipers.preprocessing import Column, TableEncoder, describe_numbers, pick_numbers
from calipers.storage import versions

FloatArray = NDArray[np.float64]

_FLOATS = [np.float64, np.float32]


class InputReader(BaseEstimator):
    """An estimator that takes arrays of numbers or, with a preprocessor, tables as they come."""

    preprocessor: TableEncoder | None
    preprocessor_: TableEncoder
    inputs_: tuple[Column, ...]
    target_: Column
    about_: dict[str, Any]

    def _checked(self, X: Any) -> FloatArray:
        """Inputs as numbers."""
        check_is_fitted(self, "ensemble_")
        if hasattr(self, "preprocessor_"):
            return self.preprocessor_.transform(X)
        return validate_data(self, X, reset=False, dtype=_FLOATS)

    def _checked_pair(self, X: Any, y: Any, *, reset: bool = False) -> tuple[FloatArray, Any]:
        """Inputs as numbers, and targets; ``reset`` takes the names of the inputs from them."""
        if not hasattr(self, "preprocessor_"):
            return validate_data(self, X, y, reset=reset, dtype=_FLOATS, y_numeric=True)
        encoded = self.preprocessor_.transform(X)
        return check_X_y(encoded, y, dtype=_FLOATS, y_numeric=True, estimator=self)

    def _learn_inputs(
        self, X: Any, y: Any, weights: FloatArray | None, reset: bool
    ) -> tuple[FloatArray, Any]:
        """Inputs as numbers, and targets; keeps what they look like, rows of weight 0 left out.

        Without ``reset`` a model goes on from an earlier fit, whose reading of the inputs stays.
        """
        rows = slice(None) if weights is None else np.flatnonzero(weights)
        if reset:
            self.__dict__.pop("preprocessor_", None)
        if reset and self.preprocessor is not None:
            seen = X if weights is None else _safe_indexing(X, rows)
            self.preprocessor_ = clone(self.preprocessor).fit(seen)
            self.n_features_in_ = self.preprocessor_.n_features_in_
            self.feature_names_in_ = self.preprocessor_.feature_names_in_
        name = getattr(y, "name", None) or next(iter(getattr(y, "columns", [])), None)
        X, y = self._checked_pair(X, y, reset=reset)
        if reset and hasattr(self, "preprocessor_"):
            self.inputs_ = self.preprocessor_.columns_
        elif reset:
            names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])])
            self.inputs_ = describe_numbers(X[rows], names)
        (self.target_,) = describe_numbers(y[rows, None], ["y" if name is None else str(name)])
        self.about_ = {
            "fitted_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "rows": len(y),
            "versions": versions(),
        }
        return X, y

    def pick(self, frame: Any) -> Any:
        """Columns that the model takes, from a pandas frame with any others and in any order.

        Raises
        ------
        calipers.preprocessing.DataError
            If columns are missing, or values that the model needs.
        """
        check_is_fitted(self, "ensemble_")
        if hasattr(self, "preprocessor_"):
            return frame
        numbers = pick_numbers(frame, [column.name for column in self.inputs_])
        return numbers if hasattr(self, "feature_names_in_") else numbers.to_numpy()

    def outside(self, X: Any) -> NDArray[np.bool_]:
        """Which values training did not see, where predictions deserve less trust.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        array of bool, of shape (n_samples, n_features)
            Numbers and dates beyond the range of training; with a preprocessor also unseen
            categories, and missing values where there were none. Columns as in ``inputs_``.
        """
        check_is_fitted(self, "ensemble_")
        if hasattr(self, "preprocessor_"):
            return self.preprocessor_.outside(X)
        X = self._checked(X)
        low, high = (np.array([getattr(c, end) for c in self.inputs_]) for end in ("low", "high"))
        return (low > X) | (high < X)

    def _inputs_document(self) -> dict[str, Any]:
        """What a model knows of its inputs and of itself, as plain JSON."""
        names = getattr(self, "feature_names_in_", None)
        encoder = getattr(self, "preprocessor_", None)
        return {
            "names": None if names is None else [str(name) for name in names],
            "columns": None if encoder else [column.to_document() for column in self.inputs_],
            "preprocessor": None if encoder is None else encoder.to_document(),
            "target": self.target_.to_document(),
            "about": self.about_,
        }

    def _restore_inputs(self, document: Mapping[str, Any]) -> None:
        """Take in what ``_inputs_document`` gave."""
        if document["preprocessor"] is not None:
            self.preprocessor_ = TableEncoder.from_document(document["preprocessor"])
            self.preprocessor = clone(self.preprocessor_)
            self.inputs_ = self.preprocessor_.columns_
        else:
            self.inputs_ = tuple(map(Column.from_document, document["columns"]))
        self.target_ = Column.from_document(document["target"])
        self.about_ = document["about"]
        self.n_features_in_ = len(self.inputs_)
        if document["names"] is not None:
            self.feature_names_in_ = np.array(document["names"], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        table = self.preprocessor is not None
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = table
        return tags
