"""Training rows: reading them from a table, one copy per fold where needed, and gross errors.

``model`` is always an ``IntervalRegressor``.
"""

import hashlib
from collections.abc import Sequence
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
from calipers._outliers import FAR_TARGETS, outlying_targets
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
    """Validated training rows, with their folds.

    If each fold has its own encoding of the inputs, all rows are repeated for each of them, one
    copy after the other, and the folds are indices into their copies.
    """

    X: FloatArray
    y: FloatArray
    weights: FloatArray | None
    groups: NDArray[np.intp] | None
    used: NDArray[np.intp]
    seed: int
    target: FloatArray = np.empty(0)  # what networks learn: ``y`` or errors, clipped to their range
    outliers: NDArray[np.intp] = np.empty(0, np.intp)  # rows that networks are not trained on
    encoding: TargetEncoding | None = None  # which differs by fold
    support: Support = Support()
    folds: Sequence[Fold] = ()
    copies: int = 1

    @property
    def n_rows(self) -> int:
        """Number of rows in one copy."""
        return len(self.y) // self.copies

    def split(self, cv: Any, n_networks: int, seed: int | None = None) -> list[Fold]:
        """Split the rows in use into folds."""
        seed = self.seed if seed is None else seed
        return make_folds(cv, self.used, self.X, self.y, self.groups, n_networks, seed)

    def encoded_by_fold(self, folds: Sequence[Fold], seed: int) -> "TrainingRows":
        """Return the rows with these folds, and a copy of them for each fold that encodes them.

        The target encoding of high-cardinality categories differs by fold, since it must not use
        targets of held-out rows.
        """
        if self.encoding is None:
            return self._replace(folds=folds)
        encoded = [
            self.encoding.encoded(self.X, fold.train, seed + i) for i, fold in enumerate(folds)
        ]
        return self._replace(encoding=None).copied(encoded, folds)

    def copied(self, encoded: list[FloatArray], folds: Sequence[Fold]) -> "TrainingRows":
        """Return one copy of the rows per array of inputs, the first of them for the folds."""
        count, size = len(encoded), len(self.y)
        return self._replace(
            X=np.concatenate(encoded),
            y=np.tile(self.y, count),
            target=np.tile(self.target, count),
            weights=None if self.weights is None else np.tile(self.weights, count),
            groups=None if self.groups is None else np.tile(self.groups, count),
            outliers=np.add.outer(np.arange(count) * size, self.outliers).ravel(),
            folds=[Fold(*(part + i * size for part in fold)) for i, fold in enumerate(folds)],
            copies=count,
        )

    def by_fold(self, folds: Sequence[Fold]) -> list[tuple[FloatArray, Fold]]:
        """Return the inputs of each fold, and the fold as indices into them."""
        starts = [i * self.n_rows if self.copies > 1 else 0 for i in range(len(folds))]
        return [
            (self.X[start : start + self.n_rows], Fold(*(part - start for part in fold)))
            for start, fold in zip(starts, folds, strict=True)
        ]

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
    rows = TrainingRows(X, y, weights, groups, used, seed, target=y)
    return rows._replace(encoding=encoding, support=_support(model, y, used))


def mark_outliers(model: Any, rows: TrainingRows) -> TrainingRows:
    """Do as ``set_outliers_aside``, with a warning that lists the rows and a note in ``about_``."""
    rows = set_outliers_aside(rows)
    outliers = rows.outliers[rows.outliers < rows.n_rows]
    if not outliers.size:
        return rows
    ordinary = rows.y[np.setdiff1d(rows.used, rows.outliers)]
    count = len(outliers)
    model.about_["far_targets"] = {"count": count, "rows": outliers[:_NAMED].tolist()}
    shown = ", ".join(f"{row} ({rows.y[row]:g})" for row in outliers[:_NAMED])
    more = "" if count <= _NAMED else f" and {count - _NAMED} more"
    warn(
        f"y is far from all other targets in row{'' if count == 1 else 's'} {shown}{more} (from "
        f"0), while the others lie between {ordinary.min():g} and {ordinary.max():g}: {FAR_TARGETS}"
    )
    return rows


def set_outliers_aside(rows: TrainingRows) -> TrainingRows:
    """Mark rows whose targets are likely to be errors, and clip their targets to the others' range.

    Networks are not trained on these rows, and their targets do not affect the scale of the others.
    Calibration uses them unchanged, so that coverage stays valid.
    """
    used, target = rows.used, rows.target
    outliers = used[outlying_targets(rows.X[used], target[used])]
    if not outliers.size:
        return rows
    ordinary = target[np.setdiff1d(used, outliers)]
    starts = np.arange(rows.copies) * rows.n_rows
    return rows._replace(
        target=np.clip(target, ordinary.min(), ordinary.max()),
        outliers=np.add.outer(starts, outliers % rows.n_rows).ravel(),
    )


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
