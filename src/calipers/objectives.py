"""What a network is trained for: a loss, and the head whose parameters it judges.

``LOSSES`` holds the trainings by name. A user's own is an ``Objective`` around any differentiable
function of the head's parameters, the targets and the row weights.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from calipers import losses
from calipers.networks import HEADS, Head

Array = Any


class LossSettings(NamedTuple):
    """Numbers of a loss that may differ from network to network.

    Attributes
    ----------
    coverage : float
        Nominal probability of the interval.
    coverage_weight : float
        Importance of coverage against width: lambda_1 of QD+, lambda of QD.
    point_weight : float
        Importance of the point estimate (lambda_2), in QD+, the interval score and the density.
    crossing_weight : float
        Penalty for a point outside its bounds (xi), in QD+.
    softness : float
        Steepness of the soft capture (s), in QD+ and QD.
    """

    coverage: Any = 0.95
    coverage_weight: Any = 0.99
    point_weight: Any = 0.3
    crossing_weight: Any = 10.0
    softness: Any = 160.0


@dataclass(frozen=True)
class Objective:
    """A loss over the parameters of a head.

    Attributes
    ----------
    loss : callable
        ``loss(*parameters, target, weight=..., settings=...)`` gives one number for a batch;
        ``parameters`` are the head's, ``settings`` is a ``LossSettings``.
    head : str
        A key of ``calipers.networks.HEADS``.
    coverage_weight, point_weight : float
        Values of those settings which suit this loss where none are given.

    Examples
    --------
    A training of one's own: squared interval score, with bounds that cannot cross.

    >>> from calipers.losses import interval_score
    >>> def severe(lower, point, upper, target, *, weight, settings):
    ...     score = interval_score(
    ...         lower, upper, target, coverage=settings.coverage, weight=weight
    ...     )
    ...     return score**2
    >>> Objective(severe, head="ordered").output.fields
    ('lower', 'point', 'upper')
    """

    loss: Callable[..., Array]
    head: str = "free"
    coverage_weight: float = 0.99
    point_weight: float = 0.65

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise ValueError(f"head must be one of {sorted(HEADS)}, got {self.head!r}")

    @property
    def output(self) -> Head:
        """The head itself."""
        return HEADS[self.head]

    @property
    def around_point(self) -> "Objective":
        """The same loss over a head in which the point is one output and the rest distances.

        Raises
        ------
        ValueError
            If the loss trains points alone.
        """
        if self.head not in _AROUND_POINT:
            good = sorted(name for name, known in LOSSES.items() if known.head in _AROUND_POINT)
            raise ValueError(
                f"a loss over the head {self.head!r} trains no interval: choose one of {good}"
            )
        return replace(self, head=_AROUND_POINT[self.head])


_AROUND_POINT = {
    "free": "ordered",
    "midpoint": "ordered",
    "ordered": "ordered",
    "normal": "normal",
    "split normal": "centred",
    "centred": "centred",
}


def _qd_plus(
    lower: Array, point: Array, upper: Array, target: Array, *, weight: Array, settings: Any
) -> Array:
    return losses.qd_plus(lower, point, upper, target, weight=weight, **settings._asdict())


def _qd(
    lower: Array, point: Array, upper: Array, target: Array, *, weight: Array, settings: Any
) -> Array:
    return losses.qd(lower, upper, target, weight=weight, **_qd_options(settings))


def _qd_paper(
    lower: Array, point: Array, upper: Array, target: Array, *, weight: Array, settings: Any
) -> Array:
    return losses.qd_paper(lower, upper, target, weight=weight, **_qd_options(settings))


def _qd_options(settings: LossSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in ("coverage", "coverage_weight", "softness")}


def _interval_score(
    lower: Array, point: Array, upper: Array, target: Array, *, weight: Array, settings: Any
) -> Array:
    score = losses.interval_score(lower, upper, target, coverage=settings.coverage, weight=weight)
    error = losses.squared_error(point, target, weight=weight)
    return (1 - settings.point_weight) * score + settings.point_weight * error


def _mse(point: Array, target: Array, *, weight: Array, settings: Any) -> Array:
    return losses.squared_error(point, target, weight=weight)


def _normal(mean: Array, scale: Array, target: Array, *, weight: Array, settings: Any) -> Array:
    return losses.normal_nll(mean, scale, target, weight=weight)


def _split_normal(
    loc: Array, left: Array, right: Array, target: Array, *, weight: Array, settings: Any
) -> Array:
    return losses.split_normal_nll(loc, left, right, target, weight=weight)


def _crps(
    loc: Array, left: Array, right: Array, target: Array, *, weight: Array, settings: Any
) -> Array:
    return losses.split_normal_crps(loc, left, right, target, weight=weight)


def _density(
    loc: Array, left: Array, right: Array, target: Array, *, weight: Array, settings: Any
) -> Array:
    likelihood = losses.split_normal_nll(loc, left, right, target, weight=weight)
    crps = losses.split_normal_crps(loc, left, right, target, weight=weight)
    return (1 - settings.point_weight) * likelihood + settings.point_weight * crps


LOSSES: dict[str, Objective] = {
    "qd+": Objective(_qd_plus, "free"),
    "qd": Objective(_qd, "midpoint", coverage_weight=15.0),
    "qd-paper": Objective(_qd_paper, "midpoint", coverage_weight=0.07),
    "normal": Objective(_normal, "normal"),
    "split normal": Objective(_split_normal, "split normal"),
    "density": Objective(_density, "split normal", point_weight=0.95),
    "crps": Objective(_crps, "split normal"),
    "interval score": Objective(_interval_score, "ordered"),
    "mse": Objective(_mse, "point"),
}
"""The trainings by name."""
