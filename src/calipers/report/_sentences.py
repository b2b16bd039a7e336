"""Sentences that explain the numbers of a report."""

import shlex
from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest

from calipers._evaluation import LabelledPrediction
from calipers._text import counted
from calipers.bank import Bank
from calipers.calibration import rows_needed
from calipers.report._charts import curve_and_band, pit_bars
from calipers.report._format import Unit, percent
from calipers.report._groups import Breakdown, Group
from calipers.report._verdict import compare

_SIGNIFICANT = 0.01  # p-value below which a slope of the PIT is put into words


def comparison_sentences(labelled: LabelledPrediction, unit: Unit, target: str) -> str:
    """Return sentences on error and width of the model, compared with naive predictions."""
    model, one_width, naive = compare(labelled)
    several = len(labelled) > 1  # one row is its own mean
    texts = []
    if several and model.error >= naive.error:
        texts.append("The point predictions are no better than the mean of the targets.")
    if several:
        texts.append(
            f"Point predictions are off by {unit.write(model.error)} (root mean square); the mean "
            f"of the targets would be off by {unit.write(naive.error)}."
        )
    if not np.isfinite(model.width):
        return " ".join(texts)
    narrow, typical, wide = np.quantile(labelled.width, [0.1, 0.5, 0.9])
    texts.append(
        f"A typical interval is {unit.write(typical)} wide in {target}, and most are between "
        f"{unit.write(narrow)} and {unit.write(wide)} wide."
    )
    if several and naive.width > 0:
        gain, better = 1 - model.width / naive.width, model.score < naive.score
        width = f"{percent(abs(gain))} {'narrower' if gain > 0 else 'wider'}" if gain else "as wide"
        texts.append(
            f"One interval for all rows, made in hindsight, would be {unit.write(naive.width)} "
            f"wide. The model's intervals are {width} on average, "
            f"{'and' if better == (gain > 0) else 'but'} score {'better' if better else 'worse'}."
        )
        gain = 1 - model.score / one_width.score
        if gain > 0.01:
            texts.append(
                "Knowing which rows are uncertain pays off: the interval score is "
                f"{percent(gain)} better than with one width for all."
            )
    return " ".join(texts)


def calibration_sentence(labelled: LabelledPrediction) -> str:
    """Return a sentence on the calibration curve, which agrees with the range drawn around it."""
    worst = _worst_coverage(labelled)
    if worst is None:
        return "The curve as a whole stays within chance."
    nominal, observed = worst
    return (
        f"Intervals contain {'fewer' if observed < nominal else 'more'} rows than nominal, most of "
        f"all at a coverage of {percent(nominal)}, where {percent(observed)} are inside."
    )


def _worst_coverage(labelled: LabelledPrediction) -> tuple[float, float] | None:
    """Return the nominal and observed coverage where the curve is farthest outside its range.

    It is on the side to which more of the curve lies; None if all of it is within chance.
    """
    nominal, observed, low, high = curve_and_band(labelled)
    below, above = observed < low, observed > high
    if not (below | above).any():
        return None
    side = below if below.sum() >= above.sum() else above
    worst = np.argmax(np.where(side, np.abs(observed - nominal), 0.0))
    return float(nominal[worst]), float(observed[worst])


def pit_sentence(labelled: LabelledPrediction) -> str:
    """Return sentences on slope and shape of the PIT histogram, as far as chance explains neither.

    A hump or a valley is what the calibration curve shows as a coverage that is too high or low,
    so both have the same evidence.
    """
    assert labelled.pit is not None  # noqa: S101 - for the type checker
    rows, texts = len(labelled), []
    upper = int((labelled.pit > 0.5).sum())
    if binomtest(upper, rows, 0.5).pvalue < _SIGNIFICANT:
        side, error = ("above", "low") if upper > rows / 2 else ("below", "high")
        texts.append(
            f"{percent(max(upper, rows - upper) / rows)} of the targets lie {side} the median of "
            f"their predicted distribution: predictions are too {error}."
        )
    worst = _worst_coverage(labelled)
    if worst is not None:
        nominal, observed = worst
        part, rate, error = f"inner {percent(nominal)}", observed, "wide"
        if observed < nominal:
            part, rate, error = f"outer {percent(1 - nominal)}", 1 - observed, "narrow"
        texts.append(
            f"{percent(rate)} of the targets lie in the {part} of their predicted distribution: "
            f"it is too {error}."
        )
    if not texts:
        _, heights, (low, high) = pit_bars(labelled)
        outside = int(((heights < low) | (heights > high)).sum())
        uneven = f", but {counted(outside, 'bar')} beyond chance" if outside else " beyond chance"
        texts.append(f"The histogram shows no slope and no hump{uneven}.")
    return " ".join(texts)


