"""Training of candidates on every split, and their measures on its validation rows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import mean_squared_error

from calipers import metrics
from calipers._arrays import FloatArray, IntArray
from calipers.aggregation import Interval
from calipers.bank import Bank, History, Plan, Program, Settings, Table, spawn_seeds, train
from calipers.distributions import learn_support
from calipers.ensemble import Ensemble
from calipers.regressor import IntervalRegressor
from calipers.search._result import Outcome
from calipers.training import batch_size_of, make_program, make_settings, optimizer_of

_FAILED: tuple[float, ...] = (np.nan,) * 4  # measures of a failed network
_MIN_RATE = 1e-9  # below, single-precision weights do not change


@dataclass(frozen=True, eq=False)
class Setup:
    """Data and settings that all candidates share."""

    X: FloatArray
    y: FloatArray
    splits: Sequence[tuple[IntArray, IntArray]]  # training and validation rows
    # networks per candidate and split: one is measured by its own bounds, several as an ensemble
    n_networks: int
    # early stopping; without patience, networks train the epochs of the estimator
    max_epochs: int
    patience: int | None
    # of the networks: those of one split start alike in every candidate, so that candidates differ
    # by their parameters and not by luck
    seed: int
    n_jobs: int | None

    @property
    def networks(self) -> int:
        """Number of networks of one candidate."""
        return len(self.splits) * self.n_networks

    def settings(
        self, estimator: IntervalRegressor, rows: int, budget: int | None = None
    ) -> Settings:
        """Return the training settings of a candidate, within a budget of epochs."""
        batch_size = batch_size_of(estimator, len(self.y))
        settings = make_settings(estimator, rows, batch_size, stops=self.patience is not None)
        searched = estimator.epochs is not None
        limit = settings.epochs if searched or self.patience is None else self.max_epochs
        if self.patience is not None and optimizer_of(estimator).schedule == "exponential":
            limit = min(limit, _useful_epochs(settings, -(-rows // batch_size), limit))
        return settings._replace(
            epochs=min(limit, budget or limit),
            patience=self.patience or 0,
            early_patience=self.patience or 0,
            check_every=1,
        )

    def program(self, estimator: IntervalRegressor) -> Program:
        """Return the compiled program of a candidate, which other candidates may share."""
        return make_program(estimator, self.X, len(self.y))

    def plans(self, estimator: IntervalRegressor, budget: int) -> list[Plan]:
        """Return the plans of a candidate's networks, split by split."""
        plans = []
        for number, (train_rows, valid_rows) in enumerate(self.splits):
            settings = self.settings(estimator, len(train_rows), budget)
            rows = valid_rows if self.patience else valid_rows[:0]
            seeds = spawn_seeds((self.seed, number), self.n_networks)
            plans += [Plan(seed, train_rows, validation=rows, settings=settings) for seed in seeds]
        return plans


def _useful_epochs(settings: Settings, batches: int, limit: int) -> int:
    """Return the epochs after which the learning rate has fallen below ``_MIN_RATE``."""
    if not settings.decay_rate < 1:
        return limit
    decays = math.log(_MIN_RATE / settings.learning_rate) / math.log(settings.decay_rate)
    return max(1, math.ceil(decays * settings.decay_steps / batches))


def evaluate(
    setup: Setup,
    program: Program,
    table: Table,
    estimators: Sequence[IntervalRegressor],
    budget: int,
    report: Callable[[int], None],
) -> list[Outcome]:
    """Return the outcomes of candidates that share a program, after at most ``budget`` epochs."""
    plans = [plan for estimator in estimators for plan in setup.plans(estimator, budget)]
    single = setup.n_networks == 1 and setup.patience is not None
    bank = train(
        program,
        table,
        plans,
        n_jobs=setup.n_jobs,
        retries=0,
        needed=0,
        report=report,
        examine=_measure_each if single else None,
    )
    # The index in the bank of the network of each candidate, split and member; -1 if it failed.
    flat = np.full(len(plans), -1)
    flat[bank.numbers] = np.arange(len(bank))
    index = flat.reshape(len(estimators), len(setup.splits), setup.n_networks)
    measures = np.full((*index.shape[:2], len(_FAILED)), np.nan)
    if single:
        by_plan = measures.reshape(-1, len(_FAILED))
        by_plan[bank.numbers] = np.reshape(bank.examined, (-1, len(_FAILED)))
    else:
        for i, estimator in enumerate(estimators):
            measures[i] = _measure_ensembles(setup, estimator, bank, index[i])
    return [
        _outcome(setup, [bank.histories[i] for i in networks.flat if i >= 0], values)
        for networks, values in zip(index, measures, strict=True)
    ]


