"""Baselines of the paper's related work: LUBE, MC-dropout, and quantiles with certificates.

LUBE is a loss and trains on the bank. The other two need random numbers in every step, which a bank
does not have, so they share a small loop of their own: batches drawn with replacement, Adam, and
the weights of the epoch with the best validation loss. One tenth of the training rows validates.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from calipers.losses import soft_capture
from calipers.objectives import Objective
from calipers_study.measures import Prediction
from calipers_study.settings import StudySettings
from calipers_study.splits import Split

Array = Any
FloatArray = NDArray[np.float64]

RATES = (0.005, 0.01, 0.05, 0.1)
"""Dropout rates among which the validation rows choose."""

_MOST_STEPS = 60_000
_PASSES = 50  # through a network with dropout
_LEVELS = (0.025, 0.5, 0.975)


class CWC(Objective):
    """Coverage width criterion of LUBE (Khosravi et al., 2011), as its logarithm.

    NMPIW (1 + exp(eta (mu - PICP)) where PICP < mu). The logarithm has the same minimum and a
    gradient that does not vanish with the width. Khosravi et al. annealed networks of a few dozen
    weights; here the capture is soft and the descent by gradient, as for QD.

    Parameters
    ----------
    steepness : float
        Price of missing coverage (eta).
    softness : float
        Steepness of the soft capture (s).
    """

    head = "ordered"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def __init__(self, *, steepness: float = 50.0, softness: float = 160.0) -> None:
        self.steepness = steepness
        self.softness = softness

    @staticmethod
    def loss(
        lower: Array,
        point: Array,
        upper: Array,
        target: Array,
        *,
        weight: Array,
        coverage: Array,
        steepness: Array,
        softness: Array,
    ) -> Array:
        """Logarithm of the criterion; the range of the target only adds a constant to it."""
        total = weight.sum()
        capture = soft_capture(lower, upper, target, softness=softness)
        missing = coverage - (capture * weight).sum() / total
        width = ((upper - lower) * weight).sum() / total
        price = jnp.log1p(jnp.exp(steepness * jnp.maximum(missing, 0)))
        return jnp.log(width) + jnp.where(missing > 0, price, 0.0)


@dataclass(frozen=True, eq=False)
class Lanes:
    """Rows of several trainings side by side, standardised, padded to one length."""

    inputs: Array
    target: Array
    count: Array
    valid_inputs: Array
    valid_target: Array
    valid_count: Array
    scales: list[tuple[FloatArray, FloatArray, float, float]]

    @classmethod
    def of(cls, X: FloatArray, y: FloatArray, trains: list[NDArray[np.int64]]) -> "Lanes":
        """Standardise each training's rows by themselves; the last tenth of them validates."""
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


def _hidden(layers: list[tuple[Array, Array]], x: Array, key: Array, rate: Array) -> Array:
    """Last hidden layer, with dropout behind each of them unless there is no key."""
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
        if key is not None:
            key, own = jax.random.split(key)
            x = jnp.where(jax.random.bernoulli(own, 1 - rate, x.shape), x / (1 - rate), 0)
    return x


def _dropout_out(layers: Any, x: Array, key: Array, rate: Array) -> Array:
    weight, bias = layers[-1]
    return (_hidden(layers, x, key, rate) @ weight + bias)[:, 0]


def _dropout_loss(layers: Any, x: Array, y: Array, key: Array, rate: Array) -> Array:
    return jnp.mean((_dropout_out(layers, x, key, rate) - y) ** 2)


def _with_level(x: Array, level: Array) -> Array:
    return jnp.concatenate([x, 12 * (jnp.broadcast_to(level, x.shape[:1]) - 0.5)[:, None]], axis=1)


def _quantile_out(layers: Any, x: Array, level: Array) -> Array:
    weight, bias = layers[-1]
    return (_hidden(layers, _with_level(x, level), None, 0.0) @ weight + bias)[:, 0]


def _pinball_rows(layers: Any, x: Array, y: Array, level: Array) -> Array:
    gap = y - _quantile_out(layers, x, level)
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
            slope = jax.grad(loss)(layers, x[index], y[index], own, rate)
            updates, state = optimizer.update(slope, state)
            return (optax.apply_updates(layers, updates), state), None

        def validated(layers: Any) -> Array:
            if kind == "dropout":
                errors = (_dropout_out(layers, vx, None, rate) - vy) ** 2
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


