"""The trainings written a second time: losses are those of calipers, and networks learn."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calipers import losses
from calipers_study.attempts import TRIES
from calipers_study.jax_training import LATE, late_errors, standardised
from calipers_study.numpy_training import loss_and_slope, outputs, train_plainly
from calipers_study.settings import load_settings
from calipers_study.splits import Split


@pytest.mark.parametrize("crossed", [False, True])
def test_loss_and_slope_are_those_of_calipers(crossed):
    settings = load_settings("qd", "energy")
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2, 60))
    out = y[..., None] + np.array([-0.02, 0, 0.02]) + 0.02 * rng.normal(size=(2, 60, 3))
    if not crossed:
        out = np.sort(out, axis=-1)

    def loss_of(out, y):
        return losses.qd(out[:, 0], out[:, 2], y, coverage_weight=settings.coverage_weight)

    loss, slope = loss_and_slope(settings, out, y)
    for i in range(2):
        own, grad = jax.value_and_grad(loss_of)(jnp.asarray(out[i]), jnp.asarray(y[i]))
        assert loss[i] == pytest.approx(float(own), rel=1e-4)
        np.testing.assert_allclose(slope[i], grad, rtol=2e-3, atol=2e-4 * np.abs(grad).max())


def test_networks_learn_and_cover():
    settings = replace(load_settings("qd", "yacht"), epochs=150, hidden_layers=(10,), batch_size=50)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(220, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=220)
    layers, failures = train_plainly(settings, X, y, [1, 2])
    kept = outputs(layers, np.broadcast_to(X, (2, *X.shape)))[failures < TRIES]
    assert len(kept)
    assert 0.85 < ((kept[..., 0] < y) & (y < kept[..., 2])).mean() <= 1
    assert (kept[..., 2] - kept[..., 0]).mean() < 2


@pytest.mark.long
def test_points_learn():
    settings = replace(
        load_settings("mse", "yacht"), epochs=150, hidden_layers=(10,), batch_size=50
    )
    rng = np.random.default_rng(0)
    X = 3 + 2 * rng.normal(size=(220, 2))
    y = 5 * X[:, 0] + 1 + 0.5 * rng.normal(size=220)
    rows = rng.permutation(220)
    splits = [Split(rows[:170], rows[170:]), Split(rows[50:], rows[:50])]
    train, test, units = standardised(X, y, splits)
    errors = late_errors(settings, train, test, [[1, 2], [3, 4]])
    assert errors.shape == (2, LATE)
    np.testing.assert_allclose(units, [y[s.train].std() / y.std() for s in splits])
    first = np.array([np.mean(goal**2) for goal in test[1]])
    assert (errors[:, -1] < 0.02 * first).all()
    assert len(np.unique(errors[0])) > 50
