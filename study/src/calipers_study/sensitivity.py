"""Sensitivity of QD+ to its weights: one network for each pair of lambda_1 and lambda_2 on Yacht.

The protocol is that of the authors' notebook: 101 values of each weight; the first 81% of shuffle 5
are for training, and the next 9% for early stopping (patience 500) and for the measures; one seed
for all networks; a training has failed, and its cell stays empty, if its loss on the training rows
is above 20 or bounds cross on one of them, without a second attempt. The authors normalise a width
by the range of all widths of both maps, which is done when drawing. The whole grid is one bank.

One thing differs: where training is not stopped early, the authors keep the last weights, and a
bank the best ones.
"""

import dataclasses
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers.bank import Bank, Plan, Table
from calipers.datasets import Dataset, load
from calipers_study.attempts import train_networks
from calipers_study.files import markdown_table
from calipers_study.measures import TrialPrediction, measure
from calipers_study.progress import progress
from calipers_study.settings import StudySettings, load_settings, settings_record
from calipers_study.splits import paper_splits
from calipers_study.store import ResultStore, StoreEntry, circumstances
from calipers_study.translation import program_of, training_of

MEASURES = ("PICP", "MPIW", "MSE")
"""Measures of each network in the store."""

_BANDS = ((0.0, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 0.95), (0.95, 0.99), (0.99, 1.0))
_DATASET, _SHUFFLE, _PATIENCE = "yacht", 5, 500
_SEEDS = "figures/sensitivity-seeds"
_LAST = "PICP of last weights"


