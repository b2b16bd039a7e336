"""How far the study has come."""

import os
from dataclasses import dataclass

from calipers_study.jobs import entry_name
from calipers_study.methods import DATASETS, METHODS
from calipers_study.settings import load_settings
from calipers_study.store import Store


@dataclass(frozen=True)
class Progress:
    """One method on one dataset.

    Attributes
    ----------
    method, dataset : str
        Which.
    done, wanted : int
        Trials in the store, and trials of the paper.
    seconds : float
        Time spent on those done.
    """

    method: str
    dataset: str
    done: int
    wanted: int
    seconds: float


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
    target = Store(store)
    found = []
    for dataset in DATASETS:
        for method in METHODS:
            wanted = load_settings(method, dataset, folder=settings).trials
            records = [target.record(entry_name(method, dataset, i)) for i in range(wanted)]
            times = [record["seconds"] for record in records if record is not None]
            found.append(Progress(method, dataset, len(times), wanted, sum(times)))
    return found
