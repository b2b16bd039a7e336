"""Training of networks with the retry rule of the paper's authors.

The authors evaluate their loss on all training rows at the final weights, and discard the network
if it exceeds 20 or if bounds cross on a training row. For QD, the factor of the coverage term is
then the square root of the number of all rows, not of a batch. calipers itself uses the mean loss
of the last epoch's batches, which costs nothing and means the same for tables of any size; the
study follows the authors.

On an accelerator, networks that share a program hardly slow each other down. Several attempts at
each network are therefore trained at once there, and the first that succeeds is kept, which gives
the same networks as one attempt after another.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import numpy as np
from numpy.typing import NDArray

from calipers.bank import Bank, Plan, Program, Table, spawn_seeds, train

TRIES = 10
"""Attempts at a network before it is given up."""

LARGEST_LOSS = 20.0
"""Largest loss on all training rows with which a network is kept."""

_BLOCK = 8192  # rows that ``Bank.forward`` takes
_LANES = 250  # networks that fill an accelerator, where attempts may fail


def train_networks(
    program: Program,
    table: Table,
    plans: Sequence[Plan],
    *,
    n_jobs: int | None = None,
    tries: int = TRIES,
    largest_loss: float = LARGEST_LOSS,
    report: Callable[[int], None] | None = None,
) -> Bank:
    """Train one network for each plan, and again with another seed if it fails.

    Parameters
    ----------
    program, table, plans, n_jobs, report
        As in ``calipers.bank.train``.
    tries : int
        Attempts at each network.
    largest_loss : float
        Largest loss on all training rows of a network that is kept.

    Returns
    -------
    Bank
        The networks that succeeded; ``numbers`` are the numbers of their plans and ``failures``
        those of failed attempts. Networks without a successful attempt are left out.
    """
    parts: list[Bank] = []
    waiting = {number: plan.seed for number, plan in enumerate(plans)}
    done = 0
    while waiting and done < tries:
        ahead = _ahead(program, len(waiting), tries - done, first=not done)
        attempts = [
            (number, done + i, replace(plans[number], seed=seed))
            for number, last in waiting.items()
            for i, seed in enumerate(_seeds(last, done, ahead))
        ]
        bank = train(
            program,
            table,
            [plan for _, _, plan in attempts],
            n_jobs=n_jobs,
            retries=0,
            largest_loss=math.inf,
            needed=0,
            report=report,
        )
        kept = np.flatnonzero(final_losses(bank, table, [a[2] for a in attempts]) <= largest_loss)
        numbers = np.array([attempts[i][0] for i in bank.numbers[kept]], dtype=np.int64)
        failures = np.array([attempts[i][1] for i in bank.numbers[kept]], dtype=np.int64)
        _, first = np.unique(numbers, return_index=True)  # attempts are in order
        part = bank[kept[first]]
        parts.append(replace(part, numbers=numbers[first], failures=failures[first]))
        succeeded = set(numbers.tolist())
        waiting = {
            number: _seeds(last, done, ahead)[-1]
            for number, last in waiting.items()
            if number not in succeeded
        }
        done += ahead
    return _joined(parts)


def final_losses(bank: Bank, table: Table, plans: Sequence[Plan]) -> NDArray[np.float64]:
    """Loss of each network on all its training rows at once.

    Parameters
    ----------
    bank : Bank
        Trained networks.
    table : Table
        The rows they share.
    plans : sequence of Plan
        Plans that ``bank.numbers`` refers to.
    """
    if not len(bank):
        return np.empty(0)
    blocks = [
        bank.forward(table.inputs[start : min(start + _BLOCK, table.rows)])
        for start in range(0, table.rows, _BLOCK)
    ]
    predicted = np.concatenate(blocks, axis=2)
    defaults = bank.program.objective().get_params()
    losses = np.empty(len(bank))
    for i, number in enumerate(bank.numbers):
        plan, scaling = plans[number], bank.scaling_of(i)
        target = (table.target[plan.rows] - scaling.target_center) / scaling.target_scale
        numbers = bank.program.objective.fitted(defaults | dict(plan.settings.loss), target)
        losses[i] = bank.program.objective.loss(
            *predicted[i][:, plan.rows],
            target.astype(np.float32),
            weight=np.ones(len(plan.rows), np.float32),
            coverage=plan.settings.coverage,
            **numbers,
        )
    return losses


def _ahead(program: Program, waiting: int, remaining: int, *, first: bool) -> int:
    """How many attempts at each network to train at once."""
    if jax.default_backend() == "cpu" or not program.output.can_cross:
        return 1
    if first and program.output.name == "free":  # QD+, which hardly ever fails
        return 1
    return remaining if not first else min(remaining, max(1, _LANES // waiting))


def _seeds(last: int, done: int, count: int) -> list[int]:
    """Seeds of the next attempts after ``done``; that of the very first is the plan's own."""
    seeds = []
    for attempt in range(done, done + count):
        last = last if attempt == 0 else spawn_seeds((last, attempt), 1)[0]
        seeds.append(last)
    return seeds


def _joined(parts: list[Bank]) -> Bank:
    """All networks of several banks of one program, in the order of their plans."""
    numbers = np.concatenate([part.numbers for part in parts])
    bank = replace(Bank.concatenate(parts), numbers=numbers)
    return bank[np.argsort(numbers, kind="stable")]
