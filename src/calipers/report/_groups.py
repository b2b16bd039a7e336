"""Coverage and width in subgroups: by the value of each input, and by prediction."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from calipers._arrays import FloatArray, IntArray
from calipers._evaluation import LabelledPrediction, value_bins
from calipers.metrics import coverage_band, coverage_p_value
from calipers.report._format import Unit
from calipers.report._misses import Input

_MAX_NUMBERS = 6  # distinct numbers that are not binned
_MAX_LABELS = 8
_LABEL_ROWS = 20  # a group of fewer rows is among the others
_FAMILY_ERROR = 0.05
_FEW_DAYS = 6 * 86_400  # seconds


@dataclass(frozen=True)
class Group:
    """A subgroup of the rows."""

    label: str
    rows: int
    rate: float  # fraction of targets inside
    width: float  # mean
    # range of the rate by chance, see ``calipers.metrics.coverage_band``
    low: float
    high: float
    # probability, by chance, of a rate this far below (or above) both the nominal coverage and the
    # rate of all rows; 1 if it lies between them
    p_value: float
    # "short" or "wide" if the rate is significantly below or above, over all groups of the report
    verdict: str = ""


@dataclass(frozen=True)
class Breakdown:
    """The rows split into groups by one quantity."""

    name: str
    groups: tuple[Group, ...]  # in their natural order

    @property
    def weight(self) -> tuple[float, float]:
        """Sort key: undercovered groups first, then the largest differences in width."""
        short = [group.p_value for group in self.groups if group.verdict == "short"]
        flagged = min(short, default=1.0)
        widths = [group.width for group in self.groups]
        return flagged, -max(widths) / min(widths) if 0 < min(widths) < np.inf else 0.0


def breakdowns(labelled: LabelledPrediction, inputs: Sequence[Input]) -> list[Breakdown]:
    """Return groups by prediction, by whether inputs are in the training range, and by each input.

    Breakdowns have at least two groups. If the model is calibrated everywhere, at most one report
    in twenty flags any group (Holm's method).
    """
    lead = [Breakdown("predicted value", _by_number(labelled, labelled.point))]
    outside = np.asarray(labelled.outside.any(axis=1))
    if outside.any():
        labels = ["all inputs within it", "some input outside it"]
        lead.append(Breakdown("training range", _groups(labelled, outside.astype(np.intp), labels)))
    lead = [part for part in lead if len(part.groups) > 1]
    by_input = [Breakdown(one.name, _by_input(labelled, one)) for one in inputs]
    by_input = [part for part in by_input if len(part.groups) > 1]
    parts = _flagged([*lead, *by_input], labelled.coverage)
    return [*parts[: len(lead)], *sorted(parts[len(lead) :], key=lambda part: part.weight)]


def _by_input(labelled: LabelledPrediction, column: Input) -> tuple[Group, ...]:
    if not column.of.repeats:
        return ()
    if column.of.dtype.kind == "M":
        return _by_number(labelled, column.cells, _date_writer(column.cells), "\N{EN DASH}")
    labels = [column.write(value) for value in column.cells]
    if column.of.dtype == object:
        return _by_label(labelled, labels, pd.Series(labels).value_counts().index.tolist())
    distinct = np.unique(column.cells[~column.missing])
    if len(distinct) > _MAX_NUMBERS:
        return _by_number(labelled, column.cells)
    return _by_label(labelled, labels, [*map(column.write, distinct), "missing"])


def _date_writer(times: FloatArray) -> Callable[[float], str]:
    """Return a formatter of dates, with the time of day only if there are few days."""
    span = np.nanmax(times, initial=-np.inf) - np.nanmin(times, initial=np.inf)
    unit = "D" if span >= _FEW_DAYS else "m"

    def write(value: float) -> str:
        return str(np.datetime64(int(value), "s").astype(f"datetime64[{unit}]")).replace("T", " ")

    return write


def _by_number(
    labelled: LabelledPrediction,
    values: FloatArray,
    write: Callable[[float], str] | None = None,
    between: str = " to ",
) -> tuple[Group, ...]:
    """Return bins with about equally many rows, and a group of missing values."""
    codes, bins = value_bins(values)
    if len(bins) < 2:
        return ()
    write = write or Unit.of(values[~np.isnan(values)], digits=2).write
    ends = [(write(low), write(high)) for low, high in bins]
    labels = [low if low == high else f"{low}{between}{high}" for low, high in ends]
    return _groups(labelled, codes, [*labels, "missing"])


def _by_label(
    labelled: LabelledPrediction, labels: list[str], order: list[str]
) -> tuple[Group, ...]:
    """Return one group for each label with enough rows, and one for the others."""
    counts = pd.Series(labels).value_counts()
    large = set(counts[counts >= _LABEL_ROWS].index[:_MAX_LABELS])
    kept = [label for label in order if label in large]
    code_of = {label: i for i, label in enumerate(kept)}
    codes = np.array([code_of.get(label, len(kept)) for label in labels], dtype=np.intp)
    others = len(counts) - len(kept)
    return _groups(labelled, codes, [*kept, f"{others} other value{'' if others == 1 else 's'}"])


def _groups(
    labelled: LabelledPrediction, codes: IntArray, labels: Sequence[str]
) -> tuple[Group, ...]:
    grouped = labelled.by_group(codes)
    low, high = coverage_band(grouped.n_samples, labelled.coverage)
    rate = grouped.coverage_rate
    p_value = _p_values(rate, grouped.n_samples, labelled)
    names = [labels[code] for code in grouped.group]
    columns = (grouped.n_samples, rate, grouped.mean_width, low, high, p_value)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(Group(name, *row) for name, row in zip(names, rows, strict=True))


def _p_values(rate: FloatArray, rows: IntArray, labelled: LabelledPrediction) -> FloatArray:
    """Return p-values of groups against both the nominal coverage and the rate of all rows.

    If all rows together are undercovered, so is nearly every group, and flagging each of
    them would add nothing.
    """
    ends = np.clip(
        sorted([labelled.coverage, labelled.covered(labelled.own_level).mean()]), 1e-9, 1 - 1e-9
    )
    nearest = np.clip(rate, *ends)
    return np.where(rate == nearest, 1.0, coverage_p_value(rate, rows, nearest))


def _flagged(parts: list[Breakdown], coverage: float) -> list[Breakdown]:
    """Return the breakdowns with verdicts on groups whose rate is not due to chance."""
    p_values = np.sort([group.p_value for part in parts for group in part.groups])
    limits = _FAMILY_ERROR / np.arange(len(p_values), 0, -1)
    failing = np.flatnonzero(p_values > limits)  # Holm stops at the first one not significant
    rejected = p_values[: failing[0] if failing.size else len(p_values)]
    largest = rejected[-1] if rejected.size else -1.0

    def marked(groups: Sequence[Group]) -> Iterator[Group]:
        for group in groups:
            side = "short" if group.rate < coverage else "wide"
            yield replace(group, verdict=side if group.p_value <= largest else "")

    return [replace(part, groups=tuple(marked(part.groups))) for part in parts]
