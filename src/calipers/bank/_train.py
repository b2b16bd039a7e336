"""Trains a bank in parallel chunks, and retrains networks that fail."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import joblib
import numpy as np

from calipers._arrays import AnyIntArray, BoolArray
from calipers.bank._bank import BLOCK, Bank, lane_count
from calipers.bank._cache import training_devices
from calipers.bank._clock import Clock
from calipers.bank._lanes import Scaling
from calipers.bank._observer import Observer
from calipers.bank._program import Program
from calipers.bank._run import Shape, Trained, run
from calipers.bank._shared_rows import Plan, Table, padded
from calipers.cluster import received, sender

Examine = Callable[[Bank, Table, Sequence[Plan]], Sequence[Any]]
"""Computes a result for each network in the process that trained it, see ``train``."""

_GROUPS_PER_JOB = 8  # enough to even out the work, few enough to cost nothing
_ARRAYS = ("rows", "weights", "validation", "validation_weights")  # of a plan


class TrainingFailedError(RuntimeError):
    """Too many networks failed to train, even after several retries."""


def train(
    program: Program,
    table: Table,
    plans: Sequence[Plan],
    *,
    n_jobs: int | None = None,
    retries: int = 9,
    largest_loss: float = 20.0,
    needed: int | None = None,
    report: Callable[[int], None] | None = None,
    seconds: float = math.inf,
    examine: Examine | None = None,
    least_sizes: tuple[int, int, int] = (0, 0, 0),
) -> Bank:
    """Train one network per plan and return them as a bank, in the order of the plans.

    Parameters
    ----------
    program : Program
        What the networks have in common.
    table : Table
        The rows that they share.
    plans : sequence of Plan
        What differs from network to network: seed, rows and settings.
    n_jobs : int, optional
        Number of chunks that train in parallel, as in joblib; the backend of an enclosing
        ``joblib.parallel_config`` is used, threads otherwise.
    retries : int
        How often a failed network is retrained, each time with another seed. A network has failed
        if its last loss is above ``largest_loss`` or not a number, or if its lower bound is not
        below its upper bound on one of its training rows.
    largest_loss : float
        See ``retries``.
    needed : int, optional
        How many networks must succeed, all by default. Those that keep failing are left out.
    report : callable, optional
        Called with the number of network-epochs done, from several threads.
    seconds : float
        Time that training may take, not counting compilation. Networks too slow for all their
        epochs train for fewer, at least one, and their learning rate decays accordingly.
    examine : callable, optional
        Called in the process that trained them with some of the networks, the table and their
        plans; returns one result per network, which the bank has as ``examined``. It must be a
        module-level function, so that it can be sent to other processes.
    least_sizes : (int, int, int)
        Least number of training rows, validation rows and networks to compile the program for, so
        that the program compiled for other plans serves these as well.

    Raises
    ------
    TrainingFailedError
        If fewer than ``needed`` networks succeed.
    """
    plans = list(plans)
    clock = Clock(seconds)
    work = partial(
        _run_all,
        program,
        table,
        n_jobs=n_jobs,
        largest_loss=largest_loss,
        report=report,
        clock=clock,
        examine=examine,
        least_sizes=least_sizes,
    )
    trained, lost = work(plans)
    failures = np.zeros(len(plans), dtype=np.int64)
    failed = np.flatnonzero(lost)
    for attempt in range(1, retries + 1):
        if not failed.size:
            break
        failures[failed] += 1
        for i in failed:
            plans[i] = replace(plans[i], seed=spawn_seeds((plans[i].seed, attempt), 1)[0])
        results, lost = work([plans[i] for i in failed])
        for i, result in zip(failed, results, strict=True):
            trained[i] = result
        failed = failed[lost]
    succeeded = np.setdiff1d(np.arange(len(plans)), failed)
    if len(succeeded) < (len(plans) if needed is None else needed):
        seeds = [plans[i].seed for i in failed]
        raise TrainingFailedError(
            f"{len(failed)} of {len(plans)} networks failed {retries + 1} times each (loss above "
            f"{largest_loss:g}, not finite, or bounds crossed on training rows); last seeds "
            f"{seeds[:5]}{'...' if len(seeds) > 5 else ''}. Try a smaller learning_rate, more "
            "epochs, a larger crossing_weight, or a loss whose bounds cannot cross"
        )
    return _collect(program, table, plans, trained, failures)[succeeded]


def spawn_seeds(entropy: int | Sequence[int], count: int) -> list[int]:
    """Derive seeds for many networks from one, each below 2**32."""
    return [int(seed) for seed in np.random.SeedSequence(entropy).generate_state(count)]


def _run_all(
    program: Program,
    table: Table,
    plans: list[Plan],
    *,
    n_jobs: int | None,
    largest_loss: float,
    report: Callable[[int], None] | None,
    clock: Clock,
    examine: Examine | None,
    least_sizes: tuple[int, int, int],
) -> tuple[list[Trained], BoolArray]:
    """Train groups of plans in parallel; return results in the plans' order, and which failed."""
    jobs = joblib.effective_n_jobs(n_jobs)
    backend = joblib.parallel.get_active_backend(prefer="threads")[0]
    threads = getattr(backend, "supports_sharedmem", False)  # other processes see no callback
    devices = training_devices(jobs) if threads else [None]
    jobs = max(jobs, len(devices))
    shape, groups = _layout(program, plans, least_sizes, len(devices), jobs)
    report = report or (lambda _: None)
    watch = Observer(report, jobs) if threads else None
    at_a_time = jobs
    in_turns = not table.streams  # each chunk of a streamed table holds two shards in memory
    if in_turns and threads and jobs > 1 and len(devices) == 1 and jax.default_backend() == "cpu":
        at_a_time = min(max(jobs, len(groups)), 2 * jobs)  # so that no core is idle
    clocks = _clocks(clock, len(groups), at_a_time, threads)
    chunks = [[plans[i] for i in group] for group in groups]
    work: Callable[..., Any] = _chunk
    arguments: list[tuple[Any, ...]] = [(program, table, chunk) for chunk in chunks]
    if not threads and jobs > 1:  # joblib works here if there is one job
        work, arguments = _remote_chunk, _sent(program, table, chunks, sender(backend, table))
    tasks = (
        joblib.delayed(work)(
            *first, shape, largest_loss, watch, clock_share, examine, devices[i % len(devices)]
        )
        for i, (first, clock_share) in enumerate(zip(arguments, clocks, strict=True))
    )
    trained: dict[int, Trained] = {}
    failed = np.zeros(len(plans), dtype=bool)
    # Chunks that cannot report progress are counted as they arrive, if the backend allows it.
    streams = not threads and getattr(backend, "supports_return_generator", False)
    parallel = joblib.Parallel(
        n_jobs=n_jobs if at_a_time == joblib.effective_n_jobs(n_jobs) else at_a_time,
        prefer="threads",
        return_as="generator" if streams else "list",
    )
    try:
        for group, (results, lost) in zip(groups, parallel(tasks), strict=True):
            trained.update(zip(group.tolist(), results, strict=True))
            failed[group] = lost
            if not threads:
                report(sum(result.epochs for result in results))
    finally:
        if watch is not None:
            watch.end()
    return [trained[i] for i in range(len(plans))], failed


