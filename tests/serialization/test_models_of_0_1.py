"""Models that version 0.1 wrote load, and predict what they predicted there."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calipers import IntervalRegressor

FOLDER = Path(__file__).parents[1] / "data" / "model-0.1"
EXPECTED = dict(np.load(FOLDER / "expected.npz"))
MODELS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
WITHOUT_QUANTILES = {"sem"}  # bounds alone: no distribution


def rows_of(name):
    """The first rows of the table that a model was fitted to."""
    if name == "many":  # categories, most of them rare; free text; amounts written 12,345.00
        return pd.read_csv(FOLDER / "rows-many.csv", parse_dates=["when"])
    if name == "table":
        return pd.read_csv(FOLDER / "rows.csv", parse_dates=["day"])[:20]
    return np.random.default_rng(0).uniform(-2, 2, (200, 3))[:20]


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return IntervalRegressor.load(FOLDER / name)


def assert_as_before(found, name):
    """Equal up to what processors differ in: they round sums of single precision their own way."""
    scale = np.ptp(EXPECTED[f"{name.partition('.')[0]}.point"])
    np.testing.assert_allclose(found, EXPECTED[name], rtol=1e-6, atol=1e-6 * scale)


def test_points(name, model):
    assert_as_before(model.predict(rows_of(name)), f"{name}.point")


def test_intervals(name, model):
    assert_as_before(model.predict_interval(rows_of(name)), f"{name}.interval")


def test_quantiles(name, model):
    if name in WITHOUT_QUANTILES:
        with pytest.raises(ValueError, match="quantiles is not available"):
            model.predict_quantiles(rows_of(name), [0.1, 0.5, 0.9])
    else:
        found = model.predict_quantiles(rows_of(name), [0.1, 0.5, 0.9])
        assert_as_before(found, f"{name}.quantiles")


def test_all_models_are_here():
    assert {name.partition(".")[0] for name in EXPECTED} == set(MODELS)
    assert len(MODELS) == 7
