"""The store: a folder with the predictions of the study's networks.

Every entry is one file, which is written atomically, so that a process killed at any moment leaves
it complete or not at all. A file contains arrays and a record of their origin (settings, seed,
versions, device, time), and no executable code. Tables, figures and further aggregations are made
from the store without training again.
"""

import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import save

from calipers_study.files import replace_file

if sys.platform != "win32":
    import fcntl

_SUFFIX = ".safetensors"
_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "equinox", "optax")


class StoreError(RuntimeError):
    """The store lacks what is requested, or is in use."""


@dataclass(frozen=True, eq=False)
class StoreEntry:
    """One file of the store."""

    record: dict[str, Any]  #: Origin of the arrays.
    arrays: dict[str, NDArray[Any]]  #: Results.


class ResultStore:
    """A folder of entries, each under a name such as ``"qd-plus/boston/trial-07"``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ResultStore(folder)
    ...     store.write("qd/yacht/trial-00", {"seed": 0}, {"point": np.zeros((5, 31))})
    ...     store.names(), store.record("qd/yacht/trial-00")
    (['qd/yacht/trial-00'], {'seed': 0})
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{_SUFFIX}"

    def names(self, under: str = "") -> list[str]:
        """Names of all entries in a subfolder, sorted."""
        paths = (self.folder / under).rglob(f"*{_SUFFIX}")
        return sorted(p.relative_to(self.folder).as_posix()[: -len(_SUFFIX)] for p in paths)

    def record(self, name: str) -> dict[str, Any] | None:
        """Record of an entry; None if there is no such entry or its file is damaged."""
        try:
            with safetensors.safe_open(self._path(name), framework="np") as file:
                record: dict[str, Any] = json.loads(file.metadata()["record"])
                return record
        except (OSError, safetensors.SafetensorError, KeyError, TypeError, ValueError):
            return None

    def read(self, name: str) -> StoreEntry:
        """Read an entry.

        Raises
        ------
        StoreError
            If it does not exist or is damaged.
        """
        path = self._path(name)
        record = self.record(name)
        if record is None:
            state = "is damaged: delete it and run again" if path.exists() else "is not there"
            raise StoreError(f"{path} {state}")
        with safetensors.safe_open(path, framework="np") as file:
            return StoreEntry(record, {key: file.get_tensor(key) for key in file.keys()})  # noqa: SIM118

    def write(
        self, name: str, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Write an entry atomically, replacing one of the same name."""
        whole = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
        content = save(whole, metadata={"record": json.dumps(record, sort_keys=True)})
        replace_file(self._path(name), content)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the store against other writers while the block runs.

        Raises
        ------
        StoreError
            If another process is writing to the store.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        ignore = self.folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("# Tens of megabytes, made again by `calipers study run`.\n*\n")
        with (self.folder / ".lock").open("w") as lock:
            if sys.platform != "win32":
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StoreError(f"another run is writing to {self.folder}") from None
            yield


def circumstances() -> dict[str, Any]:
    """Versions, device and time of a computation."""
    import jax

    import calipers

    device = jax.devices()[0]
    versions = {name: _version(name) for name in _PACKAGES}
    return {
        "versions": {
            "calipers": calipers.__version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            **versions,
        },
        "device": device.device_kind if device.platform != "cpu" else _processor(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # imported from a folder without its metadata
        return "unknown"


def _processor() -> str:
    return f"cpu ({platform.machine()}, {os.cpu_count()} cores)"
