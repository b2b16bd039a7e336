"""Trainings that differ from a published one in one respect, on the same trials.

Some answer why a number differs from the paper's (``EXPERIMENTS``), others what the paper proposes
as future work (``FUTURE``). All give measures of every trial, as the rows of a table.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import jax
import numpy as np

from calipers.bank import SCHEDULES, Bank, Plan, Program, Scaling, Settings, Table
from calipers.datasets import load
from calipers.networks import DenseFactory
from calipers_study.attempts import train_networks
from calipers_study.jobs import Job, member_seeds
from calipers_study.lube import CWC
from calipers_study.measures import MEMBERS, measure, measure_combined, members
from calipers_study.methods import METHODS, paper_trials
from calipers_study.modules import Kaiming, LastLayerFactory
from calipers_study.settings import StudySettings, load_settings, settings_record
from calipers_study.splits import Split, paper_splits
from calipers_study.store import StoreEntry
from calipers_study.training import trial_arrays
from calipers_study.translation import program_of, training_of

Array = Any
Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """What differs from the published training of a method.

    Attributes
    ----------
    label : str
        What to call it.
    method : str
        A key of ``METHODS``.
    loss : str
        Another loss with the same settings.
    aggregations : tuple of str
        How members become one prediction; the method's own by default.
    seed : int
        Other shuffles and networks.
    initial : str
        "glorot" as published, or "kaiming", the default of PyTorch's layers.
    full_batches : bool
        Leave out the rows that would make a last, smaller batch.
    by_epoch : bool
        Let the learning rate fall once in an epoch, not in every step.
    scaled_by_all : bool
        Standardise by all rows, not by the training rows.
    constant_inputs : bool
        Let constant inputs be 1, not 0, after standardisation.
    tf32 : bool
        Round matrix products as an accelerator does by default.
    steps : str
        "one", or two steps of learning: "further" trains networks for points by all their weights,
        "frozen" by their last layer alone.
    """

    label: str
    method: str = "qd+"
    loss: str = ""
    aggregations: tuple[str, ...] = ()
    seed: int = 0
    initial: str = "glorot"
    full_batches: bool = False
    by_epoch: bool = False
    scaled_by_all: bool = False
    constant_inputs: bool = False
    tf32: bool = False
    steps: str = "one"


EXPERIMENTS: dict[str, tuple[Variant, tuple[str, ...]]] = {
    f"{variant.method}: {variant.label}": (variant, datasets)
    for variant, datasets in (
        (Variant("other shuffles and seeds", seed=1),
         ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")),
        (Variant("PyTorch's default initialisation", initial="kaiming"), ("power",)),
        (Variant("no partial batch", full_batches=True), ("power", "boston")),
        (Variant("rate falls by epoch", by_epoch=True), ("power",)),
        (Variant("standardised by all rows", scaled_by_all=True), ("power",)),
        (Variant("TF32 products", tf32=True), ("power",)),
        (Variant("other shuffles and seeds", "qd", seed=1), ("concrete", "energy", "wine")),
        (Variant("PyTorch's default initialisation", "qd", initial="kaiming"),
         ("concrete", "energy", "wine")),
        (Variant("no partial batch", "qd", full_batches=True), ("concrete", "energy", "wine")),
        (Variant("TF32 products", "qd", tf32=True), ("concrete", "energy", "wine")),
        (Variant("other shuffles and seeds", "qd-1-layer", seed=1), ("naval",)),
        (Variant("TF32 products", "qd-1-layer", tf32=True), ("naval",)),
        (Variant("constant inputs are 1", "qd-1-layer", constant_inputs=True), ("naval",)),
        (Variant("other shuffles and seeds", "mse", seed=1), ("naval",)),
        (Variant("TF32 products", "mse", tf32=True), ("naval",)),
        (Variant("constant inputs are 1", "mse", constant_inputs=True), ("naval",)),
        (Variant("no partial batch", "mse", full_batches=True), ("naval",)),
    )
}  # fmt: skip
"""What may explain a difference from the paper, and the datasets on which it is tried."""

FUTURE: dict[str, Variant] = {
    "nmpiw": Variant("QD+ with NMPIW", loss="qd+ nmpiw"),
    "split-normal": Variant(
        "split normal likelihood", loss="split normal", aggregations=("density",)
    ),
    "crps": Variant("split normal CRPS", loss="crps", aggregations=("density",)),
    "two-step": Variant("points first, then QD+", steps="further"),
    "two-step-frozen": Variant("points first, then QD+ in the last layer", steps="frozen"),
    "lube": Variant("LUBE", "qd", loss="cwc"),
}
"""What the paper proposes, and the one of its baselines that is a loss, at published settings."""


def _by_epoch(settings: Settings, step: Array, total: Array) -> Array:
    batches = total / settings.epochs
    whole = step // batches * batches
    return settings.learning_rate * settings.decay_rate ** (whole / settings.decay_steps)


SCHEDULES["exponential by epoch"] = _by_epoch


def variant_rows(variant: Variant, dataset: str, *, trials: int | None = None) -> list[Row]:
    """Train a variant on the trials of a dataset, and measure every trial."""
    data = load(dataset)
    settings = load_settings(variant.method, dataset)
    if variant.loss and variant.loss != "cwc":
        settings = replace(settings, loss=variant.loss)
    count = paper_trials(dataset) if trials is None else trials
    splits = paper_splits(dataset, random_state=variant.seed, trials=count)
    job = Job(variant.method, dataset, settings, variant.seed, count, ())
    table = Table.from_arrays(data.X, data.y)
    with _precision(variant):
        bank = _train(variant, job, table, splits)
    rows = []
    for trial, split in enumerate(splits):
        mine = bank[bank.numbers // settings.members == trial]
        if len(mine):
            entry = StoreEntry(
                {"method": variant.method, "settings": settings_record(settings)},
                trial_arrays(settings, mine, data, split),
            )
            rows += list(_measured(variant, entry, dataset, trial))
    return rows


def _measured(variant: Variant, entry: StoreEntry, dataset: str, trial: int) -> Iterator[Row]:
    place = {"variant": variant.label, "method": variant.method, "dataset": dataset, "trial": trial}
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
    """Let programs be compiled with the device's own precision, if that is the variant."""
    if not variant.tf32:
        yield
        return
    own = mock.patch.object(jax, "default_matmul_precision", return_value=contextlib.nullcontext())
    with own:
        yield


