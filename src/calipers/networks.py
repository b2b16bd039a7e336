"""Networks as Equinox modules, and the heads that give their outputs a meaning.

A network maps one standardised row of inputs to a few raw numbers. A head turns those numbers into
the parameters of a prediction (bounds and a point, or the location and scales of a density) and
says which interval they stand for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

Array = Any

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
}


class Network(Protocol):
    """What trains a bank of networks: a factory of Equinox modules.

    It must be hashable (a function, or a frozen dataclass), since compiled programs are kept by it.
    The module it returns takes one row of shape ``(in_size,)`` and returns ``(out_size,)``.
    """

    def __call__(self, in_size: int, out_size: int, *, key: Array) -> eqx.Module:
        """Make a freshly initialised module."""


class Linear(eqx.Module):
    """Affine map with Glorot-uniform weights and zero biases.

    The weight is stored as ``(in_size, out_size)``, the order in which a batch of rows multiplies
    fastest on a CPU.
    """

    weight: Array
    bias: Array

    def __init__(self, in_size: int, out_size: int, *, key: Array) -> None:
        limit = (6 / (in_size + out_size)) ** 0.5
        self.weight = jax.random.uniform(key, (in_size, out_size), minval=-limit, maxval=limit)
        self.bias = jnp.zeros(out_size)

    def __call__(self, x: Array) -> Array:
        """Map one row."""
        return x @ self.weight + self.bias


class Perceptron(eqx.Module):
    """Fully connected layers with an activation between them."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        """Map one row."""
        *hidden, last = self.layers
        for layer in hidden:
            x = ACTIVATIONS[self.activation](layer(x))
        return last(x)


@dataclass(frozen=True)
class MLP:
    """Factory of fully connected networks.

    Parameters
    ----------
    hidden : tuple of int
        Units of each hidden layer.
    activation : str
        A key of ``ACTIVATIONS``.

    Examples
    --------
    >>> import jax
    >>> network = MLP(hidden=(50,), activation="tanh")(13, 3, key=jax.random.key(0))
    >>> network(jax.numpy.zeros(13)).shape
    (3,)
    """

    hidden: tuple[int, ...] = (50, 50)
    activation: str = "relu"

    def __call__(self, in_size: int, out_size: int, *, key: Array) -> Perceptron:
        """Make a network; ``key`` seeds its weights."""
        sizes = (in_size, *self.hidden, out_size)
        keys = jax.random.split(key, len(sizes) - 1)
        layers = tuple(
            Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        return Perceptron(layers, self.activation)


class Periodic(eqx.Module):
    """Inputs, softly clipped, beside cosines of some at learnt frequencies, phases, amplitudes.

    A sharp or oscillating dependence on one input, which a plain network learns late, is linear in
    the cosines (Gorishniy, Rubachev and Babenko, 2022). Where they start small, what is smooth is
    learnt first, and a table too small for more stops there. The clipping (Holzmueller,
    Grinsztajn and Steinwart, 2024) keeps outliers near the rest.
    """

    frequency: Array
    phase: Array
    amplitude: Array
    columns: tuple[int, ...] = eqx.field(static=True)
    clip: float = eqx.field(static=True)

    def __init__(
        self,
        columns: tuple[int, ...],
        waves: int,
        *,
        spread: float,
        amplitude: float,
        clip: float,
        key: Array,
    ) -> None:
        first, second = jax.random.split(key)
        self.frequency = spread * jax.random.normal(first, (len(columns), waves))
        self.phase = jax.random.uniform(second, (len(columns), waves))
        self.amplitude = jnp.full(len(columns), amplitude)
        self.columns = columns
        self.clip = clip

    def __call__(self, x: Array) -> Array:
        """Map one row of ``in_size`` to ``in_size + len(columns) * waves``."""
        x = x / jnp.sqrt(1 + (x / self.clip) ** 2)
        chosen = x[jnp.array(self.columns, dtype=int)]
        cosines = jnp.cos(2 * jnp.pi * (chosen[:, None] * self.frequency + self.phase))
        return jnp.concatenate([x, (self.amplitude[:, None] * cosines).ravel()])


class EmbeddedPerceptron(eqx.Module):
    """A perceptron over periodic embeddings."""

    embedding: Periodic
    perceptron: Perceptron

    def __call__(self, x: Array) -> Array:
        """Map one row."""
        return self.perceptron(self.embedding(x))


@dataclass(frozen=True)
class EmbeddedMLP:
    """Factory of fully connected networks over periodic embeddings of the inputs.

    Parameters
    ----------
    hidden : tuple of int
        Units of each hidden layer.
    activation : str
        A key of ``ACTIVATIONS``.
    waves : int
        Cosines per input.
    columns : tuple of int, optional
        Inputs that get them; all by default. They tell nothing of an input with two values.
    spread : float
        Standard deviation of the first frequencies, in waves per standardised unit.
    amplitude : float
        First amplitude of the cosines.
    clip : float
        Inputs level off at this many standardised units.

    Examples
    --------
    >>> import jax
    >>> network = EmbeddedMLP(hidden=(32,), waves=4)(13, 3, key=jax.random.key(0))
    >>> network(jax.numpy.zeros(13)).shape
    (3,)
    """

    hidden: tuple[int, ...] = (128, 128, 128)
    activation: str = "silu"
    waves: int = 8
    columns: tuple[int, ...] | None = None
    spread: float = 0.35
    amplitude: float = 1.0
    clip: float = 3.0

    def __call__(self, in_size: int, out_size: int, *, key: Array) -> EmbeddedPerceptron:
        """Make a network; ``key`` seeds its weights."""
        first, second = jax.random.split(key)
        embedding = Periodic(
            tuple(range(in_size)) if self.columns is None else self.columns,
            self.waves,
            spread=self.spread,
            amplitude=self.amplitude,
            clip=self.clip,
            key=first,
        )
        mlp = MLP(self.hidden, self.activation)
        size = in_size + embedding.frequency.size
        return EmbeddedPerceptron(embedding, mlp(size, out_size, key=second))


class AroundPoint(eqx.Module):
    """A network whose point stays near zero, where it stands for a point known beforehand."""

    network: eqx.Module
    point_at: int = eqx.field(static=True)
    reach: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        """Map one row."""
        raw = self.network(x)  # type: ignore[operator]
        return raw.at[self.point_at].set(self.reach * jnp.tanh(raw[self.point_at]))


@dataclass(frozen=True)
class Around:
    """Factory of networks that give an interval around a known point, not a point of their own.

    Parameters
    ----------
    network : Network
        Factory of what they are otherwise.
    point_at : int
        Which raw output is the point, see ``Head.point_at``.
    reach : float
        How far the point may move from the known one, in units of the target; 0 keeps it.

    Examples
    --------
    >>> import jax
    >>> network = Around(MLP((8,)), point_at=0)(2, 3, key=jax.random.key(0))
    >>> bool(network(jax.numpy.ones(2))[0] == 0)
    True
    """

    network: Network
    point_at: int
    reach: float = 0.0

    def __call__(self, in_size: int, out_size: int, *, key: Array) -> AroundPoint:
        """Make a network; ``key`` seeds its weights."""
        return AroundPoint(self.network(in_size, out_size, key=key), self.point_at, self.reach)


@dataclass(frozen=True)
class Head:
    """The meaning of a network's raw outputs.

    Attributes
    ----------
    name : str
        Key in ``HEADS``.
    size : int
        How many raw outputs the network has.
    fields : tuple of str
        The parameters the head makes of them; those whose name ends in ``scale`` are lengths, the
        others places on the target's axis.
    parameters : callable
        Raw outputs ``(..., size)`` to one array ``(...)`` per field.
    interval : callable
        Those arrays and a coverage to ``(lower, point, upper)``.
    can_cross : bool
        Whether the lower bound can lie above the upper one.
    point_at : int or None
        Which raw output is the point, where the others are distances from it.
    """

    name: str
    size: int
    fields: tuple[str, ...]
    parameters: Callable[[Array], tuple[Array, ...]]
    interval: Callable[..., tuple[Array, Array, Array]]
    can_cross: bool = False
    point_at: int | None = None


_BOUNDS = ("lower", "point", "upper")
_DENSITY = ("loc", "left_scale", "right_scale")
SMALLEST_SCALE = 1e-6
"""What is added to lengths, in standardised units, so that none is zero."""


def _length(raw: Array) -> Array:
    return jax.nn.softplus(raw) + SMALLEST_SCALE


def _columns(raw: Array) -> tuple[Array, ...]:
    return tuple(raw[..., i] for i in range(raw.shape[-1]))


def _midpoint(raw: Array) -> tuple[Array, ...]:
    lower, _, upper = _columns(raw)
    return lower, (lower + upper) / 2, upper


def _ordered(raw: Array) -> tuple[Array, ...]:
    below, point, above = _columns(raw)
    return point - _length(below), point, point + _length(above)


def _normal(raw: Array) -> tuple[Array, ...]:
    mean, scale = _columns(raw)
    return mean, _length(scale)


def _split_normal(raw: Array) -> tuple[Array, ...]:
    loc, left, right = _columns(raw)
    return loc, _length(left), _length(right)


def _centred(raw: Array) -> tuple[Array, ...]:
    mean, left, right = _split_normal(raw)
    return mean - (2 / jnp.pi) ** 0.5 * (right - left), left, right


def _own_interval(lower: Array, point: Array, upper: Array, coverage: Array) -> Any:
    del coverage  # the bounds were trained for it
    return lower, point, upper


def _no_interval(point: Array, coverage: Array) -> Any:
    del coverage  # the interval of a bare point is the point
    return point, point, point


def _normal_interval(mean: Array, scale: Array, coverage: Array) -> Any:
    half_width = scale * ndtri((1 + coverage) / 2)
    return mean - half_width, mean, mean + half_width


def _split_normal_interval(loc: Array, left: Array, right: Array, coverage: Array) -> Any:
    def quantile(p: Array) -> Array:
        below = loc + left * ndtri(jnp.minimum(p * (left + right) / (2 * left), 0.5))
        above = loc - right * ndtri(jnp.minimum((1 - p) * (left + right) / (2 * right), 0.5))
        return jnp.where(p * (left + right) < left, below, above)

    return quantile((1 - coverage) / 2), loc, quantile((1 + coverage) / 2)


HEADS: dict[str, Head] = {
    head.name: head
    for head in (
        Head("free", 3, _BOUNDS, _columns, _own_interval, can_cross=True),
        Head("midpoint", 3, _BOUNDS, _midpoint, _own_interval, can_cross=True),
        Head("ordered", 3, _BOUNDS, _ordered, _own_interval, point_at=1),
        Head("point", 1, ("point",), _columns, _no_interval),
        Head("normal", 2, ("mean", "scale"), _normal, _normal_interval, point_at=0),
        Head("split normal", 3, _DENSITY, _split_normal, _split_normal_interval),
        Head("centred", 3, _DENSITY, _centred, _split_normal_interval, point_at=0),
    )
}
"""The heads by name.

``free`` leaves bounds and point to the loss, as the paper does, and can cross; ``midpoint`` is the
same for losses that train no point; ``ordered`` cannot cross; ``point`` has no bounds; ``normal``
and ``split normal`` are densities, and ``centred`` is the latter given by its mean, not its mode.
"""
