"""Training rows: reading them from a table, their inputs in each fold, and gross errors."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from calipers import storage
from calipers._arrays import FloatArray, IntArray
from calipers._checks import warn
from calipers._estimator.inputs import learn_inputs
from calipers._estimator.model import Model
from calipers._estimator.row_checks import checked_weights, group_labels
from calipers._outliers import FAR_TARGETS, outlying_targets
from calipers.bank import Plan, Program, Scaling, Table
from calipers.crossfit import Fold, leave_rows_out, make_folds
from calipers.distributions import (
    Support,
    TargetMap,
    given_support,
    learn_support,
    refuse_outside,
)
from calipers.networks import traits
from calipers.preprocessing import (
    TargetEncoding,
    describe_numbers,
    find_target_encoding,
    learn_target_encoding,
)
from calipers.training import check_parameters, make_plans

NAMED = 10  # rows that a warning lists


class TrainingRows(NamedTuple):
    """Validated training rows, with their folds and the inputs of each fold.

    Folds, outliers and all other indices are numbers of rows. Only the table of a bank contains a
    row several times, once for each version of its inputs: see ``table_inputs`` and ``plans``.
    """

    X: FloatArray  # as new rows are encoded
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
    # (versions, rows, inputs): a single version that folds share, or one for each fold and, if they
    # leave rows out, a last one for the networks that are trained on all rows.
    inputs: FloatArray = np.empty((0, 0, 0))
    # (folds, rows): variance by which the error of a held-out row's last input, if it is a tree
    # prediction, exceeds that of a new row.
    surplus: FloatArray | None = None

    def split(self, cv: Any, n_networks: int, seed: int | None = None) -> list[Fold]:
        """Split the rows in use into folds."""
        seed = self.seed if seed is None else seed
        return make_folds(cv, self.used, self.X, self.y, self.groups, n_networks, seed)

    def encoded_by_fold(self, folds: Sequence[Fold], seed: int) -> "TrainingRows":
        """Return the rows with these folds, and with inputs that are encoded for each of them.

        The target encoding of high-cardinality categories differs by fold, since it must not use
        targets of held-out rows. Where folds leave rows out, the last is for networks that are
        trained on all rows.
        """
        if self.encoding is None:
            return self._replace(folds=folds, inputs=self.X[None])
        known = [fold.train for fold in folds] + [self.used] * leave_rows_out(folds)
        encoded = [self.encoding.encoded(self.X, rows, seed + i) for i, rows in enumerate(known)]
        return self._replace(folds=folds).with_inputs(np.concatenate(encoded))

    def with_inputs(self, table_inputs: FloatArray) -> "TrainingRows":
        """Return the rows with other inputs, given as all versions one after the other."""
        shape = (-1, len(self.y), table_inputs.shape[1])
        return self._replace(inputs=table_inputs.reshape(shape))

    def inputs_of(self, fold: int) -> FloatArray:
        """Inputs of all rows in the fold of this number."""
        return self.inputs[fold if len(self.inputs) > 1 else 0]

    @property
    def table_inputs(self) -> FloatArray:
        """Inputs of a bank's table: all versions, one after the other."""
        return self.inputs.reshape(-1, self.inputs.shape[-1])

    def in_table(self, values: FloatArray) -> FloatArray:
        """Values of the rows, repeated for each version of the inputs."""
        return np.tile(values, len(self.inputs))

    def plans(
        self, model: Model, folds: Sequence[Fold], versions: ArrayLike, seed: int, **options: Any
    ) -> list[Plan]:
        """Return plans for networks in these folds, with these versions of the inputs.

        Their indices are those of a bank's table.
        """
        plans = make_plans(model, folds, self.weights, self.groups, seed, **options)
        if len(self.inputs) == 1:
            return plans
        starts = len(self.y) * np.asarray(versions)
        return [
            replace(plan, rows=plan.rows + start, validation=plan.validation + start)
            for plan, start in zip(plans, starts, strict=True)
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
    model: Model,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    groups: ArrayLike | None,
    *,
    reset: bool = True,
    use_targets: bool = True,
    earlier: Support | None = None,
) -> TrainingRows:
    """Validate parameters and data; fit ``model.reader_`` if ``reset``.

    ``use_targets`` allows target encoding of high-cardinality categories; ``earlier`` is the
    support of the fit that these rows continue.
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
    weights = None if sample_weight is None else scaled_weights(X, sample_weight)
    name: Any = getattr(y, "name", None) or next(iter(getattr(y, "columns", [])), None)
    if reset:
        use_codes = use_targets and groups is None
        model.reader_, found = learn_inputs(model, X, y, weights, use_codes)
    else:  # tree predictions come later: they depend on whether the trees were grown on these rows
        found = replace(model.reader_, forest=None).read_rows(model, X, y)
    X, y, values, repeated = found
    used = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    if groups is not None:
        groups = group_labels(groups, X)
    encoding, encoder = None, model.reader_.encoder
    if use_targets and encoder is not None and (reset or encoder.knows_targets):
        encoding = find_target_encoding(encoder, values, X, y, weights, groups, repeated)
    if reset and encoder is not None and encoding is not None:
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
    return rows._replace(encoding=encoding, support=_support(model, y, used, earlier))


def make_table(
    program: Program, rows: TrainingRows, target_map: TargetMap | None, units: Scaling | None = None
) -> Table:
    """Return the rows as networks take them, on the scale on which they predict."""
    target = rows.target
    if target_map is not None:  # that of an earlier fit may not reach down to all targets
        target = np.maximum(target_map.forward(target), target_map.low)
    robust = traits(program.network).clips_inputs
    return Table.from_arrays(rows.table_inputs, rows.in_table(target), units, robust=robust)


def mark_outliers(model: Model, rows: TrainingRows) -> TrainingRows:
    """Like ``set_outliers_aside``, but also warn and record the rows in ``about_``."""
    rows = set_outliers_aside(rows)
    outliers = rows.outliers
    if not outliers.size:
        return rows
    ordinary = rows.y[np.setdiff1d(rows.used, outliers)]
    count = len(outliers)
    shown = ", ".join(f"{row} ({rows.y[row]:g})" for row in outliers[:NAMED])
    more = "" if count <= NAMED else f" and {count - NAMED} more"
    where = (
        f"row{'' if count == 1 else 's'} {shown}{more} (from 0), while the others lie between "
        f"{ordinary.min():g} and {ordinary.max():g}"
    )
    note_far_targets(model, count, outliers[:NAMED].tolist(), where)
    return rows


def rows_without(rows: IntArray, others: IntArray) -> IntArray:
    """Rows that are not among others, or all of them if none is left."""
    kept = np.setdiff1d(rows, others) if others.size else rows
    return kept if kept.size else rows


def note_far_targets(model: Model, count: int, first: list[int], where: str) -> None:
    """Record and warn that ``count`` targets are likely to be errors; ``first`` are some rows."""
    model.about_["far_targets"] = {"count": count, "rows": first}
    warn(f"y is far from all other targets in {where}: {FAR_TARGETS}")


def set_outliers_aside(rows: TrainingRows) -> TrainingRows:
    """Mark rows whose targets are likely to be errors, and clip their targets to the others' range.

    Networks are not trained on these rows, and their targets do not affect the scale of the others.
    Calibration uses them unchanged, so that coverage stays valid.
    """
    used, target = rows.used, rows.target
    outliers = used[outlying_targets(rows.inputs[0][used], target[used])]
    if not outliers.size:
        return rows
    ordinary = target[np.setdiff1d(used, outliers)]
    return rows._replace(target=np.clip(target, ordinary.min(), ordinary.max()), outliers=outliers)


def _support(
    model: Model, y: FloatArray, used: NDArray[np.intp], earlier: Support | None
) -> Support:
    """Learn the values that the target can take from rows of positive weight.

    What earlier rows have shown stays, as far as these do not contradict it.
    """
    given = given_support(model.bounds)
    refuse_outside(y[used], given, used)
    if model.bounds == "auto" and earlier is not None and not earlier.given:
        return replace(earlier.widened(y[used]), latent=(), observed=())  # knots are of one fit
    return learn_support(y[used], model.bounds)


def scaled_weights(X: ArrayLike, sample_weight: ArrayLike) -> FloatArray | None:
    """Scale weights to mean 1 over the rows of positive weight; None if all are equal."""
    weights = checked_weights(sample_weight, X)
    if not weights.any():
        raise ValueError("sample_weight must be positive for at least one row, got zeros only")
    if np.all(weights == weights[0]):
        return None
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):  # weights near the largest float
        weights = weights / weights.max()
    return weights / weights[weights > 0].mean()
