"""Processes killed in the middle of writing: what was there before stays, or what is new, whole."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calipers.cli import app
from calipers.search._result import Outcome
from calipers.search._store import Store
from calipers.storage import read_model, write_model
from calipers_study.store import ResultStore

from ._forks import FINISHED, dies_at, duration, ended, fork, kill_after
from ._tally import FOLDERS, Part, Tally

STEPS = 14  # of a save on files: more than there are, so that some runs end by themselves


def numbered(number: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A model that can be distinguished from others, in both of its files."""
    rng = np.random.default_rng(number)
    return {"number": number}, {"weights": rng.normal(size=20_000), "number": np.array([number])}


def number_in(folder: Path) -> int:
    """Number of the model in a folder, which must be whole."""
    document, arrays = read_model(folder)
    wanted = numbered(document["number"])[1]
    if not all(np.array_equal(arrays[name], wanted[name]) for name in wanted):
        raise ValueError(f"the arrays are not those of model {document['number']}")
    return int(document["number"])


def killed(work: Callable[[], Any], place: Path, seconds: float, rng: np.random.Generator) -> str:
    """Run something that is killed, at a step on files or at a moment."""
    if rng.random() < 0.5:
        return ended(fork(dies_at(int(rng.integers(1, STEPS)), str(place), work)))[0]
    return kill_after(fork(work), float(rng.uniform(0, 1.2 * seconds)))


