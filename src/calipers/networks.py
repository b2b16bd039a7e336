"""Networks as Equinox modules.

A network maps one standardised row of inputs to a few raw numbers, whose meaning a head gives.
``MLP`` says which networks an ``IntervalRegressor`` trains; a network of one's own is a factory of
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

Array = Any

_ROWS_PER_FREQUENCY = 3  # of one input: few rows cannot tell which of many frequencies matter
_ROWS_PER_INPUT = 100  # from which on cosines start at full amplitude
_MOST_FREQUENCIES = 512  # of all inputs together, which bounds the cost of wide tables
_NARROWEST = 0.01  # piece of an input, in standardised units
ROWS_FOR_KNOTS = 10_000  # that are enough to place them
BINS, ROWS_FOR_PIECES = 32, 900  # that "auto" tries, and the rows from which it does
# Of odd powers of the sine of a turn, from -1/4 to 1/4, with its sign changed: least squares.
_SINE = (-6.2831853, 41.341681, -81.60248, 76.581256, -39.760497)
PIECES = 0.5  # first amplitude of pieces, in that of cosines
SPREAD, AMPLITUDE = 0.15, 0.125  # of the cosines of smooth networks; the latter is a factor

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
        return self.after_first(self.layers[0](x))

    def after_first(self, x: Array) -> Array:
        """Map what the first layer gives for one row."""
        for layer in self.layers[1:]:
            x = layer(ACTIVATIONS[self.activation](x))
        return x


def cosine_of_turns(turns: Array) -> Array:
    """Cosine of an angle in full turns, to 2e-7.

    ``jnp.cos`` takes care of angles beyond all turns, which a CPU does one number at a time.

    Examples
    --------
    >>> off = cosine_of_turns(jnp.array([0.0, 0.125, -1.5])) - jnp.array([1, 0.5**0.5, -1])
    >>> abs(off).max() < 2e-7
    Array(True, dtype=bool)
    """
    quarter = jnp.abs(turns - jnp.round(turns)) - 0.25
    square = quarter * quarter
    found: Array | float = _SINE[-1]
    for coefficient in _SINE[-2::-1]:
        found = found * square + coefficient
    return quarter * found


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
        count: int,
        *,
        spread: float,
        amplitude: float,
        clip: float,
        key: Array,
    ) -> None:
        first, second = jax.random.split(key)
        self.frequency = spread * jax.random.normal(first, (len(columns), count))
        self.phase = jax.random.uniform(second, (len(columns), count))
        self.amplitude = jnp.full(len(columns), amplitude)
        self.columns = columns
        self.clip = clip

    def __call__(self, x: Array) -> Array:
        """Map one row of ``in_size`` to ``in_size + len(columns) * count``."""
        x = x / jnp.sqrt(1 + (x / self.clip) ** 2)
        chosen = x[jnp.array(self.columns, dtype=int)]
        cosines = cosine_of_turns(chosen[:, None] * self.frequency + self.phase)
        return jnp.concatenate([x, (self.amplitude[:, None] * cosines).ravel()])


class PiecewiseLinear(eqx.Module):
    """Some inputs in pieces: how much of each piece between two knots lies below the input.

    Steps and kinks in one input, which trees find, are linear in the pieces (Gorishniy, Rubachev
    and Babenko, 2022). Knots are quantiles of the training rows and are not trained; a piece
    without a width, where there are fewer knots, is 0.
    """

    knots: Array  # in one row, since matrices decay
    amplitude: Array
    columns: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, columns: tuple[int, ...], bins: int, *, amplitude: float) -> None:
        self.knots = jnp.zeros(len(columns) * (bins + 1))
        self.amplitude = jnp.full(len(columns), amplitude)
        self.columns = columns

    @property
    def bins(self) -> int:
        """Pieces of an input."""
        return self.knots.shape[-1] // len(self.columns) - 1

    def filled(self, x: Array) -> Array:
        """How much of each piece lies below the input, from 0 to 1."""
        knots = jax.lax.stop_gradient(self.knots).reshape(len(self.columns), -1)
        width = knots[:, 1:] - knots[:, :-1]
        slope = jnp.where(width > 0, 1 / jnp.where(width > 0, width, 1), 0)
        chosen = x[jnp.array(self.columns, dtype=int)]
        return jnp.clip((chosen[:, None] - knots[:, :-1]) * slope, 0, 1).ravel()


class EmbeddedPerceptron(eqx.Module):
    """A perceptron over embeddings."""

    embedding: Periodic
    perceptron: Perceptron
    pieces: PiecewiseLinear | None = None

    def __call__(self, x: Array) -> Array:
        """Map one row."""
        found = self.embedding(x)
        if self.pieces is None:
            return self.perceptron(found)
        first = self.perceptron.layers[0]
        own, weight = jnp.split(first.weight, [found.size])
        # With amplitudes in the weights, no gradient has to go back to the pieces, which do not
        # depend on what is trained: a third of their products.
        weight = jnp.repeat(self.pieces.amplitude, self.pieces.bins)[:, None] * weight
        return self.perceptron.after_first(
            found @ own + self.pieces.filled(x) @ weight + first.bias
        )


@dataclass(frozen=True)
class DenseFactory:
    """Factory of fully connected networks, over embeddings of the inputs if wanted.

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
    #: Inputs that get them; all by default. They tell nothing of an input with two values.
    columns: tuple[int, ...] | None = None
    #: Standard deviation of the first frequencies, in periods per standardised unit.
    spread: float = 0.35
    amplitude: float = 1.0  #: First amplitude of the cosines.
    clip: float = 3.0  #: Inputs level off at this many standardised units.
    bins: int = 0  #: Pieces of each of ``columns`` beside the cosines.
    smooth: bool = False  #: Whether it is trained as what is smooth, see ``calipers.training``.

    @property
    def clips_inputs(self) -> bool:
        """Whether an input beyond all others moves a network no farther than a large one does."""
        return self.frequencies is not None

    def __call__(
        self, in_size: int, out_size: int, *, key: Array
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
        if not (self.bins and columns):
            return EmbeddedPerceptron(embedding, perceptron)
        pieces = PiecewiseLinear(columns, self.bins, amplitude=PIECES * self.amplitude)
        return EmbeddedPerceptron(embedding, perceptron, pieces)

    def knots(self, inputs: NDArray[np.floating[Any]]) -> NDArray[np.float32] | None:
        """Knots for a network that sees these standardised rows; None where it has none."""
        columns = range(inputs.shape[1]) if self.columns is None else self.columns
        if not (self.bins and len(columns)):
            return None
        some = inputs[:: max(1, len(inputs) // ROWS_FOR_KNOTS)]
        found = np.zeros((len(columns), self.bins + 1), np.float32)
        if len(some):
            levels = np.linspace(0, 1, self.bins + 1)
            quantiles = np.quantile(some[:, list(columns)], levels, axis=0).T
            for own, values in zip(found, quantiles, strict=True):
                kept = _apart(values)
                own[:] = kept[-1]
                own[: len(kept)] = kept
        return found.ravel()

    def with_knots(self, module: Any, knots: Array) -> Any:
        """A network of this factory, at these knots."""
        return eqx.tree_at(lambda network: network.pieces.knots, module, knots)

    def _perceptron(self, in_size: int, out_size: int, key: Array) -> Perceptron:
        sizes = (in_size, *self.hidden_layers, out_size)
        keys = jax.random.split(key, len(sizes) - 1)
        layers = tuple(
            Linear(a, b, key=k) for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        return Perceptron(layers, self.activation)


def _apart(values: NDArray[np.floating[Any]]) -> list[float]:
    """Of ascending values those that are not too near to the one before.

    A step steeper than that would tell rounding errors of one program from those of another.
    """
    kept = [float(values[0])]
    for value in values[1:].tolist():
        if value - kept[-1] >= _NARROWEST:
            kept.append(value)
    return kept


MOST_LAYERS, MOST_UNITS = 256, 10**6
"""Largest sizes of a network."""


@dataclass(kw_only=True, eq=False, repr=False)
class MLP(BaseEstimator):
    """Fully connected networks over embeddings of inputs: what a model trains by default.

    Parameters
    ----------
    hidden_layers : sequence of int
        Units of each hidden layer.
    activation : str
        A key of ``ACTIVATIONS``.
    frequencies : int
        Periodic embeddings of each input with more than two values, fewer where rows are few or
        inputs many; 0 for a plain network.
    bins : int or "auto"
        Pieces into which such an input is cut besides, likewise; 0 for none. "auto" is, in ``fit``
        on 900 rows and more, 32 where a short trial leaves 4% of the variance unexplained, and
        otherwise none: what is nearly free of noise is mostly smooth. Where trees leave twice as
        much as the trial, the target is smooth as well; networks then have no pieces, slower and
        lower cosines, twice the learning rate, five times the weight decay and half the epochs.
    trees : int or "auto"
        Trees whose mean point is one more input, by trees that have not seen a row where networks
        train on it; 0 for none. "auto" is, in ``fit`` of 100 to 50,000 rows with neither ``epochs``
        nor a ``time_budget``, 100 where they predict held-out rows about as well as networks do
        after trials, or better, and these leave 4% of the variance unexplained; otherwise none.

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
        """The networks that suit a table of inputs of which ``rows`` rows are trained on."""
        hidden = tuple(int(units) for units in self.hidden_layers)
        if len(hidden) > MOST_LAYERS or not all(1 <= units <= MOST_UNITS for units in hidden):
            raise ValueError(
                f"hidden_layers must be 1 to {MOST_UNITS:,} units in each of at most {MOST_LAYERS} "
                f"layers, got {self.hidden_layers!r}"
            )
        if not self.frequencies:
            return DenseFactory(hidden, self.activation)
        more = ~np.all((X.min(axis=0) == X) | (X.max(axis=0) == X), axis=0)  # than two values
        inputs = max(1, int(more.sum()))  # ones and zeros of categories take no frequencies
        fewest = min(rows // (_ROWS_PER_FREQUENCY * inputs), _MOST_FREQUENCIES // inputs)
        # In powers of two, since a network of another amplitude is another program to compile.
        amplitude = 2.0 ** min(0, round(np.log2(rows / (_ROWS_PER_INPUT * inputs))))
        found = DenseFactory(
            hidden,
            self.activation,
            min(self.frequencies, fewest),
            tuple(np.flatnonzero(more).tolist()),
            amplitude=amplitude,
        )
        return found if isinstance(self.bins, str) else in_pieces(found, rows, int(self.bins))

    def alternative(self, usual: DenseFactory, rows: int) -> DenseFactory | None:
        """What may be better than the usual networks for so many rows, if anything is tried."""
        if self.bins != "auto" or usual.frequencies is None or rows < ROWS_FOR_PIECES:
            return None
        found = in_pieces(usual, rows, BINS)
        return found if found.bins else None


def in_pieces(usual: DenseFactory, rows: int, bins: int) -> DenseFactory:
    """The same networks with inputs in so many pieces, or fewer where rows are few."""
    inputs = max(1, len(usual.columns or ()))
    most = min(bins, rows // (_ROWS_PER_FREQUENCY * inputs), _MOST_FREQUENCIES // inputs)
    return replace(usual, bins=2 ** int(np.log2(most)) if most and usual.columns else 0)


def smooth(usual: DenseFactory) -> DenseFactory:
    """The same networks with slower and lower cosines."""
    return replace(usual, spread=SPREAD, amplitude=AMPLITUDE * usual.amplitude, smooth=True)


NETWORKS: dict[str, type[MLP]] = {"mlp": MLP}
"""Settings of networks by name."""


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

    Examples
    --------
    >>> import jax
    >>> network = Around(DenseFactory((8,)), point_at=0)(2, 3, key=jax.random.key(0))
    >>> bool(network(jax.numpy.ones(2))[0] == 0)
    True
    """

    network: Network  #: Factory of what they are otherwise.
    point_at: int  #: Which raw output is the point, see ``calipers.heads.Head``.
    #: How far the point may move from the known one, in units of the target; 0 keeps it.
    reach: float = 0.0

    def __call__(self, in_size: int, out_size: int, *, key: Array) -> AroundPoint:
        """Make a network; ``key`` seeds its weights."""
        return AroundPoint(self.network(in_size, out_size, key=key), self.point_at, self.reach)

    def knots(self, inputs: NDArray[np.floating[Any]]) -> NDArray[np.float32] | None:
        """Knots for a network that sees these standardised rows; None where it has none."""
        place = getattr(self.network, "knots", None)
        found: NDArray[np.float32] | None = None if place is None else place(inputs)
        return found

    def with_knots(self, module: AroundPoint, knots: Array) -> AroundPoint:
        """A network of this factory, at these knots."""
        inner = self.network.with_knots(module.network, knots)  # type: ignore[attr-defined]
        return AroundPoint(inner, module.point_at, module.reach)


def network_code(network: Network) -> tuple[Any, ...]:
    """The classes and functions that a factory's networks are made of, as far as they are known.

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
