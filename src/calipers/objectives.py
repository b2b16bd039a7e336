"""What networks are trained for: a loss over the parameters of a head, and the loss's own numbers.

``LOSSES`` holds the trainings by name. One's own is a subclass of ``Objective``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval as Within, StrOptions

from calipers import losses
from calipers.distributions import KINDS
from calipers.heads import HEADS

Array = Any

_NOT_NEGATIVE = Within(Real, 0, None, closed="left")
_POSITIVE = Within(Real, 0, None, closed="neither")
_SHARE = Within(Real, 0, 1, closed="both")

MOST_COMPONENTS = 16
"""Largest number of split normals that a network can predict."""

SEVERAL, ROWS_FOR_SEVERAL = 3, 2000
"""What "auto" tries beside one component, and the rows from which it does."""

SKEWED, ROWS_FOR_SCALES = 1.0, 100
"""Skewness of a target from which "auto" tries another scale, and the rows."""


class Objective(BaseEstimator):
    """A loss over the parameters of a head.

    A subclass names its ``head`` and gives its ``loss``. The parameters of its constructor are
    numbers that the loss takes as keywords; they may differ from network to network of one bank,
    and have scikit-learn's grammar: ``IntervalRegressor(loss=QDPlus(softness=100))``, or
    ``set_params(loss__softness=100)``.

    Examples
    --------
    A power of the interval score, with bounds that cannot cross.

    >>> from calipers.losses import interval_score
    >>> class Severe(Objective):
    ...     head = "ordered"
    ...
    ...     def __init__(self, *, power=2.0):
    ...         self.power = power
    ...
    ...     @staticmethod
    ...     def loss(lower, point, upper, target, *, weight, coverage, power):
    ...         score = interval_score(lower, upper, target, coverage=coverage, weight=weight)
    ...         return score**power
    >>> Severe(power=3.0).get_params()
    {'power': 3.0}
    """

    head: ClassVar[str] = "free"  #: A key of ``calipers.heads.HEADS``.
    #: Parameters that shape the program and are no numbers of the loss: a bank has them in common.
    structure: ClassVar[tuple[str, ...]] = ()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.head not in HEADS:
            raise ValueError(f"head must be one of {sorted(HEADS)}, got {cls.head!r}")

    #: ``loss(*parameters, target, weight=..., coverage=..., **numbers)`` gives one number for a
    #: batch and is traced by JAX: the head's parameters and the targets, standardised and of shape
    #: (rows,); the weights of the rows, of which those of weight 0 may hold anything; the nominal
    #: coverage; and the objective's own parameters, but for those in ``structure``.
    loss: ClassVar[Callable[..., Array]]

    @staticmethod
    def fitted(numbers: dict[str, Any], target: Array) -> dict[str, Any]:
        """Return the loss's numbers for a network with these standardised training targets."""
        return numbers

    def numbers(self) -> dict[str, Any]:
        """Parameters that the loss takes as keywords."""
        own = self.get_params(deep=False)
        return {name: value for name, value in own.items() if name not in self.structure}

    def candidates(self, rows: int) -> tuple[int, ...]:
        """How many components networks may predict that train on so many rows, fewest first."""
        return (1,)

    def scales(self, y: NDArray[np.float64]) -> tuple[str, ...]:
        """Scales that targets may be predicted on, the simplest first."""
        return ("identity",)


