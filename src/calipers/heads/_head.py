"""Base class of heads, their shared functions, and heads for bounds and points."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from calipers._arrays import Array
from calipers.distributions import SplitNormal, SplitNormalMixture

if TYPE_CHECKING:
    from calipers.onnx import Graph, Value

Values = dict[str, NDArray[np.float64]]
"""Predictions of networks by field, each of shape (networks, rows)."""

MIN_SCALE = 1e-6
"""Added to lengths, in standardised units, so that none is zero."""

MIN_WEIGHT = 1e-6
"""Added to mixture weights, so that no component has weight zero."""


class Head(ABC):
    """Interpretation of a network's raw outputs.

    To add a head, write a subclass and register it in ``HEADS`` under its name. The trainer, the
    ensemble, upgrades and the ONNX export use only the attributes and methods below.
    """

    name: ClassVar[str]  #: Key in ``HEADS``.
    size: ClassVar[int]  #: Number of raw outputs of the network.
    #: The parameters computed from the raw outputs: ``lower``, ``point`` and ``upper`` for bounds,
    #: ``point`` alone for a point; those of a density may have any names.
    fields: ClassVar[tuple[str, ...]]
    lengths: ClassVar[tuple[str, ...]] = ()  #: The fields that are lengths.
    #: The fields that are mixture weights, without a unit; all other fields are locations.
    shares: ClassVar[tuple[str, ...]] = ()
    can_cross: ClassVar[bool] = False  #: Whether the lower bound can lie above the upper one.
    #: Indices of the raw outputs that are locations on the target's axis.
    locations: ClassVar[tuple[int, ...]] = ()
    #: Index of the raw output that is the point, where the others are distances from it.
    point_at: ClassVar[int | None] = None
    #: The fields that are location, left and right scale of a split normal, component by component
    #: if there are several; empty if the head predicts no density.
    split_normal: ClassVar[tuple[str, ...]] = ()
    #: Number of split normals that one network predicts, with as many ``shares`` if more than one.
    components: ClassVar[int] = 1
    #: Name of the equivalent head that has a ``point_at``; None if there is none.
    around_point: ClassVar[str | None] = None

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        fields = getattr(cls, "fields", ())
        plain = fields in ((), ("lower", "point", "upper"), ("point",))
        if not (plain or cls.split_normal):
            raise TypeError(
                f"{cls.__name__}.fields must be ('lower', 'point', 'upper') or ('point',), or "
                f"split_normal must name the fields of a density; got {fields}"
            )

    @abstractmethod
    def parameters(self, raw: Array) -> tuple[Array, ...]:
        """Parameters, one array ``(...)`` per field, from raw outputs of shape ``(..., size)``.

        Traced by JAX; predictions are faster if NumPy arrays are returned for NumPy arrays.
        """

    @abstractmethod
    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        """``(lower, point, upper)`` of a coverage from the parameters; traced by JAX."""

    @abstractmethod
    def onnx(self, graph: "Graph", *raw: "Value") -> list["Value"]:
        """``parameters`` in a ``calipers.onnx`` graph, from and to names of values."""

    def with_components(self, count: int) -> "Head":
        """The head of networks that predict ``count`` components.

        Raises
        ------
        ValueError
            If the head supports only one component.
        """
        if count != self.components:
            raise ValueError(f"the head {self.name!r} has one component, got {count}")
        return self

    def is_location(self, field: str) -> bool:
        """Whether a field is a location on the target's axis, neither a length nor a weight."""
        return field not in self.lengths and field not in self.shares

    def mixture(self, values: Values) -> SplitNormalMixture | None:
        """Predicted densities of all networks as one mixture, or None without a density."""
        if not self.split_normal:
            return None
        parts = [[values[name] for name in self.split_normal[i::3]] for i in range(3)]
        if self.components == 1:
            return SplitNormalMixture(SplitNormal(*(part[0] for part in parts)))
        weights = [values[name] for name in self.shares]
        flat = (np.stack(part, axis=1).reshape(-1, part[0].shape[1]) for part in (*parts, weights))
        loc, left, right, weight = flat
        components = SplitNormal(loc, left, right)
        return SplitNormalMixture(components, weight, per_network=self.components)

    @property
    def has_interval(self) -> bool:
        """Whether networks predict more than a point."""
        return self.fields != ("point",)


