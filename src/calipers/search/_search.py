"""The public function ``search``, and the loop that trains candidates and finalists in batches."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import jax
import joblib
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state, check_X_y

from calipers._progress import progress
from calipers.bank import Program, Table
from calipers.regressor import IntervalRegressor
from calipers.search import _space as spaces
from calipers.search._result import Candidate, Outcome, SearchResult, known_score
from calipers.search._store import Store
from calipers.search._validation import Setup, evaluate

# Networks trained between two writes to the store: for every five threads or workers, and on an
# accelerator, enough to fill it.
CPU_BATCH, ACCELERATOR_BATCH = 100, 500

_FINAL = 0  # budget under which the store has finalists


def search(
    estimator: IntervalRegressor,
    X: ArrayLike,
    y: ArrayLike,
    space: spaces.Space,
    *,
    n_candidates: int = 300,
    splits: spaces.Splits = 5,
    validation_fraction: float = 0.1,
    max_epochs: int = 5000,
    patience: int | None = 500,
    finalists: int = 0,
    final_splits: spaces.Splits | None = None,
    time_budget: float | None = None,
    select: str = "interval score",
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = -1,
    store: str | os.PathLike[str] | None = None,
    verbose: int = 1,
) -> SearchResult:
    """Search for good parameters of an estimator by random search.

    Each candidate trains on every split with early stopping and is evaluated on held-out rows, at
    its best weights and without calibration. The networks of all candidates that share a compiled
    program train as one bank. With ``IntervalRegressor.paper()``, ``PAPER_SPACE`` and
    ``select="paper"`` this is the search of the paper.

    Parameters
    ----------
    estimator : IntervalRegressor
        The estimator, with the parameters that are not searched; it is not modified.
    X : array-like of shape (n_samples, n_features)
        Inputs.
    y : array-like of shape (n_samples,)
        Targets.
    space : mapping of str to sequence or distribution, or sequence of such mappings
        Parameters to search, as in scikit-learn's ``RandomizedSearchCV``, such as
        ``PAPER_SPACE``. A space of at most ``n_candidates`` combinations is searched exhaustively.
    n_candidates : int, default 300
        Number of candidates to draw.
    splits : int or iterable of pairs of arrays of int, default 5
        Number of shuffled splits, or pairs of training and validation rows, such as those of
        ``TimeSeriesSplit().split(X)``.
    validation_fraction : float, default 0.1
        Fraction of the rows that a shuffled split holds out.
    max_epochs : int, default 5000
        Maximum number of epochs, unless ``epochs`` is in the space.
    patience : int, optional, default 500
        Epochs without a better validation loss after which a network stops. It also stops when an
        exponential learning rate has fallen below 1e-9. With None there is no early stopping, and
        networks train the epochs of the estimator.
    finalists : int, default 0
        Number of best candidates that are trained again, as the estimator will be: with its number
        of networks, for the epochs found and without early stopping. They are then ranked as
        ensembles. Other candidates are evaluated as single networks, at the epoch that was best on
        the held-out rows. No candidate has what ``fit`` selects by itself: components, the scale of
        the target, piecewise-linear encodings, numeric codes.
    final_splits : int or iterable of pairs of arrays of int, optional
        Splits for the finalists; new ones hold out other rows than those by which the finalists
        were selected. The same as ``splits`` by default.
    time_budget : float, optional
        Seconds after which no further candidate is started; those not started are missing from the
        result. Finalists are still trained.
    select : {"interval score", "covered", "paper", "paper deviation"}
        Score that ranks finalists, or all candidates if there are none, see ``SCORES``. Finalists
        are always selected by the interval score, which varies least by chance.
    random_state : int, RandomState or None
        Seed of candidates, splits and networks.
    n_jobs : int, optional, default -1
        Number of threads, as in joblib.
    store : path, optional
        File in which finished candidates are kept. A search called again with the same arguments
        continues where it was stopped, with the same result as if it had not been.
    verbose : int, default 1
        0 shows no progress bar.

    Returns
    -------
    SearchResult
        All candidates, and the best as ``best_params`` and ``best_estimator``.

    Raises
    ------
    TypeError
        If ``estimator`` is not an ``IntervalRegressor``.
    ValueError
        If an argument, a parameter of the space or the data are invalid, or if ``store`` belongs to
        another search.

    Notes
    -----
    A network that fails is not retried: its candidate is never selected. The number of epochs is
    the median of the networks' best epochs under early stopping.

    Finalists on new splits show what to expect of the final fit. On boston, one setting
    covered 97 % of the rows by which it was selected as a finalist, 94 % on new splits, and 92 % in
    twenty trials of the study; two others covered 92 and 97 % on new splits, 91 and 97 % in twenty
    trials.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import IntervalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (120, 2))
    >>> y = X[:, 0] + rng.normal(0, 0.1, 120)
    >>> model = IntervalRegressor(loss="interval score", n_networks=5)
    >>> space = {"optimizer__learning_rate": [1e-5, 0.01]}
    >>> result = search(model, X, y, space, splits=2, max_epochs=50, random_state=0)
    >>> result.best_params["optimizer__learning_rate"]
    0.01
    >>> result.best_estimator.fit(X, y)  # doctest: +SKIP
    """
    known_score(select)
    counts = {"n_candidates": n_candidates, "finalists": finalists, "max_epochs": max_epochs}
    _check_arguments(estimator, counts, patience, time_budget, random_state, store)
    inputs, target = check_X_y(X, y, dtype=np.float64, y_numeric=True)
    seed = int(check_random_state(random_state).randint(2**31))
    base = clone(estimator)
    if patience is not None:
        base.set_params(epochs=None)  # found by early stopping, unless they are searched
    drawn = spaces.candidates(base, space, n_candidates, seed)
    rows = spaces.split_rows(splits, len(target), validation_fraction, seed)
    setup = Setup(inputs, target, rows, 1, max_epochs, patience, seed, n_jobs)
    final = replace(setup, n_networks=base.n_networks, patience=None)
    if final_splits is not None:
        final_rows = spaces.split_rows(final_splits, len(target), validation_fraction, seed + 1)
        final = replace(final, splits=final_rows)
    outcomes = Store(store, spaces.identity(setup, final, base, drawn))
    tried = _run(
        setup, final, base, drawn, outcomes, finalists, visible=bool(verbose), seconds=time_budget
    )
    return SearchResult(clone(estimator), tried, select)


class Stage(NamedTuple):
    """Candidates that train under one budget of epochs."""

    name: str
    key: int  # budget under which outcomes are stored
    budget: int
    setup: Setup
    estimators: dict[int, IntervalRegressor]  # by number of the candidate

    @property
    def granted(self) -> int:
        """Maximum network-epochs of one candidate."""
        return self.setup.networks * self.budget


def _check_arguments(
    estimator: object,
    counts: dict[str, int],
    patience: int | None,
    time_budget: float | None,
    random_state: object,
    store: object,
) -> None:
    """Refuse arguments of ``search`` that are of the wrong type or out of their range."""
    if not isinstance(estimator, IntervalRegressor):
        raise TypeError(f"estimator must be an IntervalRegressor, got {type(estimator).__name__}")
    spaces.check_counts(**counts)
    if patience is not None:
        spaces.check_counts(patience=patience)
    if time_budget is not None and not time_budget > 0:
        raise ValueError(f"time_budget must be above 0 seconds, got {time_budget!r}")
    if store is not None and not isinstance(random_state, int | np.integer):
        raise ValueError(
            "store needs an integer random_state, so that the search can be continued, "
            f"got {random_state!r}"
        )


def _run(
    setup: Setup,
    final: Setup,
    base: IntervalRegressor,
    drawn: list[spaces.Params],
    store: Store,
    finalists: int,
    *,
    visible: bool,
    seconds: float | None,
) -> tuple[Candidate, ...]:
    """Train candidates until ``seconds`` have passed, and the best of them again as finalists."""
    everyone = {i: clone(base).set_params(**params) for i, params in enumerate(drawn)}
    rows = min(len(train) for train, _ in setup.splits)
    budget = max(int(setup.settings(e, rows).epochs) for e in everyone.values())
    first = Stage("searching", budget, budget, setup, everyone)
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
    table = Table.from_arrays(stage.setup.X, stage.setup.y)
    pending = [i for i in stage.estimators if (stage.key, i) not in store.outcomes]
    groups: dict[Program, list[int]] = {}
    for number in pending:
        groups.setdefault(stage.setup.program(stage.estimators[number]), []).append(number)
    total = stage.granted * len(stage.estimators)
    with progress(stage.name, total, visible=visible) as report:
        report(total - stage.granted * len(pending))
        for program, group in groups.items():
            for batch in _batches(group, stage.setup):
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
    outcomes = evaluate(stage.setup, program, table, estimators, stage.budget, trained)
    report(unused)
    return outcomes


def _batches(numbers: list[int], setup: Setup) -> Iterator[list[int]]:
    networks = ACCELERATOR_BATCH
    if jax.default_backend() == "cpu":
        networks = CPU_BATCH * max(1, joblib.effective_n_jobs(setup.n_jobs) // 5)
    size = max(1, networks // setup.networks)
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
