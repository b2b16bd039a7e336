"""The values that go into and come out of a compiled program, with one entry per lane."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp

from calipers._arrays import Array

PyTree: TypeAlias = Any
"""A tree of arrays, as the network or the optimiser structures them."""

MEASURES = ("loss", "coverage", "width", "mse")


class Settings(NamedTuple):
    """Hyperparameters that may differ from network to network."""

    learning_rate: Any = 0.01  #: Learning rate of the first step.
    #: The exponential schedule multiplies the rate by ``decay_rate`` every ``decay_steps`` steps.
    decay_rate: Any = 1.0
    decay_steps: Any = 50.0
    weight_decay: Any = 0.0  #: Decoupled decay of the weights, not of the biases.
    clip_norm: Any = float("inf")  #: Largest norm of a gradient.
    #: Decay of the running average of the weights (0.99 averages over about 100 steps); where a
    #: program averages, the average is what is validated and kept.
    averaging: Any = 0.0
    #: Length of the adversarial step in standardised inputs (epsilon); 0 for none.
    adversarial_step: Any = 0.0
    epochs: Any = 100  #: Passes over the training rows, at most.
    #: Epochs without a better validation loss after which training stops and the best weights are
    #: restored; 0 trains to the end and keeps the last weights.
    patience: Any = 0
    #: A shorter patience, which grows to the best epoch: a network whose validation loss was
    #: lowest early, and has not been near it since, is stopped sooner.
    early_patience: Any = 2**30
    #: Epochs between validations; the first ``10 * check_every`` epochs are all validated.
    check_every: Any = 1
    coverage: Any = 0.95  #: Nominal probability of the interval.
    #: Parameters of the loss; those left out have their defaults.
    loss: Mapping[str, Any] = MappingProxyType({})


class RowIndex(NamedTuple):
    """Indices of rows of the table, with weights; only the first ``count`` are real."""

    index: Array
    weight: Array
    count: Array


class Scaling(NamedTuple):
    """Centre and scale of inputs and target, from a network's own training rows."""

    input_center: Array
    input_scale: Array
    target_center: Array
    target_scale: Array


class Lanes(NamedTuple):
    """What the networks in a program are trained on, and how."""

    seed: Array
    settings: Settings
    train: RowIndex
    valid: RowIndex
    scaling: Scaling
    knots: Array | None = None  # of the piecewise-linear encoding, for networks that have one


class Moments(NamedTuple):
    """Adam's running means of the gradient and of its square, after ``count`` steps."""

    count: Array
    mean: PyTree
    square: PyTree


class State(NamedTuple):
    """The state of training of the networks in a program.

    ``average`` is None where weights are not averaged, and ``best`` without validation rows.
    """

    network: PyTree
    average: PyTree | None
    optimizer: Moments
    epoch: Array
    loss: Array
    best: PyTree | None
    best_loss: Array
    best_epoch: Array


def _exponential(settings: Settings, step: Array, total: Array) -> Array:
    return settings.learning_rate * settings.decay_rate ** (step / settings.decay_steps)


def _cosine(settings: Settings, step: Array, total: Array) -> Array:
    return settings.learning_rate * (1 + jnp.cos(jnp.pi * jnp.minimum(step / total, 1))) / 2


def _constant(settings: Settings, step: Array, total: Array) -> Array:
    return jnp.asarray(settings.learning_rate)


SCHEDULES: dict[str, Callable[[Settings, Array, Array], Array]] = {
    "exponential": _exponential,
    "cosine": _cosine,
    "constant": _constant,
}
"""Learning rate as a function of settings, step and total number of steps."""
