"""Tree predictions as an extra input of the networks: whether to add them, and their values.

In each fold, trees are grown on the rows that its networks train on. A training row gets the
prediction of the trees that were not grown on it. A new row gets the prediction of trees grown on
all rows, which is better than that of the trees of a fold. Calibration must not take the one for
the other, so a held-out row gets the mean of two predictions: by the trees of its fold, and by
those of the trees grown on all rows that were not grown on it. So a row's own target does not reach
its input, except through three weights that all rows share, and no target of a held-out row reaches
the networks of its fold.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import joblib
import numpy as np

from calipers._checks import FloatArray, IntArray
from calipers._estimator.candidates import (
    FOLDS,
    SMOOTH_RATIO,
    Measures,
    first_trial,
    sampled_folds,
    unexplained,
    unexplained_by_trees,
)
from calipers._estimator.model import Model
from calipers._estimator.together import Steps
from calipers._estimator.training_rows import TrainingRows
from calipers.bank import Program
from calipers.crossfit import Fold, leave_rows_out
from calipers.networks import MLP, DenseFactory
from calipers.preprocessing import Forest, grow, inputs_per_split
from calipers.training import expanded

TREES = 700  # grown with trees="auto", unless there are very many inputs
_FEW_PER_SPLIT, _FEWEST_TREES = 40, 140  # if a split looks at more inputs, fewer trees are grown
# Trees are used if their squared error is at most ``WORSE`` times that of networks after a short
# trial, and ``LONG_WORSE`` times after a fraction ``LONG`` of all epochs, which may teach more.
WORSE, LONG, LONG_WORSE = 1.05, 0.3, 1.2
_LITTLE = 0.9  # trees that leave more of the variance unexplained are not worth their time
_FEWEST, _MOST = 100, 50_000  # rows with which trees="auto" tries trees
_MOST_NUMBERS = 10**7  # rows times inputs
_FEW = 4000  # rows up to which trees cost little: they are grown early, in larger forests


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
    grown: list[FloatArray] = []
    trial = None
    if not certain:
        helpful, trial, grown = yield from _try_trees(model, program, rows, trees)
        if not helpful:
            return rows, trial
    last, forest = _on_all_rows(model, rows, trees)
    model.reader_ = replace(model.reader_, forest=forest)
    model.about_.setdefault("trees", {})["rows"] = rows.fingerprint
    return _with_trees_by_fold(model, rows, trees, last, grown), trial


def _try_trees(
    model: Model, program: Program, rows: TrainingRows, trees: int
) -> Steps[tuple[bool, Measures, list[FloatArray]]]:
    """Compare trees with networks on held-out rows.

    Returns whether trees help, the measures of the networks, and the inputs of each fold with tree
    predictions, if they can be used for the fit.
    """
    folds, standard = rows.folds, _standard_targets(rows)
    cross_fitted = any(fold.held_out.size for fold in folds)
    trial_folds = sampled_folds(rows, folds if cross_fitted else rows.split(FOLDS, FOLDS))
    # The first trial trains in one thread, and another core may grow trees meanwhile.
    few = len(rows.used) <= _FEW
    early = few and joblib.effective_n_jobs(model.n_jobs) > 1
    pool = ThreadPoolExecutor(1)

    def start() -> list[Future[tuple[FloatArray, Forest]]]:
        # The fit needs predictions of all rows if it has the same folds.
        predicted = [None if trial_folds is folds else fold.held_out for fold in trial_folds]
        return [
            pool.submit(
                _with_trees, model, standard, rows.inputs_of(i), fold, trees, i, predicted[i]
            )
            for i, fold in enumerate(trial_folds)
        ]

    try:
        growing = start() if early else []
        trial = first = yield from first_trial(model, program, rows)
        # With many rows, a few trees show whether the target is too smooth for trees to help.
        last = len(trial_folds) - 1
        known = (rows.inputs_of(last), rows.target, rows.weights, trial_folds[last], rows.seed)
        error = 0.0 if few else unexplained_by_trees(*known)
        helpful = _helpful(error, first, SMOOTH_RATIO)
        if helpful:
            grown = [job.result()[0] for job in growing or start()]
            error = _held_out_error(standard, [fold.held_out for fold in trial_folds], grown)
            helpful = _helpful(error, first, WORSE)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if helpful and not first.settled:
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
    return trial.unexplained > 0 and error <= min(worse * trial.unexplained, _LITTLE)


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
    last, _ = _on_all_rows(model, rows, len(forest))
    return _with_trees_by_fold(model, rows, len(forest), last, [])


def _wanted(model: Model, data: TrainingRows) -> tuple[int, bool]:
    """Return how many trees to grow, and whether to use them without a trial."""
    network = expanded("network", model.network)
    if not isinstance(network, MLP):
        return 0, True
    if not isinstance(network.trees, str):
        return int(network.trees), True
    rows, inputs = len(data.used), data.X.shape[1]
    fits = _FEWEST <= rows <= _MOST and rows * inputs <= _MOST_NUMBERS
    # A trial takes a fraction of the epochs, and is not informative if there are few.
    usual = network.frequencies and model.epochs is None and model.time_budget is None
    trees = TREES * _FEW_PER_SPLIT // max(_FEW_PER_SPLIT, inputs_per_split(inputs))
    return (max(_FEWEST_TREES, trees) if fits and usual else 0), False


def _standard_targets(rows: TrainingRows) -> TrainingRows:
    """Return the rows with standardised targets, which trees learn."""
    used = rows.target[rows.used]
    return rows._replace(y=(rows.target - used.mean()) / (used.std() or 1.0))


def _on_all_rows(model: Model, rows: TrainingRows, trees: int) -> tuple[FloatArray, Forest]:
    """Return the inputs with predictions of trees grown on all rows, and the trees."""
    X, used = rows.X, rows.used
    if rows.encoding is not None:
        X = rows.encoding.encoded(X, used, rows.seed + len(rows.folds))
    return _with_trees(model, _standard_targets(rows), X, Fold(used, used[:0]), trees, -1)


def _held_out_error(base: TrainingRows, by_fold: list[IntArray], grown: list[FloatArray]) -> float:
    """Fraction of the held-out rows' variance that the tree predictions leave unexplained."""
    held_out = np.concatenate(by_fold)
    predicted = np.concatenate([X[part, -1] for X, part in zip(grown, by_fold, strict=True)])
    weights = None if base.weights is None else base.weights[held_out]
    return unexplained(base.y[held_out], base.y[held_out] - predicted, weights)


