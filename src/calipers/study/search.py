"""Settings of our own for QD+: searched, trained and set beside the published ones.

The search sees the training rows of trial 0 and nothing else. What it chose is then trained on all
trials and reckoned twice: on the test rows of trial 0, which the search has not seen, and as the
mean over trials, which is the paper's protocol although other trials' test rows were among those
that the search trained on.

The folder of a search holds every candidate of each dataset in ``candidates/``, and for each score
that decided ``settings/`` in the layout that ``study run --settings`` takes, a store in ``trials/``
and ``search.csv``.
"""

import csv
import dataclasses
import io
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.datasets import Dataset, available, load, paper_splits, shuffled_splits
from calipers.regressor import IntervalRegressor
from calipers.search import PAPER_SPACE, SearchResult, search
from calipers.storage import replace_file
from calipers.study._measures import combine, measure, stored_trials
from calipers.study._methods import DATASETS, METHODS, choose
from calipers.study._run import run
from calipers.study._settings import StudySettings, load_settings
from calipers.study._store import Store

Rows = NDArray[np.int64]

_METHOD = "qd+"
_SPLITS = 5
_MEASURES = ("PICP", "MPIW", "interval score", "MSE")


@dataclasses.dataclass(frozen=True)
class Reckoning:
    """What one choice of settings achieves on a dataset.

    Attributes
    ----------
    dataset : str
        Name of the dataset.
    settings : str
        "published" or "searched".
    trials : str
        "trial 0", whose test rows the search has not seen, or "mean of 20 trials", the paper's
        protocol.
    mean, sem : dict
        PICP, MPIW, interval score and MSE on targets standardised by the whole dataset, and their
        standard errors over trials; no standard error for a single trial.
    """

    dataset: str
    settings: str
    trials: str
    mean: dict[str, float]
    sem: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How to search; the paper has no finalists, its own score and no limit on steps.

    Attributes
    ----------
    candidates, select, halving, finalists, max_epochs, patience
        As in ``calipers.search.search``.
    max_steps : int, optional
        Shortens ``max_epochs`` on large datasets to so many steps of a network, and ``patience`` in
        proportion; None for the paper's epochs whatever the cost.
    """

    candidates: int = 300
    select: str = "covered"
    halving: int | None = None
    finalists: int = 20
    max_epochs: int = 5000
    patience: int = 500
    max_steps: int | None = 40_000

    def limits(self, rows: int, batch_size: int) -> tuple[int, int]:
        """Most epochs and patience for a dataset.

        Examples
        --------
        >>> Protocol().limits(277, 100), Protocol().limits(41157, 100)
        ((5000, 500), (107, 10))
        """
        if self.max_steps is None:
            return self.max_epochs, self.patience
        steps = -(-round(0.9 * rows) // batch_size)
        epochs = min(self.max_epochs, max(1, self.max_steps // steps))
        return epochs, max(1, self.patience * epochs // self.max_epochs)


def search_settings(
    datasets: Iterable[str] | None = None,
    protocol: Protocol | None = None,
    *,
    trials: int | None = None,
    out: str | os.PathLike[str] = "results/search",
    published: str | os.PathLike[str] = "results/study",
    seed: int = 0,
    n_jobs: int | None = -1,
    folder: str | os.PathLike[str] | None = None,
    verify: bool = True,
    visible: bool = True,
    notify: Callable[[str], None] = lambda _: None,
) -> list[Reckoning]:
    """Search settings of QD+, train them, and set them beside the published ones.

    May be stopped at any moment and called again: what is finished is kept.

    Parameters
    ----------
    datasets : iterable of str, optional
        Names of ``DATASETS``; by default those that are on this machine.
    protocol : Protocol, optional
        How to search.
    trials : int, optional
        The first so many trials; by default as many as the settings say.
    out : path-like
        Folder of the search.
    published : path-like
        Store of the study; trials of the published settings that it lacks are trained.
    seed : int
        Seed of shuffles, candidates and networks.
    n_jobs : int, optional
        Threads, as in joblib.
    folder, verify
        As in ``calipers.datasets.load``.
    visible : bool
        Whether to show progress bars on a terminal.
    notify : callable
        Called with a line of text when something is done.

    Returns
    -------
    list of Reckoning
        Four for each dataset; also written to ``search.csv``.
    """
    protocol = protocol or Protocol()
    if datasets is None:
        names = [name for name in DATASETS if available(name, folder=folder)]
    else:
        names = choose(datasets, DATASETS, "dataset")
    place = Path(out, protocol.select.replace(" ", "-"))
    stores = {"published": (published, None), "searched": (place / "trials", place / "settings")}
    found = []
    for name in names:
        data = load(name, folder=folder, verify=verify)
        result = _searched(data, protocol, seed, n_jobs, Path(out, "candidates"), visible)
        _keep_settings(result, name, place / "settings")
        notify(f"{name}: {_line(result)}")
        for label, (store, settings) in stores.items():
            run(
                [_METHOD],
                [name],
                trials=trials,
                store=store,
                settings=settings,
                seed=seed,
                n_jobs=n_jobs,
                folder=folder,
                verify=verify,
                visible=visible,
                notify=notify,
            )
            found += _reckonings(name, label, Store(store), trials)
        _keep_reckonings(found, place / "search.csv")
    return found


def _searched(
    data: Dataset,
    protocol: Protocol,
    seed: int,
    n_jobs: int | None,
    folder: Path,
    visible: bool,
) -> SearchResult:
    """Search inside the training rows of trial 0, and keep the candidates as a table."""
    settings = load_settings(_METHOD, data.name)
    rows = paper_splits(data.name, random_state=seed, trials=1)[0].train
    max_epochs, patience = protocol.limits(len(rows), settings.batch_size)
    result = search(
        _estimator(settings),
        data.X[rows],
        data.y[rows],
        PAPER_SPACE,
        n_candidates=protocol.candidates,
        splits=_splits(len(rows), settings.batch_size, _SPLITS, seed),
        final_splits=_splits(len(rows), settings.batch_size, 2 * _SPLITS, seed + 1),
        finalists=protocol.finalists,
        max_epochs=max_epochs,
        patience=patience,
        halving=protocol.halving,
        select=protocol.select,
        random_state=seed,
        n_jobs=n_jobs,
        store=folder / f"{data.name}.jsonl",
        verbose=int(visible),
    )
    table: str = result.to_frame().to_csv(index=False, float_format="%.6g")
    replace_file(folder / f"{data.name}.csv", table.encode())
    return result


def _splits(rows: int, batch_size: int, count: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Shuffled splits of 90 to 10 that leave no last batch of a few rows.

    QD+ judges a batch as a whole. On boston 409 rows end in a batch of nine, which makes intervals
    wider than 400 rows do; those nine are validated instead.

    Examples
    --------
    >>> [(train.size, valid.size) for train, valid in _splits(455, 100, 2, 0)]
    [(400, 55), (400, 55)]
    """
    splits = shuffled_splits(rows, trials=count, random_state=seed)
    left = len(splits[0].train) % batch_size
    cut = len(splits[0].train) - (left if left < batch_size / 4 else 0)
    if not cut:
        return [(split.train, split.test) for split in splits]
    return [(split.train[:cut], np.append(split.train[cut:], split.test)) for split in splits]


