"""Training rows: reading them from a table, one copy per fold where needed, and gross errors.

``model`` is always an ``IntervalRegressor``.
"""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

from calipers import storage
from calipers._checks import FloatArray, refuse_masked, warn
from calipers._estimator.inputs import learn_inputs
from calipers._estimator.row_labels import group_labels
from calipers._outliers import outlying_targets
from calipers.crossfit import Fold, make_folds
from calipers.distributions import Support, learn_support, refuse_outside
from calipers.preprocessing import (
    TargetEncoding,
    describe_numbers,
    find_target_encoding,
    learn_target_encoding,
)
from calipers.training import check_parameters

_NAMED = 10  # rows that a warning lists


class TrainingRows(NamedTuple):
    """Validated training data, and the seed of its split."""

    X: FloatArray
    y: FloatArray
    weights: FloatArray | None
    groups: NDArray[np.intp] | None
    used: NDArray[np.intp]
    seed: int
    outliers: NDArray[np.intp] = np.empty(0, np.intp)  # rows that networks are not trained on
    encoding: TargetEncoding | None = None  # which differs by fold
    support: Support = Support()
    copies: int = 1  # of the rows, one after the other, see ``encoded_by_fold``

    @property
    def n_rows(self) -> int:
        """Number of rows of which these are copies."""
        return len(self.y) // self.copies

    def folds(self, cv: Any, n_networks: int, seed: int | None = None) -> list[Fold]:
        """Split the rows in use into folds."""
        seed = self.seed if seed is None else seed
        return make_folds(cv, self.used, self.X, self.y, self.groups, n_networks, seed)

    def encoded_by_fold(self, folds: list[Fold], seed: int) -> tuple["TrainingRows", list[Fold]]:
        """Return one copy of the rows per fold, and the folds as indices into the copies.

        The target encoding of high-cardinality categories differs by fold, since it must not use
        targets of held-out rows. Without such categories, return the same rows and folds.
        """
        if self.encoding is None:
            return self, folds
        encoded = [
            self.encoding.encoded(self.X, fold.train, seed + i) for i, fold in enumerate(folds)
        ]
        return self._replace(encoding=None).copied(encoded, folds)

    def copied(
        self, encoded: list[FloatArray], folds: list[Fold]
    ) -> tuple["TrainingRows", list[Fold]]:
        """Return one copy of the rows per array of inputs, and the folds as indices into them."""
        count = len(encoded)
        weights = None if self.weights is None else np.tile(self.weights, count)
        groups = None if self.groups is None else np.tile(self.groups, count)
        outliers = np.add.outer(np.arange(count) * len(self.y), self.outliers).ravel()
        copies = [Fold(*(part + i * len(self.y) for part in fold)) for i, fold in enumerate(folds)]
        X, y = np.concatenate(encoded), np.tile(self.y, count)
        rows = self._replace(X=X, y=y, weights=weights, groups=groups, outliers=outliers)
        return rows._replace(copies=count), copies

    @property
    def fingerprint(self) -> str:
        """Hash of exactly these rows, by which a later fit recognises them."""
        digest = hashlib.sha256()
        positive = None if self.weights is None else self.weights > 0
        for part in (self.X, self.y, positive, self.groups):
            digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def read_rows(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    *,
    reset: bool = True,
    use_targets: bool = True,
) -> TrainingRows:
    """Validate parameters and data; fit ``model.reader_`` if ``reset``.

    ``use_targets`` allows target encoding of high-cardinality categories.
    """
    check_parameters(model)
    for stale in ("ensemble_", "_out_of_fold"):  # an interrupted fit must not mix two models
        model.__dict__.pop(stale, None)
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"y has several targets (shape {shape}), but IntervalRegressor predicts one: use "
            "calipers.multitarget.MultiTargetRegressor"
        )
    weights = None if sample_weight is None else _weights(X, sample_weight)
    name: Any = getattr(y, "name", None) or next(iter(getattr(y, "columns", [])), None)
    raw = X
    if reset:
        model.reader_, X, y = learn_inputs(model, X, y, weights, use_targets and groups is None)
    else:  # tree predictions come later: they depend on whether the trees were grown on these rows
        X, y = replace(model.reader_, forest=None).read_with_targets(model, X, y)
    used = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    if groups is not None:
        groups = group_labels(groups, X)
    encoding, encoder = None, model.reader_.encoder
    if use_targets and encoder is not None and (reset or encoder.knows_targets):
        encoding = find_target_encoding(encoder, raw, X, y, weights, groups)
    if reset and encoding is not None:
        X = learn_target_encoding(encoder, encoding, X)
        model.reader_ = replace(model.reader_, columns=encoder.columns_)
    (model.target_,) = describe_numbers(y[used, None], ["y" if name is None else str(name)])
    model.about_ = {
        "fitted_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": len(y),
        "versions": storage.versions(),
    }
    seed = int(check_random_state(model.random_state).randint(2**31))
    support = _support(model, y, used)
    return TrainingRows(X, y, weights, groups, used, seed, encoding=encoding, support=support)


