"""The work of a search: all candidates, then finalists, in batches."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
"""Networks between two visits to the store for every five threads or workers."""

ACCELERATOR_BATCH = 500
"""The same on an accelerator, which they fill."""

_FINAL = 0  # stands for finalists where others have their epochs


class Stage(NamedTuple):
    """Candidates that train under one budget, by number."""

    name: str
    key: int
    budget: int
    trial: Trial
    estimators: dict[int, IntervalRegressor]

    @property
    def granted(self) -> int:
        """Network-epochs of one candidate, if it uses them all."""
        return self.trial.networks * self.budget


@dataclass(eq=False)
class Work:
    """Candidates, and what is known of them so far."""

    trial: Trial
    final: Trial  # that of finalists
    base: IntervalRegressor
    drawn: list[Params]
    store: Store
    visible: bool
    seconds: float | None = None  # after which no further candidate begins

    def __post_init__(self) -> None:
        self.estimators = [clone(self.base).set_params(**params) for params in self.drawn]
        self.table = Table.from_arrays(self.trial.X, self.trial.y)

    @property
    def most_epochs(self) -> int:
        """Epochs of the candidate that may train longest."""
        rows = min(len(train) for train, _ in self.trial.splits)
        return max(int(self.trial.settings(e, rows).epochs) for e in self.estimators)

    def run(self, finalists: int) -> tuple[Candidate, ...]:
        """Train all candidates, while there is time, and the best of them again as finalists."""
        budget, chosen = self.most_epochs, dict(enumerate(self.estimators))
        first = Stage("searching", budget, budget, self.trial, chosen)
        self._train(first, math.inf if self.seconds is None else self.seconds)
        tried = [number for number in chosen if (budget, number) in self.store.outcomes]
        chosen = self._as_fitted(self._best(tried, budget, finalists), budget)
        if chosen:
            most = max(self.store.outcomes[budget, i].whole_epochs for i in chosen)
            self._train(Stage("searching, finalists", _FINAL, most, self.final, chosen))
        keys = {number: [budget, *([_FINAL] if number in chosen else [])] for number in tried}
        return tuple(self._candidate(number, own) for number, own in keys.items())

    def _best(self, numbers: list[int], budget: int, count: int) -> list[int]:
        """The best so far: those with fewest failures, and the lowest interval score."""

        def key(number: int) -> tuple[int, float]:
            outcome = self.store.outcomes[budget, number]
            return outcome.failures, outcome.interval_score if outcome.rows else math.inf

        return sorted(sorted(numbers, key=key)[:count])

    def _as_fitted(self, numbers: list[int], budget: int) -> dict[int, IntervalRegressor]:
        """Candidates with the epochs they found; none of those that failed."""
        found = {number: self.store.outcomes[budget, number] for number in numbers}
        return {
            number: clone(self.estimators[number]).set_params(epochs=outcome.whole_epochs)
            for number, outcome in found.items()
            if not outcome.failures
        }

    def _train(self, stage: Stage, seconds: float = math.inf) -> None:
        """Train those candidates of a stage that are not in the store yet, while there is time.

        One batch at least is trained, if no candidate is known.
        """
        end = time.monotonic() + seconds
        waiting = [i for i in stage.estimators if (stage.key, i) not in self.store.outcomes]
        groups: dict[Program, list[int]] = {}
        for number in waiting:
            groups.setdefault(stage.trial.program(stage.estimators[number]), []).append(number)
        total = stage.granted * len(stage.estimators)
        with progress(stage.name, total, visible=self.visible) as report:
            report(total - stage.granted * len(waiting))
            for program, group in groups.items():
                for batch in _batches(group, stage.trial):
                    known = any(key == stage.key for key, _ in self.store.outcomes)
                    if known and time.monotonic() >= end:
                        return
                    outcomes = self._evaluate(stage, program, batch, report)
                    keys = [(stage.key, number) for number in batch]
                    self.store.add(dict(zip(keys, outcomes, strict=True)))

    def _evaluate(
        self, stage: Stage, program: Program, batch: list[int], report: Callable[[int], None]
    ) -> list[Outcome]:
        """Outcomes of a batch; reports the epochs it was granted, used or not."""
        left = stage.granted * len(batch)
        lock = threading.Lock()

        def trained(epochs: int) -> None:
            nonlocal left
            with lock:
                left -= epochs
            report(epochs)

        estimators = [stage.estimators[number] for number in batch]
        outcomes = evaluate(stage.trial, program, self.table, estimators, stage.budget, trained)
        report(left)
        return outcomes

    def _candidate(self, number: int, keys: list[int]) -> Candidate:
        outcomes = [self.store.outcomes[key, number] for key in keys]
        spent = sum(outcome.network_epochs for outcome in outcomes)
        return Candidate(number, self.drawn[number], len(keys) > 1, outcomes[-1], spent)


def _batches(numbers: list[int], trial: Trial) -> Iterator[list[int]]:
    networks = ACCELERATOR_BATCH
    if jax.default_backend() == "cpu":
        networks = CPU_BATCH * max(1, joblib.effective_n_jobs(trial.n_jobs) // 5)
    size = max(1, networks // trial.networks)
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
