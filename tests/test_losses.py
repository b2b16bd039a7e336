"""Hand-computed numbers for each loss, then the same laws for every loss.

``tests/torch/test_losses.py`` holds PyTorch to the same values and gradients.
"""

import inspect
import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise
from math import exp, log, pi, sqrt
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from calipers import losses
from calipers.losses._rows import special_functions

# Six rows, by the name of the argument: bounds that capture, miss on either side and cross.
ROWS = {
    "lower": [-1.0, -0.6, 0.2, -2.0, 0.7, -0.1],
    "point": [0.1, -0.8, 0.5, -0.3, 0.4, 0.3],
    "upper": [0.9, 0.4, 1.1, -0.2, 0.3, 0.8],
    "target": [0.3, -1.1, 1.6, -0.9, 0.5, -0.2],
    "capture": [0.9, 0.1, 0.3, 0.8, 0.0, 0.4],
    "prediction": [0.1, -0.8, 1.9, -0.3, 0.4, 0.3],
    "mean": [0.1, -0.8, 0.5, -0.3, 0.4, 0.3],
    "scale": [0.5, 1.0, 0.7, 2.0, 0.3, 1.2],
    "loc": [0.1, -0.8, 0.5, -0.3, 0.4, 0.3],
    "left_scale": [0.5, 1.0, 0.7, 2.0, 0.3, 1.2],
    "right_scale": [1.5, 0.2, 0.9, 1.0, 0.8, 0.6],
}
WEIGHT = [2.0, 1.0, 0.0, 3.0, 1.0, 0.0]
# Soft enough for the gradients of the capture to be seen.
OPTIONS = {
    "pinball": {"quantile": 0.3},
    "qd": {"softness": 3.0, "target_range": 2.0},
    "qd_paper": {"softness": 3.0, "target_range": 2.0},
    "qd_plus": {"softness": 3.0, "target_range": 2.0},
    "soft_capture": {"softness": 3.0},
}
CAPTURES = ("hard_capture", "soft_capture")
MIXTURES = ("mixture_crps", "mixture_nll")  # have tests of their own
ROW_LOSSES = [name for name in losses.__all__ if name not in MIXTURES]
MEANS = [name for name in ROW_LOSSES if name not in CAPTURES]

needs_x64 = pytest.mark.skipif(not hasattr(jax, "enable_x64"), reason="no context for 64 bits")
PRECISIONS = ["float32", pytest.param("float64", marks=needs_x64)]


def arguments(name):
    parameters = inspect.signature(getattr(losses, name)).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def data(name, dtype="float64"):
    return [np.asarray(ROWS[argument], dtype) for argument in arguments(name)]


def total(name, **options):
    """The loss as one number per call, with its options filled in."""
    function = getattr(losses, name)

    def loss(*arrays):
        return function(*arrays, **{**OPTIONS.get(name, {}), **options}).sum()

    return loss


def value_and_gradient(loss, arrays):
    return jax.jit(jax.value_and_grad(loss, argnums=tuple(range(len(arrays)))))(*arrays)


def gradient(loss, arrays):
    return value_and_gradient(loss, arrays)[1]


def slopes(loss, arrays, step=1e-6):
    """Gradient by central differences."""
    result = [np.zeros_like(array) for array in arrays]
    for k, array in enumerate(arrays):
        for i in np.ndindex(array.shape):
            up, down = ([a.copy() for a in arrays] for _ in range(2))
            up[k][i] += step
            down[k][i] -= step
            result[k][i] = (loss(*up) - loss(*down)) / (2 * step)
    return result


def precision(dtype):
    return jax.enable_x64(True) if dtype == "float64" else nullcontext()


def tolerance(dtype):
    return {"float32": 2e-5, "float64": 1e-8}[dtype]