def _measure_each(bank: Bank, table: Table, plans: Sequence[Plan]) -> list[tuple[float, ...]]:
    """Return measures of each network's own bounds on its validation rows, in the data's unit."""
    measures: list[tuple[float, ...]] = [_FAILED] * len(plans)
    coverages = [float(plan.settings.coverage) for plan in plans]
    keys = [(id(plan.validation), level) for plan, level in zip(plans, coverages, strict=True)]
    for key in dict.fromkeys(keys):
        networks = [i for i, other in enumerate(keys) if other == key]
        rows, coverage = plans[networks[0]].validation, coverages[networks[0]]
        X, y = table.in_units(rows)
        members = Ensemble(bank[networks], coverage, "none").members(X)
        for i, sides in zip(networks, zip(*members, strict=True), strict=True):
            measures[i] = _measures(Interval(*sides), y, coverage)
    return measures


def _measure_ensembles(
    setup: Setup, estimator: IntervalRegressor, bank: Bank, index: IntArray
) -> list[tuple[float, ...]]:
    """Return measures of a candidate on each split, from its networks of shape (splits, members).

    A single network gives its own bounds.
    """
    aggregation = "none" if setup.n_networks == 1 else estimator.aggregation
    support = learn_support(setup.y, estimator.bounds)
    measures = [_FAILED] * len(index)
    for split, networks in enumerate(index):
        if networks.min() < 0:
            continue
        ensemble = Ensemble(bank[networks], estimator.coverage, aggregation, support=support)
        rows = setup.splits[split][1]
        try:
            prediction = ensemble.predict(setup.X[rows])
        except ValueError:
            if setup.n_networks == 1:  # its outputs are not finite
                continue
            raise
        lower, upper = prediction.bounds(estimator.coverage)
        interval = Interval(lower, prediction.point, upper)
        measures[split] = _measures(interval, setup.y[rows], estimator.coverage)
    return measures


def _measures(interval: Interval, target: FloatArray, coverage: float) -> tuple[float, ...]:
    lower, point, upper = interval
    crossed = np.mean(lower > upper) > 0.5  # the trainer also rejects such bounds
    if crossed or not np.isfinite(interval).all():
        return _FAILED
    return (
        metrics.coverage_rate(target, lower, upper),
        metrics.mean_width(lower, upper),
        metrics.interval_score(target, lower, upper, coverage=coverage),
        mean_squared_error(target, point),
    )


def _outcome(setup: Setup, histories: list[History], measures: FloatArray) -> Outcome:
    trained = ~np.isnan(measures[:, 0])
    kept = measures[trained]
    rate, width, score, mse = kept.mean(axis=0).tolist() if len(kept) else _FAILED
    epochs = [_best_epoch(history) if setup.patience else len(history) for history in histories]
    return Outcome(
        rate,
        width,
        score,
        mse,
        epochs=float(np.median(epochs)) if epochs else np.nan,
        network_epochs=sum(map(len, histories)),
        failures=len(measures) - len(kept),
        rows=sum(len(valid) for (_, valid), ok in zip(setup.splits, trained, strict=True) if ok),
        coverage_deviation=float(kept[:, 0].std()) if len(kept) else np.nan,
    )


def _best_epoch(history: History) -> int:
    losses = history["valid_loss"]
    return int(np.argmin(np.where(np.isnan(losses), np.inf, losses))) + 1
