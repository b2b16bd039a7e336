"""A trial: a short training of one network per fold, and its measures on held-out rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calipers._arrays import FloatArray
from calipers._estimator.joint_fits import Steps, Training
from calipers._estimator.model import Model
from calipers._estimator.training_rows import TrainingRows, make_table
from calipers.bank import Bank, Plan, Program, Settings
from calipers.crossfit import Fold, OutOfFold, calibrate
from calipers.distributions import TargetMap
from calipers.ensemble import Ensemble
from calipers.networks import DenseFactory
from calipers.preprocessing import center_and_scale, standardised

EPOCHS = {1: 0.03, 2000: 0.1}  # fraction of all epochs in a trial, by the least number of rows
_TREES, _LEAF = 30, 5  # number of trees, and the fewest rows of a leaf
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


def trial(
    model: Model,
    program: Program,
    shape: OutputShape,
    data: TrainingRows,
    folds: Sequence[Fold],
    epochs: float | None = None,
    least_sizes: tuple[int, int, int] = (0, 0, 0),
) -> Steps[Measures]:
    """Train for a fraction ``epochs`` of all epochs, and measure the held-out rows."""
    program, target_map = shaped(program, shape), map_of(shape, data)
    if epochs is None:
        epochs = EPOCHS[max(rows for rows in EPOCHS if rows <= len(data.used))]
    plans = [
        replace(plan, settings=_shorter(plan.settings, epochs))
        for plan in fold_plans(model, program, data, folds)
    ]
    table = make_table(program, data, target_map)
    bank = yield Training(program, table, plans, trial=True, least_sizes=least_sizes)
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
    measures = held_out_measures(predictions, data.target, data.weights)
    return measures._replace(settled=_settled(bank))


def shaped(program: Program, shape: OutputShape) -> Program:
    """Return the program of networks that predict this shape.

    Tree predictions are in the target's own unit, so networks on another scale do not add them.
    """
    network = program.network
    if shape.scale != "identity" and isinstance(network, DenseFactory):
        network = replace(network, skip=())
    return replace(program, network=network, components=shape.components)


def map_of(shape: OutputShape, data: TrainingRows) -> TargetMap | None:
    """The map from the target to the shape's scale, learned from the rows in use."""
    if shape.scale == "identity":
        return None
    return TargetMap.learn(shape.scale, data.target[data.used])


def fold_plans(
    model: Model, program: Program, data: TrainingRows, folds: Sequence[Fold]
) -> list[Plan]:
    """One plan for each fold."""
    versions = range(len(folds))
    return data.plans(model, folds, versions, data.seed, batch_size=program.batch_size)


def _shorter(settings: Settings, fraction: float) -> Settings:
    """Settings for a fraction of the epochs."""
    epochs = max(1, int(np.ceil(fraction * settings.epochs)))
    shorter = settings._replace(epochs=epochs, check_every=max(1, epochs // 200))
    if not settings.patience:
        return shorter
    return shorter._replace(patience=max(10, epochs // 5), early_patience=max(10, epochs // 15))


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


def held_out_measures(
    predictions: OutOfFold, y: FloatArray, weights: FloatArray | None = None
) -> Measures:
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


def unexplained(y: FloatArray, errors: FloatArray, weights: FloatArray | None) -> float:
    """Mean squared error relative to the variance of ``y``; 0 if all targets are equal."""
    variance = np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
    return float(np.average(errors**2, weights=weights) / variance) if variance > 0 else 0.0


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
