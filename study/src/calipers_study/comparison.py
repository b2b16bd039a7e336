"""Comparison of searched settings of QD+ with the published ones."""

import csv
import dataclasses
from pathlib import Path

import numpy as np

from calipers_study.files import write_csv
from calipers_study.measures import measure_combined, stored_trials
from calipers_study.methods import DATASETS
from calipers_study.store import ResultStore

METHOD = "qd+"
MEASURES = ("PICP", "MPIW", "interval score", "MSE")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Measures of published or searched settings on a dataset."""

    dataset: str  #: Name of the dataset.
    settings: str  #: "published" or "searched".
    #: "trial 0", whose test rows the search has not seen, or "mean of 20 trials", the paper's
    #: protocol.
    trials: str
    #: PICP, MPIW, interval score and MSE on targets standardised by the whole dataset, and their
    #: standard errors over trials; no standard error for a single trial.
    mean: dict[str, float]
    sem: dict[str, float]


def compare(name: str, label: str, store: ResultStore, count: int | None) -> list[Comparison]:
    """Measures on trial 0 alone, and their means over trials."""
    trials = stored_trials(store, METHOD, name)[:count]
    rows = [measure_combined(trial, "snm") for trial in trials]
    values = {key: np.array([row[key] for row in rows]) for key in MEASURES}
    mean = {key: float(column.mean()) for key, column in values.items()}
    sem = {}
    if len(rows) > 1:
        sem = {key: float(v.std(ddof=1) / len(v) ** 0.5) for key, v in values.items()}
    first = {key: rows[0][key] for key in MEASURES}
    return [
        Comparison(name, label, "trial 0", first, {}),
        Comparison(name, label, f"mean of {len(rows)} trials", mean, sem),
    ]


def write_comparisons(found: list[Comparison], path: Path) -> None:
    """Write comparisons to a CSV file, and keep its rows of other datasets."""
    columns = ["dataset", "settings", "trials"]
    columns += [part for key in MEASURES for part in (key, f"{key} sem")]
    rows = [_row(comparison) for comparison in found]
    if path.exists():
        new = {row["dataset"] for row in rows}
        with path.open(newline="") as file:
            rows += [row for row in csv.DictReader(file) if row["dataset"] not in new]
    rows.sort(key=lambda row: DATASETS.index(row["dataset"]))
    write_csv(path, [columns, *([row.get(name, "") for name in columns] for row in rows)])


def _row(found: Comparison) -> dict[str, str]:
    return {
        "dataset": found.dataset,
        "settings": found.settings,
        "trials": found.trials,
        **{key: f"{value:.6g}" for key, value in found.mean.items()},
        **{f"{key} sem": f"{value:.3g}" for key, value in found.sem.items()},
    }
