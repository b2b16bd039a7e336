import numpy as np
import pytest

from calipers.bank import Program, Table
from calipers.networks import DenseFactory
from calipers.objectives import LOSSES


@pytest.fixture(scope="session")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(5, 3, (230, 2))
    return Table.from_arrays(x, np.sin(x[:, 0]) + x[:, 1] + rng.normal(0, 0.1, 230))


@pytest.fixture(scope="session")
def program():
    return Program(DenseFactory((8,)), LOSSES["qd+"], in_size=2, batch_size=50)
