"""Training a bank: chunks side by side, failures trained anew."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import joblib
import numpy as np

from calipers.bank._bank import BLOCK, Bank, lane_count
from calipers.bank._lanes import Scaling
from calipers.bank._program import Program
from calipers.bank._run import Shape, Trained, Watch, run
from calipers.bank._table import IntArray, Plan, Table, padded

_GROUPS_PER_JOB = 8  # enough to even out the work, few enough to cost nothing


class TrainingFailedError(RuntimeError):
    """Too many networks failed to train, however often they were tried."""


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
) -> Bank:
    """Train one network for each plan.

    Parameters
    ----------
    program : Program
        What the networks have in common.
    table : Table
        Rows they share.
    plans : sequence of Plan
        What each is to do.
    n_jobs : int, optional
        Chunks of the bank that train at a time, as in joblib; the backend of an enclosing
        ``joblib.parallel_config`` is used, threads otherwise.
    retries : int
        How often a network that failed is trained anew, each time with another seed. A network
        has failed when its last loss is above ``largest_loss`` or not a number, or when its lower
        bound is not below its upper bound on one of its training rows.
    largest_loss : float
        See ``retries``.
    needed : int, optional
        How many networks must succeed, all by default. Those that fail to the end are left out.
    report : callable, optional
        Called with the number of network-epochs done, from several threads.

    Returns
    -------
    Bank
        The networks in the order of the plans.

    Raises
    ------
    TrainingFailedError
        If fewer than ``needed`` networks succeed.
    """
    plans = list(plans)
    trained = _run_all(program, table, plans, n_jobs, report)
    failures = np.zeros(len(plans), dtype=np.int64)
    failed = _failed(program, table, plans, trained, largest_loss)
    for attempt in range(1, retries + 1):
        if not failed.size:
            break
        failures[failed] += 1
        for i in failed:
            plans[i] = replace(plans[i], seed=spawn_seeds((plans[i].seed, attempt), 1)[0])
        again = [plans[i] for i in failed]
        results = _run_all(program, table, again, n_jobs, report)
        for i, result in zip(failed, results, strict=True):
            trained[i] = result
        failed = failed[_failed(program, table, again, results, largest_loss)]
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
    """Seeds for many networks from one, each below 2**32."""
    return [int(seed) for seed in np.random.SeedSequence(entropy).generate_state(count)]


def _run_all(
    program: Program,
    table: Table,
    plans: list[Plan],
    n_jobs: int | None,
    report: Callable[[int], None] | None,
) -> list[Trained]:
    """Train plans in groups, side by side, and give the results in the plans' order."""
    parallel = joblib.Parallel(n_jobs=n_jobs, prefer="threads")
    lanes = lane_count(program, len(plans))
    shape = Shape(
        lanes,
        padded(max(len(plan.rows) for plan in plans)),
        padded(max(len(plan.validation) for plan in plans)),
    )
    # Networks of like cost finish together; the costliest start first.
    costs = [-len(plan.rows) * int(plan.settings.epochs) for plan in plans]
    order = np.argsort(costs, kind="stable")
    jobs = joblib.effective_n_jobs(n_jobs)
    rounds = -(-len(plans) // (lanes * jobs * _GROUPS_PER_JOB))
    groups = [order[i : i + rounds * lanes] for i in range(0, len(order), rounds * lanes)]
    stop = threading.Event()
    backend = joblib.parallel.get_active_backend(prefer="threads")[0]
    shared = getattr(backend, "supports_sharedmem", False)  # other processes see no callback
    watch = Watch(report or (lambda _: None), stop) if shared else None
    try:
        results = parallel(
            joblib.delayed(run)(program, table, [plans[i] for i in group], shape, watch)
            for group in groups
        )
    finally:
        stop.set()
    trained: dict[int, Trained] = {}
    for group, result in zip(groups, results, strict=True):
        trained.update(zip(group.tolist(), result, strict=True))
    return [trained[i] for i in range(len(plans))]


def _failed(
    program: Program,
    table: Table,
    plans: list[Plan],
    trained: list[Trained],
    largest_loss: float,
) -> IntArray:
    """Numbers of the plans whose networks are of no use."""
    failed = np.array([not result.loss <= largest_loss for result in trained])
    if program.objective.output.can_cross:
        bank = _collect(program, table, plans, trained, np.zeros(len(plans), np.int64))
        crossed = np.empty((len(plans), table.rows), dtype=bool)
        for start in range(0, table.rows, BLOCK):
            stop = min(start + BLOCK, table.rows)
            lower, _, upper = np.moveaxis(bank.forward(table.inputs[start:stop]), 1, 0)
            crossed[:, start:stop] = ~(lower < upper)
        failed |= [crossed[i, plan.rows].any() for i, plan in enumerate(plans)]
    return np.flatnonzero(failed)


def _collect(
    program: Program,
    table: Table,
    plans: list[Plan],
    trained: list[Trained],
    failures: IntArray,
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
    )
