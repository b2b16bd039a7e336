"""Coverage and width where they may hide: by the value of each input, and by prediction."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calipers.metrics import coverage_band, coverage_by_group, coverage_p_value
from calipers.report._format import Unit
from calipers.report._labelled import LabelledPrediction
from calipers.report._misses import Input

_BINS = 6
_BIN_ROWS = 20  # fewer rows tell next to nothing about a rate near one
_FAMILY_ERROR = 0.05
_DAY = 86_400  # seconds

Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Group:
    """Some of the rows."""

    label: str  # what they have in common
    rows: int  # how many they are
    # share of targets inside, and mean width
    rate: float
    width: float
    # range of the rate by chance, see ``calipers.metrics.coverage_band``
    low: float
    high: float
    # how likely chance takes the rate below both the nominal coverage and the rate of all rows,
    # or above both, as far as it is; 1 if it lies between them
    p_value: float
    # "", "short", "wide": whether the rate is below or above, beyond chance over all groups of
    # the report
    verdict: str = ""


@dataclass(frozen=True)
class Breakdown:
    """Groups of rows by one quantity."""

    name: str
    groups: tuple[Group, ...]  # in their natural order

    @property
    def weight(self) -> tuple[float, float]:
        """Sorts the most telling first: groups that fall short, then widths that differ most."""
        short = [group.p_value for group in self.groups if group.verdict == "short"]
        flagged = min(short, default=1.0)
        widths = [group.width for group in self.groups]
        return flagged, -max(widths) / min(widths) if 0 < min(widths) < np.inf else 0.0


def breakdowns(labelled: LabelledPrediction, inputs: Sequence[Input]) -> list[Breakdown]:
    """Groups by prediction, by being within the training range, then by each input.

    Only breakdowns with two groups or more. A group is flagged so that, were the model calibrated
    everywhere, at most one report in twenty would flag any (Holm's method).
    """
    lead = [Breakdown("predicted value", _by_number(labelled, labelled.point))]
    far = np.asarray(labelled.outside.any(axis=1))
    if far.any():
        labels = ["all inputs within it", "some input beyond it"]
        lead.append(Breakdown("training range", _groups(labelled, far.astype(np.intp), labels)))
    lead = [one for one in lead if len(one.groups) > 1]
    by_input = [Breakdown(one.name, _by(labelled, one)) for one in inputs]
    found = _flagged([*lead, *(one for one in by_input if len(one.groups) > 1)], labelled.coverage)
    return [*found[: len(lead)], *sorted(found[len(lead) :], key=lambda one: one.weight)]


def _by(labelled: LabelledPrediction, one: Input) -> tuple[Group, ...]:
    if one.kind == "date":
        return _by_number(labelled, one.cells, _date_writer(one.cells), "\N{EN DASH}")
    labels = [one.write(value) for value in one.cells]
    if one.kind == "category":
        return _by_label(labelled, labels, pd.Series(labels).value_counts().index.tolist())
    known = np.unique(one.cells[~one.missing])
    if len(known) > _BINS:
        return _by_number(labelled, one.cells)
    return _by_label(labelled, labels, [*map(one.write, known), "missing"])


def _date_writer(times: Any) -> Callable[[float], str]:
    """Writes dates, with the time of day only where the bins are shorter than a day."""
    span = np.nanmax(times, initial=-np.inf) - np.nanmin(times, initial=np.inf)
    unit = "D" if span >= _BINS * _DAY else "m"

    def write(value: float) -> str:
        return str(np.datetime64(int(value), "s").astype(f"datetime64[{unit}]")).replace("T", " ")

    return write


def _by_number(
    labelled: LabelledPrediction,
    values: Any,
    write: Callable[[float], str] | None = None,
    between: str = " to ",
) -> tuple[Group, ...]:
    """Bins of about equal size; missing values are a group of their own."""
    known = ~np.isnan(values)
    bins = min(_BINS, int(known.sum()) // _BIN_ROWS)
    if bins < 2:
        return ()
    write = write or Unit.of(values[known], digits=2).write
    edges = np.quantile(values[known], np.arange(1, bins) / bins, method="inverted_cdf")
    codes = np.searchsorted(np.unique(edges), values)
    codes[~known] = bins
    labels = []
    for code in range(bins):
        part = values[codes == code]
        low, high = (write(part.min()), write(part.max())) if part.size else ("", "")
        labels.append(low if low == high else f"{low}{between}{high}")
    return _groups(labelled, codes, [*labels, "missing"])


def _by_label(
    labelled: LabelledPrediction, labels: list[str], order: list[str]
) -> tuple[Group, ...]:
    """One group for each label that has enough rows, and one for the others."""
    counts = pd.Series(labels).value_counts()
    large = set(counts[counts >= _BIN_ROWS].index[: _BINS + 2])
    kept = [label for label in order if label in large]
    places = {label: i for i, label in enumerate(kept)}
    codes = np.array([places.get(label, len(kept)) for label in labels], dtype=np.intp)
    others = len(counts) - len(kept)
    return _groups(labelled, codes, [*kept, f"{others} other value{'' if others == 1 else 's'}"])


def _groups(labelled: LabelledPrediction, codes: Codes, labels: Sequence[str]) -> tuple[Group, ...]:
    found = coverage_by_group(labelled.target, labelled.lower, labelled.upper, codes)
    low, high = coverage_band(found.n_samples, labelled.coverage)
    rate = found.coverage_rate
    if labelled.ties:
        held = labelled.held(labelled.own)
        rate = np.array([held[codes == code].mean() for code in found.group])
    p_value = _p_values(rate, found.n_samples, labelled)
    names = [labels[code] for code in found.group]
    columns = (found.n_samples, rate, found.mean_width, low, high, p_value)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(Group(name, *row) for name, row in zip(names, rows, strict=True))


def _p_values(rate: Any, rows: Any, labelled: LabelledPrediction) -> Any:
    """How sure it is that a group is worse, or wider, than promised and than all rows together.

    Where all rows fall short, so does nearly every group, and to say so of each tells nothing.
    """
    ends = np.clip(sorted([labelled.coverage, labelled.held(labelled.own).mean()]), 1e-9, 1 - 1e-9)
    nearest = np.clip(rate, *ends)
    return np.where(rate == nearest, 1.0, coverage_p_value(rate, rows, nearest))


def _flagged(found: list[Breakdown], coverage: float) -> list[Breakdown]:
    """Mark groups whose rate chance does not explain, over all of them."""
    p_values = np.sort([group.p_value for one in found for group in one.groups])
    limits = _FAMILY_ERROR / np.arange(len(p_values), 0, -1)
    failing = np.flatnonzero(p_values > limits)  # Holm stops at the first that chance explains
    rejected = p_values[: failing[0] if failing.size else len(p_values)]
    largest = rejected[-1] if rejected.size else -1.0

    def marked(groups: Sequence[Group]) -> Iterator[Group]:
        for group in groups:
            side = "short" if group.rate < coverage else "wide"
            yield replace(group, verdict=side if group.p_value <= largest else "")

    return [replace(one, groups=tuple(marked(one.groups))) for one in found]
