"""Training and measurement of the variants in ``calipers_study.experiments``."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import joblib
import numpy as np

from calipers.bank import SCHEDULES, Bank, Plan, Program, Scaling, Settings, Table
from calipers.datasets import Dataset, load
from calipers.networks import DenseFactory
from calipers_study.attempts import TRIES, train_networks
from calipers_study.experiments import Variant
from calipers_study.jax_training import late_errors, standardised
from calipers_study.jobs import Job, member_seeds
from calipers_study.lube import CWC
from calipers_study.measures import MEMBERS, measure, measure_combined, members
from calipers_study.methods import METHODS, paper_trials
from calipers_study.modules import Kaiming, LastLayerFactory
from calipers_study.numpy_training import outputs, train_plainly
from calipers_study.settings import StudySettings, load_settings, settings_record
from calipers_study.splits import Split, paper_splits
from calipers_study.store import StoreEntry
from calipers_study.training import trial_arrays
from calipers_study.translation import program_of, training_of

Array = Any
Row = dict[str, Any]


def _by_epoch(settings: Settings, step: Array, total: Array) -> Array:
    batches = total / settings.epochs
    whole = step // batches * batches
    return settings.learning_rate * settings.decay_rate ** (whole / settings.decay_steps)


SCHEDULES["exponential by epoch"] = _by_epoch


def variant_rows(variant: Variant, dataset: str, *, trials: int | None = None) -> list[Row]:
    """Train a variant on the trials of a dataset, and measure every trial."""
    count = trials or paper_trials(dataset)
    if variant.plain == "jax":
        return points_rows(variant, dataset, count)
    if variant.plain == "numpy":
        work = joblib.Parallel(n_jobs=-1)
        every = work(joblib.delayed(plain_rows)(variant, dataset, i) for i in range(count))
        return [row for rows in every for row in rows]
    seeds = range(variant.seed, variant.seed + variant.draws)
    drawn = [_job(replace(variant, seed=seed), dataset, count) for seed in seeds]
    data, table = drawn[0][0], Table.from_arrays(drawn[0][0].X, drawn[0][0].y)
    trained = [
        (job, trial, split) for _, job, splits in drawn for trial, split in enumerate(splits)
    ]
    with _precision(variant):
        bank = _train(variant, table, trained)
    rows = []
    for number, (job, trial, split) in enumerate(trained):
        mine = bank[bank.numbers // job.settings.members == number]
        if len(mine):
            arrays = trial_arrays(job.settings, mine, data, split)
            own = _measured(variant, job, arrays, trial)
            rows += [{**row, "draw": job.seed} for row in own] if variant.draws > 1 else list(own)
    return rows


def points_rows(variant: Variant, dataset: str, count: int) -> list[Row]:
    """Train all trials of "mse" by the plain loop in JAX, and measure them.

    "late MSE" is that of the ensemble after each of the last hundred epochs: at a constant learning
    rate, the last one is a random draw from them.
    """
    data, job, splits = _job(variant, dataset, count)
    train, test, scales = standardised(data.X, data.y, splits)
    seeds = [member_seeds(job, trial) for trial in range(count)]
    errors = late_errors(job.settings, train, test, seeds)
    place = {"variant": variant.label, "method": job.method, "dataset": dataset}
    counts = {"networks": job.settings.members, "retries": 0, "aggregation": "mean"}
    return [
        {**place, "trial": trial, **counts, "MSE": float(own[-1]),
         "late MSE": [float(f"{error:.3g}") for error in own]}
        for trial, own in enumerate(errors * np.square(scales)[:, None])
    ]  # fmt: skip


def plain_rows(variant: Variant, dataset: str, trial: int) -> list[Row]:
    """Train one trial of "qd" by the plain loop in NumPy, and measure it."""
    data, job, splits = _job(variant, dataset, trial + 1)
    split, center, scale = splits[trial], data.y.mean(), data.y.std()
    train, test, units = standardised(data.X, data.y, [split])
    X, y, inputs = train[0][0], train[1][0], test[0][0].astype(np.float32)
    layers, failures = train_plainly(job.settings, X, y, member_seeds(job, trial))
    kept = np.flatnonzero(failures < TRIES)
    if not len(kept):
        return []
    inputs = np.broadcast_to(inputs, (job.settings.members, *inputs.shape))
    shift = (data.y[split.train].mean() - center) / scale
    lower, _, upper = np.moveaxis(outputs(layers, inputs)[kept] * units[0] + shift, -1, 0)
    arrays = {
        "target": (data.y[split.test] - center) / scale, "members": kept, "retries": failures,
        "lower": lower, "point": (lower + upper) / 2, "upper": upper,
    }  # fmt: skip
    return list(_measured(variant, job, arrays, trial))


def _job(variant: Variant, dataset: str, trials: int) -> tuple[Dataset, Job, list[Split]]:
    settings = load_settings(variant.method, dataset)
    if variant.loss and variant.loss != "cwc":
        settings = replace(settings, loss=variant.loss)
    splits = paper_splits(dataset, random_state=variant.seed, trials=trials)
    return load(dataset), Job(variant.method, dataset, settings, variant.seed, trials, ()), splits


def _measured(variant: Variant, job: Job, arrays: dict[str, Array], trial: int) -> Iterator[Row]:
    record = {"method": variant.method, "settings": settings_record(job.settings)}
    entry = StoreEntry(record, arrays)
    place = {"variant": variant.label, "method": job.method, "dataset": job.dataset, "trial": trial}
    counts = {
        "networks": len(entry.arrays["members"]),
        "retries": int(entry.arrays["retries"].sum()),
    }
    for name in variant.aggregations or METHODS[variant.method].aggregations:
        yield {**place, "aggregation": name, **counts, **measure_combined(entry, name)}
    if "lower" in entry.arrays:
        target, coverage = entry.arrays["target"], entry.record["settings"]["coverage"]
        found = [measure(one, target, coverage=coverage) for one in members(entry)]
        mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        yield {**place, "aggregation": MEMBERS, **counts, **mean}


@contextlib.contextmanager
def _precision(variant: Variant) -> Iterator[None]:
    """Compile programs with the device's default precision, if that is the variant."""
    if not variant.tf32:
        yield
        return
    with mock.patch.object(jax, "default_matmul_precision", return_value=contextlib.nullcontext()):
        yield


