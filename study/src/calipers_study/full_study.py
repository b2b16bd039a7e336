"""The whole study in one call: trainings, results beyond the paper, search, tables and figures."""

import csv
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calipers_study.extras import run_extras
from calipers_study.figures import write_figures
from calipers_study.files import write_csv
from calipers_study.run import run
from calipers_study.search import Protocol, search_settings
from calipers_study.tables import write_tables
from calipers_study.times import written_time


def run_all(
    *,
    store: str | os.PathLike[str] = "results/study",
    out: str | os.PathLike[str] = "results",
    max_steps: int | None = None,
    processes: int = 1,
    notify: Callable[[str], None] = lambda _: None,
) -> dict[str, float]:
    """Train everything that is missing, and write every table and figure.

    Parameters
    ----------
    store, out : path-like
        Folder of the store, and folder for search, tables and figures.
    max_steps : int, optional
        Most steps of a network in the search, see ``Protocol``; no limit by default.
    processes : int
        Number of trainings at a time.
    notify : callable
        Called with a line of text when something is done.

    Returns
    -------
    dict of float
        Seconds of each stage. ``stages.csv`` in ``out`` has them, and those of earlier runs.
    """
    common: dict[str, Any] = {"processes": processes, "notify": notify}
    protocol = Protocol(max_steps=max_steps)
    stages: dict[str, Callable[[], object]] = {
        "five trainings": lambda: run(store=store, **common),
        "beside the paper": lambda: run_extras(store=store, **common),
        "search": lambda: search_settings(
            protocol=protocol, out=Path(out, "search"), published=store, **common
        ),
        "tables": lambda: write_tables(store, out),
        "figures": lambda: write_figures(store=store, out=out, notify=notify),
    }
    kept = Path(out, "stages.csv")
    seconds: dict[str, float] = {}
    rows: list[list[object]] = [["began", "stage", "seconds", "finished"]]
    if kept.exists():
        earlier = csv.reader(kept.read_text("utf-8").splitlines()[1:])
        rows.extend([*row] for row in earlier)
    for name, work in stages.items():
        began, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
        finished = "no"
        try:
            work()
            finished = "yes"
        finally:  # also on a keyboard interrupt
            seconds[name] = round(time.perf_counter() - clock, 1)
            rows.append([began, name, seconds[name], finished])
            write_csv(kept, rows)
        notify(f"{name}: {written_time(seconds[name])}")
    return seconds
