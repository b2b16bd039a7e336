"""Points of trees as one more input of the networks: whether, and what they are in each fold.

In a fold, trees grow on the rows that its networks train on. A training row has the points of those
trees that have not seen it, a row that is held out has those of all trees of the fold, and a new
row, later, those of trees that grew on all rows. So nothing that is known of a held-out row reaches
its networks, and calibration stays honest.

``model`` is an ``IntervalRegressor``, whose parameters say what to do.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calipers._candidates import (
    FOLDS,
    NOISE,
    SMOOTH,
    Measures,
    first_trial,
    left_by_trees,
    some_rows,
    unexplained,
)
from calipers._checks import FloatArray, IntArray
from calipers._fitting import TrainingRows
from calipers._together import Steps
from calipers.bank import Program
from calipers.crossfit import Fold, leave_rows_out
from calipers.networks import MLP
from calipers.preprocessing import Forest, grow
from calipers.training import expanded

TREES = 100  # that "auto" grows
# Squared errors of trees, in those of a network that was tried, with which they still help it:
# after a short trial, and after one of a larger part of all epochs, in which it learns more.
WORSE, LONG, LONG_WORSE = 1.05, 0.3, 1.2
_FEWEST, _MOST = 100, 50_000  # rows of a table for which it does
_MOST_NUMBERS = 10**7  # rows times inputs
_FEW = 4000  # rows up to which twice as many trees predict the rows that they grew on


class Rows(NamedTuple):
    """Rows with inputs of their own in each fold, what networks learn of them, and the folds."""

    data: TrainingRows
    goal: FloatArray
    folds: list[Fold]


def add_trees(
    model: Any, program: Program, rows: Rows, given: TrainingRows
) -> Steps[tuple[Rows, Measures | None]]:
    """Rows with points of trees as one input more, where the model asks for them or rows do.

    ``given`` is the rows before each fold had its own copy. The trees of new rows become a part of
    ``model.reader_``. Where a network was tried and no trees are taken, its measures come along.
    """
    trees, certain = _wanted(model, given)
    if not trees:
        return rows, None
    base = _base(rows, given)
    grown: dict[int, FloatArray] = {}
    if not certain:
        tried, folds = rows.data._replace(y=rows.goal), rows.folds
        without = not any(fold.held_out.size for fold in folds)
        own = some_rows(tried, given.folds(FOLDS, FOLDS) if without else folds)
        first = tested = yield from first_trial(model, program, tried, folds)
        error = left_by_trees(tried, own[-1])  # a few show whether a target is smooth
        helpful = _helpful(error, first, SMOOTH)
        if helpful:
            error, grown = _held_out_error(model, base, rows, own, trees)
            grown = grown if own is folds else {}
            helpful = _helpful(error, first, WORSE)
        if helpful:  # beside trees, networks would not learn what they learn late
            tested = yield from first_trial(model, program, tried, folds, LONG)
            helpful = _helpful(error, tested, LONG_WORSE)
        errors = {"trees": error, "networks": tested.unexplained}
        model.about_["trees"] = {"unexplained": errors}
        if not helpful:
            return rows, first
    last, forest = _with_points(model, base, base.X, Fold(base.used, base.used[:0]), trees, -1)
    model.reader_ = replace(model.reader_, forest=forest)
    model.about_.setdefault("trees", {})["rows"] = given.fingerprint
    return _by_fold(model, base, rows, trees, last, grown), None


def _helpful(error: float, trial: Measures, worse: float) -> bool:
    """Whether trees that leave such a share of the variance help networks like those of a trial.

    Trials say little of a target that is nearly free of noise.
    """
    return trial.unexplained >= NOISE and error <= worse * trial.unexplained


def with_known_trees(model: Any, rows: Rows, given: TrainingRows, seen: str = "") -> Rows:
    """Rows with the points of the model's trees, which grew on the rows of fingerprint ``seen``.

    Other rows are new to them.
    """
    forest = model.reader_.forest
    if given.fingerprint != seen:
        X = np.column_stack([rows.data.X, forest.points(rows.data.X, model.n_jobs)])
        return rows._replace(data=rows.data._replace(X=X))
    base, whole = _base(rows, given), Fold(given.used, given.used[:0])
    last, _ = _with_points(model, base, base.X, whole, len(forest), -1)
    return _by_fold(model, base, rows, len(forest), last, {})


def _wanted(model: Any, given: TrainingRows) -> tuple[int, bool]:
    """How many trees may be grown, and whether that is certain."""
    network = expanded("network", model.network)
    if not isinstance(network, MLP):
        return 0, True
    if not isinstance(network.trees, str):
        return int(network.trees), True
    rows, inputs = len(given.used), given.X.shape[1]
    fits = _FEWEST <= rows <= _MOST and rows * inputs <= _MOST_NUMBERS
    # A trial takes a part of the epochs, which says little where these are few.
    usual = network.frequencies and model.epochs is None and model.time_budget is None
    return (TREES if fits and usual else 0), False


def _base(rows: Rows, given: TrainingRows) -> TrainingRows:
    """One copy of the rows, with the inputs of trees that grow on all of them, and their goals."""
    count, X = len(given.y), given.X
    if given.categories is not None:
        X = given.categories.encoded(X, given.used, given.seed + len(rows.folds))
    goal, far = rows.goal[:count], rows.data.far[rows.data.far < count]
    used = goal[given.used]
    y = (goal - used.mean()) / (used.std() or 1.0)
    return given._replace(X=X, y=y, far=far, categories=None)


def _held_out_error(
    model: Any, base: TrainingRows, rows: Rows, folds: list[Fold], trees: int
) -> tuple[float, dict[int, FloatArray]]:
    """Share of the variance that trees leave of rows held out of them, and the inputs by fold."""
    grown, known, left = {}, [], []
    for number, (X, fold) in enumerate(_parts(base, rows, folds)):
        # Inputs of other rows serve the fit itself, if it has these folds.
        some = None if folds is rows.folds else fold.held_out
        found = _with_points(model, base, X, fold, trees, number, some)[0]
        grown[number] = found
        known.append(fold.held_out)
        left.append(base.y[fold.held_out] - found[fold.held_out, -1])
    held = np.concatenate(known)
    weights = None if base.weights is None else base.weights[held]
    return unexplained(base.y[held], np.concatenate(left), weights), grown


def _parts(base: TrainingRows, rows: Rows, folds: list[Fold]) -> list[tuple[FloatArray, Fold]]:
    """Inputs of each fold, and its rows as numbered among them."""
    count = len(base.y)
    starts = [i * count if len(rows.goal) > count else 0 for i in range(len(folds))]
    return [
        (rows.data.X[start : start + count], Fold(*(part - start for part in fold)))
        for start, fold in zip(starts, folds, strict=True)
    ]


def _by_fold(
    model: Any,
    base: TrainingRows,
    rows: Rows,
    trees: int,
    last: FloatArray,
    grown: dict[int, FloatArray],
) -> Rows:
    """Rows with points as the last input, of which each fold has its own copy.

    ``last`` is the copy of trees that know all rows, ``grown`` those of folds that are known.
    """
    parts = _parts(base, rows, rows.folds)
    encoded = [
        grown[i] if i in grown else _with_points(model, base, X, fold, trees, i)[0]
        for i, (X, fold) in enumerate(parts)
    ]
    own, used = [fold for _, fold in parts], base.used
    if leave_rows_out(own):  # networks that predict know all rows, as those of no fold do
        encoded.append(last)
        used = used + len(base.y) * len(own)
    data, folds = base.copied(encoded, own)
    y, goal = (np.tile(part[: len(base.y)], len(encoded)) for part in (rows.data.y, rows.goal))
    return Rows(data._replace(y=y, used=used), goal, folds)


def _with_points(
    model: Any,
    data: TrainingRows,
    X: FloatArray,
    fold: Fold,
    trees: int,
    number: int,
    others: IntArray | None = None,
) -> tuple[FloatArray, Forest]:
    """Inputs of all rows with points by trees that grew on the training rows of a fold.

    Where ``others`` are given, only these have points besides the training rows.
    """
    known = np.setdiff1d(fold.train, data.far)
    known = known if known.size else fold.train
    weights = None if data.weights is None else data.weights[known]
    groups = None if data.groups is None else data.groups[known]
    seed = (data.seed, number + 1)
    more = trees if fold.held_out.size and len(known) <= _FEW else 0
    rest = (trees, seed, model.n_jobs, more)
    forest, unseen = grow(X[known], data.y[known], weights, groups, *rest)
    points = np.full(len(X), np.nan)
    points[known] = unseen
    others = np.setdiff1d(np.arange(len(X)), known) if others is None else others
    points[others] = forest.points(X[others], model.n_jobs)
    return np.column_stack([X, points]), forest
