"""A second, plain implementation of the training for points, in JAX with every step written out.

It uses nothing of the bank: no lanes, masks or padding, permutations by sorting, Adam by hand, all
in double precision. All ensembles train at once, since all trials have equally many rows. The test
error is recorded after each of the last epochs: at a constant learning rate, the last epoch is a
random draw from them.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from calipers_study.settings import StudySettings
from calipers_study.splits import Split

Array = Any

LATE = 100
"""Last epochs, after each of which ensembles are measured."""

_SEGMENT = 20  # epochs per call


def _double() -> Any:
    """Context in which JAX uses double precision."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]  # before JAX 0.8

    return enable_x64()


class _Learning(NamedTuple):
    layers: Array
    first: Array
    second: Array
    step: Array


def standardised(
    X: Array, y: Array, splits: list[Split]
) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
    """Training and test rows of each trial, standardised by its training rows; and the unit.

    The unit is the standard deviation of the training targets, relative to that of all targets.
    """
    parts: list[list[Array]] = [[], [], [], []]
    units = []
    for split in splits:
        inputs, target = X[split.train], y[split.train]
        scale = np.where(np.ptp(inputs, axis=0) > 0, inputs.std(axis=0), 1.0)
        for i, rows in enumerate((split.train, split.test)):
            parts[2 * i].append((X[rows] - inputs.mean(axis=0)) / scale)
            parts[2 * i + 1].append((y[rows] - target.mean()) / target.std())
        units.append(target.std() / y.std())
    stacked = [np.stack(part) for part in parts]
    return (stacked[0], stacked[1]), (stacked[2], stacked[3]), np.array(units)


def late_errors(
    settings: StudySettings,
    train: tuple[Array, Array],
    test: tuple[Array, Array],
    seeds: list[list[int]],
) -> NDArray[np.float64]:
    """Mean squared error of each trial's ensemble after each of the last epochs.

    Parameters
    ----------
    settings : StudySettings
        Of "mse".
    train, test : pairs of ndarray, of shapes (trials, rows, inputs) and (trials, rows)
        Standardised rows and targets.
    seeds : list of lists of int
        One for each network of each trial.

    Returns
    -------
    ndarray of shape (trials, epochs)
        The last ``LATE`` epochs, or as many as there are.
    """
    with _double(), jax.default_matmul_precision("highest"):
        X, y, test_X, test_y = (jnp.asarray(a, jnp.float64) for a in (*train, *test))
        keys = jax.vmap(jax.vmap(jax.random.key))(jnp.asarray(seeds, jnp.uint32))
        sizes = (X.shape[2], *settings.hidden_layers, 3)
        state = jax.vmap(jax.vmap(partial(_start, sizes)))(keys)
        run = jax.jit(partial(_epochs, settings), static_argnames=("count", "measured"))
        errors, done = [], 0
        while done < settings.epochs:
            early = settings.epochs - LATE - done
            count = min(_SEGMENT, early if early > 0 else settings.epochs - done)
            state, found = run(state, keys, done, (X, y), (test_X, test_y),
                               count=count, measured=early <= 0)  # fmt: skip
            done += count
            if early <= 0:
                errors.append(np.asarray(found, np.float64))
    return np.concatenate(errors).T


def _start(sizes: tuple[int, ...], key: Array) -> _Learning:
    """Glorot's uniform weights and biases of zero."""
    layers = []
    for own, (a, b) in zip(jax.random.split(key, len(sizes) - 1), pairwise(sizes), strict=True):
        limit = (6 / (a + b)) ** 0.5
        weight = jax.random.uniform(own, (a, b), jnp.float64, -limit, limit)
        layers.append((weight, jnp.zeros(b)))
    zeros = jax.tree.map(jnp.zeros_like, layers)
    return _Learning(layers, zeros, zeros, jnp.int32(0))


def _epochs(
    settings: StudySettings, state: _Learning, keys: Array, done: Array,
    train: tuple[Array, Array], test: tuple[Array, Array], *, count: int, measured: bool,
) -> tuple[_Learning, Array]:  # fmt: skip
    members = jax.vmap(partial(_epoch, settings), in_axes=(0, 0, None, None))

    def one(state: _Learning, number: Array) -> tuple[_Learning, Array]:
        own = jax.vmap(jax.vmap(jax.random.fold_in, (0, None)), (0, None))(keys, number + 1)
        state = jax.vmap(members)(state, own, *train)
        if not measured:
            return state, jnp.zeros(())
        point = jax.vmap(jax.vmap(_point, in_axes=(0, None)))(state.layers, test[0]).mean(axis=1)
        return state, jnp.mean((point - test[1]) ** 2, axis=1)

    return jax.lax.scan(one, state, done + jnp.arange(count))


def _epoch(settings: StudySettings, state: _Learning, key: Array, X: Array, y: Array) -> _Learning:
    """One pass over the permuted rows, including the last, smaller batch."""
    order = jax.random.permutation(key, len(y))
    whole = len(y) // settings.batch_size * settings.batch_size
    batches = order[:whole].reshape(-1, settings.batch_size)

    def step(state: _Learning, rows: Array) -> tuple[_Learning, None]:
        return _step(settings, state, X[rows], y[rows]), None

    state, _ = jax.lax.scan(step, state, batches)
    return _step(settings, state, X[order[whole:]], y[order[whole:]]) if whole < len(y) else state


def _step(settings: StudySettings, state: _Learning, x: Array, y: Array) -> _Learning:
    gradient = jax.grad(lambda layers: jnp.mean((_point(layers, x) - y) ** 2))(state.layers)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state.second, gradient)
    step = state.step + 1
    power = step.astype(y.dtype)
    decay = settings.decay_rate ** (state.step / settings.decay_steps)
    rate = (settings.learning_rate * decay / (1 - 0.9**power)).astype(y.dtype)
    root = jnp.sqrt(1 - 0.999**power)
    layers = jax.tree.map(
        lambda w, m, v: w - rate * m / (jnp.sqrt(v) / root + 1e-8), state.layers, first, second
    )
    return _Learning(layers, first, second, step)


def _point(layers: Array, x: Array) -> Array:
    """The second of three outputs, as in the networks for intervals."""
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = layers[-1]
    return (x @ weight + bias)[:, 1]
