"""Choices that ``fit`` makes by out-of-fold scores: components, target scale and kind of network.

In a trial, one network per fold trains on a sample of the rows for a fraction of the epochs. It is
calibrated as the model will be and scored on held-out rows, in the target's own unit. The first
trial is of one component on the simplest scale, and leaves a fraction u of the variance
unexplained. Let t and f be the fractions that a few trees and the trees of ``tree_inputs`` leave
unexplained. In the order of ``fit``:

==========================  ======================================  ===============================
choice of                   made if ``time_budget`` is None and     taken if
==========================  ======================================  ===============================
tree predictions            ``_wanted`` in ``tree_inputs``          f <= WORSE u and, after a longer
                                                                    trial, f <= LONG_WORSE u; f at
                                                                    most ``_LITTLE``; with many rows
                                                                    also t <= SMOOTH_RATIO u; if
                                                                    u < ``_EXACT``, all of them at
                                                                    most ``_EXACT_WORSE`` u
piecewise-linear encoding   bins="auto" and enough rows             u >= NOISY
smooth networks instead     the same, without tree predictions      and t >= SMOOTH_RATIO u
several components          components="auto" and enough rows, and  score better than the first by
                            u >= COMPONENTS_FROM                    MARGIN, and best of all
scale of the target         scale="auto", enough rows and skewness  likewise
                            (of several components, as above)
==========================  ======================================  ===============================

The constants come from ``benchmarks/shapes.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from calipers._checks import FloatArray, IntArray
from calipers._estimator.model import Model
from calipers._estimator.together import Steps, Training
from calipers._estimator.training_rows import TrainingRows, make_table
from calipers.bank import Bank, Plan, Program, Settings, room_of
from calipers.crossfit import Fold, OutOfFold, calibrate
from calipers.distributions import TargetMap
from calipers.ensemble import Ensemble
from calipers.networks import MLP, DenseFactory, smooth
from calipers.preprocessing import center_and_scale, standardised
from calipers.training import expanded, make_program, objective_of

EPOCHS = {1: 0.03, 2000: 0.1}  # fraction of all epochs in a trial, by the least number of rows
MARGIN = 0.01  # by which a candidate must be better than the simplest
# Unexplained fractions of the variance. Below the first, short trials say little about the benefit
# of components; from the second on, a target is noisy.
COMPONENTS_FROM, NOISY = 0.1, 0.04
SMOOTH_RATIO = 2.0  # a target is smooth if trees leave this many times as much as a trial
_TREES, _LEAF = 30, 5  # number of trees, and the fewest rows of a leaf
FOLDS = 5
MAX_ROWS = 4000  # sampled for trials
_MEASURED = 2000  # held-out rows that are scored
_TAIL_ROWS = 4  # fewest rows beyond each bound of the interval that is scored
_LEVELS = np.arange(1, 20) / 20  # quantiles that represent the whole distribution


class OutputShape(NamedTuple):
    """What networks predict: the number of components, and the scale of the target."""

    components: int
    scale: str

    def __str__(self) -> str:
        return f"{self.components}, {self.scale}"


class Measures(NamedTuple):
    """Mean interval score, pinball loss and squared error, and the last relative to the variance.

    Smaller is better for all of them.
    """

    interval: float
    pinball: float
    squared: float
    unexplained: float
    settled: bool = False  #: Whether a longer training would stop as early, see ``_settled``.

    @property
    def score(self) -> float:
        """Geometric mean of interval score, pinball loss and RMSE, in the target's unit."""
        return float((self.interval * self.pinball) ** (1 / 3) * self.squared ** (1 / 6))


_FAILED = Measures(np.inf, np.inf, np.inf, 0.0)  # of a trial in which networks fail to train


