"""Density ratios learnt by a classifier, for inputs in use that differ from those at hand."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers._schema import array_of, refuse, within

# No row is taken to be more than this times as likely in use as at hand, or less.
LARGEST_RATIO = 20.0
# Inputs count up to so many standard deviations, so that one far row has no weight of its own.
FURTHEST = 4.0
FOLDS = 5
PENALTIES = (0.001, 0.01, 0.1, 1.0)
# Ratios are rounded to these steps of their logarithm, so that few of them differ.
STEP = 0.05


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """How much more likely a row is in use than among the calibration rows, as a function.

    A logistic regression on standardised inputs and their squares tells the two kinds of rows
    apart; its odds are the ratio. Rows are clipped to where the ratio is believed.
    """

    #: (inputs,): What inputs are standardised by.
    center: FloatArray
    scale: FloatArray
    coef: FloatArray  #: (2 * inputs,): Weights of the inputs and of their squares.
    intercept: FloatArray  #: (): Logarithm of the ratio at the centre.

    def __call__(self, X: FloatArray) -> FloatArray:
        """Ratios of rows, of shape (n,)."""
        return _ratio(sum_members((self._features(X) * self.coef).T) + self.intercept)

    def _features(self, X: FloatArray) -> FloatArray:
        z = (np.asarray(X, np.float64) - self.center) / self.scale
        z = np.clip(z, -FURTHEST, FURTHEST)
        return np.concatenate([z, z * z], axis=1)

    @classmethod
    def learn(cls, X: FloatArray, X_new: FloatArray, seed: int = 0) -> tuple[Self, FloatArray]:
        """Learn the ratio of the densities of ``X_new`` and ``X``, dozens of rows each at least.

        Cross-fitted: the weight of a row of ``X`` comes from a classifier that has not seen it, and
        new rows get the mean of all. Gives the ratio for new rows, and those of the rows of ``X``.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV, StratifiedKFold

        if min(len(X), len(X_new)) < 2 * FOLDS:
            raise ValueError(
                f"a density ratio takes at least {2 * FOLDS} rows at hand and in use, got "
                f"{len(X)} and {len(X_new)}"
            )
        both = np.concatenate([X, X_new]).astype(np.float64)
        scale = both.std(axis=0)
        frame = cls(both.mean(axis=0), np.where(scale > 0, scale, 1.0), np.empty(0), np.zeros(()))
        inputs, new = frame._features(both), np.repeat([0, 1], [len(X), len(X_new)])
        odds = float(np.log(len(X) / len(X_new)))
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        search = GridSearchCV(
            LogisticRegression(max_iter=1000),
            {"C": list(PENALTIES)},
            scoring="neg_log_loss",
            cv=folds,
            refit=False,
        ).fit(inputs, new)
        coefs, intercepts, own = [], [], np.zeros(len(X))
        for train, held_out in folds.split(inputs, new):
            found = LogisticRegression(max_iter=1000, **search.best_params_)
            found.fit(inputs[train], new[train])
            coefs.append(found.coef_[0])
            intercepts.append(found.intercept_[0] + odds)
            rows = held_out[held_out < len(X)]
            own[rows] = _ratio(inputs[rows] @ coefs[-1] + intercepts[-1])
        mean = np.mean(coefs, axis=0), np.asarray(np.mean(intercepts))
        return cls(frame.center, frame.scale, *mean), own

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All there is to store, as plain arrays."""
        return {f"ratio.{f.name}": np.asarray(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Make one again of what ``to_arrays`` gave; a ``SchemaError`` says if it is another."""
        given = {name: np.asarray(array) for name, array in arrays.items()}
        center = array_of(given, "ratio.center", "f")
        if center.ndim != 1:
            refuse("array 'ratio.center'", "a list", center.shape)
        scale = array_of(given, "ratio.scale", "f", center.shape)
        within("ratio.scale", scale, 1e-300, 1e300)
        coef = array_of(given, "ratio.coef", "f", (2 * len(center),))
        intercept = array_of(given, "ratio.intercept", "f", ())
        for name, part in (("center", center), ("coef", coef), ("intercept", intercept)):
            within(f"ratio.{name}", part, -1e300, 1e300)
        return cls(center, scale, coef, intercept)


def _ratio(logarithm: FloatArray) -> FloatArray:
    limit = STEP * np.floor(np.log(LARGEST_RATIO) / STEP)
    rounded = STEP * np.round(np.clip(logarithm, -limit, limit) / STEP)
    return np.asarray(np.exp(rounded))
