"""LUBE as a loss: its coverage width criterion, trained by gradient descent in the bank."""

from typing import Any, ClassVar

import jax.numpy as jnp

from calipers.losses import soft_capture
from calipers.objectives import Objective

Array = Any


class CWC(Objective):
    """Logarithm of the coverage width criterion of LUBE (Khosravi et al., 2011).

    The criterion is NMPIW (1 + exp(eta (mu - PICP)) where PICP < mu). Its logarithm has the same
    minimum, and a gradient that does not vanish with the width. Khosravi et al. used simulated
    annealing for networks of a few dozen weights; here the capture is soft and the optimisation by
    gradient descent, as for QD.

    Parameters
    ----------
    steepness : float
        Penalty for insufficient coverage (eta).
    softness : float
        Steepness of the soft capture (s).
    """

    head = "ordered"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def __init__(self, *, steepness: float = 50.0, softness: float = 160.0) -> None:
        self.steepness = steepness
        self.softness = softness

    @staticmethod
    def loss(
        lower: Array,
        point: Array,
        upper: Array,
        target: Array,
        *,
        weight: Array,
        coverage: Array,
        steepness: Array,
        softness: Array,
    ) -> Array:
        """Logarithm of the criterion, without the constant that the target's range adds."""
        total = weight.sum()
        capture = soft_capture(lower, upper, target, softness=softness)
        missing = coverage - (capture * weight).sum() / total
        width = ((upper - lower) * weight).sum() / total
        price = jnp.log1p(jnp.exp(steepness * jnp.maximum(missing, 0)))
        return jnp.log(width) + jnp.where(missing > 0, price, 0.0)
