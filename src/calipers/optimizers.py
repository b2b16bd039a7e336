"""Optimizers and their parameters."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval as Within, StrOptions

from calipers.bank import SCHEDULES

__all__ = ["OPTIMIZERS", "Adam"]

_POSITIVE = Within(Real, 0, None, closed="neither")
_NOT_NEGATIVE = Within(Real, 0, None, closed="left")


@dataclass(kw_only=True, eq=False, repr=False)
class Adam(BaseEstimator):
    """Adam with decoupled weight decay, gradient clipping and weight averaging.

    Parameters
    ----------
    learning_rate : float
        Initial learning rate.
    schedule : str
        Schedule of the learning rate: "exponential", "cosine" or "constant".
    decay_rate, decay_steps : float
        Factor of the exponential schedule, and the number of steps after which it applies.
    weight_decay : float
        Decoupled weight decay.
    averaging : float
        Decay of the exponential moving average of the weights; 0 for no averaging.
    clip_norm : float or None
        Largest norm of a gradient; None for no clipping.
    adversarial_step : float
        Length of adversarial steps in standardised inputs; 0 for no adversarial training.

    Examples
    --------
    >>> Adam(learning_rate=0.01, schedule="constant").learning_rate
    0.01
    """

    learning_rate: float = 0.003
    schedule: str = "cosine"
    decay_rate: float = 1.0
    decay_steps: float = 50
    weight_decay: float = 0.01
    averaging: float = 0.995
    clip_norm: float | None = 1.0
    adversarial_step: float = 0.0

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "learning_rate": [_POSITIVE],
        "schedule": [StrOptions(set(SCHEDULES))],
        "decay_rate": [_POSITIVE],
        "decay_steps": [_POSITIVE],
        "weight_decay": [_NOT_NEGATIVE],
        "averaging": [Within(Real, 0, 1, closed="left")],
        "clip_norm": [_POSITIVE, None],
        "adversarial_step": [_NOT_NEGATIVE],
    }


OPTIMIZERS: dict[str, type[Adam]] = {"adam": Adam}
"""Optimizers by name."""
