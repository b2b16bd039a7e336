"""Training some candidates on every split and measuring them on its validation rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import mean_squared_error

from calipers import metrics
from calipers._checks import FloatArray
from calipers.aggregation import Interval
from calipers.bank import Bank, History, Plan, Program, Settings, Table, spawn_seeds, train
from calipers.distributions import learn_support
from calipers.ensemble import Ensemble
from calipers.regressor import IntervalRegressor
from calipers.search._result import Outcome
from calipers.training import batch_size_of, make_program, make_settings, optimizer_of

Rows = NDArray[np.intp]

_LOST = (np.nan,) * 4
_SMALLEST_RATE = 1e-9  # with less, weights of single precision stay as they are


@dataclass(frozen=True, eq=False)
class Trial:
    """What the candidates have in common."""

    X: FloatArray
    y: FloatArray
    splits: Sequence[tuple[Rows, Rows]]  # training and validation rows
    # networks for each candidate and split; one is measured by its own bounds, several by their
    # aggregate
    n_networks: int
    # early stopping; without patience networks train the estimator's own epochs
    max_epochs: int
    patience: int | None
    # seeds the networks: those of one split start alike in every candidate, so that candidates
    # differ by their parameters and not by their luck
    seed: int
    n_jobs: int | None

    @property
    def networks(self) -> int:
        """Networks of one candidate."""
        return len(self.splits) * self.n_networks

    def settings(
        self, estimator: IntervalRegressor, rows: int, budget: int | None = None
    ) -> Settings:
        """Numbers of a candidate's training, within a budget of epochs."""
        batch_size = batch_size_of(estimator, len(self.y))
        settings = make_settings(estimator, rows, batch_size, stops=self.patience is not None)
        searched = estimator.epochs is not None
        limit = settings.epochs if searched or self.patience is None else self.max_epochs
        if self.patience is not None and optimizer_of(estimator).schedule == "exponential":
            limit = min(limit, _epochs_that_change(settings, -(-rows // batch_size), limit))
        return settings._replace(
            epochs=min(limit, budget or limit),
            patience=self.patience or 0,
            early_patience=self.patience or 0,
            check_every=1,
        )

    def program(self, estimator: IntervalRegressor) -> Program:
        """What a candidate's networks have in common with others."""
        return make_program(estimator, self.X, len(self.y))

    def plans(self, estimator: IntervalRegressor, budget: int) -> list[Plan]:
        """Networks of one candidate, split by split."""
        return [
            Plan(
                seed,
                train_rows,
                validation=valid_rows if self.patience else valid_rows[:0],
                settings=self.settings(estimator, len(train_rows), budget),
            )
            for number, (train_rows, valid_rows) in enumerate(self.splits)
            for seed in spawn_seeds((self.seed, number), self.n_networks)
        ]


def _epochs_that_change(settings: Settings, batches: int, most: int) -> int:
    """Epochs after which the learning rate has fallen below ``_SMALLEST_RATE``."""
    if not settings.decay_rate < 1:
        return most
    falls = math.log(_SMALLEST_RATE / settings.learning_rate) / math.log(settings.decay_rate)
    return max(1, math.ceil(falls * settings.decay_steps / batches))


def evaluate(
    trial: Trial,
    program: Program,
    table: Table,
    estimators: Sequence[IntervalRegressor],
    budget: int,
    report: Callable[[int], None],
) -> list[Outcome]:
    """Outcomes of candidates that share a program, whose networks train ``budget`` epochs at most.

    ``report`` is called with the number of network-epochs done.
    """
    plans = [plan for estimator in estimators for plan in trial.plans(estimator, budget)]
    alone = trial.n_networks == 1 and trial.patience is not None
    bank = train(
        program,
        table,
        plans,
        n_jobs=trial.n_jobs,
        retries=0,
        needed=0,
        report=report,
        examine=_measure_each if alone else None,
    )
    # The network of each candidate, split and member; -1 where it failed.
    flat = np.full(len(plans), -1)
    flat[bank.numbers] = np.arange(len(bank))
    place = flat.reshape(len(estimators), len(trial.splits), trial.n_networks)
    measures = np.full((*place.shape[:2], len(_LOST)), np.nan)
    if alone:
        measures.reshape(-1, len(_LOST))[bank.numbers] = np.reshape(bank.examined, (-1, len(_LOST)))
    for split, (_, valid_rows) in enumerate(trial.splits if not alone else []):
        whole = [i for i, networks in enumerate(place[:, split]) if networks.min() >= 0]
        groups = [(estimators[i], place[i, split]) for i in whole]
        for i, interval in zip(whole, _intervals(bank, groups, trial.X[valid_rows]), strict=True):
            support = learn_support(trial.y, estimators[i].bounds)
            kept = Interval(*(support.observe(side) for side in interval))._replace(
                point=np.clip(interval.point, *support.ends)
            )
            measures[i, split] = _measures(kept, trial.y[valid_rows], estimators[i].coverage)
    return [
        _outcome(trial, [bank.histories[i] for i in networks.flat if i >= 0], values)
        for networks, values in zip(place, measures, strict=True)
    ]


def _measure_each(bank: Bank, table: Table, plans: Sequence[Plan]) -> list[tuple[float, ...]]:
    """Measures of networks, each by its own bounds on its validation rows, in the data's unit."""
    found: list[tuple[float, ...]] = [_LOST] * len(plans)
    coverages = [float(plan.settings.coverage) for plan in plans]
    like = [(id(plan.validation), level) for plan, level in zip(plans, coverages, strict=True)]
    for key in dict.fromkeys(like):
        networks = [i for i, own in enumerate(like) if own == key]
        rows, coverage = plans[networks[0]].validation, coverages[networks[0]]
        X, y = table.in_units(rows)
        members = Ensemble(bank[networks], coverage, "none").members(X)
        for i, sides in zip(networks, zip(*members, strict=True), strict=True):
            found[i] = _measures(Interval(*sides), y, coverage)
    return found


def _intervals(
    bank: Bank, groups: list[tuple[IntervalRegressor, NDArray[np.intp]]], X: FloatArray
) -> list[Interval]:
    """What each group of networks predicts: a network alone its own bounds, several their mix."""
    intervals = []
    for estimator, networks in groups:
        if len(networks) == 1:
            members = Ensemble(bank[networks], estimator.coverage, "none").members(X)
            intervals.append(Interval(*(side[0] for side in members)))
            continue
        ensemble = Ensemble(bank[networks], estimator.coverage, estimator.aggregation)
        found = ensemble.predict(X)
        lower, upper = found.bounds(estimator.coverage)
        intervals.append(Interval(lower, found.point, upper))
    return intervals


def _measures(interval: Interval, target: FloatArray, coverage: float) -> tuple[float, ...]:
    lower, point, upper = interval
    crossed = np.mean(lower > upper) > 0.5  # the trainer rejects such bounds, too
    if crossed or not np.isfinite(interval).all():
        return _LOST
    return (
        metrics.coverage_rate(target, lower, upper),
        metrics.mean_width(lower, upper),
        metrics.interval_score(target, lower, upper, coverage=coverage),
        mean_squared_error(target, point),
    )


def _outcome(trial: Trial, histories: list[History], measures: FloatArray) -> Outcome:
    whole = ~np.isnan(measures[:, 0])
    kept = measures[whole]
    rate, width, score, mse = kept.mean(axis=0).tolist() if len(kept) else _LOST
    epochs = [_best_epoch(history) if trial.patience else len(history) for history in histories]
    return Outcome(
        rate,
        width,
        score,
        mse,
        epochs=float(np.median(epochs)) if epochs else np.nan,
        network_epochs=sum(map(len, histories)),
        failures=len(measures) - len(kept),
        rows=sum(len(valid) for (_, valid), good in zip(trial.splits, whole, strict=True) if good),
        coverage_deviation=float(kept[:, 0].std()) if len(kept) else np.nan,
    )


def _best_epoch(history: History) -> int:
    losses = history["valid_loss"]
    return int(np.argmin(np.where(np.isnan(losses), np.inf, losses))) + 1
