"""Networks as Equinox modules.

A network maps one standardised row of inputs to a few raw outputs, which a head interprets.
``MLP`` configures the networks of an ``IntervalRegressor``; a custom network is a factory of
Equinox modules, see ``Network``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval as Within, StrOptions

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "NETWORKS",
    "Around",
    "AroundPoint",
    "DenseFactory",
    "EmbeddedPerceptron",
    "Linear",
    "Network",
    "Perceptron",
    "Periodic",
    "PiecewiseLinear",
]

_ROWS_PER_FREQUENCY = 3  # per input: few rows cannot tell which of many frequencies matter
_ROWS_PER_INPUT = 100  # with at least this many, cosines start at full amplitude
_MAX_FREQUENCIES = 512  # of all inputs together, which bounds the cost of wide tables
_NARROWEST = 0.01  # width of a segment, in standardised units
ROWS_FOR_KNOTS = 10_000  # enough rows to place them
BINS, ROWS_FOR_SEGMENTS = 32, 900  # segments that "auto" tries, and the fewest rows to do so
# Least-squares coefficients of odd powers x, x^3, ... for -sin(2 pi x), with x from -1/4 to 1/4.
_SINE = (-6.2831853, 41.341681, -81.60248, 76.581256, -39.760497)
_SKIP = 0.8  # initial weight of a prediction, whose spread is less than that of the target
SEGMENT_AMPLITUDE = 0.5  # initial amplitude of segments, relative to that of cosines
# Standard deviation of the frequencies of smooth networks, and factor of their amplitudes.
SPREAD, AMPLITUDE = 0.15, 0.125

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
}


class Network(Protocol):
    """A factory of Equinox modules, from which a bank of networks is trained.

    It must be hashable (a function, or a frozen dataclass), since it is a key of the cache of
    compiled programs. The module it returns maps one row of shape ``(in_size,)`` to
    ``(out_size,)``.
    """

    def __call__(self, in_size: int, out_size: int, *, key: jax.Array) -> eqx.Module:
        """Make a freshly initialised module."""


class Linear(eqx.Module):
    """Affine map with Glorot-uniform weights and zero biases.

    The weight has shape ``(in_size, out_size)``, the layout in which multiplying a batch of rows is
    fastest on a CPU.
    """

    weight: jax.Array
    bias: jax.Array

    def __init__(self, in_size: int, out_size: int, *, key: jax.Array) -> None:
        limit = (6 / (in_size + out_size)) ** 0.5
        self.weight = jax.random.uniform(key, (in_size, out_size), minval=-limit, maxval=limit)
        self.bias = jnp.zeros(out_size)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row."""
        return x @ self.weight + self.bias


class Perceptron(eqx.Module):
    """Fully connected layers with an activation between them."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row."""
        return self.after_first(self.layers[0](x))

    def after_first(self, x: jax.Array) -> jax.Array:
        """Map the output of the first layer for one row."""
        for layer in self.layers[1:]:
            x = layer(ACTIVATIONS[self.activation](x))
        return x


def cosine_of_turns(turns: jax.Array) -> jax.Array:
    """Cosine of an angle in full turns, accurate to 2e-7.

    ``jnp.cos`` also reduces huge angles exactly, which a CPU does one number at a time.

    Examples
    --------
    >>> off = cosine_of_turns(jnp.array([0.0, 0.125, -1.5])) - jnp.array([1, 0.5**0.5, -1])
    >>> abs(off).max() < 2e-7
    Array(True, dtype=bool)
    """
    quarter = jnp.abs(turns - jnp.round(turns)) - 0.25
    square = quarter * quarter
    polynomial: jax.Array | float = _SINE[-1]
    for coefficient in _SINE[-2::-1]:
        polynomial = polynomial * square + coefficient
    return quarter * polynomial


