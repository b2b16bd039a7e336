"""What the numbers of a report mean, in plain words."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import root_mean_squared_error

from calipers import metrics
from calipers.report._answers import Answers, FloatArray
from calipers.report._groups import Breakdown, Group
from calipers.report._numbers import Unit, count, share

_FEW = 30  # rows below which a rate near one says little
_SURE = 0.01  # p-value from which a shape of the PIT is put into words


@dataclass(frozen=True)
class Verdict:
    """Whether the intervals hold what they promise.

    Attributes
    ----------
    kind : {"good", "short", "wide", "few"}
        As promised; falls short; holds more than promised; too few rows to tell.
    pill, headline, text : str
        In two words, in one line, and in full.
    """

    kind: str
    pill: str
    headline: str
    text: str


@dataclass(frozen=True)
class Rival:
    """One line of the comparison with naive intervals.

    Attributes
    ----------
    name, note : str
        What it is, and how it was made.
    rate, width, score, error : float
        Coverage rate, mean width, interval score, and root mean squared error of the points.
    """

    name: str
    note: str
    rate: float
    width: float
    score: float
    error: float


def verdict(answers: Answers) -> Verdict:
    """Judge the coverage rate by what chance does to honest intervals."""
    rows, coverage = len(answers), answers.coverage
    rate = float(answers.inside.mean())
    low, high = map(float, metrics.coverage_band(rows, coverage))
    headline = f"The {share(coverage)} intervals held {share(rate)} of {count(rows, 'row')}."
    band = f"between {share(low)} and {share(high)}"
    if rate < low:
        return Verdict(
            "short",
            "falls short",
            headline,
            f"That is less than promised and more than chance explains: honest intervals would "
            f"hold {band} of so many rows. Expect more surprises than the intervals admit, on rows "
            "like these.",
        )
    if rate > high:
        return Verdict(
            "wide",
            "more than promised",
            headline,
            f"That is more than promised and more than chance explains: honest intervals would "
            f"hold {band} of so many rows. They are safe, but wider than they need be.",
        )
    if rows < _FEW:
        return Verdict(
            "few",
            "too few rows to tell",
            headline,
            f"With so few rows chance alone gives anything {band}, so this says little about the "
            "promise. Some hundred rows would.",
        )
    return Verdict(
        "good",
        "as promised",
        headline,
        f"That is what they promise: with so many rows, honest intervals hold {band} of them.",
    )


def rivals(answers: Answers) -> list[Rival]:
    """The model beside two naive intervals, which have the benefit of hindsight."""
    coverage, target, point = answers.coverage, answers.target, answers.point
    middle = np.full_like(target, target.mean())
    tails = [(1 - coverage) / 2, (1 + coverage) / 2]
    error = target - point
    return [
        _rival("this model", "", answers.lower, point, answers.upper, answers),
        _rival(
            "one width for all",
            "the model's points, and around them the quantiles of these rows' errors",
            point + np.quantile(error, tails[0]),
            point,
            point + np.quantile(error, tails[1]),
            answers,
        ),
        _rival(
            "one interval for all",
            "the mean of these targets for every row, and their quantiles as bounds",
            np.full_like(target, np.quantile(target, tails[0])),
            middle,
            np.full_like(target, np.quantile(target, tails[1])),
            answers,
        ),
    ]


def _rival(
    name: str, note: str, lower: FloatArray, point: FloatArray, upper: FloatArray, answers: Answers
) -> Rival:
    target, coverage = answers.target, answers.coverage
    return Rival(
        name,
        note,
        metrics.coverage_rate(target, lower, upper),
        metrics.mean_width(lower, upper),
        metrics.interval_score(target, lower, upper, coverage=coverage),
        root_mean_squared_error(target, point),
    )


def worth(answers: Answers, unit: Unit, target: str) -> list[str]:
    """Width, error and the gain over knowing nothing, a sentence each."""
    model, level, naive = rivals(answers)
    typical = float(np.median(answers.width))
    if not np.isfinite(typical):
        return [
            "The intervals are unbounded: the rows that the model was calibrated on are too few "
            f"for a coverage of {share(answers.coverage)}. Ask for less, or calibrate on more rows."
        ]
    narrow, wide = np.quantile(answers.width, [0.1, 0.9])
    spread = f"from {unit.write(narrow)} to {unit.write(wide)} for most rows"
    texts = [f"A typical interval is {unit.write(typical)} wide in {target}, {spread}."]
    if len(answers) < 2 or naive.width == 0:
        return texts
    gain = 1 - model.width / naive.width
    scores = "scores better" if model.score < naive.score else "scores worse"
    if gain > 0:
        but = "and" if model.score < naive.score else "but"
        texts.append(
            f"One interval for all rows, made with hindsight, would be {unit.write(naive.width)} "
            f"wide: the model's are {share(gain)} narrower on average, {but} it {scores}."
        )
    else:
        texts.append(
            f"One interval for all rows, made with hindsight, would be {unit.write(naive.width)} "
            f"wide and no wider than the model's, which {scores}."
        )
    texts.append(
        f"Points miss by {unit.write(model.error)} (root mean square), where the mean of the "
        f"targets would miss by {unit.write(naive.error)}."
    )
    if 1 - model.score / level.score > 0.01:
        better = f"{share(1 - model.score / level.score)} better than that of one width for all"
        texts.append(f"Knowing which rows are uncertain pays: the interval score is {better}.")
    return texts


def calibration_words(answers: Answers) -> str:
    """How the calibration curve reads."""
    assert answers.pit is not None  # noqa: S101 - for the type checker
    nominal = np.round(np.arange(1, 20) / 20, 2)
    observed = np.mean(2 * np.abs(answers.pit - 0.5)[:, None] <= nominal, axis=0)
    low, high = metrics.coverage_band(len(answers), nominal)
    below, above = int((observed < low).sum()), int((observed > high).sum())
    if not below and not above:
        return "At every coverage the share of rows inside is what chance allows."
    if below >= above:
        at = nominal[np.argmin(observed - nominal)]
        return (
            "Intervals hold fewer rows than they say, most of all at a coverage of "
            f"{share(float(at))}, where {share(float(observed[nominal == at][0]))} are inside."
        )
    at = nominal[np.argmax(observed - nominal)]
    return (
        "Intervals hold more rows than they say, most of all at a coverage of "
        f"{share(float(at))}, where {share(float(observed[nominal == at][0]))} are inside."
    )


def pit_words(answers: Answers) -> str:
    """How the PIT histogram reads: its lean and its shape, where chance does not explain them."""
    assert answers.pit is not None  # noqa: S101 - for the type checker
    rows, texts = len(answers), []
    upper = int((answers.pit > 0.5).sum())
    if binomtest(upper, rows, 0.5).pvalue < _SURE:
        side = "above" if upper > rows / 2 else "below"
        low = "low" if upper > rows / 2 else "high"
        texts.append(
            f"{share(max(upper, rows - upper) / rows)} of the targets lie {side} the middle of "
            f"their distribution: predictions are too {low}."
        )
    outer = int((np.abs(answers.pit - 0.5) > 0.25).sum())
    if binomtest(outer, rows, 0.5).pvalue < _SURE:
        shape, wrong = ("in the outer", "narrow") if outer > rows / 2 else ("in the inner", "wide")
        texts.append(
            f"{share(max(outer, rows - outer) / rows)} of the targets lie {shape} half of their "
            f"distribution: it is too {wrong}."
        )
    return " ".join(texts) or "The bars are as level as chance allows: no lean, no hump."


def findings(parts: list[Breakdown]) -> list[tuple[Breakdown, Group]]:
    """Groups that chance does not explain, those that fall short first, the surest first."""
    found = [(one, group) for one in parts for group in one.groups if group.verdict]
    return sorted(found, key=lambda pair: (pair[1].verdict != "short", pair[1].p_value))


def uncertainty_words(answers: Answers) -> str:
    """Which part of the uncertainty is noise."""
    assert answers.aleatoric is not None  # noqa: S101 - for the type checker
    assert answers.epistemic is not None  # noqa: S101 - for the type checker
    noise, doubt = answers.aleatoric**2, answers.epistemic**2
    part = float(np.mean(noise) / np.mean(noise + doubt))
    more = int((doubt > noise).sum())
    tail = (
        f"For {count(more, 'row')} of {len(answers):,} the doubt is the larger part."
        if more
        else "The noise is the larger part for every row."
    )
    return (
        f"{share(part)} of the variance is noise, which no further training rows would remove; "
        f"{share(1 - part)} is doubt, on which the networks disagree and which more rows of the "
        f"same kind would reduce. {tail}"
    )


def history_words(bank: Any) -> str:
    """How training went."""
    epochs = [len(history) for history in bank.histories]
    span = (
        f"{min(epochs):,}" if min(epochs) == max(epochs) else f"{min(epochs):,} to {max(epochs):,}"
    )
    retried = int(np.sum(bank.failures))
    failed = f" {count(retried, 'network')} failed and had to be trained anew." if retried else ""
    return f"{count(len(epochs), 'network')}, trained for {span} epochs.{failed}"
