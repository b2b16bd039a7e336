"""The search itself: draw candidates, train them in batches, halve them, keep what is finished."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state, check_X_y

from calipers.bank import Program, Table
from calipers.progress import progress
from calipers.search._evaluate import Trial, evaluate
from calipers.search._result import Candidate, Outcome, SearchResult, known_score, rank
from calipers.search._setup import (
    Splits,
    check_counts,
    check_estimator,
    identity,
    rung_budgets,
    split_rows,
)
from calipers.search._space import PAPER_SPACE, Params, Space, candidates
from calipers.search._store import Store

_CPU_BATCH = 100  # networks between two visits to the store


def search(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    space: Space = PAPER_SPACE,
    *,
    n_candidates: int = 300,
    splits: Splits = 5,
    validation_fraction: float = 0.1,
    n_networks: int = 1,
    max_epochs: int = 5000,
    patience: int | None = 500,
    halving: int | None = None,
    min_epochs: int = 60,
    select: str = "interval score",
    random_state: Any = None,
    n_jobs: int | None = -1,
    store: str | os.PathLike[str] | None = None,
    verbose: int = 1,
) -> SearchResult:
    """Look for good parameters of an estimator by random search.

    Each candidate trains on every split with early stopping and is judged on the rows held out, at
    its best weights. All networks of all candidates are one bank for each compiled program. As it
    stands this is the paper's protocol, except that ``select="paper"`` is the paper's score.

    Parameters
    ----------
    estimator : IntervalRegressor
        Gives the parameters that are not searched; it is not changed.
    X : array-like of shape (n_samples, n_features)
        Inputs.
    y : array-like of shape (n_samples,)
        Targets.
    space : mapping of str to sequence or distribution, or sequence of such mappings
        Parameters to search, as in scikit-learn's ``RandomizedSearchCV``; the paper's for QD+ by
        default. A space of no more than ``n_candidates`` combinations is searched whole.
    n_candidates : int, default 300
        Candidates to draw.
    splits : int or iterable of pairs of arrays of int, default 5
        Number of shuffled splits, or training and validation rows of your own, such as
        ``TimeSeriesSplit().split(X)`` gives.
    validation_fraction : float, default 0.1
        Share of the rows that a shuffled split holds out.
    n_networks : int, default 1
        Networks for each candidate and split. One is judged by its own bounds, as in the paper,
        although the estimator will have several and their aggregate is wider and steadier; several
        are judged by their aggregate, at that many times the cost.
    max_epochs : int, default 5000
        Epochs that a network may train, unless ``epochs`` is in the space.
    patience : int, optional, default 500
        Epochs without a better validation loss after which a network stops. With None there is no
        early stopping, and networks train as many epochs as the estimator says.
    halving : int, optional
        Successive halving: train all candidates for few epochs, and one in ``halving`` of them
        again, for ``halving`` times as many, until ``max_epochs``. By default every candidate has
        its full time.
    min_epochs : int, default 60
        Fewest epochs of a rung, when ``halving``.
    select : {"interval score", "paper"}
        Score that decides, see ``SCORES``.
    random_state : int, RandomState or None
        Seeds candidates, splits and networks.
    n_jobs : int, optional, default -1
        Threads, as in joblib.
    store : path, optional
        File in which finished candidates are kept. A search called again with the same arguments
        goes on where it was stopped, and ends as if it never had been.
    verbose : int, default 1
        0 shows no progress bar.

    Returns
    -------
    SearchResult
        All candidates, and the best as ``best_params`` and ``best_estimator``.

    Raises
    ------
    ValueError
        If an argument, a parameter of the space or the data break a rule, or if ``store`` belongs
        to another search.

    Notes
    -----
    A network that fails is not tried again: its candidate is never chosen. Epochs are the median
    over the networks of those at which early stopping found its best.

    A rung of halving starts its candidates from the beginning, not from the weights of the rung
    before: the optimiser's memory and the schedule of the learning rate then are those of a
    training in one piece, whose outcome and epochs hold for the final fit.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import IntervalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (100, 1))
    >>> y = X[:, 0] + rng.normal(0, 0.1, 100)
    >>> space = {"learning_rate": [1e-5, 0.01], "hidden_layers": [(20,)]}
    >>> model = IntervalRegressor(loss="interval score", random_state=0)
    >>> result = search(model, X, y, space, splits=2, max_epochs=50, random_state=0)
    >>> result.best_params["learning_rate"]
    0.01
    >>> model = result.best_estimator.fit(X, y)
    """
    known_score(select)
    check_estimator(estimator)
    optional = {"patience": patience, "halving": halving}
    check_counts(n_candidates=n_candidates, n_networks=n_networks, max_epochs=max_epochs)
    check_counts(**{name: value for name, value in optional.items() if value is not None})
    if store is not None and not isinstance(random_state, int | np.integer):
        raise ValueError(
            "store needs a random_state that is a number, so that the search can be found again, "
            f"got {random_state!r}"
        )
    inputs, target = check_X_y(X, y, dtype=np.float64, y_numeric=True)
    seed = int(check_random_state(random_state).randint(2**31))
    base = clone(estimator)
    if patience is not None:
        base.set_params(epochs=None)  # early stopping finds them, unless they are searched
    drawn = candidates(base, space, n_candidates, seed)
    rows = split_rows(splits, len(target), validation_fraction, seed)
    trial = Trial(inputs, target, rows, n_networks, max_epochs, patience, seed, n_jobs)
    work = _Search(trial, base, drawn, Store(store, identity(trial, base, drawn)))
    ladder = rung_budgets(work.most_epochs, halving, min_epochs)
    return SearchResult(
        clone(estimator), work.climb(ladder, halving or 1, select, bool(verbose)), select
    )


class _Search:
    """Candidates, and what is known of them so far."""

    def __init__(self, trial: Trial, base: Any, drawn: list[Params], store: Store) -> None:
        self.trial = trial
        self.drawn = drawn
        self.store = store
        self.coverage = base.coverage
        self.estimators = [clone(base).set_params(**params) for params in drawn]
        self.table = Table.from_arrays(trial.X, trial.y)

    @property
    def most_epochs(self) -> int:
        """Epochs of the candidate that may train longest."""
        rows = min(len(train) for train, _ in self.trial.splits)
        return max(int(self.trial.settings(e, rows).epochs) for e in self.estimators)

    def climb(
        self, ladder: list[int], halving: int, select: str, visible: bool
    ) -> tuple[Candidate, ...]:
        """Train all candidates on the first rung, and ever fewer on the next ones."""
        counts = [-(-len(self.drawn) // halving**rung) for rung in range(len(ladder))]
        total = sum(a * b for a, b in zip(counts, ladder, strict=True)) * self.trial.networks
        alive = list(range(len(self.drawn)))
        reached = dict.fromkeys(alive, 0)
        with progress("searching", total, visible=visible) as report:
            for rung, (budget, count) in enumerate(zip(ladder, counts, strict=True)):
                if rung:
                    alive = self._best(alive, ladder[rung - 1], count, select)
                self._train(alive, budget, report)
                reached.update(dict.fromkeys(alive, rung))
        return tuple(self._candidate(i, rung, ladder) for i, rung in reached.items())

    def _best(self, numbers: list[int], budget: int, count: int, select: str) -> list[int]:
        """The best of a rung."""

        def key(number: int) -> tuple[int, float]:
            return rank(self.store.outcomes[budget, number], select, self.coverage)

        return sorted(sorted(numbers, key=key)[:count])

    def _train(self, numbers: list[int], budget: int, report: Callable[[int], None]) -> None:
        """Train those candidates of a rung that are not in the store yet."""
        waiting = [i for i in numbers if (budget, i) not in self.store.outcomes]
        report((len(numbers) - len(waiting)) * self.trial.networks * budget)
        groups: dict[Program, list[int]] = {}
        for i in waiting:
            program = self.estimators[i]._program(self.trial.X.shape[1])
            groups.setdefault(program, []).append(i)
        for program, group in groups.items():
            for batch in _batches(group, self.trial.networks):
                outcomes = self._evaluate(program, batch, budget, report)
                self.store.add({(budget, i): o for i, o in zip(batch, outcomes, strict=True)})

    def _evaluate(
        self, program: Program, batch: list[int], budget: int, report: Callable[[int], None]
    ) -> list[Outcome]:
        """Outcomes of a batch; reports the epochs it was granted, used or not."""
        left = len(batch) * self.trial.networks * budget
        lock = threading.Lock()

        def trained(epochs: int) -> None:
            nonlocal left
            with lock:
                left -= epochs
            report(epochs)

        estimators = [self.estimators[i] for i in batch]
        outcomes = evaluate(self.trial, program, self.table, estimators, budget, trained)
        report(left)
        return outcomes

    def _candidate(self, number: int, rung: int, ladder: list[int]) -> Candidate:
        outcomes = [self.store.outcomes[budget, number] for budget in ladder[: rung + 1]]
        return Candidate(
            number,
            self.drawn[number],
            rung,
            outcomes[-1],
            sum(outcome.network_epochs for outcome in outcomes),
        )


def _batches(numbers: list[int], networks: int) -> Iterator[list[int]]:
    """An accelerator takes everything at once; a CPU visits the store now and then."""
    size = max(1, _CPU_BATCH // networks) if jax.default_backend() == "cpu" else len(numbers)
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
