"""A small table, a model fitted to it once, and a way to run commands in a folder."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from calipers import IntervalRegressor
from calipers.cli import app
from calipers.networks import MLP
from calipers.optimizers import Adam
from calipers.preprocessing import TableEncoder

TINY = {
    "loss": "interval score",
    "n_networks": 2,
    "cv": 2,
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "epochs": 20,
    "optimizer": Adam(averaging=0.0),
    "patience": None,
}


@pytest.fixture(scope="session")
def flats():
    """Sixty rows with every kind of column."""
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame(
        {
            "number": np.arange(1, n + 1),
            "size": rng.uniform(20, 120, n).round(1),
            "kind": rng.choice(["flat", "house", "loft"], n),
            "garden": rng.random(n) > 0.5,
            "sold": pd.date_range("2024-01-01", periods=n).astype(str),
            "country": "NO",
        }
    )
    frame["price"] = (3 * frame["size"] + rng.normal(0, 10, n)).round(2)
    return frame


@pytest.fixture(scope="session")
def fitted(flats):
    """A model of the flats."""
    model = IntervalRegressor(**TINY, preprocessor=TableEncoder(), random_state=0)
    return model.fit(flats.drop(columns="price"), flats["price"])


@pytest.fixture(scope="session")
def saved(fitted, tmp_path_factory):
    """Its folder."""
    folder = tmp_path_factory.mktemp("models") / "model"
    fitted.save(folder)
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here):
    """Run a command in that folder."""
    runner = CliRunner()

    def invoke(*arguments, **rest):
        return runner.invoke(app, [str(argument) for argument in arguments], **rest)

    return invoke
