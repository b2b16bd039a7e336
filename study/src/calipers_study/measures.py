"""The paper's measures, computed from the predictions of the members of a trial.

This is the only module of the study that calls metrics of calipers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import mean_squared_error

from calipers import metrics
from calipers.aggregation import sem, snm, std
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers_study.jobs import entry_name
from calipers_study.methods import METHODS
from calipers_study.store import ResultStore, StoreEntry

FloatArray = NDArray[np.float64]

MEMBERS = "members"
"""Name for the measures of single members, in addition to the names of aggregations."""


@dataclass(frozen=True, eq=False)
class TrialPrediction:
    """Point predictions for the test rows of a trial, and bounds if the method has any."""

    point: FloatArray
    lower: FloatArray | None = None
    upper: FloatArray | None = None


def stored_trials(store: ResultStore, method: str, dataset: str) -> list[StoreEntry]:
    """The trials of a method on a dataset in the store, in order."""
    folder = entry_name(method, dataset, 0).rpartition("/")[0]
    return [store.read(name) for name in store.names(folder)]


def mixture(trial: StoreEntry) -> SplitNormalMixture:
    """Predictive distribution of each test row, for members with bounds or normal densities."""
    fields = {name: values.astype(np.float64) for name, values in trial.arrays.items()}
    if "mean" in fields:
        return SplitNormalMixture(SplitNormal(fields["mean"], fields["scale"], fields["scale"]))
    if "loc" in fields:
        scales = fields["left_scale"], fields["right_scale"]
        return SplitNormalMixture(SplitNormal(fields["loc"], *scales))
    coverage = trial.record["settings"]["coverage"]
    return snm(fields["lower"], fields["point"], fields["upper"], coverage=coverage)


def pit(trial: StoreEntry) -> FloatArray:
    """Probability integral transform of each test row's target."""
    return metrics.pit_values(trial.arrays["target"], mixture(trial))


def combine(trial: StoreEntry, aggregation: str) -> TrialPrediction:
    """The combined prediction of all members of a trial.

    For networks trained for bounds alone, the point is the middle of the combined interval, which
    the paper marks with a star.
    """
    coverage = trial.record["settings"]["coverage"]
    fields = {name: values.astype(np.float64) for name, values in trial.arrays.items()}
    if aggregation == "mean":
        return TrialPrediction(fields["point"].mean(axis=0))
    if aggregation == "density":
        density = mixture(trial)
        return TrialPrediction(density.mean, *density.interval(coverage))
    if aggregation in ("snm", "normal"):
        point = fields["mean" if aggregation == "normal" else "point"].mean(axis=0)
        return TrialPrediction(point, *mixture(trial).interval(coverage))
    bounds = (fields[name] for name in ("lower", "point", "upper"))
    lower, point, upper = {"sem": sem, "std": std}[aggregation](*bounds, coverage=coverage)
    if trial.record["settings"]["loss"] == "qd":
        point = (lower + upper) / 2
    return TrialPrediction(point, lower, upper)


def members(trial: StoreEntry) -> list[TrialPrediction]:
    """Prediction of each single member, for members with bounds."""
    fields = (trial.arrays[name].astype(np.float64) for name in ("point", "lower", "upper"))
    return [TrialPrediction(*rows) for rows in zip(*fields, strict=True)]


def measure(
    prediction: TrialPrediction, target: FloatArray, *, coverage: float
) -> dict[str, float]:
    """Measures of a prediction on targets standardised by the whole dataset.

    Parameters
    ----------
    prediction : TrialPrediction
        Points and bounds for some rows.
    target : ndarray of shape (rows,)
        Targets of the rows.
    coverage : float
        Nominal probability of the bounds.

    Returns
    -------
    dict
        "MSE", and for intervals "PICP", "MPIW" and "interval score".
    """
    measures = {"MSE": float(mean_squared_error(target, prediction.point))}
    if prediction.lower is not None and prediction.upper is not None:
        lower, upper = prediction.lower, prediction.upper
        measures["PICP"] = metrics.coverage_rate(target, lower, upper)
        measures["MPIW"] = metrics.mean_width(lower, upper)
        measures["interval score"] = metrics.interval_score(target, lower, upper, coverage=coverage)
    return measures


def measure_trial(trial: StoreEntry) -> dict[str, list[dict[str, float]]]:
    """All measures of a trial: one set per aggregation, and one set per member.

    Empty for a trial whose networks all failed.
    """
    if not len(trial.arrays["members"]):
        return {}
    names = METHODS[trial.record["method"]].aggregations
    found = {name: [measure_combined(trial, name)] for name in names}
    if "lower" in trial.arrays:
        target, coverage = trial.arrays["target"], trial.record["settings"]["coverage"]
        found[MEMBERS] = [measure(one, target, coverage=coverage) for one in members(trial)]
    return found


def measure_combined(trial: StoreEntry, aggregation: str) -> dict[str, float]:
    """Measures of the combined prediction of all members of a trial."""
    coverage = trial.record["settings"]["coverage"]
    return measure(combine(trial, aggregation), trial.arrays["target"], coverage=coverage)