class Periodic(eqx.Module):
    """Softly clipped inputs, and cosines of some of them.

    Frequencies, phases and amplitudes of the cosines are learned. A sharp or oscillating dependence
    on one input, which a plain network learns late, is linear in the cosines (Gorishniy, Rubachev
    and Babenko, 2022). If the amplitudes start small, the smooth part is learned first, and
    training on a small table may stop there. The clipping (Holzmueller, Grinsztajn and Steinwart,
    2024) keeps outliers near the other rows.
    """

    frequency: jax.Array
    phase: jax.Array
    amplitude: jax.Array
    columns: tuple[int, ...] = eqx.field(static=True)
    clip: float = eqx.field(static=True)

    def __init__(
        self,
        columns: tuple[int, ...],
        count: int,
        *,
        spread: float,
        amplitude: float,
        clip: float,
        key: jax.Array,
    ) -> None:
        first, second = jax.random.split(key)
        self.frequency = spread * jax.random.normal(first, (len(columns), count))
        self.phase = jax.random.uniform(second, (len(columns), count))
        self.amplitude = jnp.full(len(columns), amplitude)
        self.columns = columns
        self.clip = clip

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row of ``in_size`` to ``in_size + len(columns) * count``."""
        x = x / jnp.sqrt(1 + (x / self.clip) ** 2)
        selected = x[jnp.array(self.columns, dtype=int)]
        cosines = cosine_of_turns(selected[:, None] * self.frequency + self.phase)
        return jnp.concatenate([x, (self.amplitude[:, None] * cosines).ravel()])


class PiecewiseLinear(eqx.Module):
    """Piecewise-linear encoding: the fraction of each segment between two knots below the input.

    Steps and kinks in one input, which trees find, are linear in the encoding (Gorishniy, Rubachev
    and Babenko, 2022). Knots are quantiles of the training rows and are not trained; a segment of
    width 0, which pads inputs with fewer distinct knots, is encoded as 0.
    """

    knots: jax.Array  # flat, since weight decay applies to matrices
    amplitude: jax.Array
    columns: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, columns: tuple[int, ...], bins: int, *, amplitude: float) -> None:
        self.knots = jnp.zeros(len(columns) * (bins + 1))
        self.amplitude = jnp.full(len(columns), amplitude)
        self.columns = columns

    @property
    def bins(self) -> int:
        """Number of segments per input."""
        return self.knots.shape[-1] // len(self.columns) - 1

    def filled(self, x: jax.Array) -> jax.Array:
        """Fraction of each segment that lies below the input, from 0 to 1."""
        knots = jax.lax.stop_gradient(self.knots).reshape(len(self.columns), -1)
        width = knots[:, 1:] - knots[:, :-1]
        slope = jnp.where(width > 0, 1 / jnp.where(width > 0, width, 1), 0)
        selected = x[jnp.array(self.columns, dtype=int)]
        return jnp.clip((selected[:, None] - knots[:, :-1]) * slope, 0, 1).ravel()


class EmbeddedPerceptron(eqx.Module):
    """A perceptron over embeddings."""

    embedding: Periodic
    perceptron: Perceptron
    segments: PiecewiseLinear | None = None
    skip: jax.Array | None = None  # weights of the last input in the outputs

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map one row."""
        raw = self._over_embeddings(x)
        return raw if self.skip is None else raw + self.skip * x[-1]

    def _over_embeddings(self, x: jax.Array) -> jax.Array:
        embedded = self.embedding(x)
        if self.segments is None:
            return self.perceptron(embedded)
        first = self.perceptron.layers[0]
        embedded_weight, weight = jnp.split(first.weight, [embedded.size])
        # With the amplitudes multiplied into the weights, no gradient flows back to the encoding,
        # which depends on no trained parameter. This saves a third of its matrix products.
        weight = jnp.repeat(self.segments.amplitude, self.segments.bins)[:, None] * weight
        return self.perceptron.after_first(
            embedded @ embedded_weight + self.segments.filled(x) @ weight + first.bias
        )


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
            amplitude = SEGMENT_AMPLITUDE * self.amplitude
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


MAX_LAYERS, MAX_UNITS = 256, 10**6
"""Largest sizes of a network."""


