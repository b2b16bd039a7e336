"""Forward passes of the library's own networks in NumPy, for CPUs.

A compiled program costs a second of tracing in a new process and half a millisecond for a single
row. Matrix products go to BLAS either way, and everything else is fast in NumPy.

Rows are multiplied in tiles of one size: BLAS then adds up a row's products in the same order, and
on one thread, so that a row's bits depend neither on the other rows in the batch nor on the number
of threads. Many rows go through one network after the other, so that its weights and hidden units
stay in a core's cache.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Self

import numpy as np

from calipers._arrays import Float32Array
from calipers.bank._lanes import PyTree, Scaling
from calipers.heads import Head
from calipers.networks import (
    ACTIVATIONS,
    AroundPoint,
    EmbeddedPerceptron,
    Perceptron,
    PiecewiseLinear,
)

NETWORKS = 20  # evaluated at a time, which bounds memory
TILE = 8  # rows multiplied at a time: a single row costs as much as 8
_TOGETHER = 1024  # rows times networks whose hidden units stay within a core's cache
_ONE_THREAD = 2**18  # largest m * n * k of a matrix product that OpenBLAS runs on one thread
# Outlying inputs and diverged weights overflow silently, as in a compiled program.
_QUIETLY = np.errstate(over="ignore", invalid="ignore")


class _NoFormError(Exception):
    """These networks cannot be evaluated in NumPy."""


class _Buffers:
    """Memory for hidden units, reused by every layer and block of rows."""

    def __init__(self, size: int) -> None:
        self._arrays = [np.empty(size, np.float32) for _ in range(3)]

    def array(self, *shape: int) -> Float32Array:
        """An array that shares no memory with the two returned before."""
        self._arrays.append(self._arrays.pop(0))
        return self._arrays[-1][: math.prod(shape)].reshape(shape)


class _Layer:
    """An affine map for each network, applied in tiles of rows, and an activation."""

    def __init__(
        self, weight: Float32Array, bias: Float32Array, activation: str | None = None
    ) -> None:
        self.activate: Callable[[Float32Array, Float32Array], object] | None = None
        if activation is not None:
            form = ACTIVATIONS[activation]
            if form.in_place is None:
                raise _NoFormError
            self.activate, factor = form.in_place, np.float32(form.factor)
            weight, bias = weight * factor, bias * factor
        _, inputs, self.outputs = weight.shape
        parts = max(1, -(-inputs * self.outputs * TILE // _ONE_THREAD))
        ends = [i * self.outputs // parts for i in range(parts + 1)]
        self.units = [slice(*pair) for pair in pairwise(ends)]
        self.weights = [np.ascontiguousarray(weight[:, None, :, part]) for part in self.units]
        self.bias = np.repeat(bias[:, None, None], TILE, axis=2)  # whole tiles make loops longer

    def __call__(self, x: Float32Array, which: slice, buffers: _Buffers) -> Float32Array:
        networks, rows, inputs = x.shape
        tiles = x.reshape(networks, -1, TILE, inputs)
        result = buffers.array(networks, rows // TILE, TILE, self.outputs)
        for units, weight in zip(self.units, self.weights, strict=True):
            np.matmul(tiles, weight[which], out=result[..., units])
        result += self.bias[which]
        if self.activate is not None:
            self.activate(result, buffers.array(*result.shape))
        return result.reshape(networks, rows, self.outputs)


class _Segments:
    """The piecewise-linear encoding of inputs, without its amplitudes."""

    def __init__(self, encoding: PiecewiseLinear) -> None:
        self.columns = list(encoding.columns)
        knots = np.asarray(encoding.knots)
        knots = knots.reshape(len(knots), 1, len(self.columns), -1)
        self.left, width = knots[..., :-1], np.diff(knots)
        self.slope = np.where(width > 0, 1 / np.where(width > 0, width, 1), 0).astype(np.float32)

    def __call__(self, x: Float32Array, which: slice) -> Float32Array:
        filled = x[..., self.columns, None] - self.left[which]
        filled *= self.slope[which]
        return np.clip(filled, 0, 1, out=filled).reshape(*x.shape[:2], -1)


class _Embedding:
    """Embeddings of inputs, whose amplitudes are folded into the weights of the next layer."""

    def __init__(self, network: EmbeddedPerceptron, inputs: int) -> None:
        embedding, two_pi = network.embedding, np.float32(2 * np.pi)
        frequency = two_pi * np.asarray(embedding.frequency)
        networks, columns, count = frequency.shape
        self.clip = np.float32(embedding.clip)
        phase = (two_pi * np.asarray(embedding.phase)).reshape(networks, -1)
        amplitudes = [np.repeat(np.asarray(embedding.amplitude), count, axis=1)]
        weight = np.zeros((networks, inputs, columns, count), np.float32)
        weight[:, embedding.columns, range(columns)] = frequency
        self.angles = _Layer(weight.reshape(networks, inputs, -1), phase)
        self.segments: _Segments | None = None
        if network.segments is not None:
            self.segments = _Segments(network.segments)
            bins = self.segments.left.shape[-1]
            amplitudes.append(np.repeat(np.asarray(network.segments.amplitude), bins, axis=1))
        self.amplitude = np.concatenate(amplitudes, axis=1)[..., None]

    def __call__(self, x: Float32Array, which: slice, buffers: _Buffers) -> Float32Array:
        networks, rows, inputs = x.shape
        cosines = slice(inputs, inputs + self.angles.outputs)
        root = np.square(x / self.clip)
        root += 1
        clipped = x / np.sqrt(root, out=root)
        result = buffers.array(networks, rows, inputs + self.amplitude.shape[1])
        result[..., :inputs] = clipped
        np.cos(self.angles(clipped, which, buffers), out=result[..., cosines])
        if self.segments is not None:
            result[..., cosines.stop :] = self.segments(x, which)
        return result


class Dense:
    """Networks of the library's own classes, ready to predict in NumPy."""

    def __init__(self, network: PyTree, scaling: Scaling, head: Head) -> None:
        self.head = head
        self.networks, self.inputs = scaling.input_center.shape
        # Repeated for a whole tile, like biases, which makes loops longer.
        self.center, self.scale = (
            np.tile(np.asarray(part, np.float32), TILE)[:, None]
            for part in (scaling.input_center, scaling.input_scale)
        )
        self.around: AroundPoint | None = None
        if type(network) is AroundPoint:
            self.around, network = network, network.network
        self.embedding: _Embedding | None = None
        self.skip: Float32Array | None = None
        if type(network) is EmbeddedPerceptron:
            self.embedding = _Embedding(network, self.inputs)
            if network.skip is not None:
                self.skip = np.asarray(network.skip)[:, None]
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
    def of(cls, network: PyTree, scaling: Scaling, head: Head) -> Self | None:
        """The networks in NumPy, or None if they or their head have no such form.

        Also None if this machine's BLAS adds up in an order that depends on a row's position in
        its tile.
        """
        try:
            dense = cls(network, scaling, head)
        except _NoFormError:
            return None
        row = np.cos(np.arange(dense.inputs, dtype=np.float32))
        raw = dense._raw(np.tile(row, (TILE, 1)))
        if not all(isinstance(parameter, np.ndarray) for parameter in head.parameters(raw)):
            return None
        return dense if np.array_equal(raw, np.broadcast_to(raw[:, :1], raw.shape)) else None

    @_QUIETLY
    def __call__(self, rows: Float32Array) -> Float32Array:
        """Parameters of standardised rows, as (networks, fields, rows)."""
        padded = np.zeros((-(-len(rows) // TILE) * TILE, rows.shape[1]), np.float32)
        padded[: len(rows)] = rows
        return np.stack(self.head.parameters(self._raw(padded)), axis=1)[..., : len(rows)]

    def _raw(self, rows: Float32Array) -> Float32Array:
        """Outputs of the networks for rows whose number is a multiple of ``TILE``."""
        networks, count = self.networks, len(rows)
        raw = np.empty((networks, count, self.layers[-1].outputs), np.float32)
        rows_at_once = min(count, _TOGETHER)
        networks_at_once = min(networks, _TOGETHER // rows_at_once)
        buffers = _Buffers(networks_at_once * rows_at_once * self.widest)
        for first in range(0, networks, networks_at_once):
            which = slice(first, first + networks_at_once)
            for start in range(0, count, rows_at_once):
                part = slice(start, start + rows_at_once)
                raw[which, part] = self._outputs(rows[part], which, buffers)
        if self.around is not None:
            point = raw[..., self.around.point_at]
            point[...] = np.float32(self.around.reach) * np.tanh(point)
        return raw

    def _outputs(self, rows: Float32Array, which: slice, buffers: _Buffers) -> Float32Array:
        x = rows.reshape(-1, TILE * self.inputs) - self.center[which]
        x /= self.scale[which]
        x = x.reshape(len(x), *rows.shape)
        last = x[..., -1:]
        if self.embedding is not None:
            x = self.embedding(x, which, buffers)
        for layer in self.layers:
            x = layer(x, which, buffers)
        return x if self.skip is None else x + self.skip[which] * last
