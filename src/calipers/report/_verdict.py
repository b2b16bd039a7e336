"""Whether the intervals hold what they promise, and what they are worth beside naive ones."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics import root_mean_squared_error

from calipers import metrics
from calipers._checks import FloatArray
from calipers.calibration import rows_needed
from calipers.report._format import count, share
from calipers.report._labelled import LabelledPrediction

_FEW = 30  # rows below which a rate near one says little


@dataclass(frozen=True)
class Verdict:
    """Whether the intervals hold what they promise."""

    # "good", "short", "wide", "few", "unbounded": as promised; falls short; holds more than
    # promised; too few rows to tell; no finite interval to speak of
    kind: str
    # in two words, in one line, and in full
    badge: str
    headline: str
    text: str


@dataclass(frozen=True)
class Contender:
    """One line of the comparison with naive intervals."""

    # what it is, and how it was made
    name: str
    note: str
    # coverage rate, mean width, interval score, and root mean squared error of the points
    rate: float
    width: float
    score: float
    error: float


def verdict(labelled: LabelledPrediction, calibration: Any = None) -> Verdict:
    """Compare the coverage rate with what chance does to calibrated intervals."""
    rows, coverage = len(labelled), labelled.coverage
    unbounded = int((~np.isfinite(labelled.width)).sum())
    if unbounded:
        some = "" if unbounded == rows else f" for {unbounded:,} of {count(rows, 'row')}"
        headline = f"The {share(coverage)} intervals are unbounded{some}."
        text = unbounded_reason(coverage, calibration)
        return Verdict("unbounded", "no finite interval", headline, text)
    rate = float(labelled.held(labelled.own).mean())
    low, high = map(float, metrics.coverage_band(rows, coverage))
    inside = float(labelled.inside.mean())
    headline = f"The {share(coverage)} intervals held {share(inside)} of {count(rows, 'row')}."
    return _with_ties(_compared(rate, low, high, labelled, headline), rate, labelled)


def _with_ties(found: Verdict, rate: float, labelled: LabelledPrediction) -> Verdict:
    """Say what is compared where bounds are values that targets share."""
    if not labelled.ties:
        return found
    text = (
        "Bounds are values that targets take, so that an interval holds all rows on its bounds. "
        f"Shared out by the mass that belongs inside, {share(rate)} are held. {found.text}"
    )
    return replace(found, text=text)


def _compared(
    rate: float, low: float, high: float, labelled: LabelledPrediction, headline: str
) -> Verdict:
    band = f"between {share(low)} and {share(high)}"
    if rate < low:
        kind, badge = "short", "falls short"
        text = (
            "That is less than promised and more than chance explains: calibrated intervals would "
            f"hold {band} of so many rows. Expect more surprises than the intervals admit, on rows "
            "like these."
        )
    elif rate > high:
        kind, badge = "wide", "more than promised"
        text = (
            "That is more than promised and more than chance explains: calibrated intervals would "
            f"hold {band} of so many rows. They are safe, but wider than they need be."
        )
    elif len(labelled) < _FEW:
        kind, badge = "few", "too few rows to tell"
        text = (
            f"With so few rows chance alone gives anything {band}, so this says little about the "
            "promise. Some hundred rows would."
        )
    else:
        kind, badge = "good", "as promised"
        text = (
            "That is what they promise: with so many rows, calibrated intervals hold "
            f"{band} of them."
        )
    return Verdict(kind, badge, headline, text)


def unbounded_reason(coverage: float, calibration: Any) -> str:
    """Why intervals are infinite, and from how many rows on they will not be."""
    if calibration is None:
        return "The model gives no finite bounds for these rows."
    most = math.floor(100 * (1 - float(calibration.smallest_alpha())))
    instead = f", or ask for a coverage of {most}% or less" if most > 0 else ""
    worth = getattr(calibration, "n_effective", calibration.n_rows)
    less = f", worth {worth:.3g}" if worth < calibration.n_rows - 0.5 else ""
    return (
        f"There were too few rows to calibrate with: {calibration.n_rows:,}{less}, where a "
        f"coverage of {share(coverage)} takes at least {rows_needed(coverage):,} of "
        "equal weight. "
        "Until then no finite interval can promise it, and to hold every row says nothing. "
        f"Calibrate on more rows{instead}."
    )


def compare(labelled: LabelledPrediction) -> list[Contender]:
    """The model beside two naive intervals, which have the benefit of hindsight."""
    coverage, target, point = labelled.coverage, labelled.target, labelled.point
    middle = np.full_like(target, target.mean())
    tails = [(1 - coverage) / 2, (1 + coverage) / 2]
    error = target - point
    return [
        _contender("this model", "", labelled.lower, point, labelled.upper, labelled),
        _contender(
            "one width for all",
            "the model's points, and around them the quantiles of these rows' errors",
            point + np.quantile(error, tails[0]),
            point,
            point + np.quantile(error, tails[1]),
            labelled,
        ),
        _contender(
            "one interval for all",
            "the mean of these targets for every row, and their quantiles as bounds",
            np.full_like(target, np.quantile(target, tails[0])),
            middle,
            np.full_like(target, np.quantile(target, tails[1])),
            labelled,
        ),
    ]


def _contender(
    name: str,
    note: str,
    lower: FloatArray,
    point: FloatArray,
    upper: FloatArray,
    labelled: LabelledPrediction,
) -> Contender:
    target, coverage = labelled.target, labelled.coverage
    return Contender(
        name,
        note,
        metrics.coverage_rate(target, lower, upper),
        metrics.mean_width(lower, upper),
        metrics.interval_score(target, lower, upper, coverage=coverage),
        root_mean_squared_error(target, point),
    )
