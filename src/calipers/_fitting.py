"""The steps of ``fit`` and ``upgrade``: checked rows in, a trained and calibrated ensemble out.

``model`` is an ``IntervalRegressor``, whose parameters say what to do.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

from calipers import storage
from calipers._checks import FloatArray, refuse_masked, warn
from calipers._inputs import learn_inputs
from calipers._outliers import far_targets
from calipers._row_labels import group_labels
from calipers._together import Steps, Training
from calipers.bank import (
    Bank,
    BankPoints,
    ColumnPoints,
    Points,
    Program,
    Table,
    Upgraded,
    around_zero,
)
from calipers.calibration import Calibrator, rows_needed, worth
from calipers.crossfit import Fold, OutOfFold, calibrate, leave_rows_out, make_folds
from calipers.distributions import Support, TargetMap, learn_support, refuse_outside
from calipers.ensemble import Ensemble
from calipers.preprocessing import (
    LargeCategories,
    describe_numbers,
    large_categories,
    learn_targets,
)
from calipers.training import (
    batch_size_of,
    check_parameters,
    make_plans,
)

_NAMED = 10  # rows that a warning names


class TrainingRows(NamedTuple):
    """Checked training data, and the seed that splits it."""

    X: FloatArray
    y: FloatArray
    weights: FloatArray | None
    groups: NDArray[np.intp] | None
    used: NDArray[np.intp]
    seed: int
    far: NDArray[np.intp] = np.empty(0, np.intp)  # rows that networks do not learn from
    categories: LargeCategories | None = None
    support: Support = Support()

    def folds(self, cv: Any, n_networks: int, seed: int | None = None) -> list[Fold]:
        """Folds of the rows that are used."""
        own = self.seed if seed is None else seed
        return make_folds(cv, self.used, self.X, self.y, self.groups, n_networks, own)

    def encoded_by_fold(self, folds: list[Fold], seed: int) -> tuple["TrainingRows", list[Fold]]:
        """Rows of which each fold has its own copy, and the folds among them.

        What large categories tell of targets is another thing in each fold, whose held-out rows
        must not be told of. Without large categories, the same rows and folds.
        """
        if self.categories is None:
            return self, folds
        encoded = [
            self.categories.encoded(self.X, fold.train, seed + i) for i, fold in enumerate(folds)
        ]
        return self._replace(categories=None).copied(encoded, folds)

    def copied(
        self, encoded: list[FloatArray], folds: list[Fold]
    ) -> tuple["TrainingRows", list[Fold]]:
        """Rows of which each fold has a copy with inputs of its own, and the folds among them."""
        count = len(encoded)
        weights = None if self.weights is None else np.tile(self.weights, count)
        groups = None if self.groups is None else np.tile(self.groups, count)
        far = np.add.outer(np.arange(count) * len(self.y), self.far).ravel()
        copies = [Fold(*(part + i * len(self.y) for part in fold)) for i, fold in enumerate(folds)]
        rows = self._replace(X=np.concatenate(encoded), y=np.tile(self.y, count), far=far)
        return rows._replace(weights=weights, groups=groups), copies

    @property
    def fingerprint(self) -> str:
        """Name of exactly these rows, for what was once done with them."""
        digest = hashlib.sha256()
        counted = None if self.weights is None else self.weights > 0
        for part in (self.X, self.y, counted, self.groups):
            digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def read_rows(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    groups: Any,
    *,
    reset: bool,
    use_targets: bool = True,
) -> TrainingRows:
    """Check parameters and data; learn how to read inputs if ``reset``.

    ``use_targets`` says whether what large categories tell of the targets may become inputs.
    """
    check_parameters(model)
    for stale in ("ensemble_", "_out_of_fold"):  # an interrupted fit must not leave half of two
        model.__dict__.pop(stale, None)
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"y holds several targets (shape {shape}), and a model predicts one: "
            "calipers.multitarget.MultiTargetRegressor fits one to each"
        )
    weights = None if sample_weight is None else _weights(X, sample_weight)
    name: Any = getattr(y, "name", None) or next(iter(getattr(y, "columns", [])), None)
    given = X
    if reset:
        model.reader_, X, y = learn_inputs(model, X, y, weights, use_targets and groups is None)
    else:  # what trees say of the rows depends on whether these know them
        X, y = replace(model.reader_, forest=None).read_with_targets(model, X, y)
    used = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
    if groups is not None:
        groups = group_labels(groups, X)
    categories, encoder = None, model.reader_.encoder
    if use_targets and encoder is not None and (reset or encoder.knows_targets):
        categories = large_categories(encoder, given, X, y, weights, groups)
    if reset and categories is not None:
        X = learn_targets(encoder, categories, X)
        model.reader_ = replace(model.reader_, columns=encoder.columns_)
    (model.target_,) = describe_numbers(y[used, None], ["y" if name is None else str(name)])
    model.about_ = {
        "fitted_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": len(y),
        "versions": storage.versions(),
    }
    seed = int(check_random_state(model.random_state).randint(2**31))
    support = _support(model, y, used)
    return TrainingRows(X, y, weights, groups, used, seed, categories=categories, support=support)


def without_errors(
    model: Any, data: TrainingRows, goal: FloatArray | None = None
) -> tuple[TrainingRows, FloatArray]:
    """Rows with those marked whose targets are likely to be errors, and targets within the others.

    Networks do not learn from such rows, and their targets do not set the scale of the others.
    Calibration counts them as they are, so that coverage stays honest. Where there are any, a
    warning names them and ``model.about_`` gets a note. ``goal`` is what networks learn in place of
    targets.
    """
    goal = data.y if goal is None else goal
    far = data.used[far_targets(data.X[data.used], goal[data.used])]
    if not far.size:
        return data, goal
    ordinary = np.setdiff1d(data.used, far)
    low, high = data.y[ordinary].min(), data.y[ordinary].max()
    model.about_["far_targets"] = {"count": len(far), "rows": far[:_NAMED].tolist()}
    shown = ", ".join(f"{row} ({data.y[row]:g})" for row in far[:_NAMED])
    more = "" if len(far) <= _NAMED else f" and {len(far) - _NAMED} more"
    warn(
        f"y is far from all other targets in row{'' if len(far) == 1 else 's'} {shown}{more} (from "
        f"0), while the others lie between {low:g} and {high:g}: networks do not learn from it, "
        "calibration counts it. Correct or leave out what is wrong; if such targets are real, fit "
        "their logarithm",
    )
    copies = np.arange(0, len(data.y), model.about_["rows"])  # see ``encoded_by_fold``
    data = data._replace(far=np.add.outer(copies, far).ravel())
    return data, np.clip(goal, goal[ordinary].min(), goal[ordinary].max())


def _without(fold: Fold, rows: NDArray[np.intp]) -> Fold:
    """A fold that does not train on some rows, unless it has no others."""
    kept = np.setdiff1d(fold.train, rows) if rows.size else fold.train
    return fold._replace(train=kept) if kept.size else fold


def train_ensemble(
    model: Any,
    program: Program,
    table: Table,
    data: TrainingRows,
    folds: list[Fold],
    *,
    previous: Bank | None = None,
    source: BankPoints | ColumnPoints | Points | None = None,
    target_map: TargetMap | None = None,
) -> Steps[Ensemble]:
    """Train one network after another of each fold, around the points of ``source`` if any."""
    fold_of = np.arange(model.n_networks) % len(folds)
    learnt = [_without(fold, data.far) for fold in folds]
    rows = [([learnt[i] for i in fold_of], data.seed)]
    if leave_rows_out(
        folds, model.about_["rows"]
    ):  # those networks calibrate, and others, which know all rows, predict
        whole = _without(Fold(data.used, data.used[:0]), data.far)
        rows.append(([whole] * model.n_networks, data.seed + 1))
    batch_size = batch_size_of(model, len(data.used))
    rest: dict[str, Any] = {"batch_size": batch_size, "previous": previous}
    rest["smooth"] = getattr(program.network, "smooth", False)
    plans = [
        plan
        for given, seed in rows
        for plan in make_plans(model, given, data.weights, data.groups, seed, **rest)
    ]
    if source is not None:
        plans = [around_zero(plan, table) for plan in plans]
    trained = yield Training(program, table, plans)
    count = model.n_networks
    held_out, ensemble = (
        ensemble_of(
            model, part if source is None else Upgraded(source, part), data.support, target_map
        )
        for part in (trained[:count], trained[-count:])
    )
    if model.cv is None:
        return ensemble
    if not ensemble.head.has_interval:
        points = held_out.bank.predict(data.X)["point"]
        kept = OutOfFold.of_points(points, folds, fold_of, model.coverage)
    else:
        found, kept = calibrate(
            held_out,
            folds,
            fold_of,
            data.X,
            data.y,
            data.weights,
            model.calibration,
            groups=data.groups,
            seed=data.seed,
            n_rows=model.about_["rows"],
        )
        support = data.support if kept is None else kept.support
        ensemble = replace(ensemble, calibrations=found, support=support)
        warn_of_infinite(model, found)
    model._out_of_fold = None if kept is None else kept.of_rows(model.about_["rows"])
    return ensemble


def warn_of_infinite(model: Any, calibrations: Sequence[Calibrator]) -> None:
    """Warn if the rows are too few for intervals of the model's coverage to be finite."""
    last = calibrations[-1]
    if model.unsupported != "inf" or last.supports(0.5 * (1.0 - model.coverage)):
        return
    most = math.floor(1000 * (1.0 - 2.0 / (getattr(last, "n_effective", last.n_rows) + 1))) / 10
    less = f"; those of up to {most:g}% are finite" if most > 0 else ""
    warn(
        f"intervals of {100 * model.coverage:.4g}% are infinite: it takes "
        f"{rows_needed(model.coverage):,} rows to calibrate them, and there are "
        f"{last.n_rows:,}{worth(last)}{less}",
    )


