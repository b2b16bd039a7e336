"""The estimated value of more rows, compared with the real one."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from calipers import IntervalRegressor
from calipers.cli import app
from calipers.more_rows import worth_of_more_rows
from calipers.networks import MLP
from calipers.optimizers import Adam

TINY = {
    "coverage": 0.9,
    "n_networks": 4,
    "cv": 4,
    "network": MLP(hidden_layers=(32,), frequencies=4),
    "epochs": 60,
    "patience": None,
    "batch_size": 32,
    "optimizer": Adam(learning_rate=0.01, averaging=0.0),
    "random_state": 0,
    "verbose": 0,
}


def sine_rows(rows, seed):
    """A dependence that takes many rows to learn, and little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 3))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + rng.normal(0, 0.05, rows)


def noise(rows, seed):
    """Targets that are pure noise."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 3)), rng.normal(size=rows)


@pytest.mark.long
def test_what_helped_before_helps_again():
    X, y = sine_rows(400, 0)
    model = IntervalRegressor(**TINY).fit(X, y)
    found = worth_of_more_rows(model, X, y)
    assert found.width_range[1] < 0.95
    more = IntervalRegressor(**TINY).fit(*sine_rows(800, 1))
    X_test, _ = sine_rows(2000, 2)
    widths = [np.ptp(m.predict_interval(X_test), axis=1).mean() for m in (model, more)]
    assert found.width - 0.1 < widths[1] / widths[0] < 0.9  # learning curves level off
    assert "narrower" in str(found)
    assert "from 800" in str(found)


def test_noise_does_not_shrink_with_more_rows():
    X, y = noise(400, 0)
    found = worth_of_more_rows(IntervalRegressor(**TINY).fit(X, y), X, y)
    assert found.width > 0.85


def test_groups_are_not_parted_and_other_rows_refused():
    X, y = noise(120, 0)
    groups = np.arange(120) // 6
    model = IntervalRegressor(**TINY | {"epochs": 2}).fit(X, y, groups=groups)
    assert worth_of_more_rows(model, X, y, groups).rows == 120
    with pytest.raises(ValueError, match="the 120 rows that the model was fitted on, got 60"):
        worth_of_more_rows(model, X[:60], y[:60])


def test_the_command_prints_it_and_the_folder_keeps_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = noise(150, 0)
    pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y).to_csv("rows.csv", index=False)
    lines = ["n_networks = 4", "cv = 2", "epochs = 3", "[network]"]
    lines += ["hidden_layers = [8]", "frequencies = 0"]
    (tmp_path / "c.toml").write_text("\n".join(lines))
    fit = ["fit", "rows.csv", "--target", "y", "--out", "model", "--config", "c.toml"]
    found = CliRunner().invoke(app, [*fit, "--no-refit", "--more-rows", "--json"])
    assert found.exit_code == 0, found.output
    sentence = json.loads(found.stdout)["more_rows"]
    assert sentence.startswith("From 60 to 120 rows, 95% intervals")
    assert sentence in CliRunner().invoke(app, ["inspect", "model"]).stdout
