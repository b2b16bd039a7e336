"""The shape of what networks predict: choices that ``fit`` makes by out-of-fold scores.

How many components, and on which scale of the target, where the loss leaves that open and rows are
many. Candidates train for a part of the epochs, one network for each fold, and score the rows that
were held out, in the target's own unit. What is less simple has to earn it: it is taken where it is
better by a margin.
"""

import math
from dataclasses import replace
from typing import Any

import joblib
import numpy as np

from calipers._fitting import TrainingRows
from calipers.bank import Program, Table, train
from calipers.crossfit import Fold
from calipers.distributions import TargetMap, TransformedMixture
from calipers.metrics import interval_score
from calipers.training import make_plans, objective_of

EPOCHS = 0.06  # of all that a network trains for
MARGIN = 0.05  # by which a candidate must be better than the simpler one: trials are short
FOLDS = 5


def choose_shape(
    model: Any, program: Program, data: TrainingRows, folds: list[Fold]
) -> tuple[Program, TargetMap | None]:
    """How many components the rows ask for, and then on which scale.

    Parameters
    ----------
    model : IntervalRegressor
        Its loss says what there is to choose from. With a ``time_budget`` the first is taken.
    program : Program
        What the networks will train by, with the first of the candidates.
    data : TrainingRows
        The rows.
    folds : list of Fold
        The folds that the networks will train in, which are the candidates' too.

    Returns
    -------
    program : Program
        With the number of components; ``model.about_["shapes"]`` has the scores, where there was a
        choice.
    target_map : TargetMap or None
        The scale; None for the target's own.
    """
    objective = objective_of(model)
    first, *others = objective.candidates(len(data.used))
    simplest, *scales = objective.scales(data.y[data.used])
    best = (first, simplest)
    if (others or scales) and model.time_budget is None:
        if not any(fold.held_out.size for fold in folds):
            folds = data.folds(FOLDS, FOLDS)
        scores = {best: _score(model, program, best, data, folds)}
        for count in others:
            best = _better(model, program, best, (count, best[1]), scores, data, folds)
        for scale in scales:
            best = _better(model, program, best, (best[0], scale), scores, data, folds)
        model.about_["shapes"] = {f"{n}, {scale}": s for (n, scale), s in scores.items()}
    return replace(program, components=best[0]), _map(best[1], data)


def _better(
    model: Any,
    program: Program,
    best: tuple[int, str],
    other: tuple[int, str],
    scores: dict[tuple[int, str], float],
    data: TrainingRows,
    folds: list[Fold],
) -> tuple[int, str]:
    """The other candidate if its score is lower by the margin; notes its score."""
    scores[other] = _score(model, program, other, data, folds)
    return other if scores[other] < (1 - MARGIN) * scores[best] else best


def _map(scale: str, data: TrainingRows) -> TargetMap | None:
    return None if scale == "identity" else TargetMap.learn(scale, data.y[data.used])


def _score(
    model: Any, program: Program, shape: tuple[int, str], data: TrainingRows, folds: list[Fold]
) -> float:
    """Geometric mean of CRPS and interval score of the rows that were held out."""
    program, target_map = replace(program, components=shape[0]), _map(shape[1], data)
    y = data.y if target_map is None else target_map.forward(data.y)
    plans = [
        replace(plan, settings=_shorter(plan.settings))
        for plan in make_plans(
            model, folds, data.weights, data.groups, data.seed, batch_size=program.batch_size
        )
    ]
    bank = train(program, Table.from_arrays(data.X, y), plans, n_jobs=model.n_jobs)

    def of_fold(number: int, fold: Fold) -> tuple[float, float, float]:
        dist: Any = program.output.mixture(bank[[number]].predict(data.X[fold.held_out]))
        if target_map is not None:
            dist = TransformedMixture(dist, target_map)
        target = data.y[fold.held_out]
        weights = np.ones(len(target)) if data.weights is None else data.weights[fold.held_out]
        level = model.coverage
        score = interval_score(target, *dist.interval(level), coverage=level, sample_weight=weights)
        mass = float(weights.sum())
        return float(weights @ dist.crps(target)), mass * float(score), mass

    parallel = joblib.Parallel(n_jobs=model.n_jobs, require="sharedmem")
    found = parallel(
        joblib.delayed(of_fold)(*pair) for pair in enumerate(folds) if pair[1].held_out.size
    )
    crps, interval, total = (math.fsum(part) for part in zip(*found, strict=True))
    return float(np.sqrt(crps * interval)) / total


def _shorter(settings: Any) -> Any:
    """Settings for a part of the epochs."""
    epochs = max(1, int(np.ceil(EPOCHS * settings.epochs)))
    return settings._replace(epochs=epochs, check_every=max(1, epochs // 200))
