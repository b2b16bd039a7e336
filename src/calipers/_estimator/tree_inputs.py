"""Tree predictions as an extra input of the networks: whether to add them, and their values.

Rows are split into parts, usually those that the folds hold out. A bag of trees grows on all rows
but one part, or two of them:

==========================  ====================================================================
row                         its input is the prediction of
==========================  ====================================================================
a new row                   all bags that leave out one part
training row of a fold      the bag that leaves out its own part and the rows that the fold holds
                            out
held-out row of a fold      both: the mean of the bags that leave out its part alone, and of those
                            that leave out another part too
==========================  ====================================================================

A bag of two parts serves two folds. The prediction for new rows is better than that of a fold, and
calibration must not take the one for the other: hence the mean for held-out rows, and an estimate
of the variance by which its error is still larger than that for new rows (``_surplus``).

A row's own target does not reach its input, except through three weights that all rows share, and
no target of a held-out row reaches the networks of its fold.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import joblib
import numpy as np

from calipers._arrays import FloatArray
from calipers._estimator.candidates import (
    FOLDS,
    NOISY,
    SMOOTH_RATIO,
    first_trial,
    sampled_folds,
)
from calipers._estimator.joint_fits import Steps
from calipers._estimator.model import Model
from calipers._estimator.training_rows import TrainingRows, rows_without
from calipers._estimator.tree_bags import (
    TreePredictions,
    predictions_by_fold,
    predictions_for_new_rows,
)
from calipers._estimator.trials import Measures, unexplained, unexplained_by_trees
from calipers.bank import Program
from calipers.crossfit import Fold, leave_rows_out
from calipers.networks import MLP, DenseFactory
from calipers.preprocessing import FEW, Forest, boosted_per_tree, inputs_per_split
from calipers.training import expanded

_OF_FOREST = 100  # trees of each forest with trees="auto", unless there are very many inputs
_FEW_PER_SPLIT, _MIN_TREES = 40, 140  # if a split looks at more inputs, fewer trees are grown
# Trees are used if their squared error is at most ``WORSE`` times that of networks after a short
# trial, and ``LONG_WORSE`` times after a fraction ``LONG`` of all epochs, which may teach more.
WORSE, LONG, LONG_WORSE = 1.05, 0.3, 1.2
CLEAR = 0.9  # a noisy target is learned early: trees that leave less than this need no long trial
# Where networks leave almost nothing unexplained, all rows, all epochs and each other teach them
# much that one network has not learned in a trial.
_EXACT, _EXACT_WORSE = 0.01, 0.8
_LITTLE = 0.9  # trees that leave more of the variance unexplained are not worth their time
_MIN_ROWS, _MAX_ROWS = 100, 50_000  # rows with which trees="auto" tries trees
_MAX_NUMBERS = 10**7  # rows times inputs


def add_trees(
    model: Model, program: Program, rows: TrainingRows
) -> Steps[tuple[TrainingRows, Measures | None]]:
    """Add tree predictions to the inputs if the model requests trees, or if a trial favours them.

    The forest for new rows becomes part of ``model.reader_``. Returns the rows, and the measures of
    the last trial without trees.
    """
    trees, certain = _wanted(model, rows)
    if not trees:
        return rows, None
    grown: list[TreePredictions] = []
    trial = None
    if not certain:
        helpful, trial, grown = yield from _try_trees(model, program, rows, trees)
        if not helpful:
            return rows, trial
    rows, forest = _with_trees_by_fold(model, rows, trees, grown)
    model.reader_ = replace(model.reader_, forest=forest)
    model.about_.setdefault("trees", {})["rows"] = rows.fingerprint
    return rows, trial


def _try_trees(
    model: Model, program: Program, rows: TrainingRows, trees: int
) -> Steps[tuple[bool, Measures, list[TreePredictions]]]:
    """Compare trees with networks on held-out rows.

    Returns whether trees help, the measures of the networks, and the tree predictions for each
    fold, if they can be used for the fit.
    """
    folds, standard = rows.folds, _standard_targets(rows)
    cross_fitted = any(fold.held_out.size for fold in folds)
    trial_folds = sampled_folds(rows, folds if cross_fitted else rows.split(FOLDS, FOLDS))
    # The first trial trains in one thread, and another core may grow trees meanwhile.
    few = len(rows.y) <= FEW
    early = few and joblib.effective_n_jobs(model.n_jobs) > 1
    pool, cancelled = ThreadPoolExecutor(1), Event()

    def start() -> Future[list[TreePredictions]]:
        return pool.submit(predictions_by_fold, model, standard, trial_folds, trees, cancelled)

    try:
        growing = start() if early else None
        trial = first = yield from first_trial(model, program, rows)
        # With many rows, a few trees show whether the target is too smooth for trees to help.
        last = len(trial_folds) - 1
        known = (rows.inputs_of(last), rows.target, rows.weights, trial_folds[last], rows.seed)
        error = 0.0 if few else unexplained_by_trees(*known)
        helpful = _helpful(error, first, SMOOTH_RATIO)
        if helpful:
            grown = (growing or start()).result()
            error = _held_out_error(standard, trial_folds, grown)
            helpful = _helpful(error, first, WORSE)
    finally:  # also after an interrupt: a process does not end before its threads
        cancelled.set()
        pool.shutdown(wait=False)
    clear = first.unexplained >= NOISY and error <= CLEAR * first.unexplained
    if helpful and not (first.settled or clear):
        # With tree predictions, networks would not learn what they learn late.
        trial = yield from first_trial(model, program, rows, LONG)
        helpful = _helpful(error, trial, LONG_WORSE)
    fractions = {"trees": error, "networks": trial.unexplained}
    model.about_["trees"] = {"unexplained": fractions}
    if not helpful:
        return False, first, []
    return True, trial, grown if trial_folds is folds else []


def _helpful(error: float, trial: Measures, worse: float) -> bool:
    """Whether trees with an unexplained fraction ``error`` help networks like those of a trial."""
    left = trial.unexplained
    worse = _EXACT_WORSE if left < _EXACT else worse
    return left > 0 and error <= min(worse * left, _LITTLE)


def with_fitted_trees(model: Model, rows: TrainingRows, seen: str = "") -> TrainingRows:
    """Add the predictions of the model's trees, grown on rows of fingerprint ``seen``.

    Rows of another fingerprint are new to these trees. For the same rows, the trees of each fold
    are grown again.
    """
    forest = model.reader_.forest
    if forest is None:
        return rows
    if rows.fingerprint != seen:
        X = rows.table_inputs
        return rows.with_inputs(np.column_stack([X, forest.predict(X, model.n_jobs)]))
    return _with_trees_by_fold(model, rows, len(forest), [])[0]


def _wanted(model: Model, data: TrainingRows) -> tuple[int, bool]:
    """Return how many trees to grow, and whether to use them without a trial."""
    network = expanded("network", model.network)
    if not isinstance(network, MLP):
        return 0, True
    if not isinstance(network.trees, str):
        return int(network.trees), True
    rows, inputs = len(data.used), data.X.shape[1]
    fits = _MIN_ROWS <= rows <= _MAX_ROWS and rows * inputs <= _MAX_NUMBERS
    # A trial takes a fraction of the epochs, and is not informative if there are few.
    usual = network.frequencies and model.epochs is None and model.time_budget is None
    trees = _OF_FOREST * (2 + boosted_per_tree(len(data.y)))
    trees = trees * _FEW_PER_SPLIT // max(_FEW_PER_SPLIT, inputs_per_split(inputs))
    return (max(_MIN_TREES, trees) if fits and usual else 0), False


def _standard_targets(rows: TrainingRows) -> TrainingRows:
    """Return the rows with standardised targets, which trees learn."""
    used = rows.target[rows.used]
    return rows._replace(y=(rows.target - used.mean()) / (used.std() or 1.0))


def _held_out_error(
    base: TrainingRows, folds: Sequence[Fold], predicted: list[TreePredictions]
) -> float:
    """Fraction of the held-out rows' variance that the tree predictions leave unexplained."""
    held_out = np.concatenate([fold.held_out for fold in folds])
    points = [own.mean[fold.held_out] for own, fold in zip(predicted, folds, strict=True)]
    weights = None if base.weights is None else base.weights[held_out]
    return unexplained(base.y[held_out], base.y[held_out] - np.concatenate(points), weights)


