"""Processes that do the same thing at the same time: none of them loses, and none spoils it."""

import os
import tempfile
from functools import partial
from pathlib import Path

from calipers.search._store import Store
from calipers.storage import write_model

from ._forks import FINISHED, ended, fork
from ._models import fit_with_cache
from ._tally import Part, Tally
from .kills import number_in, numbered, outcome


def saves(count: int, seed: int) -> Tally:
    """Four writers of one folder, and a reader that never waits."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "model"
        write_model(folder, *numbered(seed))

        def write(first: int) -> None:
            for number in range(first, first + -(-count // 4)):
                write_model(folder, *numbered(number))

        writers = [fork(lambda n=10_000 * (i + 1): write(n)) for i in range(4)]
        reads = 0
        while any(
            os.waitid(os.P_PID, w, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None for w in writers
        ):
            reads += 1
            try:
                number_in(folder)
            except Exception as error:
                tally.wrong(f"read {reads}: {error!r}")
        for writer in writers:
            how = ended(writer)
            tally.check(how[0] == FINISHED, "writers done", f"a writer {how}")
        tally.counts["saves"] = tally.counts.pop("writers done", 0) * -(-count // 4)
        tally.notes.append(f"{reads:,} reads of a whole model meanwhile")
        left = sorted(path.suffix for path in folder.iterdir())
        if left != [".json", ".safetensors"]:
            tally.wrong(f"{left} in the folder")
    return tally


def stores(count: int, seed: int) -> Tally:
    """Three searches that begin one store and fill it."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as root:
        for turn in range(count):
            path = Path(root) / f"{turn}.jsonl"
            wait, go = os.pipe()

            def work(shift: int, path: Path = path, wait: int = wait, go: int = go) -> None:
                os.close(go)
                os.read(wait, 1)
                store = Store(path, {"seed": seed})
                for i in range(25):
                    store.add({(16, (i + shift) % 25): outcome((i + shift) % 25)})

            children = [fork(lambda s=shift: work(s)) for shift in (0, 0, 9)]
            os.close(go)  # all begin at once
            os.close(wait)
            how = [ended(child)[0] for child in children]
            lines = path.read_bytes().splitlines()
            found = sorted(number for _, number in Store(path, {"seed": seed}).outcomes)
            tally.check(
                how == [FINISHED] * 3 and len(lines) == 26 and found == list(range(25)),
                "with one header and one line for each candidate",
                f"turn {turn}: {how}, {len(lines)} lines",
            )
    return tally


def programs(count: int, seed: int) -> Tally:
    """Two processes that compile, keep and load one program in an empty cache."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as root:
        outputs = set()
        for turn in range(count):
            cache = Path(root) / f"cache-{turn}"
            outs = [Path(root) / f"{turn}-{i}" for i in range(3)]
            works = [partial(fit_with_cache, cache, out) for out in outs]
            children = [fork(work) for work in works[:2]]
            how = [ended(child)[0] for child in children]
            how.append(ended(fork(works[2]))[0])  # from what they left
            outputs |= {out.read_bytes() for out in outs if out.exists()}
            kept = list((cache / "programs").glob("*"))
            left = [path for path in kept if path.suffix != ".program"]
            tally.check(
                how == [FINISHED] * 3 and len(outputs) == 1 and len(kept) > 0 and not left,
                "with the same bits, also from what was kept",
                f"turn {turn} of seed {seed}: {how}, {len(outputs)} outputs, {kept}",
            )
    return tally


PARTS = (
    Part("races", "saves by four writers with a reader", 400, saves, 8),
    Part("races", "raced starts of three searches on one store", 200, stores, 4, 50),
    Part(
        "races", "two processes with one empty cache of programs, and a third", 10, programs, 1, 3
    ),
)