@dataclass(kw_only=True, eq=False, repr=False)
class QDPlus(Objective):
    """QD+, the paper's loss: coverage, width, point error and a penalty on crossing.

    Parameters
    ----------
    coverage_weight : float
        Importance of coverage against width (lambda_1).
    point_weight : float
        Importance of the point estimate (lambda_2).
    crossing_weight : float
        Penalty on a point outside its bounds (xi).
    softness : float
        Steepness of the soft capture (s).
    target_range : float
        The width is divided by it. 0 stands for the range of the network's training targets, so
        that NMPIW is trained in place of MPIW; ``loss="qd+ nmpiw"`` is short for that.
    """

    coverage_weight: float = 0.99
    point_weight: float = 0.3
    crossing_weight: float = 10.0
    softness: float = 160.0
    target_range: float = 1.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "coverage_weight": [_NOT_NEGATIVE],
        "point_weight": [_SHARE],
        "crossing_weight": [_NOT_NEGATIVE],
        "softness": [_POSITIVE],
        "target_range": [_NOT_NEGATIVE],
    }

    loss = staticmethod(losses.qd_plus)

    @staticmethod
    def fitted(numbers: dict[str, Any], target: Array) -> dict[str, Any]:
        """Put the range of the targets in the place of 0."""
        if numbers["target_range"] == 0 and len(target):
            return numbers | {"target_range": float(target.max() - target.min()) or 1.0}
        return numbers


@dataclass(kw_only=True, eq=False, repr=False)
class QDPlusNMPIW(QDPlus):
    """QD+ with NMPIW in place of MPIW, which the paper proposes as future work."""

    target_range: float = 0.0


@dataclass(kw_only=True, eq=False, repr=False)
class QD(Objective):
    """QD of Pearce et al. (2018), as in their code: width of captured rows and coverage.

    Parameters
    ----------
    coverage_weight : float
        Importance of coverage against width (lambda).
    softness : float
        Steepness of the soft capture (s).
    """

    coverage_weight: float = 15.0
    softness: float = 160.0

    head = "midpoint"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "coverage_weight": [_NOT_NEGATIVE],
        "softness": [_POSITIVE],
    }

    @staticmethod
    def loss(lower: Array, point: Array, upper: Array, target: Array, **numbers: Array) -> Array:
        """QD of the bounds; the point between them is not trained."""
        return losses.qd(lower, upper, target, **numbers)


@dataclass(kw_only=True, eq=False, repr=False)
class QDPaper(QD):
    """QD as the paper of Pearce et al. (2018) prints it."""

    coverage_weight: float = 0.07

    @staticmethod
    def loss(lower: Array, point: Array, upper: Array, target: Array, **numbers: Array) -> Array:
        """QD of the bounds; the point between them is not trained."""
        return losses.qd_paper(lower, upper, target, **numbers)


class NormalLikelihood(Objective):
    """Negative log-likelihood of a normal, as in deep ensembles."""

    head = "normal"

    @staticmethod
    def loss(mean: Array, scale: Array, target: Array, *, weight: Array, coverage: Array) -> Array:
        """Mean negative log-likelihood."""
        return losses.normal_nll(mean, scale, target, weight=weight)


class SplitNormalLikelihood(Objective):
    """Negative log-likelihood of a split normal."""

    head = "split normal"

    @staticmethod
    def loss(
        loc: Array, left: Array, right: Array, target: Array, *, weight: Array, coverage: Array
    ) -> Array:
        """Mean negative log-likelihood."""
        return losses.split_normal_nll(loc, left, right, target, weight=weight)


class CRPS(Objective):
    """Continuous ranked probability score of a split normal."""

    head = "split normal"

    @staticmethod
    def loss(
        loc: Array, left: Array, right: Array, target: Array, *, weight: Array, coverage: Array
    ) -> Array:
        """Mean CRPS."""
        return losses.split_normal_crps(loc, left, right, target, weight=weight)


