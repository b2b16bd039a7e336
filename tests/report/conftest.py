"""A small model of a table with every kind of input, and reports on it."""

import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor
from calipers.networks import MLP
from calipers.preprocessing import TableEncoder

EVIL = "<script>alert('evil')</script>"


def make_table(rows, seed):
    """A table with noise that depends on an input, and malicious names."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.gamma(4, 25, rows).round(1),
            EVIL: rng.choice(["Oslo", "Bergen", EVIL], rows, p=[0.6, 0.3, 0.1]),
            "garden": rng.random(rows) < 0.3,
            "sold": pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 2000, rows), "D"),
            "energy": rng.normal(120, 30, rows),
        }
    )
    frame.loc[rng.random(rows) < 0.1, "energy"] = np.nan
    noise = np.where(frame[EVIL] == "Oslo", 60, 20)
    target = 8 * frame["area"] + rng.normal(0, 1, rows) * noise
    return frame, pd.Series(target, name=f"price & {EVIL}")


@pytest.fixture(scope="session")
def model():
    """A model fitted for seconds to an unprepared frame."""
    small = IntervalRegressor(
        preprocessor=TableEncoder(),
        coverage=0.9,
        n_networks=4,
        cv=2,
        network=MLP(hidden_layers=(16,), frequencies=0),
        epochs=30,
        random_state=0,
        n_jobs=1,
        verbose=0,
    )
    return small.fit(*make_table(600, 0))


@pytest.fixture(scope="session")
def page(model, tmp_path_factory):
    """Path of a report in which one group falls short and some rows are far from training."""
    frame, target = make_table(2000, 1)
    bergen = (frame[EVIL] == "Bergen").to_numpy()
    target = target + np.where(bergen, np.random.default_rng(2).normal(0, 120, 2000), 0)
    frame.loc[::200, "area"] = 1000.0
    path = tmp_path_factory.mktemp("report") / "report.html"
    return model.report(frame, target, path, source="flats.csv")