def _train(variant: Variant, job: Job, table: Table, splits: list[Split]) -> Bank:
    program = _program(variant, job.settings, table)
    numbers = training_of(job.settings)
    if variant.loss == "cwc":
        numbers = numbers._replace(loss={"softness": job.settings.softness})
    plans = []
    for trial, split in enumerate(splits):
        rows = split.train
        if variant.full_batches:
            rows = rows[: len(rows) // job.settings.batch_size * job.settings.batch_size or None]
        scaling = _scaling(variant, table, rows)
        plans += [
            Plan(seed, rows, settings=numbers, scaling=scaling) for seed in member_seeds(job, trial)
        ]
    if variant.steps != "one":
        plans = _after_points(job.settings, table, plans)
    return train_networks(program, table, plans, n_jobs=-1)


def _program(variant: Variant, settings: StudySettings, table: Table) -> Program:
    program = program_of(settings, table.inputs.shape[1])
    if variant.loss == "cwc":
        program = replace(program, objective=CWC)
    if variant.tf32:  # a program of its own, not one that is already compiled with full precision
        network = DenseFactory(tuple(settings.hidden_layers), clip=2.0)  # which has no effect
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
    """Train networks for points in half of the epochs, and plan the other half for intervals.

    The bounds start as the point, one standard deviation of the target below and above it.
    """
    half = settings.epochs // 2
    points = program_of(replace(settings, loss="mse"), table.inputs.shape[1])
    first = [replace(plan, settings=plan.settings._replace(epochs=half, loss={})) for plan in plans]
    bank = train_networks(points, table, first, n_jobs=-1)
    again = []
    for i, number in enumerate(bank.numbers):
        *hidden, weight, bias = bank.weights_of(i)
        ends = [np.repeat(weight, 3, axis=1), np.repeat(bias, 3) + np.array([-1.0, 0.0, 1.0])]
        initial = [np.asarray(leaf, np.float32) for leaf in [*hidden, *ends]]
        plan = plans[number]
        again.append(
            replace(
                plan,
                settings=plan.settings._replace(epochs=settings.epochs - half),
                scaling=bank.scaling_of(i),
                initial=initial,
            )
        )
    return again
