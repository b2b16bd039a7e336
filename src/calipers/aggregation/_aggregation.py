"""What every aggregation says about itself, and the checks that all of them share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import ArrayLike
from scipy.special import ndtri

from calipers import _checks as checks
from calipers._checks import FloatArray
from calipers.distributions import SplitNormalMixture


class Interval(NamedTuple):
    """Bounds and points, in this order everywhere."""

    lower: FloatArray
    point: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class Aggregation:
    """How the members of an ensemble become one prediction."""

    #: ``function(lower, point, upper, *, coverage)`` of the members' bounds and points, each of
    #: shape (members, rows), and the coverage they were trained for.
    function: Callable[..., SplitNormalMixture | Interval]
    #: Whether it gives a ``SplitNormalMixture``, from which intervals of any coverage follow, or an
    #: ``Interval`` of the members' own coverage.
    gives_distribution: bool
    single: bool = False  #: Whether it is for an ensemble of one network.
    #: The same in a ``calipers.onnx`` graph: ``onnx(graph, lower, point, upper, coverage=...,
    #: members=...)``, from names of values to the names of ``loc``, ``left_scale`` and
    #: ``right_scale`` of shape (members, rows), or of ``lower`` and ``upper`` of shape (rows,).
    #: Without it a model cannot be exported.
    onnx: Callable[..., tuple[Any, ...]] | None = None

    def __call__(
        self, lower: ArrayLike, point: ArrayLike, upper: ArrayLike, *, coverage: float
    ) -> SplitNormalMixture | Interval:
        """Aggregate members."""
        return self.function(lower, point, upper, coverage=coverage)


def checked(lower: ArrayLike, point: ArrayLike, upper: ArrayLike) -> Interval:
    """Return finite numbers of one shape with at least one member."""
    members = Interval(
        checks.finite("lower", lower), checks.finite("point", point), checks.finite("upper", upper)
    )
    shapes = [array.shape for array in members]
    if len(set(shapes)) > 1 or not shapes[0] or shapes[0][0] == 0:
        raise ValueError(
            "lower, point and upper must have one shape (members, rows) with at least one member, "
            f"got {shapes[0]}, {shapes[1]} and {shapes[2]}"
        )
    return members


def quantile(coverage: float) -> float:
    """Normal quantile of a central interval, 1.96 for 0.95."""
    return float(ndtri((1.0 + checks.coverage(coverage)) / 2.0))