def normalised(widths: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Widths of several maps as the authors normalise them: by the range of all of them.

    Examples
    --------
    >>> normalised([np.array([[1.0, np.nan], [3.0, 2.0]])])
    [array([[0.5, nan],
           [1.5, 1. ]])]
    """
    extent = np.nanmax(np.stack(widths)) - np.nanmin(np.stack(widths))
    return [width / extent for width in widths]


def sensitivity(
    store: ResultStore,
    crossing_weight: float,
    *,
    grid: int = 101,
    seed: int = 0,
    settings: StudySettings | None = None,
    folder: str | os.PathLike[str] | None = None,
    verify: bool = True,
    n_jobs: int | None = -1,
    visible: bool = True,
) -> StoreEntry:
    """Measures over the grid, from the store or newly trained.

    Parameters
    ----------
    store : ResultStore
        The store of the result.
    crossing_weight : float
        Weight of the penalty (xi), the same for all networks.
    grid : int
        Values of each weight, from 0 to 1.
    seed : int
        Seed of the shuffle and the networks.
    settings : StudySettings, optional
        The other settings; by default those of QD+ on Yacht.
    folder, verify
        As in ``run``.
    n_jobs : int, optional
        Threads.
    visible : bool
        Whether to show a progress bar on a terminal.

    Returns
    -------
    StoreEntry
        Arrays ``weights`` of shape (grid,) and ``PICP``, ``MPIW`` and ``MSE`` of shape
        (grid, grid): lambda_1 along the first axis, lambda_2 along the second, NaN for failures.
    """
    settings = settings or load_settings("qd+", _DATASET)
    settings = dataclasses.replace(settings, crossing_weight=crossing_weight)
    name = f"figures/sensitivity-xi-{crossing_weight:g}-grid-{grid}"
    expected = {"seed": seed, "settings": settings_record(settings)}
    record = store.record(name)
    if record is None or any(record[key] != value for key, value in expected.items()):
        data = load(_DATASET, folder=folder, verify=verify)
        arrays = _map(settings, data, grid, seed, n_jobs, visible)
        store.write(name, {**expected, **circumstances()}, arrays)
    return store.read(name)


def other_seeds(
    store: ResultStore,
    seeds: range = range(1, 11),
    *,
    grid: int = 21,
    settings: StudySettings | None = None,
    n_jobs: int | None = -1,
) -> StoreEntry:
    """Coarse maps without the penalty for other seeds, each with its own shuffle.

    All networks of a map start from the same weights, so that a map is a single draw, however many
    cells it has. The array ``PICP`` has the shape (seeds, grid, grid); ``PICP of last weights`` is
    that of the same networks without early stopping.
    """
    if store.record(_SEEDS) is None:
        settings = dataclasses.replace(
            settings or load_settings("qd+", _DATASET), crossing_weight=0.0
        )
        data, arrays = load(_DATASET), {"weights": np.linspace(0, 1, grid)}
        for name, patience in (("PICP", _PATIENCE), (_LAST, 0)):
            maps = [_map(settings, data, grid, seed, n_jobs, False, patience) for seed in seeds]
            arrays[name] = np.stack([own["PICP"] for own in maps])
        record = {"seeds": list(seeds), "settings": settings_record(settings)}
        store.write(_SEEDS, {**record, **circumstances()}, arrays)
    return store.read(_SEEDS)


def _map(
    settings: StudySettings,
    data: Dataset,
    grid: int,
    seed: int,
    n_jobs: int | None,
    visible: bool,
    patience: int = _PATIENCE,
) -> dict[str, NDArray[Any]]:
    rows = paper_splits(_DATASET, random_state=seed, trials=_SHUFFLE + 1)[_SHUFFLE].train
    cut, end = round(0.81 * len(data.y)), round(0.81 * len(data.y)) + round(0.09 * len(data.y))
    table = Table.from_arrays(data.X, data.y)
    weights = np.linspace(0, 1, grid)
    pairs = [(float(first), float(second)) for first in weights for second in weights]
    plans = []
    for first, second in pairs:
        own = dataclasses.replace(settings, coverage_weight=first, point_weight=second)
        numbers = training_of(own, patience=patience)
        plans.append(Plan(seed, rows[:cut], validation=rows[cut:end], settings=numbers))
    program = dataclasses.replace(program_of(settings, data.X.shape[1]), refuse_crossing=True)
    with progress("sensitivity", len(plans) * settings.epochs, visible=visible) as report:
        bank = train_networks(program, table, plans, n_jobs=n_jobs, tries=1, report=report)
    maps = np.full((len(MEASURES), len(pairs)), np.nan, dtype=np.float32)
    if len(bank):
        maps[:, bank.numbers] = _measures(bank, data, rows[cut:end], settings.coverage)
    shaped = maps.reshape(len(MEASURES), grid, grid)
    return {"weights": weights, **dict(zip(MEASURES, shaped, strict=True))}


def _measures(
    bank: Bank, data: Dataset, rows: NDArray[np.int64], coverage: float
) -> NDArray[np.float64]:
    """Measures of each network on some rows, in the order of ``MEASURES``."""
    center, scale = data.y.mean(), data.y.std()
    target = (data.y[rows] - center) / scale
    fields = {name: (v - center) / scale for name, v in bank.predict(data.X[rows]).items()}
    found = np.empty((len(MEASURES), len(bank)))
    for i in range(len(bank)):
        prediction = TrialPrediction(*(fields[name][i] for name in ("point", "lower", "upper")))
        own = measure(prediction, target, coverage=coverage)
        found[:, i] = [own[name] for name in MEASURES]
    return found


def failures_markdown(store: ResultStore) -> str | None:
    """The table of the fractions of failed trainings by weight, for the maps in the store."""
    names = [name for name in store.names("figures") if "sensitivity-xi" in name]
    if not names:
        return None
    rows = []
    for name in names:
        entry = store.read(name)
        failed, weights = np.isnan(entry.arrays["PICP"]), entry.arrays["weights"]
        penalty = entry.record["settings"]["crossing_weight"]
        for axis, weight in enumerate(("lambda_1", "lambda_2")):
            share = failed.mean(axis=1 - axis)
            texts = ["" if own is None else f"{100 * own:.0f}%" for own in _shares(share, weights)]
            rows.append([f"xi = {penalty:g}", weight, *texts, _end(share, weights)])
    if store.record(_SEEDS) is not None:
        entry = store.read(_SEEDS)
        for name, what in (("PICP", ""), (_LAST, ", last weights")):
            failed = np.isnan(entry.arrays[name]).mean(axis=2)
            by_seed = zip(*(_shares(own, entry.arrays["weights"]) for own in failed), strict=True)
            texts = [
                "" if None in own else f"{100 * min(own):.0f}% to {100 * max(own):.0f}%"
                for own in by_seed
            ]
            title = f"xi = 0, {len(failed)} other seeds and shuffles{what}"
            ends = ", ".join(_end(own, entry.arrays["weights"]) for own in failed)
            rows.append([title, "lambda_1", *texts, ends])
    bands = (f"{a:g} to {b:g}" for a, b in _BANDS)
    header = ["penalty", "weight", "all", *bands, "fewer than half from"]
    table = markdown_table(header, rows, 2)
    return "\n".join(["## Failed trainings of the maps, by weight", "", *table, ""])


def _shares(failed: NDArray[np.float64], weights: NDArray[np.float64]) -> list[Any]:
    """Fraction of failures over all, and in each band of a weight; None for an empty band."""
    weights = np.round(weights, 6)
    inside = [(weights >= a) & ((weights < b) | (b == 1)) for a, b in _BANDS]
    return [failed.mean(), *(failed[band].mean() if band.any() else None for band in inside)]


def _end(failed: NDArray[np.float64], weights: NDArray[np.float64]) -> str:
    """The weight above which fewer than half of the trainings fail."""
    first = int(np.flatnonzero(failed >= 0.5).max(initial=-1)) + 1
    return f"{weights[first]:.4g}" if first < len(weights) else "none"
