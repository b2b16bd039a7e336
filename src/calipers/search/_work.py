"""The loop of a search: training of all candidates, then of finalists, in batches."""

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


@dataclass(eq=False)
class Work:
    """Candidates and their outcomes so far."""

    trial: Trial
    final: Trial  # of finalists
    base: IntervalRegressor
    drawn: list[Params]
    store: Store
    visible: bool
    seconds: float | None = None  # after which no further candidate is started

    def __post_init__(self) -> None:
        self.estimators = [clone(self.base).set_params(**params) for params in self.drawn]
        self.table = Table.from_arrays(self.trial.X, self.trial.y)

    @property
    def most_epochs(self) -> int:
        """Maximum epochs over all candidates."""
        rows = min(len(train) for train, _ in self.trial.splits)
        return max(int(self.trial.settings(e, rows).epochs) for e in self.estimators)

    def run(self, finalists: int) -> tuple[Candidate, ...]:
        """Train all candidates, while there is time, and the best of them again as finalists."""
        budget, everyone = self.most_epochs, dict(enumerate(self.estimators))
        first = Stage("searching", budget, budget, self.trial, everyone)
        self._train(first, math.inf if self.seconds is None else self.seconds)
        trained = [number for number in everyone if (budget, number) in self.store.outcomes]
        final = self._as_fitted(self._best(trained, budget, finalists), budget)
        if final:
            most = max(self.store.outcomes[budget, i].whole_epochs for i in final)
            self._train(Stage("searching, finalists", _FINAL, most, self.final, final))
        return tuple(
            self._candidate(number, [budget, _FINAL] if number in final else [budget])
            for number in trained
        )

    def _best(self, numbers: list[int], budget: int, count: int) -> list[int]:
        """Return the best candidates so far: fewest failures, then lowest interval score."""

        def key(number: int) -> tuple[int, float]:
            outcome = self.store.outcomes[budget, number]
            return outcome.failures, outcome.interval_score if outcome.rows else math.inf

        return sorted(sorted(numbers, key=key)[:count])

    def _as_fitted(self, numbers: list[int], budget: int) -> dict[int, IntervalRegressor]:
        """Return the candidates that did not fail, with the epochs that early stopping found."""
        outcomes = {number: self.store.outcomes[budget, number] for number in numbers}
        return {
            number: clone(self.estimators[number]).set_params(epochs=outcome.whole_epochs)
            for number, outcome in outcomes.items()
            if not outcome.failures
        }

    def _train(self, stage: Stage, seconds: float = math.inf) -> None:
        """Train the candidates of a stage that are not in the store yet, while there is time.

        At least one batch is trained if the store has no candidate of the stage.
        """
        end = time.monotonic() + seconds
        pending = [i for i in stage.estimators if (stage.key, i) not in self.store.outcomes]
        groups: dict[Program, list[int]] = {}
        for number in pending:
            groups.setdefault(stage.trial.program(stage.estimators[number]), []).append(number)
        total = stage.granted * len(stage.estimators)
        with progress(stage.name, total, visible=self.visible) as report:
            report(total - stage.granted * len(pending))
            for program, group in groups.items():
                for batch in _batches(group, stage.trial):
                    started = any(key == stage.key for key, _ in self.store.outcomes)
                    if started and time.monotonic() >= end:
                        return
                    outcomes = self._evaluate(stage, program, batch, report)
                    keys = [(stage.key, number) for number in batch]
                    self.store.add(dict(zip(keys, outcomes, strict=True)))

    def _evaluate(
        self, stage: Stage, program: Program, batch: list[int], report: Callable[[int], None]
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
        outcomes = evaluate(stage.trial, program, self.table, estimators, stage.budget, trained)
        report(unused)
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
