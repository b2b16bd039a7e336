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
                                                                    trial, f <= LONG_WORSE u (no
                                                                    longer one if u >= NOISY and
                                                                    f <= CLEAR u); f at most
                                                                    ``_LITTLE``; with many rows also
                                                                    t <= SMOOTH_RATIO u; if
                                                                    u < ``_EXACT``, all of them at
                                                                    most ``_EXACT_WORSE`` u
piecewise-linear encoding   bins="auto", enough rows and no tree    u >= NOISY
                            predictions, which replace it
smooth networks instead     the same                                and t >= SMOOTH_RATIO u
several components          components="auto" and enough rows, and  score better than the first by
                            u >= COMPONENTS_FROM                    MARGIN, and best of all
scale of the target         scale="auto", enough rows and skewness  likewise
                            (of several components, as above)
==========================  ======================================  ===============================

The constants come from ``benchmarks/shapes.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from calipers._arrays import FloatArray, IntArray
from calipers._estimator.joint_fits import Steps
from calipers._estimator.model import Model
from calipers._estimator.training_rows import TrainingRows
from calipers._estimator.trials import (
    Measures,
    OutputShape,
    fold_plans,
    map_of,
    shaped,
    trial,
    unexplained_by_trees,
)
from calipers.bank import Program, sizes_of
from calipers.crossfit import Fold
from calipers.distributions import TargetMap
from calipers.networks import MLP, DenseFactory, smooth
from calipers.training import expanded, make_program, objective_of

MARGIN = 0.01  # by which a candidate must be better than the simplest
# Unexplained fractions of the variance. Below the first, short trials say little about the benefit
# of components; from the second on, a target is noisy.
COMPONENTS_FROM, NOISY = 0.1, 0.04
SMOOTH_RATIO = 2.0  # a target is smooth if trees leave this many times as much as a trial
FOLDS = 5
MAX_ROWS = 4000  # sampled for trials


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
            left = unexplained_by_trees(X, y, weights, sample[0], data.seed)
            if left >= SMOOTH_RATIO * first.unexplained:
                program = replace(alternative, network=smooth(usual))
        for shape in shapes[1:]:
            if shape.components == 1 or first.unexplained >= COMPONENTS_FROM:
                measured[shape] = yield from trial_of(shape)
        scores = {shape: measures.score for shape, measures in measured.items()}
        best = decide(scores)
        model.about_["shapes"] = {str(k): v for k, v in scores.items() if np.isfinite(v)}
    return shaped(program, best), map_of(best, data)


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
    short = make_program(model, data.table_inputs, min(len(data.used), MAX_ROWS))
    short, least_sizes = replace(short, network=alternative.network), (0, 0, 0)
    if short.batch_size == program.batch_size:  # then the fit uses the same compiled program
        rows, validation, _ = sizes_of(fold_plans(model, program, data, folds))
        short, least_sizes = alternative, (rows, validation, model.n_networks)
    sample = sampled_folds(data, folds)
    return sample, lambda shape: trial(
        model, short, shape, data, sample, epochs=epochs, least_sizes=least_sizes
    )


def _alternative(model: Model, program: Program, rows: int) -> Program | None:
    """Return the program with the network to try instead of the usual one, or None.

    None if tree predictions are an input: they find what a piecewise-linear encoding would.
    """
    network, usual = expanded("network", model.network), program.network
    has_trees = model.reader_.forest is not None
    if has_trees or not (isinstance(network, MLP) and isinstance(usual, DenseFactory)):
        return None
    alternative = network.alternative(usual, rows)
    return None if alternative is None else replace(program, network=alternative)


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
