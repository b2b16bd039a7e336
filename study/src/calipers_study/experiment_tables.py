"""Tables of the experiments: the effect of changes in training, and that of chance alone."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import stats

from calipers.datasets import CATALOGUE
from calipers_study.bias import bias_lines
from calipers_study.cells import SOURCES, Results, TableCell, cells_of
from calipers_study.extras import stored_rows
from calipers_study.files import markdown_table
from calipers_study.further_tables import pm
from calipers_study.measures import MEMBERS, measure_combined
from calipers_study.settings import load_settings
from calipers_study.store import ResultStore, StoreEntry
from calipers_study.verdict import Published, published_cells

Row = dict[str, Any]
Found = dict[tuple[str, str], Results]

_SHOWN = ("PICP", "MPIW", "MSE")
_RESAMPLES = 100_000
_EVERYWHERE = ("other shuffles and seeds", "no partial batch")  # tried on many datasets


def experiments_markdown(store: ResultStore, results: Found) -> str | None:
    """The table of how changes in training affect numbers that differ from the paper's."""
    groups: dict[tuple[str, str, str], dict[str, list[Row]]] = defaultdict(dict)
    for row in stored_rows(store, "experiments"):
        place = row["method"], row["dataset"], row["aggregation"]
        groups[place].setdefault(row["variant"], []).append(row)
    if not groups:
        return None
    labels = {source: label for label, source in SOURCES.items() if label != "SEM-QD*"}
    lines = []
    for (method, dataset, aggregation), variants in sorted(groups.items()):
        label = labels.get((method, aggregation))
        if label is None or aggregation == "std":
            continue
        own = results[method, dataset]
        texts = {"**paper**": [*_printed(label, dataset), ""]}
        measured = [own.estimate(aggregation, m) for m in _SHOWN]
        texts["**here**"] = [*map(_estimate, measured), f"{own.failures.mean or 0:.0f}"]
        if aggregation == "sem":
            rows = [_at_1_96(trial) for trial in own.trials if len(trial.arrays["members"])]
            texts["z = 1.96"] = [*_means(rows), ""]
        for variant, rows in sorted(variants.items()):
            texts[variant] = [*_means(rows), f"{sum(row['retries'] for row in rows)}"]
        lines += [[label, dataset, name, *own] for name, own in texts.items()]
    table = markdown_table(["method", "dataset", "training", *_SHOWN, "retries"], lines, 3)
    title = "## What a change of the training does"
    return "\n".join([title, "", *table, "", *_draws(groups, labels), *_late(groups), ""])


def _printed(label: str, dataset: str) -> list[str]:
    cells = map(_published(label, dataset).get, _SHOWN)
    return ["" if cell is None else f"{cell.printed} ± {cell.sem:g}" for cell in cells]


def _published(label: str, dataset: str) -> dict[str, Published]:
    cells = published_cells()
    return {c.metric: c for c in cells if (c.method, c.dataset) == (label, dataset)}


def _at_1_96(trial: StoreEntry) -> dict[str, float]:
    """Measures of the SEM aggregation with the authors' rounded quantile, 1.96."""
    settings = trial.record["settings"] | {"coverage": 2 * float(stats.norm.cdf(1.96)) - 1}
    return measure_combined(StoreEntry(trial.record | {"settings": settings}, trial.arrays), "sem")


def _means(rows: Iterable[Row]) -> list[str]:
    columns = [[row[m] for row in rows if m in row] for m in _SHOWN]
    return [pm(v, 6 if np.mean(v) < 0.001 else 3) if v else "" for v in columns]


def _estimate(found: tuple[float | None, float | None]) -> str:
    mean, sem = found
    if mean is None:
        return ""
    digits = 6 if mean < 0.001 else 3
    return f"{mean:.{digits}f}" + ("" if sem is None else f" ± {sem:.{digits}f}")


