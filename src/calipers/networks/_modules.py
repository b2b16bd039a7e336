"""Equinox modules: layers, embeddings of the inputs, and the networks made of them.

Each maps one row when it is called. ``onnx`` is the same in a ``calipers.onnx`` graph, for modules
whose arrays have a leading axis of networks, and rows of shape (networks or 1, rows, inputs).
"""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from calipers.networks._activations import ACTIVATIONS

if TYPE_CHECKING:
    from calipers.onnx import Graph, Value

# Least-squares coefficients of odd powers x, x^3, ... for -sin(2 pi x), with x from -1/4 to 1/4.
_SINE = (-6.2831853, 41.341681, -81.60248, 76.581256, -39.760497)


class Linear(eqx.Module):
    """Affine map with Glorot-uniform weights and zero biases.

    The weight has shape ``(in_size, out_size)``, the layout in which multiplying a batch of rows is
    fastest on a CPU.
    """

    weight: jax.Array
    bias: jax.Array

    def __init__(self, in_size: int, out_size: int, *, key: jax.Array) -> None:
        limit = (6 / (in_size + out_size)) ** 0.5
        self.weight = jax.random.uniform(key, (in_size, out_size), minval=-limit, maxval=limit)
        self.bias = jnp.zeros(out_size)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row."""
        return x @ self.weight + self.bias

    def onnx(self, graph: "Graph", x: "Value") -> "Value":
        """Form in an ONNX graph."""
        return graph("MatMul", x, self.weight) + self.bias[:, None]


class Perceptron(eqx.Module):
    """Fully connected layers with an activation between them."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row."""
        return self.after_first(self.layers[0](x))

    def after_first(self, x: jax.Array) -> jax.Array:
        """Map the output of the first layer for one row."""
        for layer in self.layers[1:]:
            x = layer(ACTIVATIONS[self.activation](x))
        return x

    def onnx(self, graph: "Graph", x: "Value") -> "Value":
        """Form in an ONNX graph."""
        activation = ACTIVATIONS[self.activation].onnx
        if activation is None:
            raise ValueError(f"the activation {self.activation!r} has no ONNX form")
        x = self.layers[0].onnx(graph, x)
        for layer in self.layers[1:]:
            x = layer.onnx(graph, activation(graph, x))
        return x


def cosine_of_turns(turns: jax.Array) -> jax.Array:
    """Cosine of an angle in full turns, accurate to 2e-7.

    ``jnp.cos`` also reduces huge angles exactly, which a CPU does one number at a time.

    Examples
    --------
    >>> off = cosine_of_turns(jnp.array([0.0, 0.125, -1.5])) - jnp.array([1, 0.5**0.5, -1])
    >>> abs(off).max() < 2e-7
    Array(True, dtype=bool)
    """
    quarter = jnp.abs(turns - jnp.round(turns)) - 0.25
    square = quarter * quarter
    polynomial: jax.Array | float = _SINE[-1]
    for coefficient in _SINE[-2::-1]:
        polynomial = polynomial * square + coefficient
    return quarter * polynomial


