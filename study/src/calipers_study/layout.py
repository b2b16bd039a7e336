"""The layout of the paper's tables, as Markdown and as CSV."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from calipers.datasets import CATALOGUE
from calipers_study.cells import Estimate, TableCell
from calipers_study.files import markdown_table
from calipers_study.verdict import AGREES, BETTER, MISSING, WORSE, Published

MARKS = {AGREES: "=", BETTER: "▲", WORSE: "▼", MISSING: ""}
"""Verdicts in Markdown."""

LEGEND = (
    "Each cell: mean ± standard error here, below it the paper's, and the verdict: "
    "= agrees, ▲ better, ▼ worse."
)


class TableColumn(NamedTuple):
    """A column of a table by its measure and method."""

    metric: str
    method: str


@dataclass(frozen=True)
class Layout:
    """One of the paper's tables."""

    #: Name in ``cells.csv``, and heading.
    name: str
    title: str
    columns: tuple[TableColumn, ...]  #: In the paper's order.
    sizes: bool = False  #: Whether to show the numbers of rows and inputs of each dataset.


def _columns(metrics: Iterable[str], methods: Iterable[str]) -> tuple[TableColumn, ...]:
    methods = list(methods)
    return tuple(TableColumn(metric, method) for metric in metrics for method in methods)


_INTERVALS = ("PICP", "MPIW")

LAYOUTS = (
    Layout(
        "table1",
        "Table 1: prediction intervals of ensembles",
        _columns(_INTERVALS, ("SNM-QD+", "SEM-QD+", "SEM-QD", "MVE")),
    ),
    Layout(
        "table2",
        "Table 2: point estimates of ensembles",
        _columns(["MSE"], ("MSE", "SNM-QD+", "MVE")),
    ),
    Layout(
        "tableA",
        "Table A: prediction intervals of single networks",
        _columns(_INTERVALS, ("QD+", "QD")),
    ),
    Layout(
        "tableB",
        "Table B: the original method with one hidden layer",
        _columns(_INTERVALS, ("SEM-QD 1-layer", "QD 1-layer")),
    ),
    Layout(
        "tableC",
        "Table C: points in the middle of SEM-QD intervals",
        _columns(["MSE"], ["SEM-QD*"]),
        sizes=True,
    ),
    Layout(
        "tableD",
        "Table D: networks that failed and were trained again",
        (
            TableColumn("failures", "QD+"),
            TableColumn("failures", "QD"),
            TableColumn("target_models", "both"),
        ),
    ),
)
"""The six tables of the paper."""

_TITLES = {"failures": "failures", "target_models": "networks"}


def markdown(layout: Layout, cells: Iterable[TableCell]) -> str:
    """A table in Markdown, with our numbers above the paper's."""
    chosen = _by_place(layout, cells)
    sizes = ["rows", "inputs"] if layout.sizes else []
    titles = [f"{_TITLES.get(c.metric, c.metric)}<br>{c.method}" for c in layout.columns]
    rows = []
    for dataset, entry in CATALOGUE.items():
        numbers = [f"{entry.rows}", f"{entry.inputs}"] if layout.sizes else []
        rows.append([dataset, *numbers, *(_text(chosen[dataset, c]) for c in layout.columns)])
    table = markdown_table(["dataset", *sizes, *titles], rows)
    return "\n".join([f"## {layout.title}", "", *table, "", LEGEND, ""])


def csv_rows(layout: Layout, cells: Iterable[TableCell]) -> list[list[object]]:
    """Rows of the same table in full precision; the first has the names of the columns."""
    chosen = _by_place(layout, cells)
    parts = ("mean", "sem", "published_mean", "published_sem", "verdict")
    names = [f"{c.metric} {c.method} {part}" for c in layout.columns for part in parts]
    sizes = ["rows", "inputs"] if layout.sizes else []
    rows: list[list[object]] = [["dataset", *sizes, *names]]
    for dataset, entry in CATALOGUE.items():
        row: list[object] = [dataset, *([entry.rows, entry.inputs] if layout.sizes else [])]
        for column in layout.columns:
            row += values(chosen[dataset, column])
        rows.append(row)
    return rows


def values(cell: TableCell) -> list[object]:
    """Our mean and standard error, the paper's, and the verdict."""
    return [*cell.ours, cell.published.printed, cell.published.sem, cell.verdict]


def _by_place(
    layout: Layout, cells: Iterable[TableCell]
) -> dict[tuple[str, TableColumn], TableCell]:
    return {
        (cell.published.dataset, TableColumn(cell.published.metric, cell.published.method)): cell
        for cell in cells
        if cell.published.table == layout.name
    }


def _text(cell: TableCell) -> str:
    paper = cell.published
    printed = f"{paper.printed}{_error(paper, paper.sem)}"
    note = f"<br>({cell.note})" if cell.note else ""
    return f"{ours(paper, cell.ours)}<br>{printed} {MARKS[cell.verdict]}".rstrip() + note


def ours(paper: Published, estimate: Estimate) -> str:
    """Our number with as many digits as the published one.

    Examples
    --------
    >>> cell = Published("table2", "naval", "MSE", "MSE", "4.8e-5", 0.0)
    >>> ours(cell, Estimate(4.93e-5, 1.2e-6)), ours(cell, Estimate(None, None))
    ('4.9e-5 ± 0.1e-5', 'missing')
    """
    if estimate.mean is None:
        return "missing"
    if "e" in paper.printed:
        exponent = paper.printed.partition("e")[2]
        unit = float(f"1e{exponent}")
        error = "" if estimate.sem is None else f" ± {estimate.sem / unit:.1f}e{exponent}"
        return f"{estimate.mean / unit:.1f}e{exponent}{error}"
    return f"{estimate.mean:.{_decimals(paper)}f}{_error(paper, estimate.sem)}"


def _error(paper: Published, sem: float | None) -> str:
    if sem is None or paper.metric in _TITLES:
        return ""
    places = 3 if "e" in paper.printed else _decimals(paper)
    return f" ± {sem:.{places}f}"


def _decimals(paper: Published) -> int:
    return len(paper.printed.partition(".")[2])