def starting_at_trees(program: Program) -> Program:
    """Return the program of networks that add the last input, tree predictions, to their outputs.

    They start near the trees, and need not learn from few rows to repeat them.
    """
    network = program.network
    if not isinstance(network, DenseFactory) or network.frequencies is None:
        return program
    return replace(program, network=replace(network, skip=program.output.places))


def _with_trees_by_fold(
    model: Model, rows: TrainingRows, trees: int, last: FloatArray, grown: list[FloatArray]
) -> TrainingRows:
    """Give each fold its own inputs, the last of which are tree predictions.

    ``last`` are the inputs with predictions of trees grown on all rows; ``grown`` are those of each
    fold, or empty if its trees have yet to be grown.
    """
    standard = _standard_targets(rows)
    encoded = grown or [
        _with_trees(model, standard, rows.inputs_of(number), fold, trees, number)[0]
        for number, fold in enumerate(rows.folds)
    ]
    if leave_rows_out(rows.folds):  # the networks that predict are trained on all rows, in no fold
        return rows.with_inputs(np.concatenate([*encoded, last]))
    for X, fold in zip(encoded, rows.folds, strict=True):
        X[fold.held_out, -1] += (last[fold.held_out, -1] - X[fold.held_out, -1]) / 2
    return rows.with_inputs(np.concatenate(encoded))


def _with_trees(
    model: Model,
    data: TrainingRows,
    X: FloatArray,
    fold: Fold,
    trees: int,
    number: int,
    predicted: IntArray | None = None,
) -> tuple[FloatArray, Forest]:
    """Grow trees on the training rows of a fold, and append their predictions to the inputs.

    Training rows get out-of-bag predictions. The other rows, or only ``predicted``, get those of
    all trees.
    """
    train = np.setdiff1d(fold.train, data.outliers)
    train = train if train.size else fold.train
    weights = None if data.weights is None else data.weights[train]
    groups = None if data.groups is None else data.groups[train]
    seed = (data.seed, number + 1)
    extra = trees if predicted is None and fold.held_out.size and len(train) <= _FEW else 0
    options = (trees, seed, model.n_jobs, extra)
    forest, out_of_bag = grow(X[train], data.y[train], weights, groups, *options)
    predictions = np.full(len(X), np.nan)
    predictions[train] = out_of_bag
    others = np.setdiff1d(np.arange(len(X)), train) if predicted is None else predicted
    predictions[others] = forest.predict(X[others], model.n_jobs)
    return np.column_stack([X, predictions]), forest
