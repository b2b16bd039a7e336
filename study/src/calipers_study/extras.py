"""Results beyond the paper's tables: experiments, future work, baselines, distribution shift.

Each part, such as a variant on a dataset, is one file of rows in the store, so that a run can be
stopped and resumed; parts run in parallel processes.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from calipers.datasets import CATALOGUE, available, load
from calipers_study.experiments import EXPERIMENTS, FUTURE
from calipers_study.files import replace_file
from calipers_study.methods import DATASETS, choose, paper_trials
from calipers_study.run import pool
from calipers_study.settings import load_settings
from calipers_study.store import ResultStore, StoreError, circumstances

Row = dict[str, Any]

GROUPS = ("experiments", "future", "baselines", "shift", "figures")
"""Groups of parts that can be requested."""

_SHIFT = ("qd+", "mve", "mc-dropout", "certificates")
_BASELINES = ("mc-dropout", "certificates")
_SMALL = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")


@dataclass(frozen=True)
class ExtraPart:
    """One file of rows: its group, name and dataset."""

    group: str
    name: str
    dataset: str

    @property
    def path(self) -> str:
        """Path of the file in the store."""
        slug = re.sub(r"[^a-z0-9+]+", "-", self.name.lower()).strip("-")
        return f"extras/{self.group}/{slug}/{self.dataset}.json"

    @property
    def steps(self) -> float:
        """Number of training steps, as an estimate of how long it takes."""
        if self.group == "figures":  # ten thousand networks
            return float("inf")
        method = self.name.partition(":")[0] if self.group == "experiments" else "qd+"
        method = {"lube": "qd", "mve": "mve", "mc-dropout": "mse"}.get(self.name, method)
        settings = load_settings(method, self.dataset)
        return settings.epochs * CATALOGUE[self.dataset].rows / settings.batch_size


def parts(
    groups: Iterable[str] | None = None, datasets: Iterable[str] | None = None
) -> list[ExtraPart]:
    """All parts of some groups on some datasets, the longest first."""
    requested = choose(groups, GROUPS, "group")
    chosen = choose(datasets, DATASETS, "dataset") if datasets is not None else list(_SMALL)
    result = []
    if "experiments" in requested:
        result += [
            ExtraPart("experiments", name, dataset)
            for name, (_, tried) in EXPERIMENTS.items()
            for dataset in tried
            if dataset in chosen
        ]
    listed = {"future": tuple(FUTURE), "baselines": _BASELINES, "shift": _SHIFT}
    for group, names in listed.items():
        if group in requested:
            result += [ExtraPart(group, name, dataset) for name in names for dataset in chosen]
    if "figures" in requested:
        result += [
            ExtraPart("figures", name, "yacht") for name in ("xi-10", "xi-0", "seeds", "toy")
        ]
    return sorted(result, key=lambda part: -part.steps)


def compute(part: ExtraPart, store: ResultStore) -> list[Row]:
    """Rows of one part; there are none for figures, which are written to the store directly."""
    from calipers_study.sensitivity import other_seeds, sensitivity
    from calipers_study.shift import shift_rows
    from calipers_study.toy import toy
    from calipers_study.variants import variant_rows

    if part.group == "figures":
        if part.name == "toy":
            toy(store)
        elif part.name == "seeds":
            other_seeds(store)
        else:
            sensitivity(store, 10.0 if part.name == "xi-10" else 0.0, visible=False)
        return []
    work: dict[str, Callable[[], list[Row]]] = {
        "experiments": lambda: variant_rows(EXPERIMENTS[part.name][0], part.dataset),
        "future": lambda: variant_rows(FUTURE[part.name], part.dataset),
        "baselines": partial(_baseline_rows, part.name, part.dataset),
        "shift": partial(shift_rows, part.name, part.dataset),
    }
    return work[part.group]()


def _baseline_rows(name: str, dataset: str) -> list[Row]:
    from calipers_study.baselines import BASELINES
    from calipers_study.measures import TrialPrediction, measure
    from calipers_study.splits import paper_splits

    data = load(dataset)
    splits = paper_splits(dataset, trials=paper_trials(dataset))
    baseline, own = BASELINES[name]
    center, scale = data.y.mean(), data.y.std()
    rows = []
    scored = baseline(data.X, data.y, splits, load_settings(own, dataset))
    for trial, (split, one) in enumerate(zip(splits, scored, strict=True)):
        values = (one.prediction.point, one.prediction.lower, one.prediction.upper)
        prediction = TrialPrediction(*(None if v is None else (v - center) / scale for v in values))  # type: ignore[arg-type]
        target = (data.y[split.test] - center) / scale
        rows.append({"variant": name, "method": name, "dataset": dataset, "trial": trial,
                     "aggregation": "one network", "networks": 1, "retries": 0,
                     **measure(prediction, target, coverage=0.95)})  # fmt: skip
    return rows


def run_extras(
    groups: Iterable[str] | None = None,
    datasets: Iterable[str] | None = None,
    *,
    store: str | os.PathLike[str] = "results/study",
    processes: int = 1,
    notify: Callable[[str], None] = lambda _: None,
) -> int:
    """Compute the parts that the store lacks, and return how many of them failed.

    Parameters
    ----------
    groups, datasets : iterable of str, optional
        Names of ``GROUPS`` and datasets; all that are on this machine by default.
    store : path-like
        Folder of the store.
    processes : int
        Parts at a time.
    notify : callable
        Called with a line for each part.
    """
    target = ResultStore(store)
    missing = [
        part
        for part in parts(groups, datasets)
        if not (target.folder / part.path).exists() and available(part.dataset)
    ]
    failed = 0
    with target.writing(), pool(processes) as workers:
        tasks = {workers.submit(_work, part, target.folder): part for part in missing}
        for task in as_completed(tasks):
            part = tasks[task]
            title = f"{part.group}, {part.name} on {part.dataset}"
            try:
                notify(f"{title}: {task.result():.1f} s")
            except Exception as error:  # other parts should go on
                failed += 1
                notify(f"{title} failed: {type(error).__name__}: {error}")
    return failed


def _work(part: ExtraPart, folder: Path) -> float:
    began = time.perf_counter()
    store = ResultStore(folder)
    rows = compute(part, store)
    seconds = time.perf_counter() - began
    content = {"name": part.name, "seconds": round(seconds, 2), **circumstances(), "rows": rows}
    replace_file(store.folder / part.path, json.dumps(content).encode())
    return seconds


def stored_rows(store: ResultStore, group: str) -> Iterator[Row]:
    """The rows of a group in the store, each with the name of its part."""
    if group not in GROUPS:
        raise StoreError(f"there is no group {group!r}; known: {', '.join(GROUPS)}")
    for path in sorted((store.folder / "extras" / group).glob("*/*.json")):
        content = json.loads(path.read_text("utf-8"))
        for row in content["rows"]:
            yield {"name": content["name"], **row}
