"""How networks are trained: the optimiser and its numbers."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval as Within, StrOptions

from calipers.bank import SCHEDULES

_POSITIVE = Within(Real, 0, None, closed="neither")
_NOT_NEGATIVE = Within(Real, 0, None, closed="left")


@dataclass(kw_only=True, eq=False, repr=False)
class Adam(BaseEstimator):
    """Adam with decoupled weight decay, bounded gradients and an average of the weights.

    Parameters
    ----------
    learning_rate : float
        Rate at the first step.
    schedule : str
        How the rate falls: "exponential", "cosine" or "constant".
    decay_rate, decay_steps : float
        Factor of the exponential schedule and the steps after which it applies.
    weight_decay : float
        Decoupled decay of the weights.
    averaging : float
        Share of the running average of the weights that one step leaves; 0 for no average.
    clip_norm : float or None
        Largest norm of a gradient; None for no bound.
    adversarial_step : float
        Length of adversarial steps in standardised inputs; 0 for no adversarial examples.

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
"""Optimisers by name."""
