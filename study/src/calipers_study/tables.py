"""The tables, made from the store without training."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from calipers.datasets import CATALOGUE
from calipers_study.bias import bias_lines, standardised_difference
from calipers_study.cells import (
    SOURCES,
    Results,
    TableCell,
    collect,
    paper_cells,
    share_reproduced,
)
from calipers_study.experiment_tables import (
    experiments_markdown,
    leans_markdown,
    retries_markdown,
)
from calipers_study.files import markdown_table, replace_file, write_csv
from calipers_study.further_tables import baselines_markdown, future_markdown, shift_markdown
from calipers_study.layout import LAYOUTS, csv_rows, markdown, ours, values
from calipers_study.measures import MEMBERS
from calipers_study.methods import METHODS, paper_trials
from calipers_study.sensitivity import failures_markdown
from calipers_study.store import ResultStore, StoreError
from calipers_study.times import time_markdown
from calipers_study.verdict import published_cells

CELL_COLUMNS = (
    "table", "dataset", "method", "metric",
    "mean", "sem", "published_mean", "published_sem", "verdict",
)  # fmt: skip
"""Columns of ``cells.csv``."""

_SCORED = ("SNM-QD+", "SEM-QD+", "STD-QD+", "SEM-QD", "STD-QD", "SEM-QD 1-layer", "MVE")
_MEASURES = ("PICP", "MPIW", "MSE", "interval score")


def write_tables(
    store: str | os.PathLike[str] = "results/study", out: str | os.PathLike[str] = "results"
) -> str:
    """Write the paper's tables with our numbers and the published ones.

    Writes ``cells.csv`` (every cell of the six tables), ``trials.csv`` (every measure of every
    trial and its origin) and, in ``tables/``, each table as Markdown and CSV, the interval scores,
    and a summary.

    Parameters
    ----------
    store : path-like
        Folder of the store.
    out : path-like
        Folder to write to.

    Returns
    -------
    str
        A line that says how many cells of tables 1 and 2 agree with the paper, are better and are
        worse.

    Raises
    ------
    StoreError
        If the store holds no trial.
    """
    results = collect(ResultStore(store))
    if not any(found.trials for found in results.values()):
        raise StoreError(f"{store} holds no trials: start with `calipers study run`")
    cells = paper_cells(results)
    folder = Path(out, "tables")
    write_csv(Path(out, "cells.csv"), [CELL_COLUMNS, *map(_cell_row, cells)])
    write_csv(Path(out, "trials.csv"), trial_rows(results))
    for layout in LAYOUTS:
        write_csv(folder / f"{layout.name}.csv", csv_rows(layout, cells))
        replace_file(folder / f"{layout.name}.md", markdown(layout, cells).encode())
    write_csv(folder / "interval_score.csv", _score_rows(results))
    replace_file(folder / "interval_score.md", _score_markdown(results).encode())
    replace_file(folder / "summary.md", summary(cells, results).encode())
    for name, text in _beside(ResultStore(store), results).items():
        replace_file(folder / f"{name}.md", text.encode())
    return share_reproduced(cells)


def _beside(store: ResultStore, results: dict[tuple[str, str], Results]) -> dict[str, str]:
    """Tables of results beyond the paper, as far as they are in the store."""
    texts = {
        **future_markdown(store, results),
        "baselines": baselines_markdown(store, results),
        "experiments": experiments_markdown(store, results),
        "leans": leans_markdown(store, results),
        "retries": retries_markdown(results),
        "sensitivity": failures_markdown(store),
        "shift": shift_markdown(store),
        "time": time_markdown(store, results),
    }
    return {name: text for name, text in texts.items() if text is not None}


def summary(cells: list[TableCell], results: dict[tuple[str, str], Results]) -> str:
    """Counts of verdicts by table, the cells that are worse or better, and what is incomplete."""
    lines = ["# Agreement with the paper", "", share_reproduced(cells), ""]
    lines += [f"- {share_reproduced(cells, [layout.name])}" for layout in LAYOUTS]
    lines += ["", _by_chance(cells)]
    lines += ["", "## All cells at once", "", *bias_lines(cells)]
    for word, title in (("worse", "Worse than published"), ("better", "Better than published")):
        lines += _listed([cell for cell in cells if cell.verdict == word], title)
    if short := list(_incomplete(results)):
        lines += ["", "## Incomplete", "", *short]
    return "\n".join([*lines, ""])


def _by_chance(cells: list[TableCell]) -> str:
    """A sentence that compares the number of disagreeing cells with that expected by chance."""
    own = [c for c in cells if c.published.metric in _MEASURES and c.ours.mean is not None]
    outside = sum(cell.verdict != "agrees" for cell in own)
    return (
        f"Two standard errors leave 4.6% of normal differences outside, {0.0455 * len(own):.0f} of "
        f"these {len(own)} cells of PICP, MPIW and MSE; {outside} are."
    )


def _listed(cells: list[TableCell], title: str) -> list[str]:
    if not cells:
        return []
    rows = []
    for cell in cells:
        paper = cell.published
        error = "" if paper.sem is None else f" ± {paper.sem:g}"
        place = [paper.table, paper.dataset, paper.method, paper.metric]
        both = [ours(paper, cell.ours), f"{paper.printed}{error}"]
        rows.append([*place, *both, f"{standardised_difference(cell):+.1f}"])
    header = ["table", "dataset", "method", "metric", "here", "paper", "difference / error"]
    return ["", f"## {title}", "", *markdown_table(header, rows, 6)]


def _incomplete(results: dict[tuple[str, str], Results]) -> Iterable[str]:
    absent = [name for name in CATALOGUE if not any(results[m, name].trials for m in METHODS)]
    for name in absent:
        missing = sum(cell.dataset == name for cell in published_cells())
        yield (
            f"- {name}: its {missing} cells have no results; with its file at hand "
            f"`calipers study run --dataset {name}` and `calipers study tables` fill them"
        )
    for (method, name), found in results.items():
        wanted = paper_trials(name)
        if name not in absent and len(found.trials) < wanted:
            yield f"- {METHODS[method].title} on {name}: {len(found.trials)} of {wanted} trials"
        lost = sum(len(t.arrays["retries"]) - len(t.arrays["members"]) for t in found.trials)
        if lost:
            yield f"- {METHODS[method].title} on {name}: {lost} networks given up"


def trial_rows(results: dict[tuple[str, str], Results]) -> list[list[object]]:
    """Every measure of every trial, with settings, seed, versions, device and time."""
    origin = ("seed", "device", "finished")
    place = ("method", "dataset", "trial", "aggregation", "networks", "retries")
    rows: list[list[object]] = [[*place, *_MEASURES, *origin, "seconds", "versions", "settings"]]
    for (method, dataset), found in results.items():
        for trial, measures in zip(found.trials, found.measures, strict=True):
            record, arrays = trial.record, trial.arrays
            for aggregation, sets in measures.items():
                if aggregation == MEMBERS:
                    continue
                row = [method, dataset, record["trial"], aggregation]
                row += [len(arrays["members"]), int(arrays["retries"].sum())]
                row += [sets[0].get(name) for name in _MEASURES]
                row += [*(record[name] for name in origin), round(record["seconds"], 3)]
                rows.append([*row, _compact(record["versions"]), _compact(record["settings"])])
    return rows


def _compact(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _cell_row(cell: TableCell) -> list[object]:
    paper = cell.published
    return [paper.table, paper.dataset, paper.method, paper.metric, *values(cell)]


def _score_rows(results: dict[tuple[str, str], Results]) -> list[list[object]]:
    names = [f"{method} {part}" for method in _SCORED for part in ("mean", "sem")]
    rows: list[list[object]] = [["dataset", *names]]
    for dataset in CATALOGUE:
        row: list[object] = [dataset]
        for label in _SCORED:
            method, source = SOURCES[label]
            row += results[method, dataset].estimate(source, "interval score")
        rows.append(row)
    return rows


def _score_markdown(results: dict[tuple[str, str], Results]) -> str:
    rows = []
    for dataset in CATALOGUE:
        sources = (SOURCES[label] for label in _SCORED)
        found = [results[m, dataset].estimate(source, "interval score") for m, source in sources]
        best = min((e.mean for e in found if e.mean is not None), default=None)
        texts = []
        for mean, sem in found:
            text = "missing" if mean is None else f"{mean:.3f}"
            text += "" if sem is None else f" ± {sem:.3f}"
            texts.append(f"**{text}**" if mean is not None and mean == best else text)
        rows.append([dataset, *texts])
    note = "The lower the better, the lowest in bold; the paper does not report it."
    table = markdown_table(["dataset", *_SCORED], rows)
    return "\n".join(["## Interval score", "", *table, "", note, ""])