class Arithmetic(Head):
    """A head of sums, products and the functions below, whose ONNX form follows from them."""

    def onnx(self, graph: "Graph", *raw: "Value") -> list["Value"]:
        return list(self.parameters(raw))


def length(raw: Array) -> Array:
    """A positive number from any number, by softplus."""
    if isinstance(raw, np.ndarray):
        return np.log1p(np.exp(-np.abs(raw))) + np.maximum(raw, 0) + MIN_SCALE
    if _is_symbol(raw):
        return raw.graph("Softplus", raw) + MIN_SCALE
    return jax.nn.softplus(raw) + MIN_SCALE


def mixture_weights(raw: Sequence[Array]) -> Array:
    """Positive numbers of sum 1 over the first axis, from any numbers, by softmax."""
    total = 1 + len(raw) * MIN_WEIGHT
    if _is_symbol(raw[0]):
        return [(soft + MIN_WEIGHT) / total for soft in _softmax(raw)]
    if isinstance(raw[0], np.ndarray):
        positive = np.exp(np.stack(raw) - np.max(raw, axis=0))
        soft = positive / sum(positive)  # summed in order: bits are independent of the other rows
    else:
        soft = jax.nn.softmax(jnp.stack(raw), axis=0)
    return (soft + MIN_WEIGHT) / total


def _is_symbol(raw: object) -> bool:
    """Whether a value is one of a ``calipers.onnx`` graph, where arithmetic adds nodes."""
    return isinstance(raw, str)


def _softmax(raw: Sequence["Value"]) -> list["Value"]:
    graph = raw[0].graph
    stacked = graph("Concat", *(graph.unsqueezed(symbol, 0) for symbol in raw), axis=0)
    soft = graph("Softmax", stacked, axis=0)
    parts = (graph("Gather", soft, graph.integers(k), axis=0) for k in range(len(raw)))
    return [graph.squeezed(part, 0) for part in parts]


def raw_columns(raw: Array) -> tuple[Array, ...]:
    """Raw outputs as one array each; those of a graph are already."""
    return raw if isinstance(raw, tuple) else tuple(raw[..., i] for i in range(raw.shape[-1]))


class _BoundsHead(Arithmetic):
    """Bounds for the coverage that networks were trained for, and a point."""

    size = 3
    fields = ("lower", "point", "upper")
    locations: ClassVar[tuple[int, ...]] = (0, 1, 2)
    around_point = "ordered"

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        lower, point, upper = parameters
        return lower, point, upper


class Free(_BoundsHead):
    """Bounds and a point, constrained only by the loss, as in the paper; they can cross."""

    name = "free"
    can_cross = True

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        return raw_columns(raw)


class Midpoint(_BoundsHead):
    """Free bounds and their midpoint as the point, for losses that do not train a point."""

    name = "midpoint"
    can_cross = True

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        lower, _, upper = raw_columns(raw)
        return lower, (lower + upper) / 2, upper


class Ordered(_BoundsHead):
    """A point and the distances of the bounds from it, so that they cannot cross."""

    name = "ordered"
    locations = (1,)
    point_at = 1

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        below, point, above = raw_columns(raw)
        return point - length(below), point, point + length(above)


class Point(Arithmetic):
    """A point prediction alone."""

    name = "point"
    size = 1
    fields = ("point",)
    locations = (0,)

    def parameters(self, raw: Array) -> tuple[Array, ...]:
        return raw_columns(raw)

    def interval(self, *parameters: Array, coverage: Array) -> tuple[Array, Array, Array]:
        (point,) = parameters
        return point, point, point
