"""Training objectives: a loss over the parameters of a head, with parameters of its own.

``LOSSES`` maps names to objectives. A custom one is a subclass of ``Objective``.
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
from calipers._arrays import Array
from calipers.distributions import TARGET_MAPS
from calipers.heads import HEADS

__all__ = [
    "CRPS",
    "LOSSES",
    "QD",
    "Density",
    "IntervalScore",
    "NormalLikelihood",
    "Objective",
    "QDPaper",
    "QDPlus",
    "QDPlusNMPIW",
    "SplitNormalLikelihood",
    "SquaredError",
]

_NOT_NEGATIVE = Within(Real, 0, None, closed="left")
_POSITIVE = Within(Real, 0, None, closed="neither")
_FRACTION = Within(Real, 0, 1, closed="both")

MAX_COMPONENTS = 16
"""Largest number of split normals that a network can predict."""

SEVERAL, ROWS_FOR_SEVERAL = 3, 2000
"""Components that "auto" tries besides one, and the fewest rows for it."""

SKEWED, ROWS_FOR_SCALES = 1.0, 100
"""Least skewness of a target at which "auto" tries another scale, and the fewest rows for it."""


class Objective(BaseEstimator):
    """A loss over the parameters of a head.

    A subclass defines ``head`` and ``loss``. The parameters of its constructor are numbers that the
    loss takes as keywords; they may differ between the networks of a bank. As in scikit-learn, they
    are set by ``IntervalRegressor(loss=QDPlus(softness=100))`` or
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
    #: Parameters that shape the program instead of being passed to the loss; a bank shares them.
    structure: ClassVar[tuple[str, ...]] = ()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.head not in HEADS:
            raise ValueError(f"head must be one of {sorted(HEADS)}, got {cls.head!r}")

    #: ``loss(*parameters, target, weight=..., coverage=..., **numbers)`` returns a scalar for a
    #: batch and is traced by JAX. It takes the head's parameters and the targets, standardised and
    #: of shape (rows,); the weights of the rows, where rows of weight 0 may contain anything; the
    #: nominal coverage; and the objective's own parameters, except those in ``structure``.
    loss: ClassVar[Callable[..., Array]]

    @staticmethod
    def fitted(numbers: dict[str, Any], target: Array) -> dict[str, Any]:
        """Return the loss's numbers for a network with these standardised training targets."""
        return numbers

    def numbers(self) -> dict[str, Any]:
        """Return the parameters that the loss takes as keywords."""
        params = self.get_params(deep=False)
        return {name: value for name, value in params.items() if name not in self.structure}

    def candidates(self, rows: int) -> tuple[int, ...]:
        """Numbers of components to try for networks with ``rows`` training rows, fewest first."""
        return (1,)

    def scales(self, y: NDArray[np.float64]) -> tuple[str, ...]:
        """Scales of the target to try, the simplest first."""
        return ("identity",)


@dataclass(kw_only=True, eq=False, repr=False)
class QDPlus(Objective):
    """QD+, the paper's loss: coverage, width, point error and a penalty on crossing.

    Parameters
    ----------
    coverage_weight : float
        Weight of coverage against width (lambda_1).
    point_weight : float
        Weight of the point estimate (lambda_2).
    crossing_weight : float
        Penalty on a point outside its bounds (xi).
    softness : float
        Steepness of the soft capture (s).
    target_range : float
        The width is divided by it. 0 stands for the range of the network's training targets, which
        trains NMPIW instead of MPIW; ``loss="qd+ nmpiw"`` is a shorthand for it.
    """

    coverage_weight: float = 0.99
    point_weight: float = 0.3
    crossing_weight: float = 10.0
    softness: float = 160.0
    target_range: float = 1.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "coverage_weight": [_NOT_NEGATIVE],
        "point_weight": [_FRACTION],
        "crossing_weight": [_NOT_NEGATIVE],
        "softness": [_POSITIVE],
        "target_range": [_NOT_NEGATIVE],
    }

    loss = staticmethod(losses.qd_plus)

    @staticmethod
    def fitted(numbers: dict[str, Any], target: Array) -> dict[str, Any]:
        """Replace a ``target_range`` of 0 by the range of the targets."""
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
        Weight of coverage against width (lambda).
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

    formula = staticmethod(losses.qd)

    @classmethod
    def loss(
        cls, lower: Array, point: Array, upper: Array, target: Array, **numbers: Array
    ) -> Array:
        """QD of the bounds; the point between them is not trained."""
        return cls.formula(lower, upper, target, **numbers)


