"""A second, plain implementation of the published training of QD, in NumPy with manual gradients.

It uses nothing of calipers, so that a number both agree on cannot be due to a fault of the bank, be
it in its batches, its shuffles, its compiler or its device. The networks of an ensemble are trained
together; every epoch is a permutation by NumPy's generator.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers_study.attempts import LARGEST_LOSS, TRIES
from calipers_study.settings import StudySettings

Array = NDArray[Any]
Layers = list[tuple[Array, Array]]

_TINY = 0.001  # in the denominator of the width term


def loss_and_slope(settings: StudySettings, out: Array, y: Array) -> tuple[Array, Array]:
    """Loss of a batch and its gradient in the outputs (lower, point, upper), for each network.

    Parameters
    ----------
    settings : StudySettings
        Of "qd".
    out : ndarray of shape (networks, rows, 3)
        Lower bounds, points, upper bounds.
    y : ndarray of shape (networks, rows)
        Targets.
    """
    lower, _, upper = np.moveaxis(out, -1, 0)
    below = _sigmoid(settings.softness * (y - lower))
    above = _sigmoid(settings.softness * (upper - y))
    soft = below * above
    rises = [-settings.softness * soft * (1 - below), settings.softness * soft * (1 - above)]
    lacking = np.maximum(settings.coverage - soft.mean(axis=1), 0)
    caught = ((lower < y) & (y < upper)).astype(out.dtype)
    share = caught / (caught.sum(axis=1, keepdims=True) + _TINY)
    factor = settings.coverage_weight * y.shape[1] ** 0.5
    slope = np.zeros_like(out)
    for i, (sign, rise) in enumerate(zip((-1, 1), rises, strict=True)):
        slope[..., 2 * i] = sign * np.sign(upper - lower) * share
        slope[..., 2 * i] -= 2 * factor * lacking[:, None] * rise / y.shape[1]
    return (np.abs(upper - lower) * share).sum(axis=1) + factor * lacking**2, slope


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(x, -80, 80)))


def train_plainly(
    settings: StudySettings, X: Array, y: Array, seeds: list[int]
) -> tuple[Layers, Array]:
    """Train one network for each seed, and again with another seed if it fails.

    Parameters
    ----------
    settings : StudySettings
        Of "qd".
    X, y : ndarray
        Training rows, standardised.
    seeds : list of int
        One for each network.

    Returns
    -------
    layers, failures : list of pairs of ndarray, ndarray of int
        Weights and biases of all networks, and how often each of them failed: ``TRIES`` for those
        that never succeeded, whose weights are those of the last attempt.
    """
    X, y = X.astype(np.float32), y.astype(np.float32)
    sizes = (X.shape[1], *settings.hidden_layers, 3)
    flat = np.empty((len(seeds), sum((a + 1) * b for a, b in pairwise(sizes))), np.float32)
    failures = np.zeros(len(seeds), np.int64)
    waiting = np.arange(len(seeds))
    for attempt in range(TRIES):
        generators = [np.random.default_rng((seeds[i], attempt)) for i in waiting]
        flat[waiting] = _train(settings, X, y, sizes, generators)
        out = outputs(_layers(flat[waiting], sizes), np.broadcast_to(X, (len(waiting), *X.shape)))
        loss, _ = loss_and_slope(settings, out, np.broadcast_to(y, (len(waiting), len(y))))
        waiting = waiting[~(loss <= LARGEST_LOSS) | (out[..., 0] >= out[..., 2]).any(axis=1)]
        failures[waiting] += 1
        if not len(waiting):
            break
    return _layers(flat, sizes), failures


def _train(
    settings: StudySettings, X: Array, y: Array, sizes: tuple[int, ...],
    generators: list[np.random.Generator],
) -> Array:  # fmt: skip
    """Weights, one row per network, after Adam on shuffled batches, including the last, smaller."""
    flat = np.stack([_initial(sizes, generator) for generator in generators]).astype(np.float32)
    slopes, first, second = (np.zeros_like(flat) for _ in range(3))
    layers, slope_layers = _layers(flat, sizes), _layers(slopes, sizes)
    step = 0
    for _ in range(settings.epochs):
        order = np.stack([generator.permutation(len(y)) for generator in generators])
        for start in range(0, len(y), settings.batch_size):
            rows = order[:, start : start + settings.batch_size]
            _backward(settings, layers, slope_layers, X[rows], y[rows])
            rate = settings.learning_rate * settings.decay_rate ** (step / settings.decay_steps)
            step += 1
            _adam(flat, slopes, first, second, rate, step)
    return flat


def _adam(flat: Array, slopes: Array, first: Array, second: Array, rate: float, step: int) -> None:
    """Update the weights and both moments in place by one step."""
    np.multiply(slopes, slopes, out=(change := np.empty_like(flat)))
    second *= 0.999
    change *= 0.001
    second += change
    slopes *= 0.1
    first *= 0.9
    first += slopes
    np.sqrt(second, out=change)
    change *= (1 - 0.999**step) ** -0.5
    change += 1e-8
    np.divide(first, change, out=change)
    change *= rate / (1 - 0.9**step)
    flat -= change


def _initial(sizes: tuple[int, ...], generator: np.random.Generator) -> Array:
    """Glorot's uniform weights and biases of zero."""
    parts = []
    for a, b in pairwise(sizes):
        limit = (6 / (a + b)) ** 0.5
        parts += [generator.uniform(-limit, limit, a * b), np.zeros(b)]
    return np.concatenate(parts)


def _layers(flat: Array, sizes: tuple[int, ...]) -> Layers:
    """Views of the weights and biases of each layer in flat rows."""
    layers, at = [], 0
    for a, b in pairwise(sizes):
        weight = flat[:, at : at + a * b].reshape(-1, a, b)
        layers.append((weight, flat[:, None, at + a * b : at + (a + 1) * b]))
        at += (a + 1) * b
    return layers


def outputs(layers: Layers, x: Array) -> Array:
    """Lower bounds, points and upper bounds of rows for each network."""
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ weight + bias, 0)
    weight, bias = layers[-1]
    return np.asarray(x @ weight + bias)


def _backward(settings: StudySettings, layers: Layers, slopes: Layers, x: Array, y: Array) -> None:
    """Write the gradient of the loss in all weights into ``slopes``."""
    inputs = [x]
    for weight, bias in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weight + bias, 0))
    weight, bias = layers[-1]
    _, slope = loss_and_slope(settings, inputs[-1] @ weight + bias, y)
    for i in reversed(range(len(layers))):
        np.matmul(inputs[i].swapaxes(1, 2), slope, out=slopes[i][0])
        slope.sum(axis=1, keepdims=True, out=slopes[i][1])
        if i:
            slope = (slope @ layers[i][0].swapaxes(1, 2)) * (inputs[i] > 0)
