"""A small training loop for networks that need random numbers in every step, unlike a bank.

Batches are drawn with replacement, the optimiser is Adam, and the weights of the epoch with the
best validation loss are kept. Networks train in parallel, each on its own rows.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from calipers_study.settings import StudySettings

Array = Any
FloatArray = NDArray[np.float64]

_MAX_STEPS = 60_000


@dataclass(frozen=True, eq=False)
class PaddedRows:
    """Rows of several trainings, standardised and padded to one length."""

    inputs: Array
    target: Array
    count: Array
    valid_inputs: Array
    valid_target: Array
    valid_count: Array
    scales: list[tuple[FloatArray, FloatArray, float, float]]

    @classmethod
    def of(cls, X: FloatArray, y: FloatArray, trains: list[NDArray[np.int64]]) -> "PaddedRows":
        """Standardise each training's rows separately, and set the last tenth aside to validate."""
        parts, valids, scales = [], [], []
        for rows in trains:
            cut = len(rows) - max(1, len(rows) // 10)
            center, spread = X[rows].mean(axis=0), X[rows].std(axis=0)
            spread = np.where(spread > 1e-12 * np.abs(center), spread, 1.0)
            mean, deviation = float(y[rows].mean()), float(y[rows].std())
            inputs, target = (X[rows] - center) / spread, (y[rows] - mean) / deviation
            parts.append((inputs[:cut], target[:cut]))
            valids.append((inputs[cut:], target[cut:]))
            scales.append((center, spread, mean, deviation))
        return cls(*_padded(parts), *_padded(valids), scales)


def _padded(parts: list[tuple[FloatArray, FloatArray]]) -> tuple[Array, Array, Array]:
    counts = [len(target) for _, target in parts]
    size = max(counts)
    inputs = [np.pad(X, ((0, size - len(X)), (0, 0))) for X, _ in parts]
    target = [np.pad(y, (0, size - len(y))) for _, y in parts]
    single = np.float32
    return np.stack(inputs).astype(single), np.stack(target).astype(single), np.array(counts)


def _network(sizes: tuple[int, ...], key: Array) -> list[tuple[Array, Array]]:
    layers = []
    for a, b in pairwise(sizes):
        key, own = jax.random.split(key)
        limit = (6 / (a + b)) ** 0.5
        layers.append((jax.random.uniform(own, (a, b), minval=-limit, maxval=limit), jnp.zeros(b)))
    return layers


def hidden_layer(layers: list[tuple[Array, Array]], x: Array, key: Array, rate: Array) -> Array:
    """Activations of the last hidden layer, with dropout after each layer unless key is None."""
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
        if key is not None:
            key, own = jax.random.split(key)
            x = jnp.where(jax.random.bernoulli(own, 1 - rate, x.shape), x / (1 - rate), 0)
    return x


def dropout_output(layers: Any, x: Array, key: Array, rate: Array) -> Array:
    """Point predictions, with dropout unless key is None."""
    weight, bias = layers[-1]
    return (hidden_layer(layers, x, key, rate) @ weight + bias)[:, 0]


def _dropout_loss(layers: Any, x: Array, y: Array, key: Array, rate: Array) -> Array:
    return jnp.mean((dropout_output(layers, x, key, rate) - y) ** 2)


def with_level(x: Array, level: Array) -> Array:
    """Inputs with the level of the quantile as a further column."""
    return jnp.concatenate([x, 12 * (jnp.broadcast_to(level, x.shape[:1]) - 0.5)[:, None]], axis=1)


def quantile_output(layers: Any, x: Array, level: Array) -> Array:
    """Quantiles of one level."""
    weight, bias = layers[-1]
    return (hidden_layer(layers, with_level(x, level), None, 0.0) @ weight + bias)[:, 0]


def _pinball_rows(layers: Any, x: Array, y: Array, level: Array) -> Array:
    gap = y - quantile_output(layers, x, level)
    return jnp.maximum(level * gap, (level - 1) * gap)


def _quantile_loss(layers: Any, x: Array, y: Array, key: Array, rate: Array) -> Array:
    if key is None:
        rows = [
            _pinball_rows(layers, x, y, jnp.float32(p)) for p in (0.025, 0.25, 0.5, 0.75, 0.975)
        ]
        return jnp.mean(jnp.stack(rows), axis=0)
    return jnp.mean(_pinball_rows(layers, x, y, jax.random.uniform(key, y.shape)))


@partial(jax.jit, static_argnames=("kind", "sizes", "batch", "epochs", "steps"))
def _fit(
    kind: str, sizes: tuple[int, ...], batch: int, epochs: int, steps: int, rows: Any,
    rate: Array, schedule: Array, seeds: Array,
) -> Array:  # fmt: skip
    loss = _dropout_loss if kind == "dropout" else _quantile_loss

    def one(rows: Any, rate: Array, seed: Array) -> Array:
        x, y, count, vx, vy, valid_count = rows
        real = jnp.arange(len(vy)) < valid_count
        start, key = jax.random.split(jax.random.key(seed))
        layers = _network(sizes, start)
        first, decay, every = schedule
        optimizer = optax.adam(lambda step: first * decay ** (step / every))

        def step(carry: Any, key: Array) -> Any:
            layers, state = carry
            place, own = jax.random.split(key)
            index = jax.random.randint(place, (batch,), 0, count)
            gradient = jax.grad(loss)(layers, x[index], y[index], own, rate)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(layers, updates), state), None

        def validated(layers: Any) -> Array:
            if kind == "dropout":
                errors = (dropout_output(layers, vx, None, rate) - vy) ** 2
            else:
                errors = _quantile_loss(layers, vx, vy, None, rate)
            return jnp.sum(jnp.where(real, errors, 0)) / valid_count

        def epoch(carry: Any, key: Array) -> Any:
            layers, state, best, lowest = carry
            (layers, state), _ = jax.lax.scan(step, (layers, state), jax.random.split(key, steps))
            now = validated(layers)
            best = jax.tree.map(lambda a, b: jnp.where(now < lowest, a, b), layers, best)
            return (layers, state, best, jnp.minimum(now, lowest)), None

        begin = (layers, optimizer.init(layers), layers, jnp.float32(jnp.inf))
        (_, _, best, _), _ = jax.lax.scan(epoch, begin, jax.random.split(key, epochs))
        return best

    return jax.vmap(one)(rows, rate, seeds)


def train_rows(
    kind: str, lanes: PaddedRows, settings: StudySettings, rates: Array, seed: int
) -> Any:
    """Train one network per lane, with the settings of a published training."""
    extra = kind == "quantiles"
    sizes = (lanes.inputs.shape[2] + extra, *settings.hidden_layers, 1)
    steps = -(-int(lanes.count.max()) // settings.batch_size)
    epochs = max(1, min(settings.epochs, _MAX_STEPS // steps))
    rows = (
        lanes.inputs, lanes.target, lanes.count,
        lanes.valid_inputs, lanes.valid_target, lanes.valid_count,
    )  # fmt: skip
    schedule = np.array([settings.learning_rate, settings.decay_rate, settings.decay_steps])
    seeds = np.random.SeedSequence(seed).generate_state(len(lanes.count))
    with jax.default_matmul_precision("float32"):
        return _fit(
            kind, sizes, settings.batch_size, epochs, steps, rows,
            np.asarray(rates, np.float32), schedule.astype(np.float32), seeds,
        )  # fmt: skip
