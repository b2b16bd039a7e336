"""Run the campaigns: ``python -m tests.campaigns --help``."""

import argparse
import json
import os
import pickle
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import bad_tables, disk_full, forged_folders, kills, races, request_abuse, soak
from ._forks import ended, fork
from ._tally import Part, Tally

MODULES = (kills, races, disk_full, forged_folders, bad_tables, request_abuse, soak)
PARTS = [part for module in MODULES for part in module.PARTS]
FORKING = threading.Lock()
START, END = "<!-- campaigns -->\n", "<!-- end of campaigns -->\n"


def apart(part: Part, count: int, seed: int) -> Tally:
    """Run a piece of a part in a child, since what it computes would spoil the forks of others."""

    def work() -> None:
        with os.fdopen(into, "wb") as pipe:
            pickle.dump(part.run(count, seed), pipe)

    with FORKING:  # so that no other child has this end of the pipe too
        out, into = os.pipe()
        child = fork(work, quiet=False)
        os.close(into)
    with os.fdopen(out, "rb") as pipe:
        content = pipe.read()
    if ended(child)[1] or not content:
        tally = Tally()
        tally.wrong(f"the campaign itself broke, seed {seed}")
        return tally
    found: Tally = pickle.loads(content)
    return found


def whole(part: Part, share: float, seed: int, jobs: int) -> dict[str, Any]:
    """All pieces of a part, some at a time, each waited for by a thread."""
    began = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        tallies = pool.map(lambda piece: apart(part, *piece), part.pieces(share, seed))
        return part.result(sum(tallies, Tally()), time.monotonic() - began)


HEAD = """\
| campaign | what was tried | how often | what became of it | wrong |
|---|---|--:|---|--:|
"""


def row(result: dict[str, Any]) -> str:
    """A result as text."""
    cells = (result["campaign"], result["tried"], f"{result['tries']:,}", result["outcomes"])
    return f"| {' | '.join(cells)} | {result['wrong']} |\n"


def write(path: Path, results: list[dict[str, Any]]) -> None:
    """Put results into the table of a page, in place of those of the same parts."""
    before, _, rest = path.read_text("utf-8").partition(START)
    table, _, after = rest.partition(END)
    rows = {tuple(line.split(" | ")[:2]): line + "\n" for line in table.splitlines()[2:] if line}
    rows |= {(f"| {result['campaign']}", result["tried"]): row(result) for result in results}
    known = [rows[key] for part in PARTS if (key := (f"| {part.campaign}", part.tried)) in rows]
    path.write_text(f"{before}{START}{HEAD}{''.join(known)}{END}{after}", "utf-8")


def main() -> int:
    """Run the requested parts; return 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="campaigns, or parts in full; all by default")
    parser.add_argument("--share", type=float, default=1.0, help="of the tries, all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="pieces of a campaign at a time")
    parser.add_argument("--json", action="store_true", help="print the results as JSON lines")
    parser.add_argument("--write", type=Path, help="page to put the table into")
    parser.add_argument("--printed", type=Path, nargs="+", help="what --json printed, to --write")
    given = parser.parse_args()
    if given.printed:
        lines = [line for path in given.printed for line in path.read_text().splitlines()]
        write(given.write, [json.loads(line) for line in lines])
        return 0
    warnings.filterwarnings("ignore", message=".*fork.*")
    results = []
    for part in PARTS:
        if given.only and not {part.campaign, part.tried} & set(given.only):
            continue
        if not max(part.least, round(part.count * given.share)):
            continue
        result = whole(part, given.share, given.seed, given.jobs)
        results.append(result)
        if given.write:
            write(given.write, [result])
        if given.json:
            print(json.dumps(result), flush=True)
        else:
            for finding in result["findings"]:
                print(f"  {finding}")
            print(
                f"{result['campaign']}: {result['tried']}: {result['tries']:,} tries: "
                f"{result['outcomes']}; {result['wrong']} wrong ({result['seconds']:.1f} s)",
                flush=True,
            )
    return int(any(result["wrong"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
