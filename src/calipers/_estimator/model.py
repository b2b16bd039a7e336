"""The part of an ``IntervalRegressor`` that the steps of a fit work with."""

from typing import Any, Protocol

from calipers._estimator.inputs import Inputs
from calipers.calibration import Unsupported
from calipers.crossfit import OutOfFold
from calipers.ensemble import Ensemble
from calipers.preprocessing import Column
from calipers.training import Parameters


class Model(Parameters, Protocol):
    """Parameters that the steps read, and attributes that they set and read.

    ``IntervalRegressor``, which cannot be imported here, describes them.
    """

    aggregation: str
    calibration: str
    cv: Any
    n_networks: int
    time_budget: float | None
    bounds: Any
    unsupported: Unsupported
    warm_start: bool
    n_jobs: int | None
    random_state: Any
    verbose: int

    ensemble_: Ensemble
    reader_: Inputs
    target_: Column
    about_: dict[str, Any]
    _out_of_fold: OutOfFold | None

    @property
    def _ensemble(self) -> Ensemble: ...
