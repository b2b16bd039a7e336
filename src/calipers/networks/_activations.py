"""Activations by name, each with all its forms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from calipers._arrays import Float32Array

if TYPE_CHECKING:
    from calipers.onnx import Graph, Value


@dataclass(frozen=True)
class Activation:
    """A function between the layers of a network.

    Examples
    --------
    >>> float(ACTIVATIONS["relu"](jnp.array(-1.0)))
    0.0
    """

    function: Callable[[jax.Array], jax.Array]  #: Of JAX arrays, as networks are trained with it.
    #: The function in a ``calipers.onnx`` graph. Without it a model cannot be exported.
    onnx: Callable[["Graph", "Value"], "Value"] | None = None
    #: The function of a NumPy array, in place, with a buffer of its shape as second argument.
    #: Without it predictions are compiled, and slower.
    in_place: Callable[[Float32Array, Float32Array], object] | None = None
    factor: float = 1.0  #: What ``in_place`` expects its argument to be multiplied by.

    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply it to an array."""
        return self.function(x)


def _silu(x: Float32Array, gate: Float32Array) -> None:
    """``2 * x / (1 + exp(-2 * x))``: the caller passes half of the argument."""
    np.tanh(x, out=gate)
    gate *= x
    x += gate


def _gelu(x: Float32Array, gate: Float32Array) -> None:
    np.multiply(x, x, out=gate)
    gate *= np.float32(0.044715)
    gate += 1
    gate *= x
    gate *= np.float32(np.sqrt(2 / np.pi))
    np.tanh(gate, out=gate)
    x *= np.float32(0.5)
    gate *= x
    x += gate


def _gelu_onnx(graph: "Graph", x: "Value") -> "Value":
    inner = x + x * x * x * 0.044715
    return x * 0.5 * (graph("Tanh", inner * (2 / np.pi) ** 0.5) + 1)


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(
        jax.nn.relu,
        lambda graph, x: graph("Relu", x),
        lambda x, _: np.maximum(x, 0, out=x),
    ),
    "silu": Activation(
        jax.nn.silu,
        lambda graph, x: x * graph("Sigmoid", x),
        _silu,
        factor=0.5,
    ),
    "gelu": Activation(jax.nn.gelu, _gelu_onnx, _gelu),
    "tanh": Activation(
        jnp.tanh,
        lambda graph, x: graph("Tanh", x),
        lambda x, _: np.tanh(x, out=x),
    ),
}
"""Activations by name."""