# Two rows: the first target in the middle of its interval, the second missed by 1. With softness
# log(3) the sigmoid of a distance d is 3^d / (3^d + 1), so the captures are 3/4 * 3/4 = 9/16 and
# 27/28 * 1/4 = 27/112, their sum is 45/56 and the soft coverage 45/112.
LOWER, POINT, UPPER = np.array([0.0, 0.0]), np.array([1.0, 2.5]), np.array([2.0, 2.0])
TARGET = np.array([1.0, 3.0])
SHORTFALL = (0.9 - 45 / 112) ** 2


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (losses.soft_capture(LOWER, UPPER, TARGET, softness=log(3)), [9 / 16, 27 / 112]),
        (losses.hard_capture(LOWER, UPPER, TARGET), [1, 0]),
        (losses.hard_capture(LOWER, LOWER, LOWER), [1, 1]),
        # widths 2 and 6
        (
            losses.captured_width(LOWER, np.array([2.0, 6.0]), np.array([0.5, 0.25])),
            (0.5 * 2 + 0.25 * 6) / (0.75 + 0.001),
        ),
        (losses.captured_width(LOWER, UPPER, np.zeros(2)), 0),
        (losses.coverage_shortfall(np.array([1.0, 0.5]), coverage=0.9), (0.9 - 0.75) ** 2),
        (losses.coverage_shortfall(np.array([1.0, 1.0]), coverage=0.9), 0),
        (losses.squared_error(POINT, TARGET), (0 + 0.25) / 2),
        # below by 1, above by 0.5
        (losses.crossing_penalty(np.array([2.0, 1.5]), POINT, UPPER), (1 + 0.5) / 2),
        # crossed bounds 3 and 2 around a point at 2.5
        (losses.crossing_penalty(UPPER + 1, UPPER + 0.5, UPPER), 0.5 + 0.5),
        (
            losses.qd_plus(
                LOWER,
                POINT,
                UPPER,
                TARGET,
                coverage=0.9,
                coverage_weight=0.8,
                point_weight=0.3,
                crossing_weight=10,
                softness=log(3),
                target_range=4,
            ),
            0.2 * 0.7 * (2 * 45 / 56) / (45 / 56 + 0.001) / 4
            + 0.8 * 0.7 * SHORTFALL
            + 0.3 * 0.125
            + 10 * 0.25,
        ),
        (
            losses.qd(LOWER, UPPER, TARGET, coverage=0.9, coverage_weight=5, softness=log(3)),
            2 / 1.001 + 5 * sqrt(2) * SHORTFALL,
        ),
        (
            losses.qd_paper(LOWER, UPPER, TARGET, coverage=0.9, coverage_weight=5, softness=log(3)),
            2 / 1.001 + 5 * 2 / (0.1 * 0.9) * SHORTFALL,
        ),
        # z = 3 / 0.5 and -2 / 2
        (
            losses.normal_nll(np.zeros(2), np.array([0.5, 2.0]), np.array([3.0, -2.0])),
            (log(0.5) + 18 + log(2) + 0.5) / 2,
        ),
        # z = 3 / 1 on the right, -2 / 4 on the left; the scales sum to 5
        (
            losses.split_normal_nll(
                np.zeros(2), np.full(2, 4.0), np.ones(2), np.array([3.0, -2.0])
            ),
            log(2.5) + (4.5 + 0.125) / 2,
        ),
        # a standard normal at 1: z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)
        (
            losses.split_normal_crps(np.zeros(1), np.ones(1), np.ones(1), np.ones(1)),
            0.682689492137086 + 2 * exp(-0.5) / sqrt(2 * pi) - 1 / sqrt(pi),
        ),
        # at the mode, scales 1 and 3: (1 + 27) / 16 times 2 (sqrt(2) - 1) / sqrt(pi)
        (
            losses.split_normal_crps(np.zeros(1), np.ones(1), np.full(1, 3.0), np.zeros(1)),
            1.75 * 2 * (sqrt(2) - 1) / sqrt(pi),
        ),
        # width 2 each, the second missed by 1 at 2 / 0.1 per unit
        (losses.interval_score(LOWER, UPPER, TARGET, coverage=0.9), 2 + 20 / 2),
        # below by 1 at 0.8, above by 2 at 0.2
        (
            losses.pinball(np.array([0.0, 5.0]), np.array([1.0, 3.0]), quantile=0.8),
            (0.8 + 0.4) / 2,
        ),
    ],
)
def test_hand_computed_numbers(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@given(
    loc=st.floats(-5, 5),
    left=st.floats(0.1, 10),
    ratio=st.floats(0.05, 20),
    z=st.floats(-6, 6),
)
def test_split_normal_crps_is_the_integral(loc, left, ratio, z):
    right = left * ratio
    target = loc + z * (right if z > 0 else left)

    def integrand(x):
        scale = np.where(x < loc, left, right)
        outside = 2 * scale / (left + right) * norm.cdf(-abs(x - loc) / scale)
        cdf = np.where(x < loc, outside, 1 - outside)
        return (cdf - (x >= target)) ** 2

    nodes, node_weights = np.polynomial.legendre.leggauss(100)
    expected = 0.0
    for a, b in pairwise(sorted([loc - 12 * left, loc, target, loc + 12 * right])):
        expected += (b - a) / 2 * node_weights @ integrand((a + b) / 2 + (b - a) / 2 * nodes)
    found = losses.split_normal_crps(*(np.array([v]) for v in (loc, left, right, target)))
    assert found == pytest.approx(expected, rel=1e-10)


def test_split_normal_likelihood_is_a_density():
    def density(x):
        nll = losses.split_normal_nll(*(np.array([v]) for v in (0.5, 0.3, 2.0, x)))
        return exp(-nll) / sqrt(2 * pi)

    assert sum(quad(density, a, b)[0] for a, b in [(-9, 0.5), (0.5, 40)]) == pytest.approx(1)


def test_equal_scales_give_the_normal():
    mean, scale, target = data("normal_nll")
    found = losses.split_normal_nll(mean, scale, scale, target)
    assert found == pytest.approx(losses.normal_nll(mean, scale, target), rel=1e-14)


@pytest.mark.parametrize("name", ROW_LOSSES)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_jax_agrees_with_numpy_and_with_finite_differences(name, dtype):
    loss, exact = total(name), data(name)
    with precision(dtype):
        arrays = [jnp.asarray(a, dtype) for a in exact]
        value, found = value_and_gradient(loss, arrays)
    assert value.dtype == dtype
    np.testing.assert_allclose(value, loss(*exact), rtol=tolerance(dtype))
    for mine, expected in zip(found, slopes(loss, exact), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=50 * tolerance(dtype), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("interval_score", {"coverage": [0.5, 0.9]}),
        ("pinball", {"quantile": [0.1, 0.9]}),
        ("soft_capture", {"softness": [1.0, 4.0]}),
        ("coverage_shortfall", {"coverage": [0.5, 0.9]}),
        ("qd", {"coverage": [0.5, 0.9], "coverage_weight": [3.0, 8.0], "softness": [1.0, 4.0]}),
        ("qd_paper", {"coverage": [0.5, 0.9], "coverage_weight": [0.3, 0.8]}),
        (
            "qd_plus",
            {
                "coverage": [0.5, 0.9],
                "coverage_weight": [0.3, 0.8],
                "point_weight": [0.1, 0.4],
                "crossing_weight": [0.0, 5.0],
                "softness": [1.0, 4.0],
                "target_range": [1.0, 5.0],
            },
        ),
    ],
)
def test_options_are_data_under_vmap(name, options):
    arrays = [jnp.asarray(a) for a in data(name)]

    def grad(options):
        return gradient(total(name, **options), arrays)

    together = jax.vmap(grad)({key: jnp.asarray(value) for key, value in options.items()})
    for i in range(2):
        alone = grad({key: value[i] for key, value in options.items()})
        for mine, expected in zip(together, alone, strict=True):
            np.testing.assert_allclose(mine[i], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ROW_LOSSES)
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_values_and_gradients_stay_finite_far_away(name, dtype):
    loss = total(name, **{key: 160.0 for key in OPTIONS.get(name, {}) if key == "softness"})
    far = np.array([-1e9, -1e6, -1e4 / 160, 1e4 / 160, 1e6, 1e9])
    shift = {"target": far, "prediction": -far}
    with precision(dtype):
        arrays = [
            jnp.asarray(np.array(ROWS[argument]) + shift.get(argument, 0), dtype)
            for argument in arguments(name)
        ]
        value, slope = value_and_gradient(loss, arrays)
    evaluated = loss(*(np.asarray(array) for array in arrays))
    assert all(np.isfinite(result).all() for result in (value, evaluated, *slope))


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_gradients_are_finite_at_ties(name):
    arrays = [jnp.ones(3) for _ in arguments(name)]
    assert all(np.isfinite(g).all() for g in gradient(total(name), arrays))


