"""Whether our numbers lean to one side of the published ones: one test over all cells of a measure.

A rule for each cell cannot see that most of them are a little higher. Cells that rest on the same
networks are not independent, so all cells of one training on one dataset count as one: their mean
difference in units of its error. A sign test asks whether as many lie above as below, and a t test
whether their mean is zero. Trainings share the shuffles of a dataset, so that a second sign test
counts each dataset once.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from calipers_study.cells import SOURCES, Cell
from calipers_study.files import markdown_table

MEASURES = ("PICP", "MPIW", "MSE")
"""Measures that are tested."""


@dataclass(frozen=True)
class Lean:
    """How the cells of one measure differ from the published ones."""

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
    relative: float  #: Median over groups of the difference as a share of the published number.
    #: Datasets, and those in which the mean over trainings is positive.
    datasets: int
    datasets_higher: int
    dataset_p: float  #: Two-sided p value of the sign test over datasets.


def standardised_difference(cell: Cell) -> float:
    """Difference from the published number in units of both standard errors and its rounding.

    A printed standard error of 0.00 may be anything below half of its last digit; it is taken as
    printed.
    """
    paper, (mean, sem) = cell.published, cell.ours
    rounding = paper.half_unit / math.sqrt(3)
    error = math.hypot(sem or 0.0, paper.sem or 0.0, rounding)
    return ((mean or 0.0) - paper.mean) / error


def leans(cells: Iterable[Cell]) -> list[Lean]:
    """Test every measure over all its cells that have a number here and in the paper."""
    found = []
    compared = [c for c in cells if c.ours.mean is not None and c.published.metric in MEASURES]
    for metric in MEASURES:
        own = [cell for cell in compared if cell.published.metric == metric]
        if not own:
            continue
        groups: dict[tuple[str, str], list[Cell]] = defaultdict(list)
        for cell in own:
            groups[SOURCES[cell.published.method][0], cell.published.dataset].append(cell)
        z = np.array([np.mean([standardised_difference(c) for c in g]) for g in groups.values()])
        share = [np.mean([_relative(c) for c in g]) for g in groups.values()]
        above = int((z > 0).sum())
        places = np.array([dataset for _, dataset in groups])
        means = np.array([z[places == place].mean() for place in np.unique(places)])
        sided = int((means > 0).sum())
        found.append(
            Lean(
                metric,
                len(own),
                sum(_relative(cell) > 0 for cell in own),
                len(z),
                above,
                float(stats.binomtest(above, len(z)).pvalue),
                float(z.mean()),
                float(stats.ttest_1samp(z, 0.0).pvalue) if len(z) > 1 else math.nan,
                float(np.median(share)),
                len(means),
                sided,
                float(stats.binomtest(sided, len(means)).pvalue),
            )
        )
    return found


def _relative(cell: Cell) -> float:
    return (cell.ours.mean or 0.0) / cell.published.mean - 1


def lean_lines(cells: Iterable[Cell]) -> list[str]:
    """The tests as a table in Markdown."""
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
        for one in leans(cells)
    ]  # fmt: skip
    return markdown_table(header, rows)