def ensemble_of(
    model: Any, bank: Bank | Upgraded, support: Support, target_map: TargetMap | None
) -> Ensemble:
    """Networks as the one distribution that the model's parameters make of them."""
    return Ensemble(
        bank,
        model.coverage,
        model.aggregation,
        n_jobs=model.n_jobs,
        support=support,
        target_map=target_map,
    )


def networks_to_continue(model: Any) -> Bank | None:
    """Networks of an earlier fit, where training is to go on from them."""
    before = vars(model).get("ensemble_")
    if not model.warm_start or before is None:
        return None
    if isinstance(before.bank, Upgraded):
        raise ValueError("an upgraded model cannot go on from where it is: set warm_start=False")
    return cast(Bank, before.bank)


def _support(model: Any, y: FloatArray, used: NDArray[np.intp]) -> Support:
    """Values that the target can take, by the rows that count; bounds given hold for all."""
    bounds = model.bounds
    if bounds is not None and not isinstance(bounds, str):
        refuse_outside(y, Support(*bounds))  # which names rows as they were given
    return learn_support(y[used], bounds)


def _weights(X: Any, sample_weight: ArrayLike) -> FloatArray | None:
    """Weights with mean 1 over the rows that count; None where all are equal."""
    refuse_masked("sample_weight", sample_weight)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must be positive for at least one row, got zeros only")
    if np.all(weights == weights[0]):
        return None
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not np.isfinite(total):  # numbers near the largest there is
        weights = weights / weights.max()
    return weights / weights[weights > 0].mean()
