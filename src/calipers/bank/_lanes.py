"""The values that a compiled program takes and gives: one entry per lane in every array."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp

Array = Any  # of NumPy or of JAX, traced or not
Tree = Any  # arrays in whatever containers the network or the optimiser has

MEASURES = ("loss", "coverage", "width", "mse")


class Settings(NamedTuple):
    """Numbers of a training that may differ from network to network.

    Attributes
    ----------
    learning_rate : float
        Adam's rate at the first step.
    decay_rate, decay_steps : float
        The exponential schedule multiplies the rate by ``decay_rate`` every ``decay_steps`` steps.
    weight_decay : float
        Decoupled decay of the weights, not of the biases.
    clip_norm : float
        Largest norm of a gradient.
    averaging : float
        Share of the running average of the weights that one step leaves (0.99 averages over about
        100 steps); where a program averages, the average is what is validated and kept.
    adversarial_step : float
        Length of the adversarial step in standardised inputs (epsilon); 0 for none.
    epochs : int
        Passes over the training rows, at most.
    patience : int
        Epochs without a better validation loss after which training stops and the best weights are
        restored; 0 trains to the end and keeps the last weights.
    early_patience : int
        Patience that is enough while twice the best epoch is less: a network whose validation loss
        was lowest soon, and has not come near it since, needs no long wait.
    check_every : int
        Epochs between looks at the validation rows; ten times as many are all looked at first.
    coverage : float
        Nominal probability of the interval.
    loss : mapping of str to float
        Numbers of the loss; those that are not given have their default.
    """

    learning_rate: Any = 0.01
    decay_rate: Any = 1.0
    decay_steps: Any = 50.0
    weight_decay: Any = 0.0
    clip_norm: Any = float("inf")
    averaging: Any = 0.0
    adversarial_step: Any = 0.0
    epochs: Any = 100
    patience: Any = 0
    early_patience: Any = 2**30
    check_every: Any = 1
    coverage: Any = 0.95
    loss: Mapping[str, Any] = MappingProxyType({})


class RowIndex(NamedTuple):
    """Rows of the table by number, with weights; only the first ``count`` are real."""

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
    """What the networks in a program are to do."""

    seed: Array
    settings: Settings
    train: RowIndex
    valid: RowIndex
    scaling: Scaling


class State(NamedTuple):
    """Where the networks in a program stand.

    ``average`` is None where weights are not averaged, ``best`` where nothing is validated.
    """

    network: Tree
    average: Tree | None
    optimizer: Tree
    epoch: Array
    loss: Array
    best: Tree | None
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
"""Learning rate by settings, step and total number of steps."""