def choose_shape(
    model: Model,
    program: Program,
    data: TrainingRows,
    first: Measures | None = None,
) -> Steps[tuple[Program, TargetMap | None]]:
    """Choose the network, its number of components, and the scale of the target.

    The model's loss defines the candidate shapes; with a ``time_budget`` the first is used.
    ``first`` are the measures of ``first_trial``, if it has been run, perhaps before tree
    predictions became an input. ``model.about_["shapes"]`` keeps the scores of the trials.
    """
    shapes = shapes_of(model, data.target[data.used])
    best = shapes[0]
    if has_choice(model, program, data.target[data.used]):
        sample, trial_of = _short_trials(model, program, data)
        alternative = _alternative(model, program, len(data.used))
        has_trees = model.reader_.forest is not None
        if first is None or (has_trees and len(shapes) > 1):  # shapes compete on the same inputs
            first = yield from trial_of(best)
        measured = {best: first}
        if alternative is not None and first.unexplained >= NOISY:
            program, usual = alternative, cast(DenseFactory, program.network)
            X, y, weights = data.inputs_of(0), data.target, data.weights
            left = 0 if has_trees else unexplained_by_trees(X, y, weights, sample[0], data.seed)
            if left >= SMOOTH_RATIO * first.unexplained:
                program = replace(alternative, network=smooth(usual))
        for shape in shapes[1:]:
            if shape.components == 1 or first.unexplained >= COMPONENTS_FROM:
                measured[shape] = yield from trial_of(shape)
        scores = {shape: measures.score for shape, measures in measured.items()}
        best = decide(scores)
        model.about_["shapes"] = {str(k): v for k, v in scores.items() if np.isfinite(v)}
    return _shaped(program, best), map_of(best, data)


def _shaped(program: Program, shape: OutputShape) -> Program:
    """Return the program of networks that predict this shape.

    Tree predictions are in the target's own unit, so networks on another scale do not add them.
    """
    network = program.network
    if shape.scale != "identity" and isinstance(network, DenseFactory):
        network = replace(network, skip=())
    return replace(program, network=network, components=shape.components)


def first_trial(
    model: Model, program: Program, data: TrainingRows, epochs: float | None = None
) -> Steps[Measures]:
    """Measure the simplest shape after a short training, or after a fraction ``epochs`` of all."""
    shape = shapes_of(model, data.target[data.used])[0]
    return (yield from _short_trials(model, program, data, epochs)[1](shape))


def _short_trials(
    model: Model, program: Program, data: TrainingRows, epochs: float | None = None
) -> tuple[Sequence[Fold], Callable[[OutputShape], Steps[Measures]]]:
    """Return the folds of a sample of the rows, and a function that tries a shape on them."""
    alternative = _alternative(model, program, len(data.used)) or program
    folds = data.folds
    if not any(fold.held_out.size for fold in folds):
        folds = data.split(FOLDS, FOLDS)
    short, room = make_program(model, data.table_inputs, min(len(data.used), MAX_ROWS)), (0, 0, 0)
    short = replace(short, network=alternative.network)
    if short.batch_size == program.batch_size:  # then the fit uses the same compiled program
        rows, validation, _ = room_of(_plans(model, program, data, folds))
        short, room = alternative, (rows, validation, model.n_networks)
    sample = sampled_folds(data, folds)
    return sample, lambda shape: trial(model, short, shape, data, sample, epochs=epochs, room=room)


def _alternative(model: Model, program: Program, rows: int) -> Program | None:
    """Return the program with the network to try instead of the usual one, or None."""
    network, usual = expanded("network", model.network), program.network
    if not (isinstance(network, MLP) and isinstance(usual, DenseFactory)):
        return None
    alternative = network.alternative(usual, rows)
    return None if alternative is None else replace(program, network=alternative)


