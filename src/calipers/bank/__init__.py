"""Banks: any number of networks over shared rows, trained by one compiled program.

Ensemble members, trials of a study, folds of a cross-validation and candidates of a search are all
networks that differ in seed, rows and a few hyperparameters. A ``Program`` holds what they have in
common, a ``Plan`` what distinguishes each, and a ``Table`` the rows (``Shards``, if those do not
fit in memory); ``train`` returns a ``Bank``. ``Upgraded`` is a bank that predicts intervals around
point predictions of another model.

Examples
--------
>>> import numpy as np
>>> from calipers.bank import Plan, Program, Settings, Table, train
>>> from calipers.networks import DenseFactory
>>> from calipers.objectives import LOSSES
>>> x = np.linspace(-1, 1, 200)[:, None]
>>> table = Table.from_arrays(x, x[:, 0] ** 2)
>>> program = Program(DenseFactory((20,)), LOSSES["mse"], in_size=1)
>>> plans = [Plan(seed, np.arange(200), settings=Settings(epochs=200)) for seed in range(3)]
>>> bank = train(program, table, plans)
>>> points = bank.predict(np.array([[0.5]]))["point"]
>>> points.shape
(3, 1)
>>> bool(abs(points - 0.25).max() < 0.1)
True
"""

from calipers.bank._bank import Bank
from calipers.bank._lanes import MEASURES, SCHEDULES, Scaling, Settings
from calipers.bank._program import Program
from calipers.bank._run import HISTORY_TYPE as HISTORY_TYPE, History
from calipers.bank._shards import Shards as Shards, ShardWriter as ShardWriter
from calipers.bank._shared_rows import Plan, Table, padded as padded, scaled_inputs as scaled_inputs
from calipers.bank._train import TrainingFailedError, sizes_of as sizes_of, spawn_seeds, train
from calipers.bank._upgraded import (
    BankPoints as BankPoints,
    ColumnPoints as ColumnPoints,
    Points as Points,
    Upgraded as Upgraded,
    around_zero as around_zero,
    error_table as error_table,
)

__all__ = [
    "MEASURES",
    "SCHEDULES",
    "Bank",
    "History",
    "Plan",
    "Program",
    "Scaling",
    "Settings",
    "Table",
    "TrainingFailedError",
    "spawn_seeds",
    "train",
]
