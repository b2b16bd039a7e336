"""PyTorch gives every loss the values and gradients that NumPy and JAX give it."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calipers import losses

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

OPTIONS = {
    "pinball": {"quantile": 0.3},
    "qd": {"softness": 3.0, "target_range": 2.0},
    "qd_paper": {"softness": 3.0, "target_range": 2.0},
    "qd_plus": {"softness": 3.0, "target_range": 2.0},
    "soft_capture": {"softness": 3.0},
}
CAPTURES = ("hard_capture", "soft_capture")
MIXTURES = ("mixture_crps", "mixture_nll")  # take components along a first axis
ROW_LOSSES = [name for name in losses.__all__ if name not in MIXTURES]
MEANS = [name for name in ROW_LOSSES if name not in CAPTURES]


def data(name, rows=12):
    """Random rows, good for any argument: positive as scales are, some targets captured."""
    parameters = inspect.signature(getattr(losses, name)).parameters.values()
    n_arrays = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    rng = np.random.default_rng(0)
    if name in MIXTURES:
        *components, target = rng.uniform(0.1, 1.0, (n_arrays, 2, rows))
        return [*components, target[0]]
    return list(rng.uniform(0.1, 1.0, (n_arrays, rows)))


def total(name, **options):
    function = getattr(losses, name)

    def loss(*arrays):
        return function(*arrays, **{**OPTIONS.get(name, {}), **options}).sum()

    return loss


def torch_value_and_gradient(loss, arrays, dtype):
    tensors = [torch.tensor(array, dtype=dtype, requires_grad=True) for array in arrays]
    value = loss(*tensors)
    if value.requires_grad:
        value.backward()
    zeros = np.zeros_like(arrays[0])
    return value.detach(), [zeros if t.grad is None else t.grad.numpy() for t in tensors]


def jax_value_and_gradient(loss, arrays):
    function = jax.value_and_grad(loss, argnums=tuple(range(len(arrays))))
    return jax.jit(function)(*(jnp.asarray(array) for array in arrays))


def weighted(name, kind):
    """The loss with weights that count, mask or are absent."""
    if name in CAPTURES or kind is None:
        return [total(name)] * 3
    weight = {"counts": np.arange(12.0), "mask": np.arange(12) < 9}[kind]
    return [
        total(name, weight=as_array(weight)) for as_array in (np.asarray, jnp.asarray, torch.tensor)
    ]


@pytest.mark.parametrize("name", losses.__all__)
@pytest.mark.parametrize("kind", [None, "counts", "mask"])
def test_three_libraries_agree(name, kind):
    arrays = data(name)
    with_numpy, with_jax, with_torch = weighted(name, kind)
    exact = with_numpy(*arrays)
    double, double_slope = torch_value_and_gradient(with_torch, arrays, torch.float64)
    single, single_slope = torch_value_and_gradient(with_torch, arrays, torch.float32)
    traced, traced_slope = jax_value_and_gradient(with_jax, arrays)

    assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    assert float(double) == pytest.approx(exact, rel=1e-13)
    assert float(single) == pytest.approx(exact, rel=1e-5)
    assert float(traced) == pytest.approx(exact, rel=1e-5)
    for found in (single_slope, traced_slope):
        for mine, expected in zip(found, double_slope, strict=True):
            np.testing.assert_allclose(mine, expected, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_gradients_agree_at_ties(name):
    arrays = [np.ones(3) for _ in data(name)]
    _, found = torch_value_and_gradient(total(name), arrays, torch.float32)
    _, expected = jax_value_and_gradient(total(name), arrays)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ROW_LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_stay_finite_far_away(name, dtype):
    *rest, target = data(name, rows=6)
    far = target + np.array([-1e9, -1e6, -1e4 / 160, 1e4 / 160, 1e6, 1e9])
    soft = {key: 160.0 for key in OPTIONS.get(name, {}) if key == "softness"}
    value, slope = torch_value_and_gradient(total(name, **soft), [*rest, far], dtype)
    assert torch.isfinite(value)
    assert all(np.isfinite(part).all() for part in slope)


@pytest.mark.parametrize("name", MEANS)
def test_rows_without_weight_leave_no_trace(name):
    clean = data(name)
    wild = [np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0]
    padded = [np.concatenate([array, wild]) for array in clean]
    mask = torch.arange(18) < 12
    value, slope = torch_value_and_gradient(total(name, weight=mask), padded, torch.float32)
    expected, expected_slope = torch_value_and_gradient(total(name), clean, torch.float32)
    torch.testing.assert_close(value, expected)
    for mine, theirs in zip(slope, expected_slope, strict=True):
        np.testing.assert_allclose(mine[:12], theirs, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(mine[12:], 0)


@pytest.mark.parametrize("name", MEANS)
def test_no_weight_at_all_gives_zero(name):
    arrays = [np.full(3, np.nan) for _ in data(name)]
    loss = total(name, weight=torch.zeros(3))
    value, slope = torch_value_and_gradient(loss, arrays, torch.float32)
    assert value == 0
    assert all((part == 0).all() for part in slope)


def test_options_may_be_tensors():
    arrays = [torch.tensor(array) for array in data("qd_plus")]
    options = {"coverage": 0.8, "coverage_weight": 0.6, "point_weight": 0.3, "softness": 5.0}
    tensors = {key: torch.tensor(value) for key, value in options.items()}
    torch.testing.assert_close(
        losses.qd_plus(*arrays, **tensors), losses.qd_plus(*arrays, **options), rtol=1e-6, atol=0
    )


def test_libraries_do_not_mix():
    with pytest.raises(TypeError, match="Multiple namespaces"):
        losses.squared_error(np.ones(2), torch.ones(2))