def unexplained_by_trees(
    X: FloatArray, y: FloatArray, weights: FloatArray | None, fold: Fold, seed: int
) -> float:
    """Fraction of the variance of a fold's held-out rows that a few trees leave unexplained."""
    from sklearn.tree import ExtraTreeRegressor  # ``sklearn.ensemble`` takes longer to import

    inputs = standardised(X, *center_and_scale(X[fold.train]))
    known, held_out = (None if weights is None else weights[rows] for rows in fold)
    target = y[fold.held_out]
    predicted = np.zeros(len(target))
    for tree_seed in np.random.RandomState(seed).randint(2**31 - 1, size=_TREES):
        tree = ExtraTreeRegressor(min_samples_leaf=_LEAF, random_state=tree_seed)
        tree.fit(inputs[fold.train], y[fold.train], known, check_input=False)
        predicted += tree.predict(inputs[fold.held_out], check_input=False)
    return unexplained(target, target - predicted / _TREES, held_out)


def unexplained(y: FloatArray, errors: FloatArray, weights: FloatArray | None) -> float:
    """Mean squared error relative to the variance of ``y``; 0 if all targets are equal."""
    variance = np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
    return float(np.average(errors**2, weights=weights) / variance) if variance > 0 else 0.0


def has_choice(model: Model, program: Program, y: FloatArray) -> bool:
    """Whether trials are to choose among several shapes or networks."""
    if model.time_budget is not None:
        return False
    return len(shapes_of(model, y)) > 1 or _alternative(model, program, len(y)) is not None


def sampled_folds(data: TrainingRows, folds: Sequence[Fold]) -> Sequence[Fold]:
    """Sample the rows of each fold for trials, if there are many.

    Of folds that split all rows, those of the sample split it.
    """
    fraction = MAX_ROWS / len(data.used)
    if fraction >= 1:
        return folds
    rank = np.random.default_rng(data.seed).permutation(len(data.y))

    def sampled(rows: IntArray) -> IntArray:
        return rows[rank[rows].argsort()[: int(np.ceil(fraction * len(rows)))]]

    held_out = [sampled(fold.held_out) for fold in folds]
    others = np.setdiff1d(data.used, np.concatenate([fold.held_out for fold in folds]))
    kept = np.concatenate([*held_out, sampled(others)])
    train = [np.intersect1d(fold.train, kept) for fold in folds]
    return [
        Fold(rows if rows.size else sampled(fold.train), part)
        for rows, fold, part in zip(train, folds, held_out, strict=True)
    ]


def shapes_of(model: Model, y: FloatArray) -> list[OutputShape]:
    """Return candidate shapes, the simplest first; other scales use the most components."""
    objective = objective_of(model)
    counts, (simplest, *scales) = objective.candidates(len(y)), objective.scales(y)
    return [OutputShape(n, simplest) for n in counts] + [
        OutputShape(counts[-1], scale) for scale in scales
    ]


def decide(scores: dict[OutputShape, float], margin: float | None = None) -> OutputShape:
    """Return the shape with the lowest score if it beats the first by the margin, else the first.

    >>> one, three = OutputShape(1, "identity"), OutputShape(3, "identity")
    >>> [str(decide({one: 1.0, three: score}, margin=0.01)) for score in (0.995, 0.98)]
    ['1, identity', '3, identity']
    """
    first, best = next(iter(scores)), min(scores, key=lambda shape: scores[shape])
    enough = 1 - (MARGIN if margin is None else margin)
    return best if scores[best] < enough * scores[first] else first


def map_of(shape: OutputShape, data: TrainingRows) -> TargetMap | None:
    """The map from the target to the shape's scale, learned from the rows in use."""
    if shape.scale == "identity":
        return None
    return TargetMap.learn(shape.scale, data.target[data.used])


