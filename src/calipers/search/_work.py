"""The work of a search: rungs of ever fewer candidates, then finalists, in batches."""

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
"""Networks between two visits to the store for every five threads or workers."""

ACCELERATOR_BATCH = 500
"""The same on an accelerator, which they fill."""

_FINAL = 0  # stands for finalists where others have the epochs of their rung


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


class Work:
    """Candidates, and what is known of them so far.

    ``final`` is the trial of finalists. After ``seconds`` the first rung begins no further
    candidates.
    """

    def __init__(
        self,
        trial: Trial,
        final: Trial,
        base: IntervalRegressor,
        drawn: list[Params],
        store: Store,
        *,
        visible: bool,
        seconds: float | None = None,
    ) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self.trial = trial
        self.final = final
        self.base = base
        self.drawn = drawn
        self.store = store
        self.visible = visible
        self.estimators = [clone(base).set_params(**params) for params in drawn]
        self.table = Table.from_arrays(trial.X, trial.y)

    @property
    def most_epochs(self) -> int:
        """Epochs of the candidate that may train longest."""
        rows = min(len(train) for train, _ in self.trial.splits)
        return max(int(self.trial.settings(e, rows).epochs) for e in self.estimators)

    def run(self, ladder: list[int], halving: int, finalists: int) -> tuple[Candidate, ...]:
        """Train all candidates on the first rung, ever fewer on the next ones, then finalists."""
        alive = list(range(len(self.drawn)))
        passed: dict[int, list[int]] = {number: [] for number in alive}
        for rung, budget in enumerate(ladder):
            if rung:
                alive = self._best(alive, ladder[rung - 1], -(-len(self.drawn) // halving**rung))
            chosen = {number: self.estimators[number] for number in alive}
            name = f"searching, rung {rung + 1} of {len(ladder)}"
            stage = Stage(name, budget, budget, self.trial, chosen)
            self._train(stage, math.inf if rung else self.seconds)
            alive = [number for number in alive if (budget, number) in self.store.outcomes]
            for number in alive:
                passed[number].append(budget)
        chosen = self._as_fitted(self._best(alive, ladder[-1], finalists), ladder[-1])
        if chosen:
            most = max(self.store.outcomes[ladder[-1], i].whole_epochs for i in chosen)
            self._train(Stage("searching, finalists", _FINAL, most, self.final, chosen))
            for number in chosen:
                passed[number].append(_FINAL)
        return tuple(self._candidate(number, keys) for number, keys in passed.items() if keys)

    def _best(self, numbers: list[int], budget: int, count: int) -> list[int]:
        """The best of a rung: those with fewest failures, and the lowest interval score."""

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
        return Candidate(number, self.drawn[number], len(keys) - 1, outcomes[-1], spent)


def _batches(numbers: list[int], trial: Trial) -> Iterator[list[int]]:
    networks = ACCELERATOR_BATCH
    if jax.default_backend() == "cpu":
        networks = CPU_BATCH * max(1, joblib.effective_n_jobs(trial.n_jobs) // 5)
    size = max(1, networks // trial.networks)
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
