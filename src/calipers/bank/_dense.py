"""Forward passes of the library's own networks in NumPy, for processors.

A compiled program costs a second of tracing in a new process and half a millisecond for a single
row. Products of matrices go to BLAS either way, and the rest is quick in NumPy.

Rows are multiplied in tiles of one size: BLAS then adds up a row's products in the same order
whatever its company, and on one thread, so that a row's bits depend on neither. Many rows go
through one network after the other, whose weights and hidden units then stay in a core's cache.
"""

import math
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
    PiecewiseLinear,
)

Single = NDArray[np.float32]

NETWORKS = 20  # evaluated at a time, which bounds memory
TILE = 8  # rows multiplied at a time: a single row then costs what 8 do
_TOGETHER = 1024  # rows times networks whose hidden units stay within a core's cache
_ONE_THREAD = 2**18  # largest product of three sizes that OpenBLAS leaves to one thread
# Inputs far out, and weights of a failure, overflow without a word, as in a compiled program.
_QUIETLY = np.errstate(over="ignore", invalid="ignore")


def _relu(x: Single, _: Single) -> None:
    np.maximum(x, 0, out=x)


def _tanh(x: Single, _: Single) -> None:
    np.tanh(x, out=x)


def _silu(x: Single, gate: Single) -> None:
    """``x / (1 + exp(-x))``, of halves of ``x``."""
    np.tanh(x, out=gate)
    gate *= x
    x += gate


def _gelu(x: Single, gate: Single) -> None:
    np.multiply(x, x, out=gate)
    gate *= np.float32(0.044715)
    gate += 1
    gate *= x
    gate *= np.float32(np.sqrt(2 / np.pi))
    np.tanh(gate, out=gate)
    x *= np.float32(0.5)
    gate *= x
    x += gate


_IN_PLACE: dict[Callable[..., Any], tuple[Callable[[Single, Single], None], float]] = {
    jax.nn.relu: (_relu, 1.0),
    jnp.tanh: (_tanh, 1.0),
    jax.nn.silu: (_silu, 0.5),
    jax.nn.gelu: (_gelu, 1.0),
}
"""By activation: the same in place, given room, and what to multiply its argument by first."""


class _NoFormError(Exception):
    """There is no form in NumPy of these networks."""


class _Room:
    """Memory for hidden units, used again by every layer and block of rows."""

    def __init__(self, size: int) -> None:
        self._arrays = [np.empty(size, np.float32) for _ in range(3)]

    def array(self, *shape: int) -> Single:
        """One that is neither of the last two given out."""
        self._arrays.append(self._arrays.pop(0))
        return self._arrays[-1][: math.prod(shape)].reshape(shape)


