"""Training of the trials of a job, one bank of trials at a time, into the store.

A network does not depend on the others in its bank, so the store does not depend on how trials are
grouped.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import joblib
import numpy as np
from numpy.typing import NDArray

from calipers.bank import Bank, Plan, Table
from calipers.datasets import Dataset
from calipers_study.attempts import TRIES, train_networks
from calipers_study.jobs import Job, member_seeds
from calipers_study.settings import StudySettings, settings_record
from calipers_study.splits import Split, paper_splits
from calipers_study.store import ResultStore, circumstances
from calipers_study.translation import fields_of, program_of, training_of

_TRIALS_PER_BANK = 4  # on a CPU: enough to fill the lanes when failed networks are trained again


@dataclass(frozen=True)
class RunReport:
    """Summary of a run."""

    #: Trials trained now, and trials that were in the store already.
    trained: int = 0
    kept: int = 0
    #: Networks that failed and were trained again, and networks given up after ten attempts.
    retries: int = 0
    lost: int = 0
    #: Datasets that are not available, with the reason.
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  #: Time spent.


def train_job(
    job: Job,
    data: Dataset,
    table: Table,
    store: ResultStore,
    n_jobs: int | None,
    trials_per_bank: int | None,
    report: Callable[[int], None],
) -> RunReport:
    """Train the missing trials of a job, one bank of trials at a time."""
    began = time.perf_counter()
    retries = lost = 0
    if job.missing:
        splits = paper_splits(job.dataset, random_state=job.seed, trials=job.trials)
        for group in _groups(job.missing, trials_per_bank, n_jobs):
            start = time.perf_counter()
            bank = _train(job, table, splits, group, n_jobs, report)
            seconds = (time.perf_counter() - start) / len(group)
            for place, trial in enumerate(group):
                members = job.settings.members
                mine = bank[bank.numbers // members == place]
                arrays = trial_arrays(job.settings, mine, data, splits[trial])
                store.write(job.entry(trial), _record(job, trial, data, seconds), arrays)
                retries += int(arrays["retries"].sum())
                lost += members - len(mine)
    return RunReport(
        trained=len(job.missing),
        kept=job.trials - len(job.missing),
        retries=retries,
        lost=lost,
        seconds=time.perf_counter() - began,
    )


def _groups(
    missing: tuple[int, ...], size: int | None, n_jobs: int | None
) -> Iterator[tuple[int, ...]]:
    if size is None and jax.default_backend() == "cpu":
        size = max(_TRIALS_PER_BANK, joblib.effective_n_jobs(n_jobs))
    size = size or len(missing)
    for start in range(0, len(missing), size):
        yield missing[start : start + size]


def _train(
    job: Job,
    table: Table,
    splits: list[Split],
    group: tuple[int, ...],
    n_jobs: int | None,
    report: Callable[[int], None],
) -> Bank:
    settings = training_of(job.settings)
    plans = [
        Plan(seed, splits[trial].train, settings=settings)
        for trial in group
        for seed in member_seeds(job, trial)
    ]
    return train_networks(
        program_of(job.settings, table.inputs.shape[1]),
        table,
        plans,
        n_jobs=n_jobs,
        report=lambda epochs: report(epochs * table.rows),
    )


def trial_arrays(
    settings: StudySettings, bank: Bank, data: Dataset, split: Split
) -> dict[str, NDArray[Any]]:
    """Predictions for the test rows, standardised by the targets of the whole dataset."""
    center, scale = data.y.mean(), data.y.std()
    members = bank.numbers % settings.members
    retries = np.full(settings.members, TRIES)  # remains so for networks that were given up
    retries[members] = bank.failures
    arrays = {
        "target": (data.y[split.test] - center) / scale,
        "members": members,
        "seeds": bank.seeds,
        "retries": retries,
    }
    none = {name: np.empty((0, len(split.test))) for name in fields_of(settings)}
    for name, values in (bank.predict(data.X[split.test]) if len(bank) else none).items():
        place = 0.0 if name.endswith("scale") else center
        arrays[name] = ((values - place) / scale).astype(np.float32)
    return arrays


def _record(job: Job, trial: int, data: Dataset, seconds: float) -> dict[str, object]:
    return {
        "method": job.method,
        "dataset": job.dataset,
        "trial": trial,
        "seed": job.seed,
        "settings": settings_record(job.settings),
        "target_center": float(data.y.mean()),
        "target_scale": float(data.y.std()),
        "seconds": seconds,
        **circumstances(),
    }
