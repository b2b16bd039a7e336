"""Model folders of version 0.1 load, and predict what version 0.1 predicted, to the bit."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calipers import load

FOLDERS = Path(__file__).parent / "data" / "model-0.1"
ROWS = pd.read_csv(FOLDERS / "rows.csv")
EXPECTED = np.load(FOLDERS / "expected.npz")
NAMES = sorted({name.partition(".")[0] for name in EXPECTED})


@pytest.mark.parametrize("name", NAMES)
def test_models_of_version_0_1_predict_the_same_bits(name):
    model = load(FOLDERS / name)
    rows, known = ROWS, np.ones(len(ROWS), bool)
    if name != "table":  # whose models saw a number that is missing in the table
        rows = ROWS[["a", "b", "c"]].fillna(0.0).to_numpy()
        known = ROWS["a"].notna().to_numpy()
    found = {"point": model.predict(rows), "interval": model.predict_interval(rows)}
    if f"{name}.quantiles" in EXPECTED:
        found["quantiles"] = model.predict_quantiles(rows, QUANTILES)
    for part, values in found.items():
        np.testing.assert_array_equal(values[known], EXPECTED[f"{name}.{part}"][known], part)


QUANTILES = [0.1, 0.5, 0.9]