def trial(
    model: Model,
    program: Program,
    shape: OutputShape,
    data: TrainingRows,
    folds: Sequence[Fold],
    epochs: float | None = None,
    room: tuple[int, int, int] = (0, 0, 0),
) -> Steps[Measures]:
    """Train for a fraction ``epochs`` of all epochs, and measure the held-out rows."""
    program, target_map = _shaped(program, shape), map_of(shape, data)
    if epochs is None:
        epochs = EPOCHS[max(rows for rows in EPOCHS if rows <= len(data.used))]
    plans = [
        replace(plan, settings=_shorter(plan.settings, epochs))
        for plan in _plans(model, program, data, folds)
    ]
    table = make_table(program, data, target_map)
    bank = yield Training(program, table, plans, trial=True, room=room)
    if bank is None:
        return _FAILED
    ensemble = Ensemble(bank, model.coverage, "snm", support=data.support, target_map=target_map)
    fold_of, inputs = np.arange(len(folds)), data.inputs[: len(folds)]
    if ensemble.head.has_interval:
        rows = (inputs, data.target, data.weights)
        predictions = calibrate(ensemble, folds, fold_of, *rows, "map", seed=data.seed)[1]
    else:
        points = [bank.predict(X)["point"] for X in inputs]
        predictions = OutOfFold.of_points(points, folds, fold_of, model.coverage)
    assert predictions is not None  # noqa: S101 - folds hold rows out
    if len(inputs) > 1:
        predictions = _fold_by_fold(predictions, folds)
    measures = measure(predictions, data.target, data.weights)
    return measures._replace(settled=_settled(bank))


def _fold_by_fold(predictions: OutOfFold, folds: Sequence[Fold]) -> OutOfFold:
    """Order predictions by fold, so that all folds have their part in the sample that is scored."""
    held_out = [fold.held_out for fold in folds]
    numbers = np.repeat(np.arange(len(folds)), [len(rows) for rows in held_out])
    first = np.unique(np.concatenate(held_out), return_index=True)[1]
    order = np.argsort(numbers[first], kind="stable")
    parts = {name: getattr(predictions, name) for name in ("rows", "dist", "target", "weights")}
    ordered: dict[str, Any] = {n: None if v is None else v[order] for n, v in parts.items()}
    return replace(predictions, **ordered)


def _settled(bank: Bank) -> bool:
    """Whether the validation loss of each network was lowest in the first half of its epochs."""
    halves = (np.split(history["valid_loss"], [len(history) // 2]) for history in bank.histories)
    lowest = ([np.fmin.reduce(half, initial=np.inf) for half in pair] for pair in halves)
    return all(first < second for first, second in lowest)


def _plans(model: Model, program: Program, data: TrainingRows, folds: Sequence[Fold]) -> list[Plan]:
    """One plan for each fold."""
    versions = range(len(folds))
    return data.plans(model, folds, versions, data.seed, batch_size=program.batch_size)


def measure(predictions: OutOfFold, y: FloatArray, weights: FloatArray | None = None) -> Measures:
    """Measure out-of-fold predictions; if they are points alone, the RMSE replaces other scores."""
    count = len(predictions.rows)
    sample = np.arange(count)
    if predictions.dist is not None:
        sample = np.unique(np.linspace(0, count - 1, _MEASURED).astype(int))
    rows = predictions.rows[sample]
    weights, target = None if weights is None else weights[rows], y[rows]
    errors = target - predictions.point[rows]
    squared = float(np.average(errors**2, weights=weights))
    left = unexplained(target, errors, weights)
    if predictions.dist is None:
        return Measures(squared**0.5, squared**0.5, squared, left)
    tail = max((1 - predictions.coverage) / 2, _TAIL_ROWS / count)
    levels = np.array([tail, 1 - tail, *_LEVELS])[:, None]
    excess = target - predictions.calibrated[sample].ppf(levels)
    pinball = np.maximum(levels * excess, (levels - 1) * excess)
    losses = np.average(pinball, axis=1, weights=weights)
    return Measures(float(losses[:2].sum() / tail), float(losses[2:].mean()), squared, left)


def _shorter(settings: Settings, fraction: float) -> Settings:
    """Settings for a fraction of the epochs."""
    epochs = max(1, int(np.ceil(fraction * settings.epochs)))
    shorter = settings._replace(epochs=epochs, check_every=max(1, epochs // 200))
    if not settings.patience:
        return shorter
    return shorter._replace(patience=max(10, epochs // 5), early_patience=max(10, epochs // 15))