@dataclass(kw_only=True, eq=False, repr=False)
class Density(Objective):
    """CRPS and likelihood of a split normal, or of a mixture, together; the default.

    Parameters
    ----------
    crps_weight : float
        Share of the CRPS; the rest is likelihood.
    components : int or "auto"
        What each network predicts: one split normal, or so many normals with shares of their own
        for every row. "auto" is one, and in ``fit`` on 2,000 rows and more what scores best out
        of fold, one or three, where one leaves a tenth of the variance unexplained.
    scale : {"identity", "log", "asinh", "auto"}
        The scale that they are predicted on: the target's own; its logarithm, for positive targets;
        or the inverse of the hyperbolic sine, which is linear near 0 and logarithmic far from it.
        "auto" is, in ``fit`` on a skewed target, the target's own or the last, whatever scores
        best out of fold. Points remain means, and everything is given in the target's unit.
    """

    crps_weight: float = 0.95
    components: int | str = "auto"
    scale: str = "auto"

    head = "split normal"
    structure = ("components", "scale")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "crps_weight": [_SHARE],
        "components": [Within(Integral, 1, MOST_COMPONENTS, closed="both"), StrOptions({"auto"})],
        "scale": [StrOptions({"identity", "auto", *KINDS})],
    }

    def candidates(self, rows: int) -> tuple[int, ...]:
        """How many components networks may predict that train on so many rows, fewest first."""
        if self.components != "auto":
            return (int(self.components),)
        return (1, SEVERAL) if rows >= ROWS_FOR_SEVERAL else (1,)

    def scales(self, y: NDArray[np.float64]) -> tuple[str, ...]:
        """Scales that targets may be predicted on, the simplest first."""
        if self.scale != "auto":
            return (self.scale,)
        if len(y) < ROWS_FOR_SCALES or skewness(y) < SKEWED:
            return ("identity",)
        size = np.median(np.abs(y[y != 0]))
        return ("identity", "asinh") if 1e-100 <= size <= 1e100 else ("identity",)

    @staticmethod
    def loss(*given: Array, weight: Array, coverage: Array, crps_weight: Array) -> Array:
        """Weighted mean of the two losses, of the head's parameters and the targets."""
        *parameters, target = given
        if len(parameters) == 3:
            loc, left, right = parameters
            likelihood = losses.split_normal_nll(loc, left, right, target, weight=weight)
            crps = losses.split_normal_crps(loc, left, right, target, weight=weight)
        else:
            stack = array_namespace(target).stack
            loc, scale, share = (stack(parameters[i::3]) for i in range(3))
            likelihood = losses.mixture_nll(share, loc, scale, target, weight=weight)
            crps = losses.mixture_crps(share, loc, scale, target, weight=weight)
        return (1 - crps_weight) * likelihood + crps_weight * crps


def skewness(y: NDArray[np.float64]) -> float:
    """Size of the third standardised moment; 0 for a constant."""
    off = y - y.mean()
    spread = float(np.abs(off).max()) or 1.0
    off = off / spread
    return float(abs(np.mean(off**3)) / max(float(np.mean(off**2)) ** 1.5, 1e-300))


@dataclass(kw_only=True, eq=False, repr=False)
class IntervalScore(Objective):
    """Interval score of bounds that cannot cross, and squared error of the point.

    Parameters
    ----------
    point_weight : float
        Share of the squared error.
    """

    point_weight: float = 0.65

    head = "ordered"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"point_weight": [_SHARE]}

    @staticmethod
    def loss(
        lower: Array,
        point: Array,
        upper: Array,
        target: Array,
        *,
        weight: Array,
        coverage: Array,
        point_weight: Array,
    ) -> Array:
        """Weighted mean of the two losses."""
        score = losses.interval_score(lower, upper, target, coverage=coverage, weight=weight)
        error = losses.squared_error(point, target, weight=weight)
        return (1 - point_weight) * score + point_weight * error


class SquaredError(Objective):
    """Squared error of a point; no interval."""

    head = "point"

    @staticmethod
    def loss(point: Array, target: Array, *, weight: Array, coverage: Array) -> Array:
        """Mean squared error."""
        return losses.squared_error(point, target, weight=weight)


LOSSES: dict[str, type[Objective]] = {
    "qd+": QDPlus,
    "qd+ nmpiw": QDPlusNMPIW,
    "qd": QD,
    "qd-paper": QDPaper,
    "normal": NormalLikelihood,
    "split normal": SplitNormalLikelihood,
    "density": Density,
    "crps": CRPS,
    "interval score": IntervalScore,
    "mse": SquaredError,
}
"""The trainings by name."""
