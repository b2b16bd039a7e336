"""The verdict on coverage, and the comparison with naive intervals."""

from dataclasses import dataclass, replace

import numpy as np
from sklearn.metrics import root_mean_squared_error

from calipers import metrics
from calipers._evaluation import LabelledPrediction
from calipers._text import counted
from calipers.calibration import Calibrator, infinite_reason
from calipers.report._format import percent

_FEW = 30  # rows below which a rate near one says little


@dataclass(frozen=True)
class Verdict:
    """Whether the observed coverage agrees with the nominal one."""

    # "good": as promised; "short": too low; "wide": too high; "few": too few rows to tell;
    # "unbounded": no finite intervals
    kind: str
    # a few words, one line, and an explanation
    badge: str
    headline: str
    text: str


@dataclass(frozen=True)
class Contender:
    """One line of the comparison with naive intervals."""

    name: str
    note: str  # how the intervals were made
    rate: float  # coverage rate
    width: float  # mean
    score: float  # interval score
    error: float  # root mean squared error of the point predictions


def verdict(labelled: LabelledPrediction, calibration: Calibrator | None = None) -> Verdict:
    """Compare the coverage rate with its range for calibrated intervals."""
    rows, coverage = len(labelled), labelled.coverage
    unbounded = int((~np.isfinite(labelled.width)).sum())
    if unbounded:
        where = "" if unbounded == rows else f" for {unbounded:,} of {counted(rows, 'row')}"
        headline = f"The {percent(coverage)} intervals are unbounded{where}."
        text = "The model gives no finite bounds for these rows."
        if calibration is not None:
            text = (
                "There were too few rows to calibrate with: "
                f"{infinite_reason([coverage], calibration)}. With fewer rows no finite interval "
                "can guarantee its coverage, and that every row is inside says nothing. Calibrate "
                "on more rows, or request a smaller coverage."
            )
        return Verdict("unbounded", "no finite interval", headline, text)
    rate = float(labelled.covered(labelled.own_level).mean())
    low, high = map(float, metrics.coverage_band(rows, coverage))
    inside = float(labelled.inside.mean())
    headline = (
        f"The {percent(coverage)} intervals contained {percent(inside)} of {counted(rows, 'row')}."
    )
    result = _compared(rate, low, high, labelled, headline)
    tied = np.mean((labelled.target == labelled.lower) | (labelled.target == labelled.upper))
    if labelled.ties is None or not tied:
        return result
    text = (
        f"{percent(float(tied))} of the targets equal an end of their interval, which inflates "
        f"this figure; corrected for that, it is {percent(rate)}. {result.text}"
    )
    return replace(result, text=text)


def _compared(
    rate: float, low: float, high: float, labelled: LabelledPrediction, headline: str
) -> Verdict:
    rows = counted(len(labelled), "row")
    band = f"between {percent(low)} and {percent(high)}"
    if rate < low:
        kind, badge = "short", "falls short"
        text = (
            "That is less than promised, and more than chance explains: calibrated intervals would "
            f"contain {band} of {rows}. On rows like these, expect more misses than the nominal "
            "coverage suggests."
        )
    elif rate > high:
        kind, badge = "wide", "more than promised"
        text = (
            "That is more than promised, and more than chance explains: calibrated intervals would "
            f"contain {band} of {rows}. They are safe, but wider than necessary."
        )
    elif len(labelled) < _FEW:
        kind, badge = "few", "too few rows to tell"
        text = (
            f"With {rows}, chance alone gives anything {band}, so this says little about the "
            "calibration. It takes about a hundred rows to tell."
        )
    else:
        kind, badge = "good", "as promised"
        text = f"That is as promised: calibrated intervals contain {band} of {rows}."
    return Verdict(kind, badge, headline, text)


def compare(labelled: LabelledPrediction) -> list[Contender]:
    """Return the model and two naive intervals, which have the benefit of hindsight.

    All keep to the values that the target can take.
    """
    possible = labelled.support.nearest
    coverage, target, point = labelled.coverage, labelled.target, labelled.point
    tails = [(1 - coverage) / 2, (1 + coverage) / 2]
    low_error, high_error = np.quantile(target - point, tails)
    same = np.ones_like(target)
    low, high = np.quantile(target, tails)
    width_note = (
        "the model's point predictions, and around them the quantiles of these rows' errors"
    )
    interval_note = "the mean of these targets for every row, and their quantiles as bounds"
    contenders = [
        ("this model", "", labelled.lower, point, labelled.upper),
        (
            "one width for all",
            width_note,
            possible(point + low_error),
            point,
            possible(point + high_error),
        ),
        (
            "one interval for all",
            interval_note,
            possible(low * same),
            target.mean() * same,
            possible(high * same),
        ),
    ]
    return [
        Contender(
            name,
            note,
            metrics.coverage_rate(target, lower, upper),
            metrics.mean_width(lower, upper),
            metrics.interval_score(target, lower, upper, coverage=coverage),
            root_mean_squared_error(target, middle),
        )
        for name, note, lower, middle, upper in contenders
    ]
