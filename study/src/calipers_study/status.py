"""Progress of the study."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from calipers_study.jobs import entry_name
from calipers_study.methods import DATASETS, METHODS
from calipers_study.settings import load_settings
from calipers_study.store import ResultStore
from calipers_study.times import written_time


@dataclass(frozen=True)
class Progress:
    """Progress of one method on one dataset."""

    method: str
    dataset: str
    #: Trials in the store, and trials of the paper.
    done: int
    wanted: int
    seconds: float  #: Time spent on those done.


def status(
    store: str | os.PathLike[str] = "results/study",
    *,
    settings: str | os.PathLike[str] | None = None,
) -> list[Progress]:
    """Count the trials in the store, for every method and dataset.

    Parameters
    ----------
    store : path-like
        Folder of the store; one that does not exist holds nothing.
    settings : path-like, optional
        As in ``run``.
    """
    target = ResultStore(store)
    found = []
    for dataset in DATASETS:
        for method in METHODS:
            wanted = load_settings(method, dataset, folder=settings).trials
            records = [target.record(entry_name(method, dataset, i)) for i in range(wanted)]
            times = [record["seconds"] for record in records if record is not None]
            found.append(Progress(method, dataset, len(times), wanted, sum(times)))
    return found


def status_lines(parts: list[Progress]) -> Iterator[str]:
    """Lines of a table of the trials done, with the time spent and what is missing."""
    yield f"{'dataset':<10}" + "".join(f"{name:>14}" for name in METHODS)
    for name in DATASETS:
        row = [p for p in parts if p.dataset == name]
        yield f"{name:<10}" + "".join(f"{f'{p.done}/{p.wanted}':>14}" for p in row)
    done, wanted = sum(p.done for p in parts), sum(p.wanted for p in parts)
    seconds = sum(p.seconds for p in parts)
    yield f"{done} of {wanted} trials are done, in {written_time(seconds)} of training"
    missing = [f"{p.method} on {p.dataset}" for p in parts if p.done < p.wanted]
    if missing:
        yield f"missing: {', '.join(missing[:5])}" + (" and more" if len(missing) > 5 else "")
