"""Jobs, each of which trains one method on one dataset."""

import os
import zlib
from dataclasses import dataclass

from calipers.bank import spawn_seeds
from calipers.datasets import CATALOGUE
from calipers_study.methods import METHODS
from calipers_study.settings import StudySettings, check_loss, load_settings, settings_record
from calipers_study.store import ResultStore, StoreError


@dataclass(frozen=True)
class Job:
    """One method on one dataset, and the trials that the store lacks."""

    method: str
    dataset: str
    settings: StudySettings
    seed: int
    trials: int
    missing: tuple[int, ...]

    def entry(self, trial: int) -> str:
        """Name of a trial in the store."""
        return entry_name(self.method, self.dataset, trial)

    @property
    def cost(self) -> int:
        """Rows times epochs times networks, the unit of the progress bar."""
        networks = len(self.missing) * self.settings.members
        return CATALOGUE[self.dataset].rows * self.settings.epochs * networks

    @property
    def steps(self) -> int:
        """Steps of a network, which bound the time on an accelerator."""
        return self.settings.epochs * -(-CATALOGUE[self.dataset].rows // self.settings.batch_size)


def entry_name(method: str, dataset: str, trial: int) -> str:
    """Name of a trial in the store.

    Examples
    --------
    >>> entry_name("qd+", "boston", 7)
    'qd-plus/boston/trial-07'
    """
    return f"{METHODS[method].folder}/{dataset}/trial-{trial:02d}"


def plan_job(
    store: ResultStore,
    method: str,
    dataset: str,
    *,
    trials: int | None = None,
    seed: int = 0,
    settings: str | os.PathLike[str] | None = None,
) -> Job:
    """The job of a method on a dataset, with the trials that the store lacks.

    Raises
    ------
    StoreError
        If the store holds trials with other settings or another seed.
    """
    loaded = load_settings(method, dataset, folder=settings)
    check_loss(method, loaded)
    count = loaded.trials if trials is None else min(trials, loaded.trials)
    missing = []
    for trial in range(count):
        record = store.record(entry_name(method, dataset, trial))
        if record is None:
            missing.append(trial)
        elif record["settings"] != settings_record(loaded) or record["seed"] != seed:
            raise StoreError(
                f"{store.folder} holds {method} on {dataset} with other settings or another seed: "
                "choose another folder, or delete what is there"
            )
    return Job(method, dataset, loaded, seed, count, tuple(missing))


def member_seeds(job: Job, trial: int) -> list[int]:
    """Seeds of an ensemble's networks, which do not depend on what else is trained."""
    name = zlib.crc32(f"{job.method}/{job.dataset}".encode())
    return spawn_seeds((job.seed, name, trial), job.settings.members)
