"""Factories of networks, which a bank trains from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from calipers.networks._activations import ACTIVATIONS
from calipers.networks._modules import (
    EmbeddedPerceptron,
    Linear,
    Perceptron,
    Periodic,
    PiecewiseLinear,
)

_NARROWEST = 0.01  # width of a segment, in standardised units
ROWS_FOR_KNOTS = 10_000  # enough rows to place them
_SKIP = 0.8  # initial weight of a prediction, whose spread is less than that of the target
_SEGMENT_AMPLITUDE = 0.5  # initial amplitude of segments, relative to that of cosines


class Network(Protocol):
    """A factory of Equinox modules, from which a bank of networks is trained.

    It must be hashable (a function, or a frozen dataclass), since it is a key of the cache of
    compiled programs. The module it returns maps one row of shape ``(in_size,)`` to
    ``(out_size,)``.
    """

    def __call__(self, in_size: int, out_size: int, *, key: jax.Array) -> eqx.Module:
        """Make a freshly initialised module."""


@dataclass(frozen=True)
class DenseFactory:
    """Factory of fully connected networks, optionally over embeddings of the inputs.

    Examples
    --------
    >>> import jax
    >>> network = DenseFactory((50,), "tanh")(13, 3, key=jax.random.key(0))
    >>> network(jax.numpy.zeros(13)).shape
    (3,)
    """

    hidden_layers: tuple[int, ...] = (50, 50)  #: Units of each hidden layer.
    activation: str = "relu"  #: A key of ``ACTIVATIONS``.
    #: Cosines per input; None for a plain network. With 0, inputs are only clipped.
    frequencies: int | None = None
    #: Inputs that are embedded; all by default. Binary inputs gain nothing from it.
    columns: tuple[int, ...] | None = None
    #: Standard deviation of the initial frequencies, in periods per standardised unit.
    spread: float = 0.35
    amplitude: float = 1.0  #: Initial amplitude of the cosines.
    clip: float = 3.0  #: Inputs level off at this many standardised units.
    bins: int = 0  #: Segments of the piecewise-linear encoding of each of ``columns``.
    #: Outputs to which the last input, itself a prediction of the target, is added with a learned
    #: weight: training starts near that prediction, and departs from it where this helps. It needs
    #: ``frequencies``.
    skip: tuple[int, ...] = ()
    smooth: bool = False  #: Whether to train it for a smooth target, see ``calipers.training``.

    @property
    def clips_inputs(self) -> bool:
        """Whether inputs are clipped, so that an outlier has no more effect than a large value."""
        return self.frequencies is not None

    def __call__(
        self, in_size: int, out_size: int, *, key: jax.Array
    ) -> "Perceptron | EmbeddedPerceptron":
        """Make a network; ``key`` seeds its weights."""
        if self.frequencies is None:
            return self._perceptron(in_size, out_size, key)
        first, second = jax.random.split(key)
        columns = tuple(range(in_size)) if self.columns is None else self.columns
        embedding = Periodic(
            columns,
            self.frequencies,
            spread=self.spread,
            amplitude=self.amplitude,
            clip=self.clip,
            key=first,
        )
        size = in_size + embedding.frequency.size + len(columns) * self.bins
        perceptron = self._perceptron(size, out_size, second)
        segments = skip = None
        if self.bins and columns:
            amplitude = _SEGMENT_AMPLITUDE * self.amplitude
            segments = PiecewiseLinear(columns, self.bins, amplitude=amplitude)
        if self.skip:
            skip = jnp.zeros(out_size).at[jnp.array(self.skip)].set(_SKIP)
        return EmbeddedPerceptron(embedding, perceptron, segments, skip)

    def knots(self, inputs: NDArray[np.floating[Any]]) -> NDArray[np.float32] | None:
        """Knots for a network trained on these standardised rows; None if it has no segments."""
        columns = range(inputs.shape[1]) if self.columns is None else self.columns
        if not (self.bins and len(columns)):
            return None
        sample = inputs[:: max(1, len(inputs) // ROWS_FOR_KNOTS)]
        knots = np.zeros((len(columns), self.bins + 1), np.float32)
        if len(sample):
            levels = np.linspace(0, 1, self.bins + 1)
            quantiles = np.quantile(sample[:, list(columns)], levels, axis=0).T
            for column, values in zip(knots, quantiles, strict=True):
                kept = _apart(values)
                column[:] = kept[-1]
                column[: len(kept)] = kept
        return knots.ravel()

    def with_knots(self, module: Any, knots: jax.Array) -> Any:
        """Return a network of this factory with these knots."""
        return eqx.tree_at(lambda network: network.segments.knots, module, knots)

    def _perceptron(self, in_size: int, out_size: int, key: jax.Array) -> Perceptron:
        sizes = (in_size, *self.hidden_layers, out_size)
        keys = jax.random.split(key, len(sizes) - 1)
        layers = tuple(
            Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        return Perceptron(layers, self.activation)


def _apart(values: NDArray[np.floating[Any]]) -> list[float]:
    """Thin out ascending values, so that each is at least ``_NARROWEST`` above the one before.

    A narrower segment would be so steep that the rounding errors of two programs would give
    visibly different outputs.
    """
    kept = [float(values[0])]
    for value in values[1:].tolist():
        if value - kept[-1] >= _NARROWEST:
            kept.append(value)
    return kept


class AroundPoint(eqx.Module):
    """A network whose point output stays within ``reach`` of zero, the given point prediction."""

    network: eqx.Module
    point_at: int = eqx.field(static=True)
    reach: float = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row."""
        raw = self.network(x)  # type: ignore[operator]
        return raw.at[self.point_at].set(self.reach * jnp.tanh(raw[self.point_at]))


