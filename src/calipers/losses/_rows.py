"""Shared by all losses: checked and masked rows, weighted means, special functions."""

from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from array_api_compat import (
    array_namespace,
    is_jax_namespace,
    is_numpy_namespace,
    is_torch_namespace,
)

from calipers._arrays import Array
from calipers._checks import require_same_shape

Scalar: TypeAlias = Any
"""A Python float, or a scalar of the array library, possibly traced."""

# The three modules use the same function names, so dispatch only has to select the module.
_SPECIAL_FUNCTIONS = (
    (is_numpy_namespace, "scipy.special"),
    (is_jax_namespace, "jax.scipy.special"),
    (is_torch_namespace, "torch.special"),
)


def special_functions(array: Array) -> ModuleType:
    """Module with ``expit`` and ``ndtr`` for the library of an array."""
    xp = array_namespace(array)
    for is_namespace, module in _SPECIAL_FUNCTIONS:
        if is_namespace(xp):
            return import_module(module)
    raise TypeError(
        f"losses take arrays of NumPy, JAX or PyTorch, got {type(array).__module__} arrays"
    )


def rows(weight: Array | None, /, **data: Array) -> list[Array]:
    """Weights and data of one shape and floating type, with ones in rows of weight 0.

    Filling such rows before any arithmetic, rather than multiplying by zero after it, keeps their
    NaN and infinities out of the gradients. The weights come first, ones if none are given, then
    the data in order.
    """
    named = data if weight is None else {**data, "weight": weight}
    xp = array_namespace(*named.values())
    require_same_shape(named)
    dtypes = [array.dtype for array in data.values() if xp.isdtype(array.dtype, "real floating")]
    dtype = xp.result_type(*dtypes) if dtypes else xp.asarray(1.0).dtype
    arrays = [xp.astype(array, dtype, copy=False) for array in data.values()]
    if weight is None:
        return [xp.ones_like(arrays[0]), *arrays]
    weight = xp.astype(weight, dtype, copy=False)
    return [weight, *(xp.where(weight == 0, xp.ones_like(array), array) for array in arrays)]


def weighted_mean(values: Array, weight: Array) -> Array:
    """Weighted mean over all elements, 0 if all weights are 0."""
    xp = array_namespace(values)
    total = xp.sum(weight)
    return xp.sum(weight * values) / xp.where(total == 0, xp.ones_like(total), total)


def positive_part(values: Array) -> Array:
    """Maximum of each value and 0.

    NaN passes through, and the gradient at 0 is 0 in every library, unlike that of their
    ``maximum`` and ``clip``.
    """
    xp = array_namespace(values)
    return xp.where(values <= 0, xp.zeros_like(values), values)