@dataclass(kw_only=True, eq=False, repr=False)
class QDPaper(QD):
    """QD as the paper of Pearce et al. (2018) prints it."""

    coverage_weight: float = 0.07

    formula = staticmethod(losses.qd_paper)


class _OneLoss(Objective):
    """An objective that is a function of ``calipers.losses``, the same for every coverage."""

    formula: ClassVar[Callable[..., Array]]

    @classmethod
    def loss(cls, *arguments: Array, weight: Array, coverage: Array) -> Array:
        """The function of the head's parameters and the targets."""
        return cls.formula(*arguments, weight=weight)


class NormalLikelihood(_OneLoss):
    """Negative log-likelihood of a normal, as in deep ensembles."""

    head = "normal"
    formula = staticmethod(losses.normal_nll)


class SplitNormalLikelihood(_OneLoss):
    """Negative log-likelihood of a split normal."""

    head = "split normal"
    formula = staticmethod(losses.split_normal_nll)


class CRPS(_OneLoss):
    """Continuous ranked probability score of a split normal."""

    head = "split normal"
    formula = staticmethod(losses.split_normal_crps)


@dataclass(kw_only=True, eq=False, repr=False)
class Density(Objective):
    """Weighted mean of CRPS and likelihood of a split normal, or of a mixture; the default.

    Parameters
    ----------
    crps_weight : float
        Weight of the CRPS, the remainder being that of the likelihood.
    components : int or "auto"
        What each network predicts: one split normal, or a mixture of this many normals with weights
        that depend on the row. "auto" is one; in ``fit`` on at least 2,000 rows it is one or three,
        selected by out-of-fold score if one leaves at least a tenth of the variance unexplained.
    scale : {"identity", "log", "asinh", "auto"}
        The scale of the predictions: that of the target; its logarithm, for positive targets; or
        its inverse hyperbolic sine, which is linear near 0 and logarithmic far from it. "auto" is,
        in ``fit`` on a skewed target, the first or the last, selected by out-of-fold score.
        Point predictions are always means, and all results are in the target's unit.
    """

    crps_weight: float = 0.95
    components: int | str = "auto"
    scale: str = "auto"

    head = "split normal"
    structure = ("components", "scale")
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "crps_weight": [_FRACTION],
        "components": [Within(Integral, 1, MAX_COMPONENTS, closed="both"), StrOptions({"auto"})],
        "scale": [StrOptions({"identity", "auto", *TARGET_MAPS})],
    }

    def candidates(self, rows: int) -> tuple[int, ...]:
        """Numbers of components to try for networks with ``rows`` training rows, fewest first."""
        if self.components != "auto":
            return (int(self.components),)
        return (1, SEVERAL) if rows >= ROWS_FOR_SEVERAL else (1,)

    def scales(self, y: NDArray[np.float64]) -> tuple[str, ...]:
        """Scales of the target to try, the simplest first."""
        if self.scale != "auto":
            return (self.scale,)
        if len(y) < ROWS_FOR_SCALES or skewness(y) < SKEWED:
            return ("identity",)
        size = np.median(np.abs(y[y != 0]))
        return ("identity", "asinh") if 1e-100 <= size <= 1e100 else ("identity",)

    @staticmethod
    def loss(*arguments: Array, weight: Array, coverage: Array, crps_weight: Array) -> Array:
        """Weighted mean of the two losses; the arguments are the head's parameters and targets."""
        *parameters, target = arguments
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
    """Absolute skewness, the third standardised moment; 0 for a constant."""
    centred = y - y.mean()
    centred = centred / (float(np.abs(centred).max()) or 1.0)  # so that powers cannot overflow
    return float(abs(np.mean(centred**3)) / max(float(np.mean(centred**2)) ** 1.5, 1e-300))


@dataclass(kw_only=True, eq=False, repr=False)
class IntervalScore(Objective):
    """Interval score of bounds that cannot cross, and squared error of the point.

    Parameters
    ----------
    point_weight : float
        Weight of the squared error, the remainder being that of the interval score.
    """

    point_weight: float = 0.65

    head = "ordered"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"point_weight": [_FRACTION]}

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


class SquaredError(_OneLoss):
    """Squared error of a point; no interval."""

    head = "point"
    formula = staticmethod(losses.squared_error)


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
"""The objectives by name."""
