"""Sensitivity of QD+ to its weights: one network for each pair of lambda_1 and lambda_2 on Yacht.

The whole grid is one bank. A training has failed, and its cell stays empty, when its loss is high,
when bounds cross on a training row, or when the point lies outside of the bounds on more than one
training row in twenty.
"""

import dataclasses
import os

import numpy as np
from numpy.typing import NDArray

from calipers.bank import Bank, Plan, Table, spawn_seeds, train
from calipers.datasets import Dataset, load
from calipers_study.measures import Prediction, measure
from calipers_study.progress import progress
from calipers_study.settings import StudySettings, load_settings, settings_record
from calipers_study.splits import paper_splits
from calipers_study.store import Store, StoreEntry, circumstances
from calipers_study.translation import program_of, training_of

MEASURES = ("PICP", "NMPIW", "MSE")
"""What the maps show."""

_DATASET = "yacht"
_MOST_OUTSIDE = 0.05  # share of training rows whose point may lie outside of its bounds


def sensitivity(
    store: Store,
    crossing_weight: float,
    *,
    grid: int = 41,
    seed: int = 0,
    settings: StudySettings | None = None,
    folder: str | os.PathLike[str] | None = None,
    verify: bool = True,
    n_jobs: int | None = -1,
    visible: bool = True,
) -> StoreEntry:
    """Measures over the grid, trained or found in the store.

    Parameters
    ----------
    store : Store
        Where the result is kept.
    crossing_weight : float
        Weight of the penalty (xi), the same for all networks.
    grid : int
        Values of each weight, from 0 to 1.
    seed : int
        Seeds the shuffle and the networks.
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
        Arrays ``weights`` of shape (grid,) and ``PICP``, ``NMPIW`` and ``MSE`` of shape
        (grid, grid): lambda_1 along the first axis, lambda_2 along the second, NaN for failures.
    """
    settings = settings or load_settings("qd+", _DATASET)
    settings = dataclasses.replace(settings, crossing_weight=crossing_weight)
    name = f"figures/sensitivity-xi-{crossing_weight:g}-grid-{grid}"
    wanted = {"seed": seed, "settings": settings_record(settings)}
    found = store.record(name)
    if found is None or any(found[key] != value for key, value in wanted.items()):
        data = load(_DATASET, folder=folder, verify=verify)
        arrays = _map(settings, data, grid, seed, n_jobs, visible)
        store.write(name, {**wanted, **circumstances()}, arrays)
    return store.read(name)


def _map(
    settings: StudySettings,
    data: Dataset,
    grid: int,
    seed: int,
    n_jobs: int | None,
    visible: bool,
) -> dict[str, NDArray[np.float64]]:
    split = paper_splits(_DATASET, random_state=seed, trials=1)[0]
    table = Table.from_arrays(data.X, data.y)
    weights = np.linspace(0, 1, grid)
    pairs = [(float(first), float(second)) for first in weights for second in weights]
    seeds = spawn_seeds((seed, grid), len(pairs))
    plans = []
    for number, (first, second) in zip(seeds, pairs, strict=True):
        own = dataclasses.replace(settings, coverage_weight=first, point_weight=second)
        plans.append(Plan(number, split.train, settings=training_of(own)))
    program = program_of(settings, data.X.shape[1])
    with progress("sensitivity", len(plans) * settings.epochs, visible=visible) as report:
        bank = train(program, table, plans, n_jobs=n_jobs, retries=0, needed=0, report=report)
    bank = bank[_sound(bank, data.X[split.train])] if len(bank) else bank
    maps = np.full((len(MEASURES), len(pairs)), np.nan)
    if len(bank):
        maps[:, bank.numbers] = _measures(bank, data, split.test, settings.coverage)
    shaped = maps.reshape(len(MEASURES), grid, grid)
    return {"weights": weights, **dict(zip(MEASURES, shaped, strict=True))}


def _sound(bank: Bank, X: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which networks keep their points between their bounds on training rows."""
    fields = bank.predict(X)
    outside = (fields["point"] < fields["lower"]) | (fields["point"] > fields["upper"])
    return np.asarray(outside.mean(axis=1) <= _MOST_OUTSIDE)


def _measures(
    bank: Bank, data: Dataset, rows: NDArray[np.int64], coverage: float
) -> NDArray[np.float64]:
    """Measures of each network on test rows, in the order of ``MEASURES``."""
    center, scale = data.y.mean(), data.y.std()
    target = (data.y[rows] - center) / scale
    extent = float(np.ptp(data.y) / scale)
    fields = {name: (v - center) / scale for name, v in bank.predict(data.X[rows]).items()}
    found = np.empty((len(MEASURES), len(bank)))
    for i in range(len(bank)):
        prediction = Prediction(*(fields[name][i] for name in ("point", "lower", "upper")))
        own = measure(prediction, target, coverage=coverage)
        found[:, i] = own["PICP"], own["MPIW"] / extent, own["MSE"]
    return found
