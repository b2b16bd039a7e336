"""How many components networks predict: a choice that ``fit`` makes by out-of-fold scores.

Where the loss leaves it open and rows are many, candidates train for a part of the epochs, one
network for each fold, and score the rows that were held out. More components have to earn it: they
are taken where they are better by a margin.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from calipers._fitting import TrainingRows
from calipers.bank import Program, Table, train
from calipers.crossfit import Fold
from calipers.metrics import interval_score
from calipers.training import make_plans, objective_of

EPOCHS = 0.1  # of all that a network trains for
MARGIN = 0.01  # by which a candidate's score must be better than that of the simpler one
FOLDS = 5


def choose_components(
    model: Any, program: Program, table: Table, data: TrainingRows, folds: list[Fold]
) -> Program:
    """The program with the number of components that the rows ask for.

    Parameters
    ----------
    model : IntervalRegressor
        Its loss says what there is to choose from. With a ``time_budget`` the first is taken.
    program : Program
        What the networks will train by, with the first of the candidates.
    table : Table
        The rows.
    data : TrainingRows
        The same, and their weights and groups.
    folds : list of Fold
        The folds that the networks will train in, which are the candidates' too.

    Returns
    -------
    Program
        ``model.about_["components"]`` has the scores, where there was a choice.
    """
    first, *others = objective_of(model).candidates(len(data.used))
    if not others or model.time_budget is not None:
        return program
    if not any(fold.held_out.size for fold in folds):
        folds = data.folds(FOLDS, FOLDS)
    scores = {
        count: _score(model, replace(program, components=count), table, data, folds)
        for count in (first, *others)
    }
    model.about_["components"] = {str(count): score for count, score in scores.items()}
    best = first
    for count in others:
        if scores[count] < (1 - MARGIN) * scores[best]:
            best = count
    return replace(program, components=best)


def _score(
    model: Any, program: Program, table: Table, data: TrainingRows, folds: list[Fold]
) -> float:
    """Geometric mean of CRPS and interval score of the rows that were held out."""
    plans = [
        replace(plan, settings=_shorter(plan.settings))
        for plan in make_plans(
            model, folds, data.weights, data.groups, data.seed, batch_size=program.batch_size
        )
    ]
    bank = train(program, table, plans, n_jobs=model.n_jobs)
    crps, interval, total = 0.0, 0.0, 0.0
    for number, fold in enumerate(folds):
        mixture = program.output.mixture(bank[[number]].predict(data.X[fold.held_out]))
        assert mixture is not None  # noqa: S101 - losses with candidates predict densities
        y = data.y[fold.held_out]
        weights = np.ones(len(y)) if data.weights is None else data.weights[fold.held_out]
        mass = float(weights.sum())
        crps += float(weights @ mixture.crps(y))
        lower, upper = mixture.interval(model.coverage)
        score = interval_score(y, lower, upper, coverage=model.coverage, sample_weight=weights)
        interval += mass * float(score)
        total += mass
    return float(np.sqrt(crps * interval)) / total


def _shorter(settings: Any) -> Any:
    """Settings for a part of the epochs, without early stopping."""
    epochs = max(1, int(np.ceil(EPOCHS * settings.epochs)))
    return settings._replace(epochs=epochs, check_every=max(1, epochs // 200))
