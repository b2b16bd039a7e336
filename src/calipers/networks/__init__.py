"""Networks as Equinox modules.

A network maps one standardised row of inputs to a few raw outputs, which a head interprets.
``MLP`` configures the networks of an ``IntervalRegressor``; a custom network is a factory of
Equinox modules, see ``Network``.
"""

from calipers.networks._activations import ACTIVATIONS, Activation
from calipers.networks._factories import (
    ROWS_FOR_KNOTS as ROWS_FOR_KNOTS,
    Around,
    AroundPoint as AroundPoint,
    DenseFactory,
    Network,
    network_code as network_code,
    traits as traits,
)
from calipers.networks._mlp import (
    MAX_LAYERS as MAX_LAYERS,
    MAX_UNITS as MAX_UNITS,
    MLP,
    NETWORKS,
    smooth as smooth,
)
from calipers.networks._modules import (
    EmbeddedPerceptron as EmbeddedPerceptron,
    Linear,
    Perceptron,
    Periodic as Periodic,
    PiecewiseLinear as PiecewiseLinear,
)

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "NETWORKS",
    "Activation",
    "Around",
    "DenseFactory",
    "Linear",
    "Network",
    "Perceptron",
]