def _train(variant: Variant, table: Table, trained: list[tuple[Job, int, Split]]) -> Bank:
    settings = trained[0][0].settings
    program = _program(variant, settings, table)
    patience = settings.epochs if variant.best_epoch else 0
    numbers = training_of(settings, patience=patience)
    if variant.loss == "cwc":
        numbers = numbers._replace(loss={"softness": settings.softness})
    plans = []
    for job, trial, split in trained:
        rows = split.train
        if variant.full_batches:
            rows = rows[: len(rows) // settings.batch_size * settings.batch_size or None]
        scaling = _scaling(variant, table, rows)
        seen = split.test if variant.best_epoch else split.test[:0]
        plans += [
            Plan(seed, rows, validation=seen, settings=numbers, scaling=scaling)
            for seed in member_seeds(job, trial)
        ]
    if variant.steps != "one":
        plans = _after_points(settings, table, plans)
    return train_networks(program, table, plans, n_jobs=-1)


def _program(variant: Variant, settings: StudySettings, table: Table) -> Program:
    program = program_of(settings, table.inputs.shape[1])
    if variant.loss == "cwc":
        program = replace(program, objective=CWC)
    if variant.tf32:  # needs another program than the one that was compiled with full precision
        network = DenseFactory(tuple(settings.hidden_layers), clip=2.0)  # clip has no effect here
        program = replace(program, network=network)
    if variant.initial == "kaiming":
        program = replace(program, network=Kaiming(tuple(settings.hidden_layers)))
    if variant.steps == "frozen":
        program = replace(program, network=LastLayerFactory(tuple(settings.hidden_layers)))
    if variant.by_epoch:
        program = replace(program, schedule="exponential by epoch")
    return program


def _scaling(variant: Variant, table: Table, rows: Any) -> Scaling | None:
    if variant.scaled_by_all:
        width = table.inputs.shape[1]
        return Scaling(np.zeros(width), np.ones(width), np.float64(0), np.float64(1))
    if variant.constant_inputs:
        scaling = table.scaling(rows)
        constant = np.ptp(table.inputs[rows], axis=0) == 0
        return scaling._replace(input_center=scaling.input_center - constant)
    return None


def _after_points(settings: StudySettings, table: Table, plans: list[Plan]) -> list[Plan]:
    """Train networks for points in half of the epochs, and return plans of the other half.

    The bounds start one standard deviation of the target below and above the point.
    """
    half = settings.epochs // 2
    points = program_of(replace(settings, loss="mse"), table.inputs.shape[1])
    first = [replace(plan, settings=plan.settings._replace(epochs=half, loss={})) for plan in plans]
    bank = train_networks(points, table, first, n_jobs=-1)
    second = []
    for i, number in enumerate(bank.numbers):
        *hidden, weight, bias = bank.weights_of(i)
        ends = [np.repeat(weight, 3, axis=1), np.repeat(bias, 3) + np.array([-1.0, 0.0, 1.0])]
        initial = [np.asarray(leaf, np.float32) for leaf in [*hidden, *ends]]
        plan = plans[number]
        second.append(
            replace(
                plan,
                settings=plan.settings._replace(epochs=settings.epochs - half),
                scaling=bank.scaling_of(i),
                initial=initial,
            )
        )
    return second