def starting_at_trees(program: Program) -> Program:
    """Return the program of networks that add the last input, tree predictions, to their outputs.

    They start near the trees, and need not learn from few rows to repeat them.
    """
    network = program.network
    if not isinstance(network, DenseFactory) or network.frequencies is None:
        return program
    return replace(program, network=replace(network, skip=program.output.locations))


def _with_trees_by_fold(
    model: Model, rows: TrainingRows, trees: int, grown: list[TreePredictions]
) -> tuple[TrainingRows, Forest]:
    """Give each fold its own inputs, the last of which are tree predictions.

    ``grown`` are those of each fold, or empty if its trees have yet to be grown. Also returns the
    trees for new rows.
    """
    standard, folds, X = _standard_targets(rows), rows.folds, rows.X
    if rows.encoding is not None:
        X = rows.encoding.encoded(X, rows.used, rows.seed + len(folds))
    new, forest = predictions_for_new_rows(model, standard, X, trees)
    by_fold = grown or predictions_by_fold(model, standard, folds, trees)
    inputs = [
        np.column_stack([rows.inputs_of(number), own.mean]) for number, own in enumerate(by_fold)
    ]
    if leave_rows_out(folds):  # the networks that predict are trained on all rows, in no fold
        return rows.with_inputs(np.concatenate([*inputs, np.column_stack([X, new.mean])])), forest
    for own, fold in zip(inputs, folds, strict=True):
        own[fold.held_out, -1] += (new.mean[fold.held_out] - own[fold.held_out, -1]) / 2
    surplus = _surplus(standard, [own[:, -1] for own in inputs], by_fold, new)
    return rows.with_inputs(np.concatenate(inputs))._replace(surplus=surplus), forest


