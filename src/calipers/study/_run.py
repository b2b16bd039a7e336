"""The runner: trains what the store lacks and nothing else.

A trial is one shuffle of a dataset and an ensemble trained on its training rows. Trials of a method
on a dataset train together as one bank: all of them on an accelerator, a few at a time on a CPU, so
that a kill costs little. A network comes out the same whichever networks train beside it, so the
store does not depend on where a run was interrupted.
"""

import dataclasses
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import jax
import numpy as np

from calipers.bank import Bank, Plan, Table, spawn_seeds, train
from calipers.datasets import (
    CATALOGUE,
    Dataset,
    DatasetUnavailableError,
    Split,
    available,
    load,
    paper_splits,
)
from calipers.progress import progress
from calipers.study._methods import DATASETS, METHODS, choose
from calipers.study._settings import StudySettings, check_loss, load_settings
from calipers.study._store import Store, StoreError, circumstances

_TRIALS_PER_BANK = 4  # on a CPU: enough to fill the lanes when failed networks are trained anew
_TRIES = 10
_HUGE = {"year"}  # taken where its file is at hand, never downloaded unasked


@dataclass(frozen=True)
class Job:
    """One method on one dataset, and the trials that the store lacks."""

    method: str
    dataset: str
    settings: StudySettings
    seed: int
    trials: int
    missing: tuple[int, ...]

    def entry(self, trial: int) -> str:
        """Name of a trial in the store."""
        return entry_name(self.method, self.dataset, trial)

    @property
    def cost(self) -> int:
        """Rows times epochs times networks, the unit of the progress bar."""
        networks = len(self.missing) * self.settings.members
        return CATALOGUE[self.dataset].rows * self.settings.epochs * networks