class Periodic(eqx.Module):
    """Softly clipped inputs, and cosines of some of them.

    Frequencies, phases and amplitudes of the cosines are learned. A sharp or oscillating dependence
    on one input, which a plain network learns late, is linear in the cosines (Gorishniy, Rubachev
    and Babenko, 2022). If the amplitudes start small, the smooth part is learned first, and
    training on a small table may stop there. The clipping (Holzmueller, Grinsztajn and Steinwart,
    2024) keeps outliers near the other rows.
    """

    frequency: jax.Array
    phase: jax.Array
    amplitude: jax.Array
    columns: tuple[int, ...] = eqx.field(static=True)
    clip: float = eqx.field(static=True)

    def __init__(
        self,
        columns: tuple[int, ...],
        count: int,
        *,
        spread: float,
        amplitude: float,
        clip: float,
        key: jax.Array,
    ) -> None:
        first, second = jax.random.split(key)
        self.frequency = spread * jax.random.normal(first, (len(columns), count))
        self.phase = jax.random.uniform(second, (len(columns), count))
        self.amplitude = jnp.full(len(columns), amplitude)
        self.columns = columns
        self.clip = clip

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row of ``in_size`` to ``in_size + len(columns) * count``."""
        x = x / jnp.sqrt(1 + (x / self.clip) ** 2)
        selected = x[jnp.array(self.columns, dtype=int)]
        cosines = cosine_of_turns(selected[:, None] * self.frequency + self.phase)
        return jnp.concatenate([x, (self.amplitude[:, None] * cosines).ravel()])

    def onnx(self, graph: "Graph", x: "Value") -> "Value":
        """Form in an ONNX graph."""
        relative = x / self.clip
        x = x / graph("Sqrt", relative * relative + 1)
        networks, inputs, count = self.frequency.shape
        if not inputs * count:
            return x
        selected = graph("Gather", x, graph.integers(*self.columns), axis=2)
        angle = graph.unsqueezed(selected, 3) * self.frequency[:, None] + self.phase[:, None]
        cosines = graph("Cos", angle * (2 * np.pi)) * self.amplitude[:, None, :, None]
        flat = graph("Reshape", cosines, graph.integers(networks, -1, inputs * count))
        return graph("Concat", x, flat, axis=2)


class PiecewiseLinear(eqx.Module):
    """Piecewise-linear encoding: the fraction of each segment between two knots below the input.

    Steps and kinks in one input, which trees find, are linear in the encoding (Gorishniy, Rubachev
    and Babenko, 2022). Knots are quantiles of the training rows and are not trained; a segment of
    width 0, which pads inputs with fewer distinct knots, is encoded as 0.
    """

    knots: jax.Array  # flat, since weight decay applies to matrices
    amplitude: jax.Array
    columns: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, columns: tuple[int, ...], bins: int, *, amplitude: float) -> None:
        self.knots = jnp.zeros(len(columns) * (bins + 1))
        self.amplitude = jnp.full(len(columns), amplitude)
        self.columns = columns

    @property
    def bins(self) -> int:
        """Number of segments per input."""
        return self.knots.shape[-1] // len(self.columns) - 1

    def filled(self, x: jax.Array) -> jax.Array:
        """Fraction of each segment that lies below the input, from 0 to 1."""
        knots = jax.lax.stop_gradient(self.knots).reshape(len(self.columns), -1)
        width = knots[:, 1:] - knots[:, :-1]
        slope = jnp.where(width > 0, 1 / jnp.where(width > 0, width, 1), 0)
        selected = x[jnp.array(self.columns, dtype=int)]
        return jnp.clip((selected[:, None] - knots[:, :-1]) * slope, 0, 1).ravel()

    def onnx(self, graph: "Graph", x: "Value") -> "Value":
        """Form in an ONNX graph, with the amplitudes."""
        networks, inputs = self.amplitude.shape
        knots = np.asarray(self.knots).reshape(networks, 1, inputs, -1)
        width = knots[..., 1:] - knots[..., :-1]
        slope = np.where(width > 0, 1 / np.where(width > 0, width, 1), 0)
        selected = graph("Gather", x, graph.integers(*self.columns), axis=2)
        filled = (graph.unsqueezed(selected, 3) - knots[..., :-1]) * slope
        filled = graph("Clip", filled, 0, 1) * self.amplitude[:, None, :, None]
        return graph("Reshape", filled, graph.integers(networks, -1, inputs * width.shape[-1]))


class EmbeddedPerceptron(eqx.Module):
    """A perceptron over embeddings."""

    embedding: Periodic
    perceptron: Perceptron
    segments: PiecewiseLinear | None = None
    skip: jax.Array | None = None  # weights of the last input in the outputs

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row."""
        raw = self._over_embeddings(x)
        return raw if self.skip is None else raw + self.skip * x[-1]

    def _over_embeddings(self, x: jax.Array) -> jax.Array:
        embedded = self.embedding(x)
        if self.segments is None:
            return self.perceptron(embedded)
        first = self.perceptron.layers[0]
        embedded_weight, weight = jnp.split(first.weight, [embedded.size])
        # With the amplitudes multiplied into the weights, no gradient flows back to the encoding,
        # which depends on no trained parameter. This saves a third of its matrix products.
        weight = jnp.repeat(self.segments.amplitude, self.segments.bins)[:, None] * weight
        return self.perceptron.after_first(
            embedded @ embedded_weight + self.segments.filled(x) @ weight + first.bias
        )

    def onnx(self, graph: "Graph", x: "Value") -> "Value":
        """Form in an ONNX graph."""
        embedded = self.embedding.onnx(graph, x)
        if self.segments is not None:
            embedded = graph("Concat", embedded, self.segments.onnx(graph, x), axis=2)
        raw = self.perceptron.onnx(graph, embedded)
        if self.skip is None:
            return raw
        return raw + graph("Gather", x, graph.integers(-1), axis=2) * self.skip[:, None]