def mark_outliers(
    model: Any, data: TrainingRows, target: FloatArray | None = None
) -> tuple[TrainingRows, FloatArray]:
    """Do as ``set_outliers_aside``, with a warning that lists the rows and a note in ``about_``.

    ``target`` is what networks learn, by default ``data.y``.
    """
    data, target = set_outliers_aside(data, data.y if target is None else target)
    outliers = data.outliers[data.outliers < data.n_rows]
    if not outliers.size:
        return data, target
    ordinary = np.setdiff1d(data.used, data.outliers)
    low, high = data.y[ordinary].min(), data.y[ordinary].max()
    count = len(outliers)
    model.about_["far_targets"] = {"count": count, "rows": outliers[:_NAMED].tolist()}
    shown = ", ".join(f"{row} ({data.y[row]:g})" for row in outliers[:_NAMED])
    more = "" if count <= _NAMED else f" and {count - _NAMED} more"
    warn(
        f"y is far from all other targets in row{'' if count == 1 else 's'} {shown}{more} (from "
        f"0), while the others lie between {low:g} and {high:g}: networks are not trained on such "
        "rows, but calibration uses them. Correct or remove wrong values; if such targets are "
        "real, fit their logarithm"
    )
    return data, target


def set_outliers_aside(data: TrainingRows, target: FloatArray) -> tuple[TrainingRows, FloatArray]:
    """Mark rows whose targets are likely to be errors, and clip their targets to the others' range.

    Networks are not trained on these rows, and their targets do not affect the scale of the others.
    Calibration uses them unchanged, so that coverage stays valid.
    """
    outliers = data.used[outlying_targets(data.X[data.used], target[data.used])]
    if not outliers.size:
        return data, target
    ordinary = target[np.setdiff1d(data.used, outliers)]
    starts = np.arange(data.copies) * data.n_rows
    data = data._replace(outliers=np.add.outer(starts, outliers % data.n_rows).ravel())
    return data, np.clip(target, ordinary.min(), ordinary.max())


def _support(model: Any, y: FloatArray, used: NDArray[np.intp]) -> Support:
    """Learn the values that the target can take from rows of positive weight.

    Bounds that the user gives hold for all rows.
    """
    bounds = model.bounds
    if bounds is not None and not isinstance(bounds, str):
        refuse_outside(y, Support(*bounds))  # the error has the user's row numbers
    return learn_support(y[used], bounds)


def _weights(X: Any, sample_weight: ArrayLike) -> FloatArray | None:
    """Scale weights to mean 1 over the rows of positive weight; None if all are equal."""
    refuse_masked("sample_weight", sample_weight)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must be positive for at least one row, got zeros only")
    if np.all(weights == weights[0]):
        return None
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):  # weights near the largest float
        weights = weights / weights.max()
    return weights / weights[weights > 0].mean()
