"""The cells of the paper's tables, computed from the store."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calipers_study.measures import MEMBERS, measure_trial, stored_trials
from calipers_study.methods import DATASETS, METHODS
from calipers_study.store import ResultStore, StoreEntry
from calipers_study.verdict import Published, published_cells, verdict

SOURCES: dict[str, tuple[str, str]] = {
    "SNM-QD+": ("qd+", "snm"),
    "SEM-QD+": ("qd+", "sem"),
    "STD-QD+": ("qd+", "std"),
    "QD+": ("qd+", MEMBERS),
    "SEM-QD": ("qd", "sem"),
    "SEM-QD*": ("qd", "sem"),
    "STD-QD": ("qd", "std"),
    "QD": ("qd", MEMBERS),
    "SEM-QD 1-layer": ("qd-1-layer", "sem"),
    "QD 1-layer": ("qd-1-layer", MEMBERS),
    "MVE": ("mve", "normal"),
    "MSE": ("mse", "mean"),
}
"""Training and aggregation behind each name in the paper's tables, and two further ones."""


class Estimate(NamedTuple):
    """Mean over trials (or over members) and its standard error; None where unknown."""

    mean: float | None
    sem: float | None


@dataclass(frozen=True)
class TableCell:
    """A published cell with our number, and a note if some networks were given up."""

    published: Published
    ours: Estimate
    verdict: str
    note: str = ""


@dataclass(frozen=True, eq=False)
class Results:
    """All results of one method on one dataset."""

    trials: list[StoreEntry]  #: Records of the trials, with their arrays.
    measures: list[dict[str, list[dict[str, float]]]]  #: ``measure_trial`` of each.

    def estimate(self, source: str, metric: str) -> Estimate:
        """Mean and standard error of a measure over all trials, or all members of all trials."""
        values = [
            measures[metric]
            for trial in self.measures
            for measures in trial.get(source, [])
            if metric in measures
        ]
        return _estimate(values)

    @property
    def failures(self) -> Estimate:
        """The number of failed networks, whose standard error is its square root."""
        if not self.trials:
            return Estimate(None, None)
        count = float(sum(trial.arrays["retries"].sum() for trial in self.trials))
        return Estimate(count, count**0.5)

    @property
    def networks(self) -> int:
        """Number of networks of the trials, including those given up."""
        return sum(len(trial.arrays["retries"]) for trial in self.trials)

    @property
    def kept(self) -> int:
        """Number of networks that were not given up."""
        return sum(len(trial.arrays["members"]) for trial in self.trials)

    @property
    def note(self) -> str:
        """On how many networks the results are based, if some were given up."""
        return f"{self.kept} of {self.networks} networks" if self.kept < self.networks else ""


def _estimate(values: list[float]) -> Estimate:
    if not values:
        return Estimate(None, None)
    sem = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
    return Estimate(float(np.mean(values)), sem)


def collect(store: ResultStore) -> dict[tuple[str, str], Results]:
    """Measure all trials in the store, by method and dataset."""
    found = {}
    for method in METHODS:
        for dataset in DATASETS:
            trials = stored_trials(store, method, dataset)
            found[method, dataset] = Results(trials, [measure_trial(trial) for trial in trials])
    return found


def cells_of(
    results: dict[tuple[str, str], Results], like: dict[tuple[str, str], Results] | None = None
) -> list[TableCell]:
    """Cells of PICP, MPIW and MSE, of the trainings and datasets in ``like``."""
    wanted = results if like is None else like
    return [
        TableCell(published, _ours(published, results), "")
        for published in published_cells()
        if published.metric in ("PICP", "MPIW", "MSE")
        and (SOURCES[published.method][0], published.dataset) in wanted
    ]


def paper_cells(results: dict[tuple[str, str], Results]) -> list[TableCell]:
    """All cells of the paper's six tables, with our numbers and verdicts."""
    cells = []
    coverage: dict[tuple[str, str, str], str] = {}
    for published in published_cells():
        ours = _ours(published, results)
        place = (published.table, published.dataset, published.method)
        found = verdict(published, *ours, coverage_verdict=coverage.get(place, "agrees"))
        if published.metric == "PICP":  # precedes MPIW in every table
            coverage[place] = found
        note = ""
        if published.metric in ("PICP", "MPIW", "MSE"):
            note = results[SOURCES[published.method][0], published.dataset].note
        cells.append(TableCell(published, ours, found, note))
    return cells


def _ours(cell: Published, results: dict[tuple[str, str], Results]) -> Estimate:
    if cell.metric == "target_models":
        count = results["qd+", cell.dataset].networks
        return Estimate(float(count) if count else None, None)
    method, source = SOURCES[cell.method]
    if cell.metric == "failures":
        return results[method, cell.dataset].failures
    return results[method, cell.dataset].estimate(source, cell.metric)


def share_reproduced(
    cells: Iterable[TableCell], tables: Iterable[str] = ("table1", "table2")
) -> str:
    """A line that says how many cells of some tables agree with the paper, are better, and worse.

    Examples
    --------
    >>> cell = Published("table2", "boston", "MSE", "MSE", "0.112", 0.013)
    >>> share_reproduced([TableCell(cell, Estimate(0.11, 0.01), "agrees")])
    'table1, table2: of 1 cells 1 agree (100.0%), 0 are better, 0 worse'
    """
    names = list(tables)
    verdicts = [cell.verdict for cell in cells if cell.published.table in names]
    agree, better, worse, missing = (
        verdicts.count(word) for word in ("agrees", "better", "worse", "missing")
    )
    count = agree + better + worse
    share = f" ({100 * agree / count:.1f}%)" if count else ""
    lacking = f"; {missing} without results" if missing else ""
    return (
        f"{', '.join(names)}: of {count} cells {agree} agree{share}, {better} are better, "
        f"{worse} worse{lacking}"
    )
