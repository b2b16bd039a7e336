"""Disks that fill up at any byte: an error, what was there before, and nothing half written."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calipers.cli import app
from calipers.search._store import Store
from calipers.storage import write_model

from ._forks import FINISHED, ended, fork, with_file_limit
from ._models import fit_with_cache
from ._tally import FOLDERS, Part, Tally
from .kills import Following, number_in, numbered, outcome


def limits(count: int, size: int, rng: np.random.Generator) -> list[int]:
    """Sizes at which a disk is full: none, one byte too few, and some between."""
    some = [0, size - 1, size // 2]
    return (some + rng.integers(1, max(2, size), count).tolist())[:count]


def saves(count: int, seed: int) -> Tally:
    """A save over another model."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "model"
        write_model(folder, *numbered(0))
        size = max(path.stat().st_size for path in folder.iterdir())
        for limit in limits(count, size, rng):
            how = ended(fork(with_file_limit(limit, lambda: write_model(folder, *numbered(1)))))
            left = sorted(path.suffix for path in folder.iterdir())
            right = how == ("failed", 1) and left == [".json", ".safetensors"]
            tally.check(
                right and number_in(folder) == 0,
                "with an error and the old model",
                f"save with {limit} bytes: {how}, {left}",
            )
    return tally


def stores(count: int, seed: int) -> Tally:
    """A search's store, which continues when there is room again."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:

        def work(path: Path) -> None:
            store = Store(path, {"seed": 0})
            for number in range(10):
                store.add({(16, number): outcome(number)})

        whole = Path(root) / "whole"
        work(whole)
        for turn, limit in enumerate(limits(count, whole.stat().st_size, rng)):
            path = Path(root) / str(turn)
            how = ended(fork(with_file_limit(limit, lambda p=path: work(p))))
            work(path)
            tally.check(
                how[0] == "failed" and path.read_bytes() == whole.read_bytes(),
                "with an error and a store that goes on",
                f"store with {limit} bytes: {how}",
            )
    return tally


def _command(*words: Any) -> Callable[[], Any]:

    def run() -> None:
        app([str(word) for word in words])

    return run


def files(count: int, seed: int) -> Tally:
    """Files that commands write: predictions, in three formats, and an export to a device."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        names = ["out.csv", "out.parquet", "out.csv.gz", "out.arrow"]
        sizes = {}
        for name in names[: max(1, min(count, len(names)))]:
            out = Path(root) / name
            command = ["predict", FOLDERS / "table", FOLDERS / "rows.csv", "--out", out]
            if ended(fork(_command(*command)))[0] != FINISHED:
                tally.wrong(f"{name} cannot be written at all")
            sizes[name] = out.stat().st_size
        for turn in range(count):
            name = names[turn % len(sizes)]
            out = Path(root) / name
            out.write_bytes(b"what was there\n")
            limit = limits(turn // len(sizes) + 1, sizes[name], rng)[-1]
            command = ["predict", FOLDERS / "table", FOLDERS / "rows.csv", "--out", out]
            how = ended(fork(with_file_limit(limit, _command(*command))))
            left = {path.name for path in Path(root).iterdir()} - set(names)
            tally.check(
                how[0] == "failed" and out.read_bytes() == b"what was there\n" and not left,
                "with an error and the old file",
                f"{name} with {limit} of {sizes[name]} bytes: {how}, {left}",
            )
        command = ["predict", FOLDERS / "table", FOLDERS / "rows.csv", "--out", "/dev/full"]
        how = ended(fork(_command(*command)))
        tally.check(how[0] == "failed", "to /dev/full, an error", f"/dev/full: {how}")
    return tally


def streams(count: int, seed: int) -> Tally:
    """``calipers watch``, which continues when there is room again."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        following = Following(Path(root))
        files = [following.out, *following.folder.iterdir()]
        size = max(path.stat().st_size for path in files)
        for limit in limits(count, size, rng):
            following.begin()
            how = ended(fork(with_file_limit(limit, following.follow)))
            left = {path.name for path in following.root.iterdir()}
            tally.check(
                how[0] == "failed"
                and left <= {"model", "out.csv", "stream.csv"}
                and following.goes_on(),
                "with an error, then continued to the same end",
                f"stream with {limit} bytes: {how}, {left}",
            )
    return tally


def caches(count: int, seed: int) -> Tally:
    """A cache of programs that cannot be written: a fit does without it."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        for turn in range(count):
            out, cache = Path(root) / f"{turn}", Path(root) / f"cache-{turn}"
            work = partial(fit_with_cache, cache, out)
            how = ended(fork(with_file_limit(int(rng.integers(5_000, 20_000)), work)))
            left = [p.name for p in cache.rglob("*") if p.is_file() and p.suffix != ".program"]
            tally.check(
                how[0] == FINISHED and out.exists() and not left,
                "fitted without a cache",
                f"cache {turn} of seed {seed}: {how}, {left}",
            )
    return tally


PARTS = (
    Part("disk full", "saves that run out of room at a byte", 60, saves, 4),
    Part("disk full", "stores of a search, likewise", 40, stores, 4),
    Part("disk full", "`calipers predict` to CSV, Parquet, Arrow and gzip, likewise", 24, files),
    Part("disk full", "`calipers watch`, likewise", 12, streams),
    Part("disk full", "the cache of programs", 5, caches),
)