def test_crps_is_smooth_at_the_mode():
    loss, mode = total("split_normal_crps"), [jnp.array([v]) for v in (0.0, 1.0, 3.0, 0.0)]
    near = [*mode[:3], jnp.array([-1e-6])]
    expected = 2 * 1 / (1 + 3) - 1  # 2 F(mode) - 1
    assert gradient(loss, mode)[3] == pytest.approx(expected, abs=1e-6)
    assert gradient(loss, near)[3] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", MEANS)
def test_weights_count_rows(name):
    arrays, weight = data(name), np.array(WEIGHT)
    repeated = [np.repeat(array, weight.astype(int)) for array in arrays]
    found = total(name, weight=weight)(*arrays)
    assert found == pytest.approx(total(name)(*repeated), rel=1e-13)


@pytest.mark.parametrize("name", MEANS)
def test_unit_weights_are_no_weights(name):
    arrays = data(name)
    for ones in (np.ones(6), np.ones(6, dtype=bool), np.ones(6, dtype=int)):
        assert total(name, weight=ones)(*arrays) == total(name)(*arrays)


@pytest.mark.parametrize("name", MEANS)
def test_rows_without_weight_leave_no_trace(name):
    wild = np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0], "float32")
    clean = data(name, "float32")
    padded = [np.concatenate([array, wild]) for array in clean]
    weight = np.repeat([1.0, 0.0], 6)
    assert total(name, weight=weight)(*padded) == pytest.approx(total(name)(*clean), rel=1e-6)

    found = gradient(total(name, weight=jnp.asarray(weight)), [jnp.asarray(a) for a in padded])
    expected = gradient(total(name), [jnp.asarray(a) for a in clean])
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine[:6], theirs, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(mine[6:], 0)


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("size", [0, 3])
def test_no_weight_at_all_gives_zero(name, size):
    arrays = [jnp.full(size, jnp.nan) for _ in arguments(name)]
    value, slope = value_and_gradient(total(name, weight=jnp.zeros(size)), arrays)
    assert value == 0
    assert all((part == 0).all() for part in slope)


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_nan_in_a_row_that_counts_is_not_hidden(name):
    arrays = data(name)
    for array in arrays:
        array[0] = np.nan
    assert np.isnan(total(name)(*arrays)) or name == "hard_capture"


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_floating_type_is_kept_and_integers_are_read_as_numbers(name):
    assert getattr(losses, name)(*data(name, "float32"), **OPTIONS.get(name, {})).dtype == "float32"
    whole = [np.arange(1, 4) for _ in arguments(name)]
    floats = [array.astype(float) for array in whole]
    assert total(name)(*whole) == total(name)(*floats)


