"""What an installation must be able to do, tried without the source tree.

``python smoke.py FOLDER`` is given a folder of models that version 0.1 wrote.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes

import calipers
from calipers import IntervalRegressor, metrics
from calipers.networks import MLP


def fit_and_predict():
    """A small model has intervals that hold about what they promise, also once it is loaded."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    small = MLP(hidden_layers=(32,), frequencies=0)
    model = IntervalRegressor(coverage=0.9, n_networks=5, network=small, epochs=60, random_state=0)
    lower, upper = model.fit(X[:300], y[:300]).predict_interval(X[300:]).T
    rate = metrics.coverage_rate(y[300:], lower, upper)
    assert 0.75 < rate < 1, rate
    model.save("smoke-model")
    again = calipers.load("smoke-model")
    assert np.array_equal(again.predict_interval(X[300:])[:, 0], lower)
    page = again.report(X[300:], y[300:], "smoke.html")
    assert "intervals contained" in page.read_text("utf-8")
    return f"{rate:.0%} of 142 rows inside their 90% interval"


def command_line():
    """The commands of the README, on a small scale."""

    def call(*words):
        script = Path(sysconfig.get_path("scripts"), "calipers")
        subprocess.run([script, *words], check=True, stdout=subprocess.DEVNULL)

    call("datasets", "diabetes", "--out", "rows.csv")
    Path("small.toml").write_text("epochs = 20\nn_networks = 5\n", "utf-8")
    call("fit", "rows.csv", "--target", "progression", "--out", "model", "--config", "small.toml")
    call("predict", "model", "rows.csv", "--coverage", "0.5,0.9", "--out", "scored.csv")
    lines = Path("scored.csv").read_text("utf-8").splitlines()
    assert len(lines) == 443, len(lines)
    return f"columns of predictions: {lines[0]}"


def models_of_0_1(folder):
    """Models of version 0.1 load and predict what they predicted there."""
    expected = np.load(folder / "expected.npz")
    rows = np.random.default_rng(0).uniform(-2, 2, (200, 3))[:20]
    names = ("default", "conformal", "paper", "sem")
    for name in names:
        found = calipers.load(folder / name).predict_interval(rows)
        np.testing.assert_allclose(found, expected[f"{name}.interval"], rtol=1e-5, atol=1e-5)
    return f"models of 0.1: {', '.join(names)}"


if __name__ == "__main__":
    assert Path(sys.prefix) in Path(calipers.__file__).parents, calipers.__file__
    for text in (fit_and_predict(), command_line(), models_of_0_1(Path(sys.argv[1]))):
        sys.stdout.write(f"{text}\n")