def sizes_of(plans: Sequence[Plan]) -> tuple[int, int, int]:
    """Return the ``least_sizes`` that ``train`` needs for these plans."""
    rows, validation = max(len(p.rows) for p in plans), max(len(p.validation) for p in plans)
    return rows, validation, len(plans)


def _layout(
    program: Program, plans: list[Plan], least_sizes: tuple[int, int, int], devices: int, jobs: int
) -> tuple[Shape, list[AnyIntArray]]:
    """Return the shape to compile a program for, and the groups of plans that share its lanes."""
    rows, validation, networks = map(max, least_sizes, sizes_of(plans))
    lanes = lane_count(program, -(-networks // devices), rows)
    return Shape(lanes, padded(rows), padded(validation)), _groups(plans, lanes, jobs)


def _clocks(clock: Clock, groups: int, at_a_time: int, threads: bool) -> list[tuple[Clock, float]]:
    """Return the clock of each group, and the fraction of the time left on it that is the group's.

    Groups in other processes cannot share a clock, and have equal times.
    """
    rounds = [-(-(groups - number) // at_a_time) for number in range(groups)]
    if not threads and groups:
        return [(Clock(clock.seconds / rounds[0]), 1.0)] * groups
    return [(clock, 1 / remaining) for remaining in rounds]


def _groups(plans: list[Plan], lanes: int, jobs: int) -> list[AnyIntArray]:
    """Indices of the plans that train one after another in the same lanes."""
    # Networks of similar cost finish together; the most expensive start first.
    costs = [-len(plan.rows) * int(plan.settings.epochs) for plan in plans]
    order = np.argsort(costs, kind="stable")
    size = lanes * -(-len(plans) // (lanes * jobs * _GROUPS_PER_JOB))
    return [order[i : i + size] for i in range(0, len(order), size)]


def _sent(
    program: Program, table: Table, chunks: list[list[Plan]], send: Callable[[Any], Any]
) -> list[tuple[Any, ...]]:
    """First arguments of ``_remote_chunk``; arrays that several chunks share are sent once."""
    by_id = [{id(a): a for plan in chunk for a in _arrays(plan).values()} for chunk in chunks]
    uses = Counter(key for arrays in by_id for key in arrays)
    arguments = []
    for chunk, arrays in zip(chunks, by_id, strict=True):
        place: dict[int, Any] = {key: i for i, key in enumerate(arrays)}
        light = [replace(p, **{k: place[id(a)] for k, a in _arrays(p).items()}) for p in chunk]
        sent = [send(array) if uses[key] > 1 else array for key, array in arrays.items()]
        arguments.append((send(program), send(table), light, sent))
    return arguments


def _arrays(plan: Plan) -> dict[str, Any]:
    """Those of a plan's arrays that are as long as the table, by name."""
    return {name: array for name in _ARRAYS if (array := getattr(plan, name)) is not None}


def _remote_chunk(
    program: object, table: object, plans: list[Plan], arrays: list[Any], *options: Any
) -> tuple[list[Trained], BoolArray]:
    """Train, in another process, a chunk in whose plans ``_sent`` put indices for arrays."""
    whole = [received(array) for array in arrays]
    plans = [replace(p, **{k: whole[i] for k, i in _arrays(p).items()}) for p in plans]
    return _chunk(received(program), received(table), plans, *options)


def _chunk(
    program: Program,
    table: Table,
    plans: list[Plan],
    shape: Shape,
    largest_loss: float,
    watch: Observer | None,
    clock_share: tuple[Clock, float],
    examine: Examine | None,
    device: jax.Device | None = None,
) -> tuple[list[Trained], BoolArray]:
    """Train some plans within a fraction of the time left on a clock; also return which failed."""
    placed = nullcontext() if device is None else jax.default_device(device)
    with placed, nullcontext() if watch is None else watch.running():
        trained = run(program, table, plans, shape, watch, *clock_share)
        bank = _collect(program, table, plans, trained, np.zeros(len(plans), np.int64))
        failed = _failed(bank, table, plans, trained, largest_loss)
        if examine is not None:
            pairs = zip(trained, examine(bank, table, plans), strict=True)
            trained = [network._replace(examined=result) for network, result in pairs]
        return trained, failed


def _failed(
    bank: Bank, table: Table, plans: list[Plan], trained: list[Trained], largest_loss: float
) -> BoolArray:
    """Mask of the networks with too large a loss or crossing bounds."""
    failed = np.array([not result.loss <= largest_loss for result in trained])
    if bank.program.output.can_cross:
        crossed = np.empty((len(plans), table.rows), dtype=bool)
        for start in range(0, table.rows, BLOCK):
            stop = min(start + BLOCK, table.rows)
            lower, _, upper = np.moveaxis(bank.forward(table.inputs[start:stop]), 1, 0)
            crossed[:, start:stop] = ~(lower < upper)
        failed |= [crossed[i, plan.rows].any() for i, plan in enumerate(plans)]
    return failed


def _collect(
    program: Program, table: Table, plans: list[Plan], trained: list[Trained], failures: AnyIntArray
) -> Bank:
    return Bank(
        program,
        [np.stack(leaves) for leaves in zip(*(r.weights for r in trained), strict=True)],
        Scaling(*(np.stack(part) for part in zip(*(r.scaling for r in trained), strict=True))),
        table.units,
        numbers=np.arange(len(plans)),
        seeds=np.array([plan.seed for plan in plans], dtype=np.int64),
        failures=failures,
        histories=[result.history for result in trained],
        out_of_time=np.array([result.out_of_time for result in trained]),
        examined=[r.examined for r in trained if r.examined is not None],
    )
