"""Runs one fit, or several in step, so that the networks of all fits train in one bank.

A fit is a generator: it yields a ``Training`` for the networks that it needs and is sent the bank.
Fits of several targets advance together, and networks that share a program train in one call.
On a CPU, a network does not depend on the others in its bank, so each fit is the same as alone.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from calipers._checks import warn
from calipers._estimator.model import Model
from calipers._progress import progress
from calipers.bank import Bank, Plan, Program, Table, TrainingFailedError, padded, train
from calipers.training import time_report, time_warning

T = TypeVar("T")


class Training(NamedTuple):
    """Networks that a fit needs."""

    program: Program
    table: Table
    plans: list[Plan]
    trial: bool = False  #: Whether they only inform a choice: no progress bar, no time budget.
    least_sizes: tuple[int, int, int] = (0, 0, 0)  #: See ``train``.


Steps = Generator[Training, Any, T]
"""A running fit and its result; it is sent None for a trial that fails."""


def run_fit(model: Model, fit: Steps[T]) -> T:
    """Run one fit."""
    return run_fits([model], [fit])[0]


def run_fits(models: Sequence[Model], fits: Sequence[Steps[T]]) -> list[T]:
    """Run several fits in step; networks that share a program train in one bank.

    Trials go first, so that the final networks of all fits train at the same time.
    """
    requested: dict[int, Training] = {}
    results: dict[int, T] = {}

    def advance(number: int, bank: Bank | None) -> None:
        try:
            requested[number] = fits[number].send(bank)
        except StopIteration as end:
            requested.pop(number, None)
            results[number] = end.value

    for number in range(len(fits)):
        advance(number, None)
    rows = sum(training.table.rows for training in requested.values())
    while requested:
        first = min(requested.values(), key=lambda training: not training.trial)
        kind = (first.trial, first.program)
        same = [i for i, other in requested.items() if (other.trial, other.program) == kind]
        trainings = [requested[number] for number in same]
        if len(fits) == 1:
            banks = [_trained(models[0], first)]
        else:  # compile for the rows of all fits, even if only some take part
            banks = _trained_jointly(models[0], trainings, rows)
        for number, training, bank in zip(same, trainings, banks, strict=True):
            if bank is not None and not training.trial:
                report_time(models[number], bank, training.plans)
            advance(number, bank)
    return [results[number] for number in range(len(fits))]


def _trained(model: Model, training: Training, fits: int = 1) -> Bank | None:
    """Train the networks of ``fits`` fits, each of which has its own time budget."""
    if not training.trial:
        return train_in_time(model, *training[:3], fits)
    try:
        return train(*training[:3], n_jobs=model.n_jobs, least_sizes=training.least_sizes)
    except TrainingFailedError:  # a longer training may still succeed
        return None


def _trained_jointly(model: Model, trainings: Sequence[Training], rows: int) -> list[Bank | None]:
    """Train the networks of several fits in one bank, and return those of each fit.

    If a trial fails, it may be that of another fit, so each is trained separately.
    """
    joined = _joined(trainings, rows)
    bank = _trained(model, joined, len(trainings))
    if bank is None and len(trainings) == 1:
        return [None]
    if bank is None:
        return [_trained_jointly(model, [training], rows)[0] for training in trainings]
    banks: list[Bank | None] = []
    start = 0
    for training in trainings:
        stop = start + len(training.plans)
        banks.append(_separated(bank[start:stop], training, joined.table, start))
        start = stop
    return banks


def _joined(trainings: Sequence[Training], rows: int) -> Training:
    """Join the trainings of several fits, with their tables concatenated and padded to ``rows``.

    Each table stays in its own units, and each network is scaled by its own table.
    """
    inputs, target, plans, start = [], [], [], 0
    for _, table, table_plans, *_ in trainings:
        inputs.append(table.inputs[: table.rows])
        target.append(table.target[: table.rows])
        for plan in table_plans:
            scaling = plan.scaling or table.scaling(plan.rows, plan.weights)
            train, validation = plan.rows + start, plan.validation + start
            plans.append(replace(plan, rows=train, validation=validation, scaling=scaling))
        start += table.rows
    extra, first = padded(max(rows, start)) - start, trainings[0]
    table = replace(
        first.table,
        inputs=np.pad(np.concatenate(inputs), ((0, extra), (0, 0))),
        target=np.pad(np.concatenate(target), (0, extra)),
        rows=start,
    )
    sizes = zip(*(training.least_sizes for training in trainings), strict=True)
    return first._replace(table=table, plans=plans, least_sizes=tuple(map(max, sizes)))


def _separated(bank: Bank, training: Training, joined: Table, start: int) -> Bank:
    """Return the networks of one fit as if trained alone, in the units of its own table."""
    units = training.table.units
    unit = units.target_scale / joined.units.target_scale
    for history in bank.histories:
        for name, factor in (("width", unit), ("mse", unit**2)):
            history[name] *= factor
            history[f"valid_{name}"] *= factor
    return replace(bank, units=units, numbers=bank.numbers - start)


def train_in_time(
    model: Model, program: Program, table: Table, plans: list[Plan], budgets: int = 1
) -> Bank:
    """Train networks with a progress bar, within ``budgets`` times the time budget."""
    total = sum(plan.settings.epochs for plan in plans)
    with progress("training", total, unit="epochs", visible=bool(model.verbose)) as report:
        seconds = budgets * (model.time_budget or math.inf)
        return train(program, table, plans, n_jobs=model.n_jobs, report=report, seconds=seconds)


def report_time(model: Model, bank: Bank, plans: list[Plan], shards: int = 1) -> None:
    """Record in ``about_`` how many epochs fitted into the time budget, and warn if too few did.

    If rows come in several shards, an epoch of the plans is a pass over one of them.
    """
    if model.time_budget is None:
        return
    spent = time_report(bank, plans, model.time_budget)
    spent |= {n: max(1, round(spent[n] / shards)) for n in ("epochs", "planned_epochs")}
    model.about_["time_budget"] = spent
    if text := time_warning(spent):
        warn(text)
