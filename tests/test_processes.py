"""Fitting and predicting under the settings and in the processes that users have."""

import os
import subprocess
import sys

import pytest

FIT = """
import numpy as np
from calipers import IntervalRegressor
from calipers.networks import MLP
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
small = {"n_networks": 2, "cv": 2, "network": MLP(hidden_layers=(8,), frequencies=0), "epochs": 5}
model = IntervalRegressor(random_state=0, **small).fit(X, X[:, 0])
"""


def run(script, **environment):
    """What a script prints; a hang is an error."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fitted():
    """The model of ``FIT`` and its rows, made in this process."""
    exec(FIT, names := {})
    return names["model"], names["X"]


def test_double_precision_of_jax_changes_nothing():
    model, X = fitted()
    script = FIT + "print(model.predict_interval(X).tobytes().hex())"
    found = run(script, JAX_ENABLE_X64="1").strip()
    assert found == model.predict_interval(X).tobytes().hex()


fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


@fork
def test_a_fork_after_a_fit_can_predict_but_not_fit():
    script = """
import multiprocessing
expected = model.predict(X)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all((found == expected).all() for found in pool.map(model.predict, [X, X]))
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        pool.apply(model.fit, (X, X[:, 0]))
    except RuntimeError as error:
        print(error)
assert (model.predict(X) == expected).all()  # nothing has changed here
"""
    (sentence,) = run(FIT + script).splitlines()
    assert "get_context('spawn') or 'forkserver', or let joblib start them" in sentence


@fork
def test_a_fork_before_any_computation_can_predict(tmp_path):
    path = str(tmp_path / "model")
    fitted()[0].save(path)
    script = f"""
import multiprocessing
import calipers
model = calipers.load({path!r})
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(sum(len(points) for points in pool.map(model.predict, [[[0.0, 1.0]]] * 4)))
"""
    assert run(script) == "4\n"
