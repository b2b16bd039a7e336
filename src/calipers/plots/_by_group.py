"""Pictures of groups of rows: where intervals hold, and where they are wide."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from calipers.metrics import GroupedCoverage, coverage_band
from calipers.plots._style import COLORS


def plot_coverage_by(
    ax: Axes,
    groups: GroupedCoverage,
    *,
    coverage: float = 0.95,
    labels: Sequence[str] | None = None,
) -> None:
    """Draw the coverage rate of groups of rows, one line each, with what chance allows.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    groups : GroupedCoverage
        From ``calipers.metrics.coverage_by_group``, ``coverage_by_value`` or ``coverage_by_width``.
    coverage : float
        Nominal probability of the intervals.
    labels : sequence of str, optional
        Names of the groups; by default the groups themselves.

    Examples
    --------
    >>> from calipers.metrics import coverage_by_group
    >>> from calipers.plots import new_figure
    >>> ax = new_figure(2.0).subplots()
    >>> groups = coverage_by_group([0.5, 2, 0.1], [0, 0, 0], [1, 1, 1], ["a", "a", "b"])
    >>> plot_coverage_by(ax, groups)
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['a (2)', 'b (1)']
    """
    rate, place = groups.coverage_rate, np.arange(len(groups.group))
    low, high = coverage_band(groups.n_samples, coverage)
    ax.barh(
        place, high - low, left=low, height=0.6, color=COLORS["grey"], alpha=0.3, linewidth=0,
        label="within chance",
    )  # fmt: skip
    ax.axvline(coverage, color=COLORS["black"], linewidth=0.8, linestyle=(0, (4, 3)))
    within = (low <= rate) & (rate <= high)
    for mask, mark, color in ((within, "o", "blue"), (~within, "D", "orange")):
        ax.plot(rate[mask], place[mask], mark, color=COLORS[color], markersize=4)
    names = _names(groups, labels)
    counted = [f"{name} ({rows:,})" for name, rows in zip(names, groups.n_samples, strict=True)]
    _lines(ax, counted)
    ax.set(xlim=(min(low.min(), rate.min()) - 0.03, 1.01), xlabel="share of rows inside")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def _names(groups: GroupedCoverage, labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        numeric = groups.group.dtype.kind in "biuf"
        return [f"{value:.4g}" if numeric else str(value) for value in groups.group.tolist()]
    if len(labels) != len(groups.group):
        raise ValueError(f"labels must name {len(groups.group)} groups, got {len(labels)}")
    return list(labels)


def _lines(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