class _Affine:
    """Rows times a matrix of each network and plus a vector, in tiles."""

    def __init__(self, weight: Single, bias: Single) -> None:
        _, inputs, self.outputs = weight.shape
        parts = max(1, -(-inputs * self.outputs * TILE // _ONE_THREAD))
        ends = [i * self.outputs // parts for i in range(parts + 1)]
        self.units = [slice(*pair) for pair in pairwise(ends)]
        self.weights = [np.ascontiguousarray(weight[:, None, :, part]) for part in self.units]
        self.bias = np.repeat(bias[:, None, None], TILE, axis=2)  # of a whole tile: longer loops

    def __call__(self, x: Single, which: slice, room: _Room) -> Single:
        networks, rows, inputs = x.shape
        tiles = x.reshape(networks, -1, TILE, inputs)
        found = room.array(networks, rows // TILE, TILE, self.outputs)
        for units, weight in zip(self.units, self.weights, strict=True):
            np.matmul(tiles, weight[which], out=found[..., units])
        found += self.bias[which]
        return found.reshape(networks, rows, self.outputs)


class _Layer:
    """An affine map of all networks, and the activation after it."""

    def __init__(self, weight: Single, bias: Single, activation: str | None) -> None:
        self.activate: Callable[[Single, Single], None] | None = None
        factor = 1.0
        if activation is not None:
            known = [form for of, form in _IN_PLACE.items() if of is ACTIVATIONS[activation]]
            if not known:
                raise _NoFormError
            self.activate, factor = known[0]
        self.affine = _Affine(weight * np.float32(factor), bias * np.float32(factor))

    def __call__(self, x: Single, which: slice, room: _Room) -> Single:
        result = self.affine(x, which, room)
        if self.activate is not None:
            self.activate(result, room.array(*result.shape))
        return result


class _Pieces:
    """Inputs in pieces."""

    def __init__(self, pieces: PiecewiseLinear) -> None:
        self.columns = list(pieces.columns)
        knots = np.asarray(pieces.knots)
        knots = knots.reshape(len(knots), 1, len(self.columns), -1)
        self.left, width = knots[..., :-1], np.diff(knots)
        self.slope = np.where(width > 0, 1 / np.where(width > 0, width, 1), 0).astype(np.float32)

    def __call__(self, x: Single, which: slice) -> Single:
        found = x[..., self.columns, None] - self.left[which]
        found *= self.slope[which]
        return np.clip(found, 0, 1, out=found).reshape(*x.shape[:2], -1)


class _Embedding:
    """Embeddings of inputs; their amplitudes are left to the layer that follows."""

    def __init__(self, network: EmbeddedPerceptron, inputs: int) -> None:
        embedding, turn = network.embedding, np.float32(2 * np.pi)
        frequency = turn * np.asarray(embedding.frequency)
        networks, columns, count = frequency.shape
        self.clip = np.float32(embedding.clip)
        phase = (turn * np.asarray(embedding.phase)).reshape(networks, -1)
        amplitudes = [np.repeat(np.asarray(embedding.amplitude), count, axis=1)]
        spread = np.zeros((networks, inputs, columns, count), np.float32)
        spread[:, embedding.columns, range(columns)] = frequency
        self.angles = _Affine(spread.reshape(networks, inputs, -1), phase)
        self.pieces: _Pieces | None = None
        if network.pieces is not None:
            self.pieces = _Pieces(network.pieces)
            bins = self.pieces.left.shape[-1]
            amplitudes.append(np.repeat(np.asarray(network.pieces.amplitude), bins, axis=1))
        self.amplitude = np.concatenate(amplitudes, axis=1)[..., None]

    def __call__(self, x: Single, which: slice, room: _Room) -> Single:
        networks, rows, inputs = x.shape
        cosines = slice(inputs, inputs + self.angles.outputs)
        root = np.square(x / self.clip)
        root += 1
        clipped = x / np.sqrt(root, out=root)
        found = room.array(networks, rows, inputs + self.amplitude.shape[1])
        found[..., :inputs] = clipped
        np.cos(self.angles(clipped, which, room), out=found[..., cosines])
        if self.pieces is not None:
            found[..., cosines.stop :] = self.pieces(x, which)
        return found


class Dense:
    """Networks of the library's own kinds, ready to predict."""

    def __init__(self, network: Tree, scaling: Scaling, head: Head) -> None:
        self.head = head
        self.networks, self.inputs = scaling.input_center.shape
        # Of a whole tile, as biases: loops are the longer.
        self.center, self.scale = (
            np.tile(np.asarray(part, np.float32), TILE)[:, None]
            for part in (scaling.input_center, scaling.input_scale)
        )
        self.around: AroundPoint | None = None
        if type(network) is AroundPoint:
            self.around, network = network, network.network
        self.embedding: _Embedding | None = None
        if type(network) is EmbeddedPerceptron:
            self.embedding = _Embedding(network, self.inputs)
            network = network.perceptron
        if type(network) is not Perceptron:
            raise _NoFormError
        weights = [np.asarray(layer.weight) for layer in network.layers]
        if self.embedding is not None:
            embedded = weights[0][:, self.inputs :] * self.embedding.amplitude
            weights[0] = np.concatenate([weights[0][:, : self.inputs], embedded], axis=1)
        names = [*[network.activation] * (len(weights) - 1), None]
        self.layers = [
            _Layer(weight, np.asarray(layer.bias), name)
            for layer, weight, name in zip(network.layers, weights, names, strict=True)
        ]
        self.widest = max(size for weight in weights for size in weight.shape[1:])

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
        place = np.cos(np.arange(dense.inputs, dtype=np.float32))
        raw = dense._raw(np.tile(place, (TILE, 1)))
        if not all(isinstance(found, np.ndarray) for found in head.parameters(raw)):
            return None
        return dense if np.array_equal(raw, np.broadcast_to(raw[:, :1], raw.shape)) else None

    @_QUIETLY
    def __call__(self, rows: Single) -> Single:
        """Parameters of standardised rows, as (networks, fields, rows)."""
        padded = np.zeros((-(-len(rows) // TILE) * TILE, rows.shape[1]), np.float32)
        padded[: len(rows)] = rows
        return np.stack(self.head.parameters(self._raw(padded)), axis=1)[..., : len(rows)]

    def _raw(self, rows: Single) -> Single:
        """Outputs for a number of rows that is a multiple of ``TILE``."""
        networks, count = self.networks, len(rows)
        raw = np.empty((networks, count, self.layers[-1].affine.outputs), np.float32)
        together = min(count, _TOGETHER)
        side_by_side = min(networks, _TOGETHER // together)
        room = _Room(side_by_side * together * self.widest)
        for first in range(0, networks, side_by_side):
            which = slice(first, first + side_by_side)
            for start in range(0, count, together):
                part = slice(start, start + together)
                raw[which, part] = self._outputs(rows[part], which, room)
        if self.around is not None:
            point = raw[..., self.around.point_at]
            point[...] = np.float32(self.around.reach) * np.tanh(point)
        return raw

    def _outputs(self, rows: Single, which: slice, room: _Room) -> Single:
        x = rows.reshape(-1, TILE * self.inputs) - self.center[which]
        x /= self.scale[which]
        x = x.reshape(len(x), *rows.shape)
        if self.embedding is not None:
            x = self.embedding(x, which, room)
        for layer in self.layers:
            x = layer(x, which, room)
        return x
