"""Tests of whether our numbers are biased against the published ones, over all cells of a measure.

A rule for single cells cannot detect that most of them are slightly higher. Cells based on the same
networks are not independent, so all cells of one training on one dataset form a group, which is
represented by its mean difference in standard errors. A sign test checks whether as many groups are
above as below zero, and a t test whether their mean is zero. Since trainings share the shuffles of
a dataset, a second sign test counts each dataset once.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from calipers_study.cells import SOURCES, TableCell
from calipers_study.files import markdown_table

MEASURES = ("PICP", "MPIW", "MSE")
"""Measures that are tested."""


@dataclass(frozen=True)
class Bias:
    """How our cells of one measure differ from the published ones."""

    metric: str  #: The measure.
    #: Cells compared, and those in which ours is higher.
    cells: int
    higher: int
    #: Trainings and datasets, and those in which the mean difference is positive.
    groups: int
    groups_higher: int
    sign_p: float  #: Two-sided p value of the sign test over groups.
    #: Mean difference over groups in units of its error, and the p value of the t test.
    mean_z: float
    t_p: float
    relative: float  #: Median over groups of the difference relative to the published number.
    #: Datasets, and those in which the mean over trainings is positive.
    datasets: int
    datasets_higher: int
    dataset_p: float  #: Two-sided p value of the sign test over datasets.


def standardised_difference(cell: TableCell) -> float:
    """Difference from the published number, divided by its standard error.

    The standard error combines those of both numbers and the rounding of the published one. A
    printed standard error of 0.00 is taken as 0, though it may be up to half of the last digit.
    """
    paper, (mean, sem) = cell.published, cell.ours
    rounding = paper.half_unit / math.sqrt(3)
    error = math.hypot(sem or 0.0, paper.sem or 0.0, rounding)
    return ((mean or 0.0) - paper.mean) / error


def biases(cells: Iterable[TableCell]) -> list[Bias]:
    """Test every measure over all cells that have a number here and in the paper."""
    results = []
    compared = [c for c in cells if c.ours.mean is not None and c.published.metric in MEASURES]
    for metric in MEASURES:
        own = [cell for cell in compared if cell.published.metric == metric]
        if not own:
            continue
        groups: dict[tuple[str, str], list[TableCell]] = defaultdict(list)
        for cell in own:
            groups[SOURCES[cell.published.method][0], cell.published.dataset].append(cell)
        z = np.array([np.mean([standardised_difference(c) for c in g]) for g in groups.values()])
        relative = [np.mean([_relative(c) for c in g]) for g in groups.values()]
        above = int((z > 0).sum())
        datasets = np.array([dataset for _, dataset in groups])
        means = np.array([z[datasets == name].mean() for name in np.unique(datasets)])
        means_above = int((means > 0).sum())
        results.append(
            Bias(
                metric,
                len(own),
                sum(_relative(cell) > 0 for cell in own),
                len(z),
                above,
                float(stats.binomtest(above, len(z)).pvalue),
                float(z.mean()),
                float(stats.ttest_1samp(z, 0.0).pvalue) if len(z) > 1 else math.nan,
                float(np.median(relative)),
                len(means),
                means_above,
                float(stats.binomtest(means_above, len(means)).pvalue),
            )
        )
    return results


def _relative(cell: TableCell) -> float:
    return (cell.ours.mean or 0.0) / cell.published.mean - 1


def bias_lines(cells: Iterable[TableCell]) -> list[str]:
    """The tests as a Markdown table."""
    header = [
        "measure", "cells", "ours higher", "trainings x datasets", "ours higher", "p (signs)",
        "mean z", "p (t)", "median difference", "datasets", "ours higher", "p (signs)",
    ]  # fmt: skip
    rows = [
        [
            one.metric, f"{one.cells}", f"{one.higher}", f"{one.groups}", f"{one.groups_higher}",
            f"{one.sign_p:.3f}", f"{one.mean_z:+.2f}", f"{one.t_p:.3f}",
            f"{100 * one.relative:+.1f}%", f"{one.datasets}", f"{one.datasets_higher}",
            f"{one.dataset_p:.3f}",
        ]
        for one in biases(cells)
    ]  # fmt: skip
    return markdown_table(header, rows)