def _estimator(settings: StudySettings) -> IntervalRegressor:
    """The published training, whose shape the search leaves as it is."""
    return IntervalRegressor.paper(
        coverage=settings.coverage,
        n_networks=settings.members,
        hidden_layers=settings.hidden_layers,
        batch_size=settings.batch_size,
        softness=settings.softness,
    )


def _keep_settings(result: SearchResult, name: str, folder: Path) -> None:
    """Write the chosen settings as a file that the study can read."""
    fields = {field.name for field in dataclasses.fields(StudySettings)}
    chosen = {key: value for key, value in result.best_params.items() if key in fields}
    settings = dataclasses.replace(load_settings(_METHOD, name), **chosen)
    values = dataclasses.asdict(settings)
    del values["adversarial_step"]  # no setting of this loss
    head = f"# QD+ on {name}: the best of {len(result.candidates)} candidates by {result.select}.\n"
    lines = (f"{key} = {_toml(value)}\n" for key, value in values.items())
    path = folder / METHODS[_METHOD].folder / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (head + "".join(lines)).encode())


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value)) if isinstance(value, tuple) else repr(value)


def _line(result: SearchResult) -> str:
    failed = sum(candidate.outcome.failures > 0 for candidate in result.candidates)
    best = result.best
    return (
        f"best of {len(result.candidates)} candidates ({failed} failed) is number {best.number}: "
        f"PICP {best.outcome.coverage_rate:.3f}, {result.select} {result.score(best):.4g} on its "
        f"validation rows after {best.outcome.epochs:.0f} epochs"
    )


def _reckonings(name: str, label: str, store: Store, count: int | None) -> list[Reckoning]:
    """Measures on trial 0 alone, and their mean over trials."""
    trials = stored_trials(store, _METHOD, name)[:count]
    rows = [measure(combine(trial, "snm"), trial) for trial in trials]
    values = {key: np.array([row[key] for row in rows]) for key in _MEASURES}
    mean = {key: float(column.mean()) for key, column in values.items()}
    sem = {}
    if len(rows) > 1:
        sem = {key: float(v.std(ddof=1) / len(v) ** 0.5) for key, v in values.items()}
    first = {key: rows[0][key] for key in _MEASURES}
    return [
        Reckoning(name, label, "trial 0", first, {}),
        Reckoning(name, label, f"mean of {len(rows)} trials", mean, sem),
    ]


def _keep_reckonings(found: list[Reckoning], path: Path) -> None:
    """Write reckonings as a table; what it says of other datasets stays."""
    columns = ["dataset", "settings", "trials"]
    columns += [part for key in _MEASURES for part in (key, f"{key} sem")]
    rows = [_row(reckoning) for reckoning in found]
    if path.exists():
        new = {row["dataset"] for row in rows}
        with path.open(newline="") as file:
            rows += [row for row in csv.DictReader(file) if row["dataset"] not in new]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: DATASETS.index(row["dataset"])))
    replace_file(path, text.getvalue().encode())


def _row(found: Reckoning) -> dict[str, str]:
    return {
        "dataset": found.dataset,
        "settings": found.settings,
        "trials": found.trials,
        **{key: f"{value:.6g}" for key, value in found.mean.items()},
        **{f"{key} sem": f"{value:.3g}" for key, value in found.sem.items()},
    }
