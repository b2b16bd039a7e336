"""Tables of results beyond the paper: future work, baselines, and distribution shift."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from calipers_study.cells import SOURCES, Results
from calipers_study.extras import stored_rows
from calipers_study.files import markdown_table
from calipers_study.methods import DATASETS
from calipers_study.store import ResultStore

Row = dict[str, Any]
Found = dict[tuple[str, str], Results]

_SHOWN = ("PICP", "MPIW", "interval score", "MSE")

FUTURE_TABLES: dict[str, tuple[str, tuple[tuple[str, str, str], ...]]] = {
    "nmpiw": (
        "NMPIW in place of MPIW in QD+, settings as published for MPIW",
        (("QD+, MPIW", "", "snm"), ("QD+, NMPIW", "nmpiw", "snm")),
    ),
    "split_normal": (
        "A split normal as the network's output, at the settings of QD+",
        (
            ("QD+, fitted (SNM)", "", "snm"),
            ("split normal, likelihood", "split-normal", "density"),
            ("split normal, CRPS", "crps", "density"),
        ),
    ),
    "two_step": (
        "Points first, then intervals, each in half of the epochs of QD+",
        (
            ("QD+ at once", "", "snm"),
            ("points, then QD+", "two-step", "snm"),
            ("points, then QD+ in the last layer", "two-step-frozen", "snm"),
        ),
    ),
}
"""Tables of future work: their title, and for each column its name, part and aggregation.

The part is empty for results of the study itself.
"""

BASELINES = (
    ("SNM-QD+", "qd+", "snm"),
    ("SEM-QD", "qd", "sem"),
    ("MVE", "mve", "normal"),
    ("LUBE", "lube", "sem"),
    ("MC-dropout", "mc-dropout", "one network"),
    ("SQR", "certificates", "one network"),
)
"""Columns of the table of baselines."""


def pm(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error, as text.

    Examples
    --------
    >>> pm([1.0, 2.0, 3.0]), pm([])
    ('2.000 ± 0.577', 'not run')
    """
    if not len(values):
        return "not run"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    sem = np.std(values, ddof=1) / len(values) ** 0.5
    return f"{np.mean(values):.{digits}f} ± {sem:.{digits}f}"


def future_markdown(store: ResultStore, results: Found) -> dict[str, str]:
    """One table for each proposal of the paper, by file name."""
    rows = list(stored_rows(store, "future"))
    texts = {}
    for name, (title, columns) in FUTURE_TABLES.items():
        own = [
            (label, _values(rows, part, aggregation) if part else _main(results, "qd+", "snm"))
            for label, part, aggregation in columns
        ]
        if any(
            any(values.values())
            for (_, part, _), (_, values) in zip(columns, own, strict=True)
            if part
        ):
            texts[name] = _table(title, own)
    return texts


def baselines_markdown(store: ResultStore, results: Found) -> str | None:
    """The table that compares the paper's methods with baselines of its related work."""
    rows = [*stored_rows(store, "future"), *stored_rows(store, "baselines")]
    own = []
    for label, part, aggregation in BASELINES:
        found = label in SOURCES
        own.append(
            (
                label,
                _main(results, part, aggregation) if found else _values(rows, part, aggregation),
            )
        )
    if not any(values for label, values in own if label not in SOURCES):
        return None
    title = "Baselines of the paper's related work"
    note = (
        "LUBE: its criterion as a loss, settings and aggregation of QD. MC-dropout: one network, "
        "settings of MSE. SQR: one network for all quantiles, settings of QD+. The last two train "
        "on nine tenths of the training rows, by the weights that validate best on the rest, for "
        "60,000 steps at most."
    )
    return f"{_table(title, own)}\n{note}\n"


def _values(rows: Iterable[Row], part: str, aggregation: str) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["name"] == part and row["aggregation"] == aggregation:
            for measure in _SHOWN:
                if measure in row:
                    found[row["dataset"], measure].append(row[measure])
    return found


def _main(results: Found, method: str, aggregation: str) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for dataset in DATASETS:
        for trial in results[method, dataset].measures:
            for measures in trial.get(aggregation, []):
                for measure in _SHOWN:
                    if measure in measures:
                        found[dataset, measure].append(measures[measure])
    return found


def _table(title: str, columns: list[tuple[str, dict[tuple[str, str], list[float]]]]) -> str:
    """A table with a row for each dataset, and the columns repeated for each measure."""
    names = [f"{measure}<br>{label}" for measure in _SHOWN for label, _ in columns]
    rows = []
    for dataset in DATASETS:
        if not any(values.get((dataset, "PICP")) for _, values in columns):
            continue
        texts = []
        for measure in _SHOWN:
            found = [values.get((dataset, measure), []) for _, values in columns]
            digits = 5 if measure == "MSE" and any(f and np.mean(f) < 0.01 for f in found) else 3
            texts += [pm(values, digits) for values in found]
        rows.append([dataset, *texts])
    return "\n".join([f"## {title}", "", *markdown_table(["dataset", *names], rows), ""])


def shift_markdown(store: ResultStore) -> str | None:
    """The tables of AUROC and risk area of every score, by dataset."""
    rows = list(stored_rows(store, "shift"))
    if not rows:
        return None
    scores = list(dict.fromkeys((row["method"], row["score"]) for row in rows))
    scores.sort(key=lambda s: ("qd+", "mve", "mc-dropout", "certificates").index(s[0]))
    parts = ["## A cluster left out", ""]
    for measure, note in (
        ("AUROC", "of telling the rows of the cluster from others, the higher the better"),
        ("risk area", "under the risk-coverage curve over the mean error, the lower the better"),
    ):
        lines = []
        means: dict[tuple[str, str], list[float]] = defaultdict(list)
        for dataset in DATASETS:
            texts = []
            for method, score in scores:
                found = [
                    row[measure]
                    for row in rows
                    if (row["dataset"], row["method"], row["score"]) == (dataset, method, score)
                ]
                if found:
                    means[method, score].append(float(np.mean(found)))
                texts.append(pm(found, 2))
            if any(text != "not run" for text in texts):
                lines.append([dataset, *texts])
        texts = [f"{np.mean(means[s]):.2f} ({len(means[s])})" for s in scores]
        lines.append(["mean (datasets)", *texts])
        header = ["dataset", *(f"{m}<br>{s}" for m, s in scores)]
        parts += [f"{measure}, {note}:", "", *markdown_table(header, lines), ""]
    return "\n".join(parts)