def _trained(kind: str, lanes: Lanes, settings: StudySettings, rates: Array, seed: int) -> Any:
    """Train one network for each lane, by the settings of a published training."""
    extra = kind == "quantiles"
    sizes = (lanes.inputs.shape[2] + extra, *settings.hidden_layers, 1)
    steps = -(-int(lanes.count.max()) // settings.batch_size)
    epochs = max(1, min(settings.epochs, _MOST_STEPS // steps))
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


@dataclass(frozen=True, eq=False)
class Scored:
    """What a baseline says about some rows: an interval, and how little it knows them."""

    prediction: Prediction
    epistemic: FloatArray


def mc_dropout(
    X: FloatArray, y: FloatArray, splits: list[Split], settings: StudySettings, *, seed: int = 0
) -> list[Scored]:
    """MC-dropout (Gal and Ghahramani, 2016): passes with dropout, and constant noise.

    The rate of each training is that with the best likelihood on its validation rows; the noise
    is what their errors have beyond the variance of the passes.
    """
    rates = [rate for rate in RATES for _ in splits]
    lanes = Lanes.of(X, y, [split.train for _ in RATES for split in splits])
    layers = _trained("dropout", lanes, settings, np.array(rates), seed)
    best: dict[int, tuple[float, Scored]] = {}
    for i, rate in enumerate(rates):
        test = splits[i % len(splits)].test
        own = jax.tree.map(lambda leaf, i=i: leaf[i], layers)
        center, spread, mean, deviation = lanes.scales[i]
        count = lanes.valid_count[i]
        at, variance = _passes(own, lanes.valid_inputs[i][:count], rate, seed)
        miss = (lanes.valid_target[i][:count] - at) ** 2
        noise = max(float(miss.mean() - variance.mean()), 1e-4)
        score = float(np.mean(np.log(variance + noise) + miss / (variance + noise)))
        if i % len(splits) in best and best[i % len(splits)][0] <= score:
            continue
        at, variance = _passes(own, (X[test] - center) / spread, rate, seed)
        half = 1.959964 * np.sqrt(variance + noise) * deviation
        point = at * deviation + mean
        found = Scored(Prediction(point, point - half, point + half), variance)
        best[i % len(splits)] = (score, found)
    return [best[i][1] for i in range(len(splits))]


def _passes(
    layers: Any, inputs: FloatArray, rate: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance over passes with dropout."""
    keys = jax.random.split(jax.random.key(seed), _PASSES)
    out = jax.vmap(lambda key: _dropout_out(layers, jnp.asarray(inputs, jnp.float32), key, rate))(
        keys
    )
    values = np.asarray(out, np.float64)
    return values.mean(axis=0), values.var(axis=0)


def quantiles_with_certificates(
    X: FloatArray, y: FloatArray, splits: list[Split], settings: StudySettings, *, seed: int = 0
) -> list[Scored]:
    """Simultaneous quantile regression and orthonormal certificates (Tagasovska, Lopez-Paz 2019).

    One network takes the level as an input and is trained for all levels. Certificates are
    orthonormal directions of its last hidden layer in which training rows hardly vary; of all such
    sets the half of the eigenvectors with the smallest eigenvalues has the smallest loss, so that
    no descent is needed. How far a row reaches into them is its epistemic score.
    """
    lanes = Lanes.of(X, y, [split.train for split in splits])
    layers = _trained("quantiles", lanes, settings, np.zeros(len(splits)), seed)
    scored = []
    for i, split in enumerate(splits):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], layers)
        center, spread, mean, deviation = lanes.scales[i]
        rows = jnp.asarray((X[split.test] - center) / spread, jnp.float32)
        lower, point, upper = (
            np.asarray(_quantile_out(own, rows, jnp.float32(p)), np.float64) * deviation + mean
            for p in _LEVELS
        )
        seen = lanes.inputs[i][: lanes.count[i]]
        scored.append(
            Scored(
                Prediction(point, np.minimum(lower, upper), np.maximum(lower, upper)),
                _certified(own, seen, rows),
            )
        )
    return scored


def _certified(layers: Any, seen: Array, rows: Array) -> FloatArray:
    features = [
        np.asarray(
            _hidden(layers, _with_level(jnp.asarray(x), jnp.float32(0.5)), None, 0.0), np.float64
        )
        for x in (seen, rows)
    ]
    moments = features[0].T @ features[0] / len(features[0])
    directions = np.linalg.eigh(moments)[1][:, : len(moments) // 2]
    return np.asarray(((features[1] @ directions) ** 2).mean(axis=1))
