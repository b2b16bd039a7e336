"""Losses of mixtures, against the mixtures' own formulas, and the rules that all losses share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp

from calipers import losses
from calipers.distributions import SplitNormal, SplitNormalMixture

LOSSES = [losses.mixture_nll, losses.mixture_crps]


def components(rng, count, rows):
    share = rng.dirichlet(np.ones(count), rows).T
    mean, scale = rng.normal(size=(count, rows)) * 2, 10 ** rng.uniform(-2, 1, (count, rows))
    return share, mean, scale, rng.normal(size=rows) * 2


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_they_are_the_scores_of_the_mixture(count):
    share, mean, scale, target = components(np.random.default_rng(count), count, 300)
    mixture = SplitNormalMixture(SplitNormal(mean, scale, scale), share)
    crps = losses.mixture_crps(share, mean, scale, target)
    nll = losses.mixture_nll(share, mean, scale, target) + np.log(2 * np.pi) / 2
    assert crps == pytest.approx(mixture.crps(target).mean(), rel=1e-10)
    assert nll == pytest.approx(-mixture.logpdf(target).mean(), rel=1e-10)


def test_one_component_is_a_normal():
    share, mean, scale, target = components(np.random.default_rng(0), 1, 50)
    nll = losses.normal_nll(mean[0], scale[0], target)
    crps = losses.split_normal_crps(mean[0], scale[0], scale[0], target)
    assert losses.mixture_nll(share, mean, scale, target) == pytest.approx(nll, rel=1e-12)
    assert losses.mixture_crps(share, mean, scale, target) == pytest.approx(crps, rel=1e-12)


@given(arrays(float, (3, 4), elements=st.floats(-50, 50)), st.floats(0.01, 10))
def test_order_of_components_and_parts_of_one_do_not_matter(mean, scale):
    share = np.array([[0.5], [0.3], [0.2]]) + np.zeros((3, 4))
    target, scales = np.zeros(4), np.full((3, 4), scale)
    for loss in LOSSES:
        found = loss(share, mean, scales, target)
        turned = loss(share[::-1], mean[::-1], scales, target)
        assert found == pytest.approx(turned, rel=1e-9, abs=1e-9)
        halves = [np.repeat(a, 2, axis=0) for a in (share / 2, mean, scales)]
        assert found == pytest.approx(loss(*halves, target), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_in_single_precision(loss):
    given = [jnp.asarray(a, jnp.float32) for a in components(np.random.default_rng(1), 3, 64)]
    value, slopes = jax.value_and_grad(loss, argnums=(0, 1, 2))(*given)
    double = [np.asarray(a, np.float64) for a in given]
    assert value == pytest.approx(float(loss(*double)), rel=1e-4)
    for number, slope in enumerate(slopes):
        moved = [np.array(a) for a in double]
        step = 1e-6 * np.maximum(np.abs(moved[number]), 1e-2)
        moved[number][1] += step[1]
        change = (loss(*moved) - loss(*double)) / 1.0
        expected = float(np.sum(np.asarray(slope, np.float64)[1] * step[1]))
        assert change == pytest.approx(expected, rel=0.02, abs=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_without_weight_leave_no_trace(loss):
    given = [jnp.asarray(a) for a in components(np.random.default_rng(2), 2, 6)]
    weight = jnp.array([1.0, 2.0, 0.0, 1.0, 0.0, 1.0])
    spoilt = [a.at[..., 2].set(jnp.nan) for a in given]

    def weighted(*arrays):
        return loss(*arrays, weight=weight)

    value, slopes = jax.value_and_grad(weighted, argnums=(0, 1, 2, 3))(*spoilt)
    assert value == pytest.approx(float(weighted(*given)), rel=1e-6)
    assert all(bool(jnp.all(slope[..., 2] == 0)) for slope in slopes)
    assert loss(*given, weight=jnp.zeros(6)) == 0


def test_far_targets_have_a_finite_likelihood():
    share, mean, scale = np.full((2, 1), 0.5), np.array([[0.0], [1.0]]), np.ones((2, 1))
    found = losses.mixture_nll(share, mean, scale, np.array([1e3]))
    assert found == pytest.approx(-logsumexp([-(1e3**2) / 2, -(999.0**2) / 2]) + np.log(2))


@pytest.mark.parametrize("loss", LOSSES)
def test_shapes_must_fit(loss):
    share, mean, scale, target = components(np.random.default_rng(3), 2, 6)
    with pytest.raises(ValueError, match="shape"):
        loss(share[:1], mean, scale, target)
    with pytest.raises(ValueError, match="shape"):
        loss(share, mean, scale, target[:5])
