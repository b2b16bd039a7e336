"""Comparison of a second run of the study with the first, cell by cell in standard errors."""

import os
from collections import Counter

from calipers_study.bias import bias_lines, standardised_difference
from calipers_study.cells import TableCell, cells_of, collect
from calipers_study.experiment_tables import Found, against
from calipers_study.files import markdown_table
from calipers_study.store import ResultStore, StoreError


def again_markdown(store: str | os.PathLike[str], other: str | os.PathLike[str]) -> str:
    """Compare every cell of PICP, MPIW and MSE that two stores have in common.

    Parameters
    ----------
    store, other : path-like
        The first run, which takes the place of the paper, and the second.

    Raises
    ------
    StoreError
        If the stores have no training in common.
    """
    first, second = collect(ResultStore(store)), collect(ResultStore(other))
    pairs = [
        (one, two)
        for one, two in zip(cells_of(first), cells_of(second), strict=True)
        if one.ours.sem is not None and two.ours.sem is not None
    ]
    if not pairs:
        raise StoreError(f"{store} and {other} have no training in common")
    cells = [against(one, two) for one, two in pairs]
    distance = [abs(standardised_difference(cell)) for cell in cells]
    counts = Counter(min(int(z), 3) for z in distance)
    lines = [
        "# The run of the tables, and a second run",
        "",
        f"Of {len(cells)} cells {counts[0]} differ by less than one combined standard error, "
        f"{counts[1]} by one to two, {counts[2]} by two to three, {counts[3]} by more. "
        f"{_failures(first, second)}",
        "",
        *bias_lines(cells),
    ]
    ranked = sorted(zip(distance, pairs, strict=True), key=lambda item: -item[0])
    rows = []
    for z, (one, two) in ranked:
        cell = one.published
        place = [cell.table, cell.dataset, cell.method, cell.metric]
        rows.append([*place, _written(one), _written(two), f"{z:.1f}"])
    header = ["table", "dataset", "method", "measure", "first", "second", "errors"]
    return "\n".join([*lines, "", *markdown_table(header, rows, 4), ""])


def _written(cell: TableCell) -> str:
    return f"{cell.ours.mean:.4g} ± {cell.ours.sem:.2g}"


def _failures(first: Found, second: Found) -> str:
    """A sentence with the numbers of failed trainings in both runs."""
    texts = []
    for method in ("qd+", "qd", "qd-1-layer"):
        both = [place for place in first if place[0] == method and first[place].trials]
        both = [place for place in both if second[place].trials]
        counts = (sum(run[place].failures.mean or 0 for place in both) for run in (first, second))
        texts.append("{} {:.0f} and {:.0f}".format(method, *counts))
    return f"Failed trainings: {', '.join(texts)}."
