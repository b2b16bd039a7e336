"""What the numbers of a report mean, in sentences."""

import shlex
from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest

from calipers import metrics
from calipers.bank import Bank
from calipers.calibration import rows_needed
from calipers.report._format import Unit, count, share
from calipers.report._groups import Breakdown, Group
from calipers.report._labelled import LabelledPrediction
from calipers.report._verdict import compare

_SURE = 0.01  # p-value from which a shape of the PIT is put into words


def worth(labelled: LabelledPrediction, unit: Unit, target: str) -> str:
    """Width, error and the gain over knowing nothing, a sentence each."""
    model, level, naive = compare(labelled)
    points = (
        f"Points miss by {unit.write(model.error)} (root mean square), where the mean of the "
        f"targets would miss by {unit.write(naive.error)}."
    )
    if not np.isfinite(model.width):
        return points
    narrow, typical, wide = np.quantile(labelled.width, [0.1, 0.5, 0.9])
    spread = f"from {unit.write(narrow)} to {unit.write(wide)} for most rows"
    texts = [f"A typical interval is {unit.write(typical)} wide in {target}, {spread}."]
    if len(labelled) < 2 or naive.width == 0:
        return texts[0]
    gain, better = 1 - model.width / naive.width, model.score < naive.score
    scores = "scores better" if better else "scores worse"
    tail = (
        f"the model's are {share(gain)} narrower on average, {'and' if better else 'but'} it "
        f"{scores}"
        if gain > 0
        else f"no wider than the model's, which {scores}"
    )
    texts.append(
        f"One interval for all rows, made with hindsight, would be {unit.write(naive.width)} "
        f"wide: {tail}."
    )
    texts.append(points)
    if 1 - model.score / level.score > 0.01:
        gain = 1 - model.score / level.score
        texts.append(
            "Knowing which rows are uncertain pays: the interval score is "
            f"{share(gain)} better than that of one width for all."
        )
    return " ".join(texts)


def calibration_sentence(labelled: LabelledPrediction) -> str:
    """How the calibration curve reads."""
    assert labelled.pit is not None  # noqa: S101 - for the type checker
    nominal = np.round(np.arange(1, 20) / 20, 2)
    observed = np.mean(2 * np.abs(labelled.pit - 0.5)[:, None] <= nominal, axis=0)
    low, high = metrics.coverage_band(len(labelled), nominal)
    below, above = int((observed < low).sum()), int((observed > high).sum())
    if not below and not above:
        return "At every coverage the share of rows inside is what chance allows."
    fewer = below >= above
    worst = np.argmin(observed - nominal) if fewer else np.argmax(observed - nominal)
    return (
        f"Intervals hold {'fewer' if fewer else 'more'} rows than they say, most of all at a "
        f"coverage of {share(float(nominal[worst]))}, where {share(float(observed[worst]))} are "
        "inside."
    )


def pit_sentence(labelled: LabelledPrediction) -> str:
    """How the PIT histogram reads: its lean and its shape, where chance does not explain them."""
    assert labelled.pit is not None  # noqa: S101 - for the type checker
    rows, texts = len(labelled), []
    upper = int((labelled.pit > 0.5).sum())
    if binomtest(upper, rows, 0.5).pvalue < _SURE:
        side, error = ("above", "low") if upper > rows / 2 else ("below", "high")
        texts.append(
            f"{share(max(upper, rows - upper) / rows)} of the targets lie {side} the middle of "
            f"their distribution: predictions are too {error}."
        )
    outer = int((np.abs(labelled.pit - 0.5) > 0.25).sum())
    if binomtest(outer, rows, 0.5).pvalue < _SURE:
        half, error = ("outer", "narrow") if outer > rows / 2 else ("inner", "wide")
        texts.append(
            f"{share(max(outer, rows - outer) / rows)} of the targets lie in the {half} half of "
            f"their distribution: it is too {error}."
        )
    return " ".join(texts) or "The bars are as level as chance allows: no lean, no hump."


def findings(parts: list[Breakdown], verdict: str) -> list[tuple[Breakdown, Group]]:
    """Groups with this verdict, which chance does not explain, the surest first."""
    found = [(one, group) for one in parts for group in one.groups if group.verdict == verdict]
    return sorted(found, key=lambda pair: pair[1].p_value)


def finding_sentence(part: Breakdown, group: Group, unit: Unit) -> str:
    """Coverage and width of a group."""
    return (
        f"{part.name}, {group.label}: {share(group.rate)} of {count(group.rows, 'row')} inside, "
        f"mean width {unit.write(group.width)}"
    )


def remedy_sentence(found: Sequence[tuple[Breakdown, Group]], coverage: float) -> str:
    """What to do about groups that fall short, from what they are groups by."""
    names = list(dict.fromkeys(part.name for part, _ in found))
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
        steps.append("fit again with rows like those beyond the training range, or do not use it")
    if "predicted value" in names:
        steps.append(
            "conformalize by predicted width (--by 'predicted width'), or fit with more rows"
        )
    return f"What to do: {'; '.join(steps)}." if steps else ""


def uncertainty_sentences(labelled: LabelledPrediction) -> str:
    """How the predicted variance divides, and what that does and does not say.

    The variance within networks is what they could not explain with the rows and inputs they had.
    It is no measure of the noise of the world, so nothing is said about a floor.
    """
    assert labelled.aleatoric is not None  # noqa: S101 - for the type checker
    assert labelled.epistemic is not None  # noqa: S101 - for the type checker
    within, between = labelled.aleatoric**2, labelled.epistemic**2
    part = float(np.mean(within) / np.mean(within + between))
    agree = "The networks agree" if part > 0.5 else "The networks disagree"
    more = int((between > within).sum())
    tail = f" Between networks it is larger for {more:,} of {count(len(labelled), 'row')}."
    return (
        f"{agree}: {share(part)} of the predicted variance is within networks (aleatoric), "
        f"{share(1 - part)} between them (epistemic).{tail if more else ''} The first is what "
        "networks could not explain with the rows and inputs that they had, the second where rows "
        "like these were too few to settle it. Neither is a floor: more rows or better inputs may "
        "still reduce both."
    )


def training_sentences(bank: Bank) -> str:
    """How training went."""
    epochs = [len(history) for history in bank.histories]
    span = (
        f"{min(epochs):,}" if min(epochs) == max(epochs) else f"{min(epochs):,} to {max(epochs):,}"
    )
    retried = int(np.sum(bank.failures))
    failed = f" {count(retried, 'network')} failed and had to be trained again." if retried else ""
    return f"{count(len(epochs), 'network')}, trained for {span} epochs.{failed}"