def saves(count: int, seed: int) -> Tally:
    """One writer."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "model"
        write_model(folder, *numbered(0))
        seconds = duration(lambda: write_model(folder, *numbered(0)))
        old = 0
        for number in range(1, count + 1):
            how = killed(lambda n=number: write_model(folder, *numbered(n)), folder, seconds, rng)
            try:
                found = number_in(folder)
            except Exception as error:
                tally.wrong(f"save {number} of seed {seed}: {error!r}")
                continue
            kept = {number: "the new model", old: "the old model"}.get(found)
            right = kept is not None and (how != FINISHED or found == number)
            tally.check(right, f"with {kept}", f"save {number}: model {found} after {old}, {how}")
            old = found
    return tally


def save_races(count: int, seed: int) -> Tally:
    """Four writers at a time, all killed; then one that is left alone."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "model"
        write_model(folder, *numbered(0))
        seconds = duration(lambda: write_model(folder, *numbered(0)))

        def write(first: int) -> None:
            for number in range(first, first + 50):
                write_model(folder, *numbered(number))

        for turn in range(-(-count // 4)):
            writers = [fork(lambda n=1000 * (turn + 1) + 100 * i: write(n)) for i in range(4)]
            for child in writers:
                kill_after(child, float(rng.uniform(0, 2 * seconds)))
                try:
                    number_in(folder)
                    tally.add("with a whole model")
                except Exception as error:
                    tally.wrong(f"turn {turn} of seed {seed}: {error!r}")
            write_model(folder, *numbered(turn))
            left = sorted(path.suffix for path in folder.iterdir())
            if left != [".json", ".safetensors"] or number_in(folder) != turn:
                tally.wrong(f"turn {turn}: {left} after a save that was left alone")
    return tally


def predictions(count: int, seed: int) -> Tally:
    """``calipers predict`` to a file that exists."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        out = Path(root) / "out.csv"
        command = ["predict", FOLDERS / "table", FOLDERS / "rows.csv", "--out", out]

        def work() -> None:
            app([str(word) for word in command])

        seconds = duration(work)
        whole, old = out.read_bytes(), b"what was there\n"
        for number in range(count):
            out.write_bytes(old)
            how = killed(work, Path(root), seconds, rng)
            found = out.read_bytes()
            kept = {whole: "the new file", old: "the old file"}.get(found)
            tally.check(
                kept is not None and (how != FINISHED or found == whole),
                f"with {kept}",
                f"predict {number} of seed {seed}: {len(found)} bytes, {how}",
            )
    return tally


class Following:
    """A command that follows a stream, in blocks: what it is to leave, however often it dies."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder, self.out = root, root / "model", root / "out.csv"
        rows = pd.read_csv(FOLDERS / "rows.csv")
        rows["price"] = np.linspace(0.0, 3.0, len(rows))
        rows.to_csv(root / "stream.csv", index=False)
        self.begin()
        self.seconds = duration(self.follow)
        self.whole, self.learned = self.out.read_bytes(), self.state()

    def begin(self) -> None:
        """A model that has seen nothing of the stream."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.out.unlink(missing_ok=True)
        shutil.copytree(FOLDERS / "table", self.folder)

    def follow(self) -> None:
        words = ["watch", self.folder, self.root / "stream.csv", "--block", 5, "--out", self.out]
        app([str(word) for word in words])

    def state(self) -> dict[str, np.ndarray]:
        """What the model has learned, which must be whole."""
        return read_model(self.folder)[1]

    def goes_on(self) -> bool:
        """Whether the same command then ends where it would have without the kill."""
        done = ended(fork(self.follow))[0] == FINISHED
        found = self.state()
        same = found.keys() == self.learned.keys()
        same = same and all(np.array_equal(found[name], self.learned[name]) for name in found)
        return done and same and self.out.read_bytes() == self.whole


def streams(count: int, seed: int) -> Tally:
    """``calipers watch``, which saves a model and a file of predictions after every block."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        following = Following(Path(root))
        for number in range(count):
            following.begin()
            if rng.random() < 0.5:
                child = fork(dies_at(int(rng.integers(1, 60)), root, following.follow))
                how = ended(child)[0]
            else:
                wait = float(rng.uniform(0, 1.1 * following.seconds))
                how = kill_after(fork(following.follow), wait)
            try:
                following.state()
                right = following.goes_on()
            except Exception as error:
                tally.wrong(f"stream {number} of seed {seed}: {error!r}")
                continue
            words = f"stream {number} of seed {seed}: another end, {how}"
            tally.check(right, "continued to the same end", words)
    return tally


def outcome(number: int) -> Outcome:
    return Outcome(0.9, 1.0, float(number), float("nan"), 5.0, 10, 0, 60)


def _stores(count: int, seed: int, begin: Callable[[Path], Any], kept: Any) -> Tally:
    """A store that is appended to: all that was acknowledged is there, and appending continues."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:

        def work(place: Path, pipe: int = -1) -> None:
            add = begin(place)
            for number in range(10):
                add(number)
                if pipe >= 0:
                    os.write(pipe, b".")

        seconds = duration(lambda: work(Path(root) / "whole"))
        for turn in range(count):
            place = Path(root) / str(turn)
            out, into = os.pipe()
            if turn % 2:
                step = int(rng.integers(1, 60))
                ended(fork(dies_at(step, str(place), lambda p=place, w=into: work(p, w))))
            else:
                child = fork(lambda p=place, w=into: work(p, w))
                kill_after(child, float(rng.uniform(0, 1.1 * seconds)))
            os.close(into)
            with os.fdopen(out, "rb") as pipe:
                reported = len(pipe.read())
            try:
                found = kept(place)
                work(place)
                again = kept(place)
            except Exception as error:
                tally.wrong(f"kill {turn} of seed {seed}: {error!r}")
                continue
            right = set(range(reported)) <= found and len(found) <= reported + 1
            tally.check(
                right and again == set(range(10)),
                "with all that was reported as kept",
                f"kill {turn} of seed {seed}: {found} of {reported}, then {again}",
            )
    return tally


def searches(count: int, seed: int) -> Tally:
    """The store of a search."""

    def begin(place: Path) -> Any:
        store = Store(place, {"seed": 0})
        return lambda number: store.add({(16, number): outcome(number)})

    def kept(place: Path) -> set[int]:
        return {number for _, number in Store(place, {"seed": 0}).outcomes}

    return _stores(count, seed, begin, kept)


def studies(count: int, seed: int) -> Tally:
    """The store of a study."""

    def begin(place: Path) -> Any:
        place.mkdir(exist_ok=True)
        store = ResultStore(place)
        return lambda number: store.write(str(number), {"n": number}, {"x": np.zeros(1000)})

    def kept(place: Path) -> set[int]:
        store = ResultStore(place)
        return {store.read(name).record["n"] for name in store.names()}

    return _stores(count, seed, begin, kept)


PARTS = (
    Part("kills", "saves killed at any step or moment", 1000, saves, 20, 250),
    Part("kills", "saves by four writers at a time, each killed", 250, save_races, 8, 64),
    Part("kills", "`calipers predict` to a file, killed", 44, predictions, 1, 11),
    Part("kills", "`calipers watch`, killed, then continued", 40, streams, 1, 10),
    Part("kills", "the store of a search, killed while it grows, then continued", 200, searches),
    Part("kills", "the store of a study, likewise", 67, studies),
)