def _draws(
    groups: dict[tuple[str, str, str], dict[str, list[Row]]], labels: dict[tuple[str, str], str]
) -> list[str]:
    """The table of what a cell would have been in each of several draws of all trials."""
    lines = []
    for (method, dataset, aggregation), variants in sorted(groups.items()):
        label = labels.get((method, aggregation), "")
        paper = _published(label, dataset)
        rows = [row for own in variants.values() for row in own if "draw" in row]
        for metric in (m for m in _SHOWN if rows and m in paper):
            draws: dict[int, list[float]] = defaultdict(list)
            for row in rows:
                draws[row["draw"]].append(row[metric])
            means = np.array([np.mean(own) for own in draws.values()])
            cell = paper[metric]
            off = np.sign(cell.mean - np.median(means)) * (means - cell.mean)
            beyond = np.sum(off >= -cell.half_unit)
            spread = [means.min(), np.median(means), means.max(), means.std(ddof=1)]
            trials = np.concatenate([*draws.values()])
            rng = np.random.default_rng(0)
            again = rng.choice(trials, (_RESAMPLES, len(trials) // len(means))).mean(axis=1)
            off = np.sign(cell.mean - np.median(means)) * (again - cell.mean)
            chance = np.mean(off >= -cell.half_unit)
            texts = [f"{len(means)}", *(f"{value:.3g}" for value in spread), f"{beyond}"]
            lines.append([label, dataset, metric, cell.printed, *texts, f"{chance:.1%}"])
    if not lines:
        return []
    header = [
        "method", "dataset", "measure", "paper", "draws", "smallest", "median", "largest",
        "deviation", "as in the paper", "of trials drawn again",
    ]  # fmt: skip
    return [
        "What the cell would have been in each of several further draws of all trials; how many "
        "would print the paper's number or lie beyond it; and what share would if as many trials "
        f"as a table has were drawn from all of these ({_RESAMPLES:,} times, with replacement):",
        "",
        *markdown_table(header, lines, 3),
        "",
    ]


def _late(groups: dict[tuple[str, str, str], dict[str, list[Row]]]) -> list[str]:
    """The table of how much the error of an ensemble varies in its last hundred epochs."""
    found = [
        (place, variant, rows)
        for place, variants in groups.items()
        for variant, rows in variants.items()
        if "late MSE" in rows[0]
    ]
    if not found:
        return []
    lines = []
    for (_, dataset, _), variant, rows in found:
        late = np.array([row["late MSE"] for row in rows])
        ratio = np.median(late.max(axis=1) / late.min(axis=1))
        means = late.mean(axis=0)
        paper = _published("MSE", dataset)["MSE"]
        low = np.sum(means <= paper.mean + paper.half_unit)
        spread = [f"{value:.1e}" for value in (late.min(), np.median(late), late.max())]
        ends = f"{means.min():.1e} to {means.max():.1e}"
        lines.append([dataset, variant, f"{len(late)}", *spread, f"{ratio:.1f}", ends, f"{low}"])
    header = [
        "dataset", "training", "trials", "smallest", "median", "largest",
        "largest / smallest in a trial", "mean of trials, best and worst epoch",
        "epochs with the paper's mean or less",
    ]  # fmt: skip
    title = "MSE of an ensemble after each of its last hundred epochs, of which the last counts:"
    return [title, "", *markdown_table(header, lines, 2)]


def retries_markdown(results: Found) -> str | None:
    """The table that compares QD networks of first attempts with those after a failure."""
    rows = []
    for (method, dataset), found in results.items():
        if method not in ("qd", "qd-1-layer"):
            continue
        kept: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        for trial, measures in zip(found.trials, found.measures, strict=True):
            failures = trial.arrays["retries"][trial.arrays["members"]]
            for count, own in zip(failures, measures.get(MEMBERS, []), strict=True):
                kept[bool(count == 0)].append(own)
        if len(kept[False]) > 1:
            rows.append([method, dataset, *_both(kept[True]), *_both(kept[False])])
    if not rows:
        return None
    both = ["MPIW", "PICP"]
    header = ["method", "dataset", "at once", *both, "after a failure", *both]
    title = "## Networks kept at once, and after a failure"
    return "\n".join([title, "", *markdown_table(header, rows, 2), ""])


def _both(measures: list[dict[str, float]]) -> list[str]:
    means = [pm([one[name] for one in measures]) for name in ("MPIW", "PICP")]
    return [f"{len(measures)}", *means]


def leans_markdown(store: ResultStore, results: Found) -> str | None:
    """The tests over all cells, for two changes in training that were tried on many datasets.

    One of the changes is a second draw of shuffles and seeds: the test of one draw against the
    other shows the effect of chance.
    """
    lines: list[str] = []
    for title in _EVERYWHERE:
        other = _results_of(store, title)
        pairs = [
            (first, second)
            for first, second in zip(cells_of(results, other), cells_of(other), strict=True)
            if first.ours.mean is not None and second.ours.mean is not None
        ]
        if not pairs:
            continue
        lines += [f"## All cells at once: {title}", ""]
        for name, cells in {
            "The run of the tables against the paper, same cells": [a for a, _ in pairs],
            f"With {title}, against the paper": [b for _, b in pairs],
            f"With {title}, against the run of the tables": [against(*pair) for pair in pairs],
        }.items():
            lines += [f"{name}:", "", *bias_lines(cells), ""]
    return "\n".join(lines) if lines else None


def against(first: TableCell, second: TableCell) -> TableCell:
    """A cell of a variant, compared with the run of the tables instead of the paper."""
    paper, (mean, sem) = first.published, first.ours
    own = Published(paper.table, paper.dataset, paper.method, paper.metric, f"{mean:.17g}", sem)
    return TableCell(own, second.ours, "")


def _results_of(store: ResultStore, variant: str) -> Found:
    trials: dict[tuple[str, str], dict[int, dict[str, list[Row]]]] = defaultdict(dict)
    for row in stored_rows(store, "experiments"):
        if row["variant"] == variant and _comparable(row):
            own = trials[row["method"], row["dataset"]].setdefault(row["trial"], {})
            own.setdefault(row["aggregation"], []).append(row)
    return {place: Results([], list(found.values())) for place, found in trials.items()}


def _comparable(row: Row) -> bool:
    """Whether a training without its partial batch still has nearly all rows."""
    if row["variant"] != "no partial batch":
        return True
    rows = CATALOGUE[row["dataset"]].rows * 9 // 10
    return rows % load_settings(row["method"], row["dataset"]).batch_size < 0.05 * rows
