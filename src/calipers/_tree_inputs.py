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

from calipers._checks import FloatArray
from calipers._fitting import TrainingRows
from calipers.crossfit import Fold, leave_rows_out
from calipers.distributions import TargetMap
from calipers.networks import MLP
from calipers.preprocessing import Forest, grow, smooth_residuals
from calipers.training import expanded, objective_of

TREES = 100  # that "auto" grows
_FEWEST, _MOST_ROWS, _MOST_NUMBERS = 100, 50_000, 10**7  # of a table for which it does


class Rows(NamedTuple):
    """Rows with inputs of their own in each fold, what networks learn of them, and the folds."""

    data: TrainingRows
    goal: FloatArray
    folds: list[Fold]


def add_trees(model: Any, rows: Rows, given: TrainingRows, seen: str = "") -> Rows:
    """Rows with points of trees as one input more, where the model asks for them or rows do.

    ``given`` is the rows before each fold had its own copy. The trees of new rows become a part of
    ``model.reader_``; where it has trees already, which grew on the rows whose fingerprint is
    ``seen``, other rows are new to them.
    """
    known = model.reader_.forest
    if known is not None and given.fingerprint != seen:
        return with_known_trees(model, rows)
    trees, certain = (len(known), True) if known is not None else wanted(model, given)
    if not trees:
        return rows
    base = _base(model, rows, given)
    last, forest = _with_points(model, base, base.X, Fold(base.used, base.used[:0]), trees, -1)
    if not certain and not help_networks(model, base, last[:, -1]):
        return rows
    model.reader_ = replace(model.reader_, forest=forest)
    model.about_.setdefault("trees", {})["rows"] = given.fingerprint
    return _by_fold(model, rows, base, trees, last)


def with_known_trees(model: Any, rows: Rows) -> Rows:
    """Rows that the model's trees have not seen, with their points."""
    X = rows.data.X
    return rows._replace(
        data=rows.data._replace(X=np.column_stack([X, model.reader_.forest.points(X)]))
    )


def with_same_trees(model: Any, rows: Rows, given: TrainingRows) -> Rows:
    """The rows that the model's trees grew on, with the points that they had in each fold."""
    base, trees = _base(model, rows, given), len(model.reader_.forest)
    last = _with_points(model, base, base.X, Fold(base.used, base.used[:0]), trees, -1)[0]
    return _by_fold(model, rows, base, trees, last)


def _base(model: Any, rows: Rows, given: TrainingRows) -> TrainingRows:
    """One copy of the rows, with the inputs of trees that grow on all of them, and their goals."""
    count, X = len(given.y), given.X
    if given.categories is not None:
        X = given.categories.encoded(X, given.used, given.seed + len(rows.folds))
    far = rows.data.far[rows.data.far < count]
    goal = _standardised(model, rows.goal[:count], given)
    return given._replace(X=X, y=goal, far=far, categories=None)


def _by_fold(model: Any, rows: Rows, base: TrainingRows, trees: int, last: FloatArray) -> Rows:
    """Rows with points as the last input, of which each fold has its own copy."""
    count, encoded, own = len(base.y), [], []
    for number, fold in enumerate(rows.folds):
        start = number * count if len(rows.goal) > count else 0  # of the copy of this fold
        own.append(Fold(*(part - start for part in fold)))
        X = rows.data.X[start : start + count]
        encoded.append(_with_points(model, base, X, own[-1], trees, number)[0])
    used = base.used
    if leave_rows_out(own):  # networks that predict know all rows, as those of no fold do
        encoded.append(last)
        used = used + count * len(own)
    data, folds = base.copied(encoded, own)
    y, goal = (np.tile(part[:count], len(encoded)) for part in (rows.data.y, rows.goal))
    return Rows(data._replace(y=y, used=used), goal, folds)


def wanted(model: Any, given: TrainingRows) -> tuple[int, bool]:
    """How many trees may be grown, and whether that is certain."""
    network = expanded("network", model.network)
    if not isinstance(network, MLP):
        return 0, True
    if not isinstance(network.trees, str):
        return int(network.trees), True
    rows, inputs = len(given.used), given.X.shape[1]
    fits = _FEWEST <= rows <= _MOST_ROWS and rows * inputs <= _MOST_NUMBERS
    return (TREES if fits and network.frequencies and model.time_budget is None else 0), False


def help_networks(model: Any, data: TrainingRows, points: FloatArray) -> bool:
    """Whether points are better than what a smooth function of the inputs says."""
    rows = np.setdiff1d(data.used, data.far)
    y, own = data.y[rows], None if data.weights is None else data.weights[rows]
    left = smooth_residuals(data.X[rows], y) * y.std()
    errors = [float(np.average(e**2, weights=own)) for e in (y - points[rows], left)]
    model.about_["trees"] = {"unexplained": errors[0], "unexplained_by_smooth": errors[1]}
    return errors[0] < errors[1]


def _standardised(model: Any, goal: FloatArray, given: TrainingRows) -> FloatArray:
    """What trees learn: goals on the scale that a skewed target may get, standardised."""
    scale = objective_of(model).scales(given.y[given.used])[-1]
    if scale != "identity":
        known = TargetMap.learn(scale, goal[given.used])
        goal = np.maximum(known.forward(goal), known.low)
    own = goal[given.used]
    return (goal - own.mean()) / (own.std() or 1.0)


def _with_points(
    model: Any, data: TrainingRows, X: FloatArray, fold: Fold, trees: int, number: int
) -> tuple[FloatArray, Forest]:
    """Inputs of all rows with points by trees that grew on the training rows of a fold."""
    known = np.setdiff1d(fold.train, data.far)
    known = known if known.size else fold.train
    weights, groups = (None if p is None else p[known] for p in (data.weights, data.groups))
    seed = (data.seed, number + 1)
    forest, unseen = grow(X[known], data.y[known], weights, groups, trees, seed, model.n_jobs)
    points = np.empty(len(X))
    points[known] = unseen
    others = np.setdiff1d(np.arange(len(X)), known)
    points[others] = forest.points(X[others])
    return np.column_stack([X, points]), forest
