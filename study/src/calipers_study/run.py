"""The runner, which trains the trials that the store lacks.

A trial is one shuffle of a dataset and an ensemble trained on its training rows. Trials of a method
on a dataset train together as one bank: all of them on an accelerator, a few at a time on a CPU, so
that little is lost if the run is killed.
"""

import dataclasses
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from calipers.bank import Table
from calipers.datasets import DatasetUnavailableError, available, load
from calipers_study.attempts import TRIES
from calipers_study.jobs import Job, plan_job
from calipers_study.methods import DATASETS, METHODS, choose
from calipers_study.progress import progress
from calipers_study.store import ResultStore
from calipers_study.training import RunReport, train_job

_HUGE = {"year"}  # used if its file is on this machine, but only downloaded on request


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
    processes: int = 1,
    folder: str | os.PathLike[str] | None = None,
    verify: bool = True,
    visible: bool = True,
    notify: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """Train the paper's ensembles and store their predictions for the test rows.

    Trials that are in the store are kept.

    Parameters
    ----------
    methods, datasets : iterable of str, optional
        Keys of ``METHODS`` and names of ``DATASETS``; all by default. A dataset that is not
        available is left out and reported, unless it is named here, where it is an error.
    trials : int, optional
        Number of trials of each dataset; by default as many as the settings say.
    store : path-like
        Folder of the store.
    settings : path-like, optional
        Folder with settings that take precedence over the published ones, see ``load_settings``.
    seed : int
        Seed of the shuffles and the networks.
    n_jobs : int, optional
        Threads, as in joblib.
    trials_per_bank : int, optional
        Trials trained and stored together; by default all on an accelerator and a few on a CPU.
    processes : int
        Number of jobs (a method on a dataset) that train at a time, each in its own process; for an
        accelerator that one small bank at a time would not keep busy.
    folder, verify
        Where datasets are and whether they must be the published ones, see
        ``calipers.datasets.load``.
    visible : bool
        Whether to show a progress bar on a terminal.
    notify : callable
        Called with a line of text when a job is done.

    Returns
    -------
    RunReport

    Raises
    ------
    StoreError
        If the store holds trials with other settings or another seed, or is in use.
    """
    began = time.perf_counter()
    chosen = choose(methods, METHODS, "method")
    names, left_out = _present(datasets, folder=folder, verify=verify)
    for name, reason in left_out.items():
        notify(f"{name} is left out: {reason}")
    target = ResultStore(store)
    with target.writing():
        plan = [
            plan_job(target, method, name, trials=trials, seed=seed, settings=settings)
            for name in names
            for method in chosen
        ]
        train = partial(
            _train,
            store=target.folder,
            n_jobs=n_jobs,
            trials_per_bank=trials_per_bank,
            folder=folder,
            verify=verify,
        )
        done = RunReport(left_out=left_out)
        with progress("study", sum(job.cost for job in plan), visible=visible) as report:
            for job, part in _results(plan, processes, train, report):
                notify(_line(job, part))
                done = _sum(done, part)
    return dataclasses.replace(done, seconds=time.perf_counter() - began)


def _results(
    plan: list[Job],
    processes: int,
    train: Callable[..., RunReport],
    report: Callable[[int], None],
) -> Iterator[tuple[Job, RunReport]]:
    """Train jobs one by one, or in parallel, starting with those of most steps."""
    if processes <= 1:
        yield from ((job, train(job, report=report)) for job in plan)
        return
    with pool(processes) as workers:
        longest = sorted(plan, key=lambda job: -job.steps)
        tasks = {workers.submit(train, job): job for job in longest}
        for task in as_completed(tasks):
            job = tasks[task]
            report(job.cost)
            yield job, task.result()


def pool(processes: int) -> ProcessPoolExecutor:
    """Processes that share an accelerator, of which none preallocates its memory."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


def _train(
    job: Job,
    *,
    store: os.PathLike[str],
    n_jobs: int | None,
    trials_per_bank: int | None,
    folder: str | os.PathLike[str] | None,
    verify: bool,
    report: Callable[[int], None] = lambda _: None,
) -> RunReport:
    data = load(job.dataset, folder=folder, verify=verify)
    table = Table.from_arrays(data.X, data.y)
    return train_job(job, data, table, ResultStore(store), n_jobs, trials_per_bank, report)


def _present(
    names: Iterable[str] | None, *, folder: str | os.PathLike[str] | None, verify: bool
) -> tuple[list[str], dict[str, str]]:
    """The requested datasets, and those left out of the default ones with the reason."""
    present, left_out = [], {}
    for name in choose(names, DATASETS, "dataset"):
        if names is None and name in _HUGE and not available(name, folder=folder):
            left_out[name] = "its full file is not on this machine"
            continue
        try:
            load(name, folder=folder, verify=verify)
            present.append(name)
        except DatasetUnavailableError as error:
            if names is not None:
                raise
            left_out[name] = str(error).splitlines()[0]
    if not present:
        raise DatasetUnavailableError(
            "none of the datasets is available: set CALIPERS_DATA to a folder that holds them"
        )
    return present, left_out


def _line(job: Job, part: RunReport) -> str:
    title = f"{METHODS[job.method].title} on {job.dataset}"
    if not part.trained:
        return f"{title}: all {part.kept} trials are in the store"
    kept = f", {part.kept} were in the store" if part.kept else ""
    lost = f", {part.lost} networks given up after {TRIES} tries" if part.lost else ""
    return (
        f"{title}: {part.trained} trials in {part.seconds:.1f} s, {part.retries} retries"
        f"{kept}{lost}"
    )


def _sum(a: RunReport, b: RunReport) -> RunReport:
    counts = ("trained", "kept", "retries", "lost")
    return dataclasses.replace(a, **{n: getattr(a, n) + getattr(b, n) for n in counts})
