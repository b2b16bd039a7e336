"""A study in miniature: two made-up datasets under names of the paper, tiny networks."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calipers.datasets import CATALOGUE, Entry
from calipers_study.methods import METHODS
from calipers_study.run import run

# Runs in this process and in those that are killed. Both datasets have one shape, so that they
# share their compiled programs.
SETUP = """
import dataclasses, hashlib
from pathlib import Path
import numpy as np
from calipers.datasets import CATALOGUE

def install(folder):
    for number, name in enumerate(("boston", "yacht")):
        rng = np.random.default_rng(number)
        X = rng.normal(size=(60, 2))
        y = X[:, 0] + 0.3 * rng.normal(size=60)
        np.savez(Path(folder, f"{name}.npz"), X=X, y=y)
        digest = hashlib.sha256(X.astype("<f8").tobytes() + y.astype("<f8").tobytes()).hexdigest()
        CATALOGUE[name] = dataclasses.replace(
            CATALOGUE[name], rows=60, feature_names=("a", "b"), values_sha256=digest
        )
"""

TRAINING = {
    "qd+": "coverage_weight = 0.99\npoint_weight = 0.3\ncrossing_weight = 10.0\nsoftness = 160.0\n",
    "qd": "coverage_weight = 4.0\nsoftness = 160.0\n",
    "qd-1-layer": "coverage_weight = 4.0\nsoftness = 160.0\n",
    "mve": "",
    "mse": "",
}


def settings_text(method: str, *, trials: int = 2, rate: float = 0.01) -> str:
    return (
        f'loss = "{METHODS[method].loss}"\nhidden_layers = [4]\nmembers = 2\ntrials = {trials}\n'
        f"batch_size = 60\nepochs = 40\nlearning_rate = {rate!r}\n{TRAINING[method]}"
        "[datasets]\nboston = {}\nyacht = {}\n"
    )


def write_settings(folder: Path, **options: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for method, described in METHODS.items():
        (folder / f"{described.folder}.toml").write_text(settings_text(method, **options))
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Entry]]:
    """Folder with ``data`` and ``settings``, and the catalogue entries for the data."""
    root = tmp_path_factory.mktemp("mini")
    (root / "data").mkdir()
    write_settings(root / "settings")
    kept = dict(CATALOGUE)
    names: dict[str, Callable[[Path], None]] = {}
    exec(SETUP, names)
    names["install"](root / "data")
    entries = {name: CATALOGUE[name] for name in ("boston", "yacht")}
    CATALOGUE.update(kept)
    return root, entries


def know(patch: pytest.MonkeyPatch, root: Path, entries: dict[str, Entry]) -> None:
    patch.setenv("CALIPERS_DATA", str(root / "data"))
    for name, entry in entries.items():
        patch.setitem(CATALOGUE, name, entry)


@pytest.fixture
def mini(made: tuple[Path, dict[str, Entry]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with ``data`` and ``settings``; the made-up data are in the catalogue meanwhile."""
    know(monkeypatch, *made)
    return made[0]


@pytest.fixture(scope="session")
def finished(made: tuple[Path, dict[str, Entry]]) -> Path:
    root, _ = made
    with pytest.MonkeyPatch.context() as patch:
        know(patch, *made)
        options = {"store": root / "store", "settings": root / "settings", "n_jobs": 1}
        report = run(None, ["boston", "yacht"], **options)
    assert report.trained == 2 * 2 * len(METHODS)
    return root / "store"


@pytest.fixture
def store(finished: Path, mini: Path) -> Path:
    """Folder of a finished miniature study."""
    return finished


@pytest.fixture
def python(mini: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Run code in another process, with the made-up data in its catalogue."""

    def call(code: str) -> subprocess.CompletedProcess[str]:
        whole = f"{SETUP}\ninstall({str(mini / 'data')!r})\n{code}"
        command = [sys.executable, "-c", whole]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    return call


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)
