"""From what members predicted to what the paper measures: one trial at a time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import mean_squared_error

from calipers import metrics
from calipers.aggregation import AGGREGATORS, snm
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.study._jobs import entry_name
from calipers.study._methods import METHODS
from calipers.study._store import Entry, Store

FloatArray = NDArray[np.float64]

MEMBERS = "members"
"""Name of the measures of each member by itself, beside the names of aggregations."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """Points for the test rows of a trial, and bounds where the method has any."""

    point: FloatArray
    lower: FloatArray | None = None
    upper: FloatArray | None = None


def stored_trials(store: Store, method: str, dataset: str) -> list[Entry]:
    """Trials of a method on a dataset that the store holds, in order."""
    folder = entry_name(method, dataset, 0).rpartition("/")[0]
    return [store.read(name) for name in store.names(folder)]


def mixture(trial: Entry) -> SplitNormalMixture:
    """Predictive distribution of each test row, for members with bounds or normal densities."""
    fields = {name: values.astype(np.float64) for name, values in trial.arrays.items()}
    if "mean" in fields:
        return SplitNormalMixture(SplitNormal(fields["mean"], fields["scale"], fields["scale"]))
    coverage = trial.record["settings"]["coverage"]
    return snm(fields["lower"], fields["point"], fields["upper"], coverage=coverage)


def combine(trial: Entry, aggregation: str) -> Prediction:
    """One prediction from all members of a trial.

    The point of networks that were trained for bounds alone is the middle of the final interval,
    which the paper marks with a star.
    """
    coverage = trial.record["settings"]["coverage"]
    fields = {name: values.astype(np.float64) for name, values in trial.arrays.items()}
    if aggregation == "mean":
        return Prediction(fields["point"].mean(axis=0))
    if aggregation in ("snm", "normal"):
        point = fields["mean" if aggregation == "normal" else "point"].mean(axis=0)
        return Prediction(point, *mixture(trial).interval(coverage))
    bounds = (fields[name] for name in ("lower", "point", "upper"))
    lower, point, upper = AGGREGATORS[aggregation](*bounds, coverage=coverage)
    if trial.record["settings"]["loss"] == "qd":
        point = (lower + upper) / 2
    return Prediction(point, lower, upper)


def members(trial: Entry) -> list[Prediction]:
    """Predictions of each member by itself, for members with bounds."""
    fields = (trial.arrays[name].astype(np.float64) for name in ("point", "lower", "upper"))
    return [Prediction(*rows) for rows in zip(*fields, strict=True)]


def measure(prediction: Prediction, trial: Entry) -> dict[str, float]:
    """Measures of a prediction on targets standardised by the whole dataset.

    Returns
    -------
    dict
        "MSE", and for intervals "PICP", "MPIW" and "interval score".
    """
    target = trial.arrays["target"]
    measures = {"MSE": mean_squared_error(target, prediction.point)}
    if prediction.lower is not None and prediction.upper is not None:
        lower, upper = prediction.lower, prediction.upper
        coverage = trial.record["settings"]["coverage"]
        measures["PICP"] = metrics.coverage_rate(target, lower, upper)
        measures["MPIW"] = metrics.mean_width(lower, upper)
        measures["interval score"] = metrics.interval_score(target, lower, upper, coverage=coverage)
    return measures


def measure_trial(trial: Entry) -> dict[str, list[dict[str, float]]]:
    """All measures of a trial: one set by aggregation, and one set for each member.

    A trial whose networks all failed has none.
    """
    if not len(trial.arrays["members"]):
        return {}
    method = METHODS[trial.record["method"]]
    found = {name: [measure(combine(trial, name), trial)] for name in method.aggregations}
    if "lower" in trial.arrays:
        found[MEMBERS] = [measure(one, trial) for one in members(trial)]
    return found