@dataclass(frozen=True)
class Around:
    """Factory of networks that predict an interval around a given point prediction.

    Examples
    --------
    >>> import jax
    >>> network = Around(DenseFactory((8,)), point_at=0)(2, 3, key=jax.random.key(0))
    >>> bool(network(jax.numpy.ones(2))[0] == 0)
    True
    """

    network: Network  #: Factory of the networks without this constraint.
    point_at: int  #: Index of the raw output that is the point, see ``calipers.heads.Head``.
    #: Largest distance of the point from the given one, in units of the target; 0 keeps it.
    reach: float = 0.0

    def __call__(self, in_size: int, out_size: int, *, key: jax.Array) -> AroundPoint:
        """Make a network; ``key`` seeds its weights."""
        return AroundPoint(self.network(in_size, out_size, key=key), self.point_at, self.reach)

    def knots(self, inputs: NDArray[np.floating[Any]]) -> NDArray[np.float32] | None:
        """Knots for a network trained on these standardised rows; None if it has no segments."""
        return traits(self.network).knots(inputs)

    def with_knots(self, module: AroundPoint, knots: jax.Array) -> AroundPoint:
        """Return a network of this factory with these knots."""
        inner = self.network.with_knots(module.network, knots)  # type: ignore[attr-defined]
        return AroundPoint(inner, module.point_at, module.reach)


class Traits(NamedTuple):
    """What training needs to know about a factory, which need not say any of it."""

    smooth: bool  #: Whether to train its networks for a smooth target.
    clips_inputs: bool  #: Whether inputs are clipped, so that outliers need no care.
    #: Knots for a network that is trained on some standardised rows, or None.
    knots: Callable[[NDArray[np.floating[Any]]], NDArray[np.float32] | None]


def traits(network: Network) -> Traits:
    """Return the traits of a factory.

    Examples
    --------
    >>> traits(DenseFactory((5,), frequencies=0)).clips_inputs, traits(eqx.nn.Linear).clips_inputs
    (True, False)
    """
    return Traits(
        getattr(network, "smooth", False),
        getattr(network, "clips_inputs", False),
        getattr(network, "knots", lambda inputs: None),
    )


def network_code(network: Network) -> tuple[Any, ...]:
    """Return the classes and functions that define a factory's networks, as far as known.

    Examples
    --------
    >>> network_code(DenseFactory((5,), "relu")) == (DenseFactory, jax.nn.relu)
    True
    """
    if isinstance(network, Around):
        return (type(network), *network_code(network.network))
    if isinstance(network, DenseFactory):
        return (type(network), ACTIVATIONS[network.activation].function)
    return (type(network),)