@dataclass(kw_only=True, eq=False, repr=False)
class MLP(BaseEstimator):
    """Fully connected networks over embeddings of inputs, the default of ``IntervalRegressor``.

    Parameters
    ----------
    hidden_layers : sequence of int
        Units of each hidden layer.
    activation : str
        A key of ``ACTIVATIONS``.
    frequencies : int
        Periodic embeddings of each input with more than two values, fewer with few rows or many
        inputs; 0 for a plain network.
    bins : int or "auto"
        Segments of a piecewise-linear encoding of each such input, fewer in the same cases; 0 for
        none. "auto" is 32 in ``fit`` on at least 900 rows if a short trial leaves at least 4% of
        the variance unexplained, and otherwise 0: a target with almost no noise is mostly smooth.
        If trees leave at least twice as much unexplained as the trial, the target is smooth as
        well; networks then have no segments, lower frequencies and amplitudes, twice the learning
        rate, five times the weight decay and half the epochs.
    trees : int or "auto"
        Number of trees whose prediction is an additional input (for training rows, that of trees
        which have not seen them), rounded up to a multiple of 35, or of 7 for each fold if there
        are more than five; 0 for none. "auto" is 700, or fewer with more than 256 inputs, in
        ``fit`` on 100 to 50,000 rows with neither ``epochs`` nor a ``time_budget``, if the trees
        predict held-out rows better or not much worse than networks in short trials; otherwise 0.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.column_stack([np.linspace(0, 1, 300), np.arange(300) % 2])
    >>> MLP(hidden_layers=(32,)).factory(X, 300).columns
    (0,)
    """

    hidden_layers: Sequence[int] = (128, 128, 128)
    activation: str = "silu"
    frequencies: int = 8
    bins: int | str = "auto"
    trees: int | str = "auto"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden_layers": ["array-like"],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "frequencies": [Within(Integral, 0, None, closed="left")],
        "bins": [Within(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "trees": [Within(Integral, 0, 10_000, closed="both"), StrOptions({"auto"})],
    }

    def factory(self, X: NDArray[np.floating[Any]], rows: int) -> DenseFactory:
        """Return the factory of networks that suit inputs ``X`` with ``rows`` training rows."""
        hidden = tuple(int(units) for units in self.hidden_layers)
        if len(hidden) > MAX_LAYERS or not all(1 <= units <= MAX_UNITS for units in hidden):
            raise ValueError(
                f"hidden_layers must be 1 to {MAX_UNITS:,} units in each of at most {MAX_LAYERS} "
                f"layers, got {self.hidden_layers!r}"
            )
        if not self.frequencies:
            return DenseFactory(hidden, self.activation)
        not_binary = ~np.all((X.min(axis=0) == X) | (X.max(axis=0) == X), axis=0)
        inputs = max(1, int(not_binary.sum()))  # one-hot categories have no frequencies
        most = min(rows // (_ROWS_PER_FREQUENCY * inputs), _MAX_FREQUENCIES // inputs)
        # In powers of two, since each amplitude is another program to compile.
        amplitude = 2.0 ** min(0, round(np.log2(rows / (_ROWS_PER_INPUT * inputs))))
        factory = DenseFactory(
            hidden,
            self.activation,
            min(self.frequencies, most),
            tuple(np.flatnonzero(not_binary).tolist()),
            amplitude=amplitude,
        )
        return factory if self.bins == "auto" else with_segments(factory, rows, int(self.bins))

    def alternative(self, base: DenseFactory, rows: int) -> DenseFactory | None:
        """Return the networks to try besides ``base`` for this many rows, if there are any."""
        if self.bins != "auto" or base.frequencies is None or rows < ROWS_FOR_SEGMENTS:
            return None
        factory = with_segments(base, rows, BINS)
        return factory if factory.bins else None


def with_segments(base: DenseFactory, rows: int, bins: int) -> DenseFactory:
    """Add a piecewise-linear encoding of ``bins`` segments, or fewer if there are few rows."""
    inputs = max(1, len(base.columns or ()))
    most = min(bins, rows // (_ROWS_PER_FREQUENCY * inputs), _MAX_FREQUENCIES // inputs)
    return replace(base, bins=2 ** int(np.log2(most)) if most and base.columns else 0)


def smooth(base: DenseFactory) -> DenseFactory:
    """Return the same networks with lower frequencies and amplitudes of the cosines."""
    return replace(base, spread=SPREAD, amplitude=AMPLITUDE * base.amplitude, smooth=True)


NETWORKS: dict[str, type[MLP]] = {"mlp": MLP}
"""Network settings by name."""


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
        return self.network.knots(inputs) if hasattr(self.network, "knots") else None

    def with_knots(self, module: AroundPoint, knots: jax.Array) -> AroundPoint:
        """Return a network of this factory with these knots."""
        inner = self.network.with_knots(module.network, knots)  # type: ignore[attr-defined]
        return AroundPoint(inner, module.point_at, module.reach)


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
        return (type(network), ACTIVATIONS[network.activation])
    return (type(network),)
