"""Values that the parameters of the estimator may have, and those of the paper."""

from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import HasMethods, Interval as Within, StrOptions

from calipers._checks import COVERAGES
from calipers.aggregation import AGGREGATIONS
from calipers.calibration import CALIBRATIONS
from calipers.networks import MLP, NETWORKS
from calipers.objectives import LOSSES, Objective
from calipers.optimizers import OPTIMIZERS, Adam
from calipers.preprocessing import TableEncoder

PAPER = {
    "bounds": None,
    "loss": "qd+",
    "cv": None,
    "n_networks": 5,
    "batch_size": 100,
    "patience": None,
    "network__hidden_layers": (50, 50),
    "network__activation": "relu",
    "network__frequencies": 0,
    "optimizer__learning_rate": 0.005,
    "optimizer__schedule": "exponential",
    "optimizer__weight_decay": 0.0,
    "optimizer__averaging": 0.0,
    "optimizer__clip_norm": None,
}
"""The method of the paper, where it differs from the defaults."""


class _Coverage(Within):  # type: ignore[misc]
    """A probability strictly between 0 and 1, described in words in error messages."""

    def __str__(self) -> str:
        return "a number between 0 and 1, such as 0.95"


_COUNT = Within(Integral, 1, 10**15, closed="both")
_JOBS = ((-1024, -1), (1, 1024))


def constraints() -> dict[str, list[Any]]:
    """Return scikit-learn's constraints of each parameter, from the current registries."""
    return {
        "coverage": [_Coverage(Real, *COVERAGES, closed="both")],
        "loss": [StrOptions(set(LOSSES)), Objective],
        "network": [StrOptions(set(NETWORKS)), MLP, callable],
        "optimizer": [StrOptions(set(OPTIMIZERS)), Adam],
        "aggregation": [StrOptions(set(AGGREGATIONS))],
        "calibration": [StrOptions({name for name, c in CALIBRATIONS.items() if c.in_fit})],
        "cv": [Within(Integral, 2, None, closed="left"), HasMethods(["split"]), None],
        "n_networks": [Within(Integral, 1, 10**4, closed="both")],
        "epochs": [_COUNT, None],
        "batch_size": [_COUNT, None],
        "time_budget": [Within(Real, 0, None, closed="neither"), None],
        "patience": [_COUNT, StrOptions({"auto"}), None],
        "validation_fraction": [Within(Real, 0, 1, closed="neither")],
        "preprocessor": [TableEncoder, StrOptions({"auto"}), None],
        "bounds": [StrOptions({"auto"}), "array-like", None],
        "unsupported": [StrOptions({"inf", "raise"})],
        "warm_start": ["boolean"],
        "n_jobs": [*(Within(Integral, *ends, closed="both") for ends in _JOBS), None],
        "random_state": ["random_state"],
        "verbose": ["boolean", Within(Integral, 0, 10**6, closed="both")],
    }
