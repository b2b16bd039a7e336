"""The toy problem of the paper's first figure, trained as in the paper."""

from dataclasses import replace

import numpy as np

from calipers.bank import Plan, Table, spawn_seeds
from calipers.datasets import TOY
from calipers_study.attempts import train_networks
from calipers_study.settings import StudySettings, settings_record
from calipers_study.store import ResultStore, StoreEntry, circumstances
from calipers_study.translation import program_of, training_of

NAME = "figures/toy"
"""Name of its entry in the store."""

SETTINGS = StudySettings(
    loss="qd+",
    hidden_layers=(50,),
    members=5,
    trials=1,
    batch_size=50,
    epochs=5000,
    learning_rate=0.001,
    coverage_weight=0.99,
    point_weight=0.3,
    crossing_weight=10.0,
)
"""The paper's settings."""

_TRAIN, _VALID = 1000, 250


def toy(
    store: ResultStore,
    *,
    settings: StudySettings = SETTINGS,
    patience: int = 500,
    seed: int = 0,
    n_jobs: int | None = -1,
) -> StoreEntry:
    """The toy ensemble, from the store or newly trained.

    Parameters
    ----------
    store : ResultStore
        The store of the result.
    settings : StudySettings
        Settings of the training.
    patience : int
        Epochs without progress on the validation rows after which training stops.
    seed : int
        Seed of data and networks.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    StoreEntry
        Arrays ``inputs`` and ``targets`` (training rows), ``x``, and each member's ``lower``,
        ``point`` and ``upper`` at ``x``.
    """
    expected = {"seed": seed, "patience": patience, "settings": settings_record(settings)}
    record = store.record(NAME)
    if record is None or any(record.get(key) != value for key, value in expected.items()):
        arrays = _train(settings, patience, seed, n_jobs)
        store.write(NAME, {**expected, **circumstances()}, arrays)
    return store.read(NAME)


def _train(
    settings: StudySettings, patience: int, seed: int, n_jobs: int | None
) -> dict[str, np.ndarray]:
    X, y = TOY.sample(_TRAIN + _VALID, random_state=seed)
    rows = np.arange(len(y))
    numbers = training_of(settings, patience=patience)
    plans = [
        Plan(number, rows[:_TRAIN], validation=rows[_TRAIN:], settings=numbers)
        for number in spawn_seeds(seed, settings.members)
    ]
    program = replace(program_of(settings, 1), refuse_crossing=True)
    bank = train_networks(program, Table.from_arrays(X, y), plans, n_jobs=n_jobs)
    x = np.linspace(-6, 6, 601)
    return {"inputs": X[:_TRAIN, 0], "targets": y[:_TRAIN], "x": x, **bank.predict(x[:, None])}