def findings(parts: list[Breakdown], verdict: str) -> list[tuple[Breakdown, Group]]:
    """Return the groups with this verdict, the most significant first."""
    pairs = [(part, group) for part in parts for group in part.groups if group.verdict == verdict]
    return sorted(pairs, key=lambda pair: pair[1].p_value)


def finding_sentence(part: Breakdown, group: Group, unit: Unit) -> str:
    """Return the coverage and the width of a group as text."""
    inside = f"{percent(group.rate)} of {counted(group.rows, 'row')} inside"
    return f"{part.name}, {group.label}: {inside}, mean width {unit.write(group.width)}"


def remedy_sentence(pairs: Sequence[tuple[Breakdown, Group]], coverage: float) -> str:
    """Return advice on undercovered groups, which depends on the quantity that defines them."""
    names = list(dict.fromkeys(part.name for part, _ in pairs))
    inputs = [name for name in names if name not in ("predicted value", "training range")]
    steps = []
    if inputs:
        needed = rows_needed(coverage)
        steps.append(
            f"hold out labelled rows and conformalize by {inputs[0]} (calipers conformalize MODEL "
            f"rows.csv --by {shlex.quote(inputs[0])}), which gives each of its groups with "
            f"{needed:,} rows or more a guarantee of its own"
        )
    if "training range" in names:
        steps.append(
            "fit again with rows like those outside the training range, or do not use the model "
            "there"
        )
    if "predicted value" in names:
        steps.append(
            "conformalize by predicted width (--by 'predicted width'), or fit with more rows"
        )
    return f"What to do: {'; '.join(steps)}." if steps else ""


def uncertainty_sentences(labelled: LabelledPrediction) -> str:
    """Return sentences on how the predicted variance divides, and what that means.

    The variance within networks is what they could not explain with the rows and inputs they had.
    It does not measure irreducible noise, so the sentences do not call it a lower limit.
    """
    assert labelled.aleatoric is not None  # noqa: S101 - for the type checker
    assert labelled.epistemic is not None  # noqa: S101 - for the type checker
    within, between = labelled.aleatoric**2, labelled.epistemic**2
    fraction = float(np.mean(within) / np.mean(within + between))
    agree = "The networks agree" if fraction > 0.5 else "The networks disagree"
    more = int((between > within).sum())
    tail = f" Between networks it is larger for {more:,} of {counted(len(labelled), 'row')}."
    return (
        f"{agree}: {percent(fraction)} of the predicted variance is within networks (aleatoric), "
        f"{percent(1 - fraction)} between them (epistemic).{tail if more else ''} The first is "
        "what the networks could not explain with the rows and inputs they had. The second is "
        "their disagreement, where rows like these were too few in training. Neither is a lower "
        "limit: more rows or better inputs may still reduce both."
    )


def training_sentences(bank: Bank) -> str:
    """Return sentences on the epochs and failures of training."""
    epochs = [len(history) for history in bank.histories]
    span = " to ".join(f"{end:,}" for end in dict.fromkeys([min(epochs), max(epochs)]))
    text = f"{counted(len(epochs), 'network')}, trained for {span} epochs."
    if retried := int(np.sum(bank.failures)):
        text += f" {counted(retried, 'network')} failed and had to be trained again."
    return text