def test_shapes_must_be_equal():
    column = TARGET[:, None]
    with pytest.raises(ValueError, match=r"point \(2,\), target \(2, 1\)"):
        losses.squared_error(POINT, column)
    with pytest.raises(ValueError, match=r"lower \(2,\), .*weight \(1,\)"):
        losses.qd_plus(LOWER, POINT, UPPER, TARGET, weight=np.ones(1))
    with pytest.raises(ValueError, match=r"target \(\)"):
        losses.squared_error(POINT, 1.0)
    with pytest.raises(ValueError, match=r"target \(2, 1\)"):
        jax.jit(losses.squared_error)(jnp.asarray(POINT), jnp.asarray(column))


def test_arrays_must_come_from_one_known_library():
    with pytest.raises(TypeError, match="list"):
        losses.squared_error([1.0], [2.0])
    with pytest.raises(TypeError, match="Multiple namespaces"):
        losses.squared_error(POINT, jnp.asarray(TARGET))

    class Strange:
        def __array_namespace__(self, api_version=None):
            return ModuleType("strange")

    with pytest.raises(TypeError, match="NumPy, JAX or PyTorch"):
        special_functions(Strange())


def test_torch_is_not_imported_unless_used():
    code = (
        "import sys, numpy as np; from calipers import losses;"
        "losses.soft_capture(*np.zeros((3, 1))); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
