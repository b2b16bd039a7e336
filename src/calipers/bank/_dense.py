"""Forward passes of the library's own networks in NumPy, for processors.

A compiled program costs a second of tracing in a new process and half a millisecond for a single
row. Products of matrices go to BLAS either way, and the rest is quick in NumPy.

Rows are multiplied in tiles of one size: BLAS then adds up a row's products in the same order
whatever its company, and on one thread, so that a row's bits depend on neither.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from calipers.bank._lanes import Scaling, Tree
from calipers.heads import Head
from calipers.networks import (
    ACTIVATIONS,
    AroundPoint,
    EmbeddedPerceptron,
    Perceptron,
    Periodic,
    PiecewiseLinear,
)

Single = NDArray[np.float32]

NETWORKS = 20  # evaluated at a time, which bounds memory
TILE = 8  # rows multiplied at a time: a single row then costs what 8 do
_TOGETHER = 64  # rows whose hidden units stay within a core's cache
_ONE_THREAD = 2**18  # largest product of three sizes that OpenBLAS leaves to one thread
# Inputs far out, and weights of a failure, overflow without a word, as in a compiled program.
_QUIETLY = np.errstate(over="ignore", invalid="ignore")


def _relu(x: Single) -> None:
    np.maximum(x, 0, out=x)


def _tanh(x: Single) -> None:
    np.tanh(x, out=x)


def _silu(x: Single) -> None:
    """``x / (1 + exp(-x))``, of halves of ``x``."""
    gate = np.tanh(x)
    gate *= x
    x += gate


def _gelu(x: Single) -> None:
    gate = x * x
    gate *= np.float32(0.044715)
    gate += 1
    gate *= x
    gate *= np.float32(np.sqrt(2 / np.pi))
    np.tanh(gate, out=gate)
    x *= np.float32(0.5)
    gate *= x
    x += gate


_IN_PLACE: dict[Callable[..., Any], tuple[Callable[[Single], None], float]] = {
    jax.nn.relu: (_relu, 1.0),
    jnp.tanh: (_tanh, 1.0),
    jax.nn.silu: (_silu, 0.5),
    jax.nn.gelu: (_gelu, 1.0),
}
"""By activation: the same in place, and what its argument is to be multiplied by first."""


class _NoFormError(Exception):
    """There is no form in NumPy of these networks."""


class _Product:
    """Rows times a matrix of each network, in tiles."""

    def __init__(self, weight: Single) -> None:
        _, inputs, self.outputs = weight.shape
        parts = max(1, -(-inputs * self.outputs * TILE // _ONE_THREAD))
        ends = [i * self.outputs // parts for i in range(parts + 1)]
        self.units = [slice(*pair) for pair in pairwise(ends)]
        self.weights = [np.ascontiguousarray(weight[:, None, :, part]) for part in self.units]

    def __call__(self, x: Single) -> Single:
        networks, rows, inputs = x.shape
        tiles = x.reshape(networks, -1, TILE, inputs)
        found = np.empty((networks, rows // TILE, TILE, self.outputs), np.float32)
        for units, weight in zip(self.units, self.weights, strict=True):
            np.matmul(tiles, weight, out=found[..., units])
        return found.reshape(networks, rows, self.outputs)


class _Layer:
    """An affine map of all networks, and the activation after it."""

    def __init__(self, weight: Single, bias: Single, activation: str | None) -> None:
        self.activate: Callable[[Single], None] | None = None
        factor = 1.0
        if activation is not None:
            known = [form for of, form in _IN_PLACE.items() if of is ACTIVATIONS[activation]]
            if not known:
                raise _NoFormError
            self.activate, factor = known[0]
        self.product = _Product(weight * np.float32(factor))
        self.bias = (bias * np.float32(factor))[:, None]

    def __call__(self, x: Single) -> Single:
        result = self.product(x)
        result += self.bias
        if self.activate is not None:
            self.activate(result)
        return result


class _Embedding:
    """Periodic embeddings; their amplitudes are left to the layer that follows."""

    def __init__(self, embedding: Periodic, inputs: int) -> None:
        turn = np.float32(2 * np.pi)
        frequency = turn * np.asarray(embedding.frequency)
        networks, columns, count = frequency.shape
        self.clip = np.float32(embedding.clip)
        self.phase = (turn * np.asarray(embedding.phase)).reshape(networks, 1, -1)
        self.amplitude = np.repeat(np.asarray(embedding.amplitude), count, axis=1)[..., None]
        spread = np.zeros((networks, inputs, columns, count), np.float32)
        spread[:, embedding.columns, range(columns)] = frequency
        self.product = _Product(spread.reshape(networks, inputs, -1))

    def __call__(self, x: Single) -> Single:
        networks, rows, inputs = x.shape
        found = np.empty((networks, rows, inputs + self.product.outputs), np.float32)
        root = np.square(x / self.clip)
        root += 1
        x = x / np.sqrt(root, out=root)
        angle = self.product(x)
        angle += self.phase
        found[..., :inputs] = x
        np.cos(angle, out=found[..., inputs:])
        return found


class _Pieces:
    """Inputs in pieces; their amplitudes are left to the layer that follows."""

    def __init__(self, pieces: PiecewiseLinear) -> None:
        self.columns = list(pieces.columns)
        knots = np.asarray(pieces.knots)
        knots = knots.reshape(len(knots), 1, len(self.columns), -1)
        width = knots[..., 1:] - knots[..., :-1]
        self.left = knots[..., :-1]
        self.slope = np.where(width > 0, 1 / np.where(width > 0, width, 1), 0).astype(np.float32)
        count = width.shape[-1]
        self.amplitude = np.repeat(np.asarray(pieces.amplitude), count, axis=1)[..., None]

    def __call__(self, x: Single) -> Single:
        found = x[..., self.columns, None] - self.left
        found *= self.slope
        return np.clip(found, 0, 1, out=found).reshape(*x.shape[:2], -1)


class Dense:
    """Networks of the library's own kinds, ready to predict."""

    def __init__(self, network: Tree, scaling: Scaling, head: Head) -> None:
        self.head = head
        self.center = np.asarray(scaling.input_center, np.float32)[:, None]
        self.scale = np.asarray(scaling.input_scale, np.float32)[:, None]
        self.around: AroundPoint | None = None
        if type(network) is AroundPoint:
            self.around, network = network, network.network
        self.embedding: _Embedding | None = None
        self.pieces: _Pieces | None = None
        if type(network) is EmbeddedPerceptron:
            self.embedding = _Embedding(network.embedding, self.center.shape[2])
            if network.pieces is not None:
                self.pieces = _Pieces(network.pieces)
            network = network.perceptron
        if type(network) is not Perceptron:
            raise _NoFormError
        weights = [np.asarray(layer.weight) for layer in network.layers]
        for place, part in self._places():
            weights[0] = weights[0].copy()
            weights[0][:, place] *= part.amplitude
        names = [*[network.activation] * (len(weights) - 1), None]
        self.layers = [
            _Layer(weight, np.asarray(layer.bias), name)
            for layer, weight, name in zip(network.layers, weights, names, strict=True)
        ]

    @classmethod
    @_QUIETLY
    def of(cls, network: Tree, scaling: Scaling, head: Head) -> Self | None:
        """The same networks here, or None where they or their head are of another kind.

        None too where this machine's BLAS adds up in an order that depends on a row's place in its
        tile.
        """
        try:
            dense = cls(network, scaling, head)
        except _NoFormError:
            return None
        place = np.cos(np.arange(dense.center.shape[2], dtype=np.float32))
        raw = dense._raw(np.tile(place, (TILE, 1)))
        if not all(isinstance(found, np.ndarray) for found in head.parameters(raw)):
            return None
        return dense if np.array_equal(raw, np.broadcast_to(raw[:, :1], raw.shape)) else None

    @_QUIETLY
    def __call__(self, rows: Single) -> Single:
        """Parameters of standardised rows, as (networks, fields, rows)."""
        fields = self.head.fields
        found = np.empty((len(self.center), len(fields), len(rows)), np.float32)
        for start in range(0, len(rows), _TOGETHER):
            part = rows[start : start + _TOGETHER]
            padded = np.zeros((-(-len(part) // TILE) * TILE, rows.shape[1]), np.float32)
            padded[: len(part)] = part
            parameters = self.head.parameters(self._raw(padded))
            for i, values in enumerate(parameters):
                found[:, i, start : start + _TOGETHER] = values[:, : len(part)]
        return found

    def _places(self) -> list[tuple[slice, _Embedding | _Pieces]]:
        """Inputs of the first layer that are embeddings, and what gives them."""
        if self.embedding is None:
            return []
        first = self.center.shape[2]
        second = first + self.embedding.amplitude.shape[1]
        pieces = [] if self.pieces is None else [(slice(second, None), self.pieces)]
        return [(slice(first, second), self.embedding), *pieces]

    def _raw(self, rows: Single) -> Single:
        x = (rows - self.center) / self.scale
        if self.embedding is not None:
            pieces = [] if self.pieces is None else [self.pieces(x)]
            x = self.embedding(x)
            x = np.concatenate([x, *pieces], axis=2) if pieces else x
        for layer in self.layers:
            x = layer(x)
        if self.around is not None:
            point = x[..., self.around.point_at]
            point[...] = np.float32(self.around.reach) * np.tanh(point)
        return x
