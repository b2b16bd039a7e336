"""Density ratios estimated by a classifier, for weighted conformal prediction."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import FloatArray
from calipers._blocks import sum_members
from calipers._schema import array_of, refuse

# Ratios are clipped to this and its inverse.
MAX_RATIO = 20.0
# Inputs are clipped to this many standard deviations, so that a single outlier does not dominate.
MAX_INPUT = 4.0
FOLDS = 5
PENALTIES = (0.001, 0.01, 0.1, 1.0)
# Logarithms of ratios are rounded to multiples of this, so that few ratios are distinct.
STEP = 0.05


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """Ratio of the density of new inputs to that of calibration inputs, as a function of rows.

    A logistic regression on standardised inputs and their squares separates the two samples; its
    odds are the ratio. Inputs and ratios are clipped to a range where the estimate is reliable.
    """

    #: (inputs,): Location and scale that standardise the inputs.
    center: FloatArray
    scale: FloatArray
    coef: FloatArray  #: (2 * inputs,): Coefficients of the inputs and of their squares.
    intercept: FloatArray  #: (): Logarithm of the ratio at the centre.

    def __call__(self, X: FloatArray) -> FloatArray:
        """Ratios of rows, of shape (n,)."""
        return _ratio(sum_members((self._features(X) * self.coef).T) + self.intercept)

    def _features(self, X: FloatArray) -> FloatArray:
        z = (np.asarray(X, np.float64) - self.center) / self.scale
        z = np.clip(z, -MAX_INPUT, MAX_INPUT)
        return np.concatenate([z, z * z], axis=1)

    @classmethod
    def learn(cls, X: FloatArray, X_new: FloatArray, seed: int = 0) -> tuple[Self, FloatArray]:
        """Learn the ratio of the density of ``X_new`` to that of ``X``, of at least dozens of rows.

        By cross-fitting, the weight of a row of ``X`` comes from a classifier that was not trained
        on it, and new rows get the mean of all classifiers. Returns the ratio for new rows, and the
        weights of the rows of ``X``.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV, StratifiedKFold

        if min(len(X), len(X_new)) < 2 * FOLDS:
            raise ValueError(
                f"a density ratio needs at least {2 * FOLDS} rows of calibration inputs and of new "
                f"inputs, got {len(X)} and {len(X_new)}"
            )
        both = np.concatenate([X, X_new]).astype(np.float64)
        scale = both.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        scaler = cls(both.mean(axis=0), scale, np.empty(0), np.zeros(()))
        inputs, is_new = scaler._features(both), np.repeat([0, 1], [len(X), len(X_new)])
        log_odds = float(np.log(len(X) / len(X_new)))
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        search = GridSearchCV(
            LogisticRegression(max_iter=1000),
            {"C": list(PENALTIES)},
            scoring="neg_log_loss",
            cv=folds,
            refit=False,
        ).fit(inputs, is_new)
        coefs, intercepts, weights = [], [], np.zeros(len(X))
        for train, held_out in folds.split(inputs, is_new):
            classifier = LogisticRegression(max_iter=1000, **search.best_params_)
            classifier.fit(inputs[train], is_new[train])
            coefs.append(classifier.coef_[0])
            intercepts.append(classifier.intercept_[0] + log_odds)
            rows = held_out[held_out < len(X)]
            weights[rows] = _ratio(inputs[rows] @ coefs[-1] + intercepts[-1])
        mean = np.mean(coefs, axis=0), np.asarray(np.mean(intercepts))
        return cls(scaler.center, scaler.scale, *mean), weights

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """State to store, as plain arrays."""
        return {f"ratio.{f.name}": np.asarray(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Restore a ratio from ``to_arrays``; raise ``SchemaError`` if it is malformed."""
        center = array_of(arrays, "ratio.center", "f", None, -1e300, 1e300)
        if center.ndim != 1:
            refuse("array 'ratio.center'", "a list", center.shape)
        scale = array_of(arrays, "ratio.scale", "f", center.shape, 1e-300, 1e300)
        coef = array_of(arrays, "ratio.coef", "f", (2 * len(center),), -1e300, 1e300)
        return cls(center, scale, coef, array_of(arrays, "ratio.intercept", "f", (), -1e300, 1e300))


def _ratio(logarithm: FloatArray) -> FloatArray:
    """Ratio of this logarithm, clipped and rounded."""
    limit = STEP * np.floor(np.log(MAX_RATIO) / STEP)
    rounded = STEP * np.round(np.clip(logarithm, -limit, limit) / STEP)
    return np.asarray(np.exp(rounded))