@dataclass(frozen=True)
class RunReport:
    """What a run did.

    Attributes
    ----------
    trained, kept : int
        Trials trained now, and trials that were in the store already.
    retries, lost : int
        Networks thrown away and trained anew, and networks given up after ten tries.
    left_out : dict
        Datasets that could not be had, with the reason.
    seconds : float
        Time spent.
    """

    trained: int = 0
    kept: int = 0
    retries: int = 0
    lost: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def run(
    methods: Iterable[str] | None = None,
    datasets: Iterable[str] | None = None,
    *,
    trials: int | None = None,
    store: str | os.PathLike[str] = "results/study",
    settings: str | os.PathLike[str] | None = None,
    seed: int = 0,
    n_jobs: int | None = -1,
    trials_per_bank: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    verify: bool = True,
    visible: bool = True,
    notify: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """Train the paper's ensembles and keep what they predict for their test rows.

    Trials that are in the store are kept as they are.

    Parameters
    ----------
    methods, datasets : iterable of str, optional
        Keys of ``METHODS`` and names of ``DATASETS``; all by default. By default a dataset that
        cannot be had is left out and reported; one that was asked for is an error.
    trials : int, optional
        The first so many trials of each dataset; by default as many as the settings say.
    store : path-like
        Folder of the store.
    settings : path-like, optional
        Folder with settings that go before the published ones, see ``load_settings``.
    seed : int
        Seeds the shuffles and the networks.
    n_jobs : int, optional
        Threads, as in joblib.
    trials_per_bank : int, optional
        Trials trained and stored together; by default all on an accelerator and a few on a CPU.
    folder, verify
        Where datasets are and whether they must be the published ones, see
        ``calipers.datasets.load``.
    visible : bool
        Whether to show a progress bar on a terminal.
    notify : callable
        Called with a line of text when a method is done with a dataset.

    Returns
    -------
    RunReport

    Raises
    ------
    StoreError
        If the store holds trials of other settings or another seed, or is in use.
    """
    began = time.perf_counter()
    chosen = choose(methods, METHODS, "method")
    data, left_out = _load_all(datasets, folder=folder, verify=verify)
    for name, reason in left_out.items():
        notify(f"{name} is left out: {reason}")
    target = Store(store)
    with target.writing():
        plan = [
            plan_job(target, method, name, trials=trials, seed=seed, settings=settings)
            for name in data
            for method in chosen
        ]
        done = RunReport(left_out=left_out)
        with progress("study", sum(job.cost for job in plan), visible=visible) as report:
            tables: dict[str, Table] = {}
            for job in plan:
                if job.missing and job.dataset not in tables:
                    tables = {job.dataset: _table(data[job.dataset])}
                part = _do(
                    job, data[job.dataset], tables, target, n_jobs, trials_per_bank, report
                )
                notify(_line(job, part))
                done = _sum(done, part)
    return dataclasses.replace(done, seconds=time.perf_counter() - began)


def entry_name(method: str, dataset: str, trial: int) -> str:
    """Name of a trial in the store.

    Examples
    --------
    >>> entry_name("qd+", "boston", 7)
    'qd-plus/boston/trial-07'
    """
    return f"{METHODS[method].folder}/{dataset}/trial-{trial:02d}"


def plan_job(
    store: Store,
    method: str,
    dataset: str,
    *,
    trials: int | None = None,
    seed: int = 0,
    settings: str | os.PathLike[str] | None = None,
) -> Job:
    """Find out which trials the store lacks.

    Raises
    ------
    StoreError
        If it holds trials that were made with other settings or another seed.
    """
    wanted = load_settings(method, dataset, folder=settings)
    check_loss(method, wanted)
    count = wanted.trials if trials is None else min(trials, wanted.trials)
    missing = []
    for trial in range(count):
        record = store.record(entry_name(method, dataset, trial))
        if record is None:
            missing.append(trial)
        elif record["settings"] != settings_record(wanted) or record["seed"] != seed:
            raise StoreError(
                f"{store.folder} holds {method} on {dataset} with other settings or another seed: "
                "choose another folder, or delete what is there"
            )
    return Job(method, dataset, wanted, seed, count, tuple(missing))


def settings_record(settings: StudySettings) -> dict[str, object]:
    """Settings as they read in a record; how many trials there are is no part of a trial."""
    values = dataclasses.asdict(settings) | {"hidden_layers": list(settings.hidden_layers)}
    del values["trials"]
    return values


def member_seeds(job: Job, trial: int) -> list[int]:
    """Seeds of an ensemble's networks: the same whatever else the run trains."""
    name = zlib.crc32(f"{job.method}/{job.dataset}".encode())
    return spawn_seeds((job.seed, name, trial), job.settings.members)


def _load_all(
    names: Iterable[str] | None, *, folder: str | os.PathLike[str] | None, verify: bool
) -> tuple[dict[str, Dataset], dict[str, str]]:
    """Datasets asked for, and those left out because nobody asked for them by name."""
    if names is not None:
        asked = choose(names, DATASETS, "dataset")
        return {name: load(name, folder=folder, verify=verify) for name in asked}, {}
    data, left_out = {}, {}
    for name in DATASETS:
        if name in _HUGE and not available(name, folder=folder):
            left_out[name] = "its full file is not at hand"
            continue
        try:
            data[name] = load(name, folder=folder, verify=verify)
        except DatasetUnavailableError as error:
            left_out[name] = str(error).splitlines()[0]
    if not data:
        raise DatasetUnavailableError(
            "None of the datasets is at hand: set CALIPERS_DATA to a folder that holds them"
        )
    return data, left_out


def _table(data: Dataset) -> Table:
    return Table.from_arrays(data.X, data.y)


def _do(
    job: Job,
    data: Dataset,
    tables: dict[str, Table],
    store: Store,
    n_jobs: int | None,
    trials_per_bank: int | None,
    report: Callable[[int], None],
) -> RunReport:
    """Train the missing trials of a job, a bank of them at a time."""
    began = time.perf_counter()
    retries = lost = 0
    if job.missing:
        splits = paper_splits(job.dataset, random_state=job.seed, trials=job.trials)
        for group in _groups(job.missing, trials_per_bank):
            start = time.perf_counter()
            bank = _train(job, tables[job.dataset], splits, group, n_jobs, report)
            seconds = (time.perf_counter() - start) / len(group)
            for place, trial in enumerate(group):
                members = job.settings.members
                mine = bank[bank.numbers // members == place]
                arrays = _arrays(job, trial, mine, data, splits[trial])
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


def _groups(missing: tuple[int, ...], size: int | None) -> Iterator[tuple[int, ...]]:
    if size is None:
        size = _TRIALS_PER_BANK if jax.default_backend() == "cpu" else len(missing)
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
    settings = job.settings.training()
    plans = [
        Plan(seed, splits[trial].train, settings=settings)
        for trial in group
        for seed in member_seeds(job, trial)
    ]
    return train(
        job.settings.program(table.inputs.shape[1]),
        table,
        plans,
        n_jobs=n_jobs,
        retries=_TRIES - 1,
        needed=0,
        report=lambda epochs: report(epochs * table.rows),
    )


def _arrays(job: Job, trial: int, bank: Bank, data: Dataset, split: Split) -> dict[str, np.ndarray]:
    """Predictions for the test rows, in units of the whole dataset's mean and deviation."""
    center, scale = data.y.mean(), data.y.std()
    members = bank.numbers % job.settings.members
    retries = np.full(job.settings.members, _TRIES)  # of the networks that were given up
    retries[members] = bank.failures
    arrays = {
        "target": (data.y[split.test] - center) / scale,
        "members": members,
        "seeds": bank.seeds,
        "retries": retries,
    }
    for name, values in bank.predict(data.X[split.test]).items():
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


def _line(job: Job, part: RunReport) -> str:
    title = f"{METHODS[job.method].title} on {job.dataset}"
    if not part.trained:
        return f"{title}: all {part.kept} trials are in the store"
    kept = f", {part.kept} were in the store" if part.kept else ""
    lost = f", {part.lost} networks given up after {_TRIES} tries" if part.lost else ""
    return (
        f"{title}: {part.trained} trials in {part.seconds:.1f} s, {part.retries} retries"
        f"{kept}{lost}"
    )


def _sum(a: RunReport, b: RunReport) -> RunReport:
    counts = ("trained", "kept", "retries", "lost")
    return dataclasses.replace(a, **{n: getattr(a, n) + getattr(b, n) for n in counts})
