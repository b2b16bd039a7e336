"""The toy problem of the paper's first figure, trained as the paper trained it."""

import numpy as np

from calipers.bank import Plan, Program, Settings, Table, spawn_seeds, train
from calipers.datasets import TOY
from calipers.networks import MLP
from calipers.objectives import LOSSES, LossSettings
from calipers.study._store import Entry, Store, circumstances

NAME = "figures/toy"
"""Where the store keeps it."""

_TRAIN, _VALID, _MEMBERS = 1000, 250, 5
_LOSS = LossSettings(coverage_weight=0.99, point_weight=0.3, crossing_weight=10.0)
_SETTINGS = Settings(learning_rate=0.001, epochs=5000, patience=500, loss=_LOSS)


def toy(
    store: Store, *, settings: Settings = _SETTINGS, seed: int = 0, n_jobs: int | None = -1
) -> Entry:
    """Train the toy ensemble, or find it in the store.

    Parameters
    ----------
    store : Store
        Where the result is kept.
    settings : Settings
        Numbers of the training: by default one hidden layer of 50, rate 0.001, and early stopping
        after 500 epochs without progress, at the latest after 5000.
    seed : int
        Seeds data and networks.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    Entry
        Arrays ``inputs`` and ``targets`` (training rows), ``x``, and each member's ``lower``,
        ``point`` and ``upper`` at ``x``.
    """
    wanted = {"seed": seed, "settings": _plain(settings)}
    found = store.record(NAME)
    if found is None or any(found[key] != value for key, value in wanted.items()):
        store.write(NAME, {**wanted, **circumstances()}, _train(settings, seed, n_jobs))
    return store.read(NAME)


def _train(settings: Settings, seed: int, n_jobs: int | None) -> dict[str, np.ndarray]:
    X, y = TOY.sample(_TRAIN + _VALID, random_state=seed)
    rows = np.arange(len(y))
    program = Program(MLP((50,)), LOSSES["qd+"], in_size=1, batch_size=50)
    plans = [
        Plan(number, rows[:_TRAIN], validation=rows[_TRAIN:], settings=settings)
        for number in spawn_seeds(seed, _MEMBERS)
    ]
    bank = train(program, Table.from_arrays(X, y), plans, n_jobs=n_jobs)
    x = np.linspace(-6, 6, 601)
    return {"inputs": X[:_TRAIN, 0], "targets": y[:_TRAIN], "x": x, **bank.predict(x[:, None])}


def _plain(settings: Settings) -> dict[str, object]:
    """Settings as numbers that JSON can hold; no clipping is an infinite norm there."""
    values = settings._asdict() | {"clip_norm": str(settings.clip_norm)}
    return values | {"loss": settings.loss._asdict()}