def _surplus(
    rows: TrainingRows,
    inputs: Sequence[FloatArray],
    by_fold: Sequence[TreePredictions],
    new: TreePredictions,
) -> FloatArray:
    """Variance, for each fold and row, by which the error of ``inputs`` exceeds that of a new row.

    It applies to held-out rows. A new row gets the mean of B bags, whose squared error is that of a
    single bag, as a training row has it, less the variance of the B bags. All but one of these have
    seen the training row, but none of the b bags of its fold has. Any two of b bags that each leave
    out one part of b share all but a fraction 1 / (b - 1) of their rows, and differ accordingly, so
    the variance of the B bags is taken to be b / B of that of the b bags, although these have fewer
    rows and, of small tables, more trees. The surplus of all rows is shared out in proportion to
    the variance of the b bags.
    """
    surplus = total = 0.0
    for own, predicted, fold in zip(inputs, by_fold, rows.folds, strict=True):
        held_out = rows_without(fold.held_out, rows.outliers)  # which are in no bag
        y, variance = rows.y[held_out], predicted.variance[held_out]
        weight = np.ones(len(y)) if rows.weights is None else rows.weights[held_out]
        expected = (y - new.mean[held_out]) ** 2 - predicted.bags / new.bags * variance
        surplus += float(weight @ ((y - own[held_out]) ** 2 - expected))
        total += float(weight @ variance)
    share = max(0.0, surplus) / total if total > 0 else 0.0
    return share * np.stack([predicted.variance for predicted in by_fold])
