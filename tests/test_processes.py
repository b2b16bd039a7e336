"""Fitting and predicting in the environments and processes that users have."""

import os
import subprocess
import sys
from collections import OrderedDict

import jax
import numpy as np
import pytest

from calipers.bank import _cache

FIT = """
import numpy as np
from calipers import IntervalRegressor
from calipers.networks import MLP
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
small = {"n_networks": 2, "cv": 2, "network": MLP(hidden_layers=(8,), frequencies=0), "epochs": 5}
model = IntervalRegressor(random_state=0, **small).fit(X, X[:, 0])
"""


def run(script):
    """What a script prints; a hang is an error."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fitted():
    """The model of ``FIT`` and its rows, made in this process."""
    exec(FIT, names := {})
    return names["model"], names["X"]


@pytest.fixture
def double_precision(monkeypatch):
    """JAX as ``JAX_ENABLE_X64=1`` has it, and no program that was compiled without."""
    monkeypatch.setattr(_cache, "_compiled", OrderedDict())
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def test_double_precision_of_jax_changes_nothing(request):
    model, X = fitted()
    request.getfixturevalue("double_precision")
    again = fitted()[0]
    assert jax.numpy.zeros(1).dtype == np.float64
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


@pytest.mark.long
@fork
def test_forks_can_predict_but_not_fit_after_a_fit(tmp_path):
    path = str(tmp_path / "model")
    fitted()[0].save(path)
    script = f"""
import multiprocessing
import calipers
forks = multiprocessing.get_context("fork")
loaded = calipers.load({path!r})
with forks.Pool(2) as pool:  # before any computation
    print(sum(len(points) for points in pool.map(loaded.predict, [[[0.0, 1.0]]] * 4)))
{FIT}
expected = model.predict(X)
with forks.Pool(2) as pool:
    assert all((found == expected).all() for found in pool.map(model.predict, [X, X]))
with forks.Pool(1) as pool:
    try:
        pool.apply(model.fit, (X, X[:, 0]))
    except RuntimeError as error:
        print(error)
assert (model.predict(X) == expected).all()  # nothing has changed here
"""
    count, sentence = run(script).splitlines()
    assert count == "4"
    assert "get_context('spawn') or 'forkserver', or let joblib start them" in sentence
