"""The loop of a search: training of all candidates, then of finalists, in batches."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import joblib
from sklearn.base import clone

from calipers._progress import progress
from calipers.bank import Program, Table
from calipers.regressor import IntervalRegressor
from calipers.search._result import Candidate, Outcome
from calipers.search._space import Params
from calipers.search._store import Store
from calipers.search._validation import Trial, evaluate

CPU_BATCH = 100
"""Networks trained between two writes to the store, for every five threads or workers."""

ACCELERATOR_BATCH = 500
"""The same on an accelerator, enough to fill it."""

_FINAL = 0  # budget under which the store has finalists


class Stage(NamedTuple):
    """Candidates that train under one budget of epochs."""

    name: str
    key: int  # budget under which outcomes are stored
    budget: int
    trial: Trial
    estimators: dict[int, IntervalRegressor]  # by number of the candidate

    @property
    def granted(self) -> int:
        """Maximum network-epochs of one candidate."""
        return self.trial.networks * self.budget


def run(
    trial: Trial,
    final: Trial,
    base: IntervalRegressor,
    drawn: list[Params],
    store: Store,
    finalists: int,
    *,
    visible: bool,
    seconds: float | None = None,
) -> tuple[Candidate, ...]:
    """Train all candidates, while there is time, and the best of them again as finalists.

    After ``seconds``, no further candidate is started.
    """
    everyone = {i: clone(base).set_params(**params) for i, params in enumerate(drawn)}
    rows = min(len(train) for train, _ in trial.splits)
    budget = max(int(trial.settings(e, rows).epochs) for e in everyone.values())
    first = Stage("searching", budget, budget, trial, everyone)
    _train(first, store, visible, math.inf if seconds is None else seconds)
    outcomes = {i: store.outcomes[budget, i] for i in everyone if (budget, i) in store.outcomes}
    best = {
        i: clone(everyone[i]).set_params(epochs=outcomes[i].whole_epochs)
        for i in sorted(sorted(outcomes, key=lambda i: _rank(outcomes[i]))[:finalists])
        if not outcomes[i].failures
    }
    if best:
        most = max(outcomes[i].whole_epochs for i in best)
        _train(Stage("searching, finalists", _FINAL, most, final, best), store, visible)
    candidates = []
    for i, outcome in outcomes.items():
        last = store.outcomes[_FINAL, i] if i in best else outcome
        spent = outcome.network_epochs + (last.network_epochs if i in best else 0)
        candidates.append(Candidate(i, drawn[i], i in best, last, spent))
    return tuple(candidates)


def _rank(outcome: Outcome) -> tuple[int, float]:
    """Fewest failures, then lowest interval score."""
    return outcome.failures, outcome.interval_score if outcome.rows else math.inf


def _train(stage: Stage, store: Store, visible: bool, seconds: float = math.inf) -> None:
    """Train the candidates of a stage that are not in the store yet, while there is time.

    At least one batch is trained if the store has no candidate of the stage.
    """
    end = time.monotonic() + seconds
    table = Table.from_arrays(stage.trial.X, stage.trial.y)
    pending = [i for i in stage.estimators if (stage.key, i) not in store.outcomes]
    groups: dict[Program, list[int]] = {}
    for number in pending:
        groups.setdefault(stage.trial.program(stage.estimators[number]), []).append(number)
    total = stage.granted * len(stage.estimators)
    with progress(stage.name, total, visible=visible) as report:
        report(total - stage.granted * len(pending))
        for program, group in groups.items():
            for batch in _batches(group, stage.trial):
                started = any(key == stage.key for key, _ in store.outcomes)
                if started and time.monotonic() >= end:
                    return
                outcomes = _evaluated(stage, program, table, batch, report)
                keys = [(stage.key, number) for number in batch]
                store.add(dict(zip(keys, outcomes, strict=True)))


def _evaluated(
    stage: Stage, program: Program, table: Table, batch: list[int], report: Callable[[int], None]
) -> list[Outcome]:
    """Return the outcomes of a batch; report all epochs it was granted, used or not."""
    unused = stage.granted * len(batch)
    lock = threading.Lock()

    def trained(epochs: int) -> None:
        nonlocal unused
        with lock:
            unused -= epochs
        report(epochs)

    estimators = [stage.estimators[number] for number in batch]
    outcomes = evaluate(stage.trial, program, table, estimators, stage.budget, trained)
    report(unused)
    return outcomes


def _batches(numbers: list[int], trial: Trial) -> Iterator[list[int]]:
    networks = ACCELERATOR_BATCH
    if jax.default_backend() == "cpu":
        networks = CPU_BATCH * max(1, joblib.effective_n_jobs(trial.n_jobs) // 5)
    size = max(1, networks // trial.networks)
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
