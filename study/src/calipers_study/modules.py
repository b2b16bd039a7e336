"""Networks to compare with the paper's: other initial weights, and only the last layer learning."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax

from calipers.networks import DenseFactory, Linear, Perceptron

Array = Any


@dataclass(frozen=True)
class Kaiming:
    """Networks as PyTorch initialises them by default: uniform by inputs, biases too."""

    hidden_layers: tuple[int, ...]

    def __call__(self, in_size: int, out_size: int, *, key: Array) -> eqx.Module:
        """Make a module."""
        made = _layers(self.hidden_layers, in_size, out_size, key)
        layers = []
        for layer, own in zip(made, jax.random.split(key, len(made)), strict=True):
            first, second = jax.random.split(own)
            limit = layer.weight.shape[0] ** -0.5
            weight = jax.random.uniform(first, layer.weight.shape, minval=-limit, maxval=limit)
            bias = jax.random.uniform(second, layer.bias.shape, minval=-limit, maxval=limit)
            layers.append(eqx.tree_at(lambda la: (la.weight, la.bias), layer, (weight, bias)))
        return Perceptron(tuple(layers), "relu")


class LastLayer(Perceptron):
    """A perceptron of which only the last layer learns."""

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
    """Layers of a plain network, initialised as the paper's are."""
    made = DenseFactory(hidden)(in_size, out_size, key=key)
    if not isinstance(made, Perceptron):
        raise TypeError(f"{hidden} must make a plain network, got {type(made).__name__}")
    return made.layers
