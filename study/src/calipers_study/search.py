"""Search for settings of QD+, which are then trained and compared with the published ones.

The search uses the training rows of trial 0 alone. The selected settings are then trained on all
trials and measured twice: on the test rows of trial 0, which the search has not seen, and as the
mean over trials. The mean is the paper's protocol, but the search has seen test rows of the other
trials in training.

The folder of a search contains all candidates of each dataset in ``candidates/``, the time spent in
``times/``, and for each selection score ``settings/``, in the layout of ``study run --settings``, a
store in ``trials/``, and ``search.csv``.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import as_completed
from functools import partial
from pathlib import Path
from typing import Any

from calipers.datasets import available, load
from calipers.search import PAPER_SPACE, SearchResult, search
from calipers_study.comparison import METHOD, Comparison, compare, write_comparisons
from calipers_study.files import replace_file, write_csv
from calipers_study.methods import DATASETS, choose, folder_of
from calipers_study.run import pool, run
from calipers_study.settings import load_settings, read_tables, write_settings
from calipers_study.splits import paper_splits, whole_batch_splits
from calipers_study.store import ResultStore, circumstances
from calipers_study.translation import estimator_of, with_parameters

_SPLITS = 5


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How to search; the paper's protocol has another score, no finalists and no step limit."""

    #: As in ``calipers.search.search``.
    candidates: int = 300
    select: str = "covered"
    finalists: int = 20
    max_epochs: int = 5000
    patience: int = 500
    #: Most steps of a network: on large datasets ``max_epochs`` is reduced to it, and ``patience``
    #: in proportion; None for no limit.
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
    processes: int = 1,
    folder: str | os.PathLike[str] | None = None,
    verify: bool = True,
    visible: bool = True,
    notify: Callable[[str], None] = lambda _: None,
) -> list[Comparison]:
    """Search settings of QD+, train them, and compare them with the published ones.

    May be interrupted at any moment and called again: finished work is kept.

    Parameters
    ----------
    datasets : iterable of str, optional
        Names of ``DATASETS``; by default those that are on this machine.
    protocol : Protocol, optional
        How to search.
    trials : int, optional
        Number of trials; by default as many as the settings say.
    out : path-like
        Folder of the search.
    published : path-like
        Store of the study; trials of the published settings that it lacks are trained.
    seed : int
        Seed of shuffles, candidates and networks.
    n_jobs : int, optional
        Threads, as in joblib.
    processes : int
        Number of datasets at a time, each in its own process; for an accelerator.
    folder, verify
        As in ``calipers.datasets.load``.
    visible : bool
        Whether to show progress bars on a terminal.
    notify : callable
        Called with a line of text when something is done.

    Returns
    -------
    list of Comparison
        Four for each dataset; also written to ``search.csv``.
    """
    protocol = protocol or Protocol()
    if datasets is None:
        names = [name for name in DATASETS if available(name, folder=folder)]
    else:
        names = choose(datasets, DATASETS, "dataset")
    place = Path(out, protocol.select.replace(" ", "-"))
    options: dict[str, Any] = {"seed": seed, "n_jobs": n_jobs, "folder": folder, "verify": verify}
    task = partial(_searched, protocol=protocol, out=Path(out), **options)
    for name, result in _in_turn(task, names, processes, visible=visible):
        keep_settings(result, name, place / "settings")
        notify(f"{name}: {_line(result)}")
    found = []
    stores = {"published": (published, None), "searched": (place / "trials", place / "settings")}
    for label, (store, settings) in stores.items():
        run(
            [METHOD],
            names,
            trials=trials,
            store=store,
            settings=settings,
            processes=processes,
            visible=visible,
            notify=notify,
            **options,
        )
        found += [one for name in names for one in compare(name, label, ResultStore(store), trials)]
    found.sort(key=lambda one: names.index(one.dataset))
    write_comparisons(found, place / "search.csv")
    return found


def _in_turn(
    task: Callable[..., SearchResult], names: list[str], processes: int, *, visible: bool
) -> Iterator[tuple[str, SearchResult]]:
    """Search the datasets one by one, or several at a time, and yield results as they finish."""
    if processes == 1:
        for name in names:
            yield name, task(name, visible=visible)
        return
    with pool(processes) as workers:
        tasks = {workers.submit(task, name): name for name in names}
        for done in as_completed(tasks):
            yield tasks[done], done.result()


def _searched(
    name: str,
    *,
    protocol: Protocol,
    out: Path,
    seed: int,
    n_jobs: int | None,
    folder: str | os.PathLike[str] | None,
    verify: bool,
    visible: bool = False,
) -> SearchResult:
    """Search within the training rows of trial 0, and store candidates and time as tables."""
    began = time.perf_counter()
    data = load(name, folder=folder, verify=verify)
    settings = load_settings(METHOD, data.name)
    rows = paper_splits(data.name, random_state=seed, trials=1)[0].train
    max_epochs, patience = protocol.limits(len(rows), settings.batch_size)
    result = search(
        estimator_of(settings),
        data.X[rows],
        data.y[rows],
        PAPER_SPACE,
        n_candidates=protocol.candidates,
        splits=whole_batch_splits(len(rows), settings.batch_size, _SPLITS, seed),
        final_splits=whole_batch_splits(len(rows), settings.batch_size, 2 * _SPLITS, seed + 1),
        finalists=protocol.finalists,
        max_epochs=max_epochs,
        patience=patience,
        select=protocol.select,
        random_state=seed,
        n_jobs=n_jobs,
        store=out / "candidates" / f"{data.name}.jsonl",
        verbose=int(visible),
    )
    table: str = result.to_frame().to_csv(index=False, float_format="%.6g")
    replace_file(out / "candidates" / f"{data.name}.csv", table.encode())
    spent = [time.perf_counter() - began, sum(c.network_epochs for c in result.candidates)]
    values = [f"{spent[0]:.1f}", spent[1], max_epochs, patience, circumstances()["device"]]
    columns = ["seconds", "network_epochs", "max_epochs", "patience", "device"]
    if not (times := out / "times" / f"{data.name}.csv").exists():  # else candidates were resumed
        write_csv(times, [columns, values])
    return result


def keep_settings(result: SearchResult, name: str, folder: Path) -> None:
    """Write the selected settings of a dataset to a settings file of the study."""
    settings = with_parameters(load_settings(METHOD, name), result.best_params)
    values = dataclasses.asdict(settings)
    del values["adversarial_step"]  # not a setting of this loss
    path = folder / f"{folder_of(METHOD)}.toml"
    tables = read_tables(path.read_text("utf-8"), origin=str(path)) if path.exists() else {}
    tables[name] = values
    ordered = {key: tables[key] for key in DATASETS if key in tables}
    write_settings(path, ordered, f"QD+: the best candidate of each dataset by {result.select}.")


def _line(result: SearchResult) -> str:
    failed = sum(candidate.outcome.failures > 0 for candidate in result.candidates)
    best = result.best
    return (
        f"best of {len(result.candidates)} candidates ({failed} failed) is number {best.number}: "
        f"PICP {best.outcome.coverage_rate:.3f}, {result.select} {result.score(best):.4g} on its "
        f"validation rows after {best.outcome.epochs:.0f} epochs"
    )
