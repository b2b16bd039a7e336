"""Networks to compare with the paper's: other initial weights, or only a trainable last layer."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax

from calipers.networks import DenseFactory, Linear, Perceptron

Array = Any


@dataclass(frozen=True)
class Kaiming:
    """Networks with the default initialisation of PyTorch: uniform by fan-in, biases too."""

    hidden_layers: tuple[int, ...]

    def __call__(self, in_size: int, out_size: int, *, key: Array) -> eqx.Module:
        """Make a module."""
        glorot = _layers(self.hidden_layers, in_size, out_size, key)
        layers = []
        for layer, layer_key in zip(glorot, jax.random.split(key, len(glorot)), strict=True):
            first, second = jax.random.split(layer_key)
            limit = layer.weight.shape[0] ** -0.5
            weight = jax.random.uniform(first, layer.weight.shape, minval=-limit, maxval=limit)
            bias = jax.random.uniform(second, layer.bias.shape, minval=-limit, maxval=limit)
            layers.append(eqx.tree_at(lambda la: (la.weight, la.bias), layer, (weight, bias)))
        return Perceptron(tuple(layers), "relu")


class LastLayer(Perceptron):
    """A perceptron in which only the last layer is trained."""

    def __call__(self, x: Array) -> Array:
        """Map one row."""
        *hidden, last = self.layers
        for layer in hidden:
            fixed: Linear = jax.lax.stop_gradient(layer)
            x = jax.nn.relu(fixed(x))
        return last(x)


@dataclass(frozen=True)
class LastLayerFactory:
    """Factory of ``LastLayer``."""

    hidden_layers: tuple[int, ...]

    def __call__(self, in_size: int, out_size: int, *, key: Array) -> eqx.Module:
        """Make a module."""
        return LastLayer(_layers(self.hidden_layers, in_size, out_size, key), "relu")


def _layers(hidden: tuple[int, ...], in_size: int, out_size: int, key: Array) -> tuple[Linear, ...]:
    """Layers of a plain network, initialised as in the paper."""
    network = DenseFactory(hidden)(in_size, out_size, key=key)
    if not isinstance(network, Perceptron):
        raise TypeError(f"{hidden} must give a plain network, got {type(network).__name__}")
    return network.layers
