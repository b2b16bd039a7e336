"""Finished candidates on disk, so that a search that was killed goes on where it stopped.

One file of JSON lines. The first says which search it belongs to, every other one holds a finished
candidate. Lines are only ever appended, and are on the disk before the search goes on; a last line
that was cut short by a kill is dropped.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calipers.search._result import Outcome

Key = tuple[int, int]

_VERSION = 1  # of the file's layout


class Store:
    """Outcomes by budget of epochs and candidate, in memory and, given a path, in a file.

    Parameters
    ----------
    path : path, optional
        File to append to; made with its folder if there is none.
    identity : mapping
        What makes the search: plain JSON values. A file of another search is refused.
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: Mapping[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.outcomes: dict[Key, Outcome] = {}
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines, cut_short = _read(self.path)
        header = {"calipers_search": _VERSION, **identity}
        if lines:
            self._check(lines[0], header)
            self._remember(lines[1:])
        elif not _encoded([header]).startswith(cut_short):
            raise ValueError(f"{self.path} is not the store of a search")
        if cut_short:
            os.truncate(self.path, self.path.stat().st_size - len(cut_short))
        if not lines:
            self._append([header])

    def add(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Keep finished candidates."""
        self.outcomes.update(outcomes)
        self._append(
            {"budget": budget, "candidate": number, **_plain(outcome)}
            for (budget, number), outcome in outcomes.items()
        )

    def _remember(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            key = (line.pop("budget"), line.pop("candidate"))
            values: Any = {n: math.nan if value is None else value for n, value in line.items()}
            self.outcomes[key] = Outcome(**values)

    def _append(self, records: Iterable[Mapping[str, Any]]) -> None:
        if self.path is None:
            return
        with self.path.open("ab") as file:
            file.write(_encoded(records))
            file.flush()
            os.fsync(file.fileno())

    def _check(self, found: dict[str, Any], wanted: dict[str, Any]) -> None:
        if "calipers_search" not in found:
            raise ValueError(f"{self.path} is not the store of a search")
        wanted = json.loads(json.dumps(wanted))
        names = sorted(found.keys() | wanted.keys())
        differing = [name for name in names if found.get(name) != wanted.get(name)]
        if differing:
            raise ValueError(
                f"{self.path} belongs to another search, which differs in {', '.join(differing)}: "
                "give another store, or remove that file"
            )


def _encoded(records: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode()


def _read(path: Path) -> tuple[list[dict[str, Any]], bytes]:
    """Whole lines of a file, and the rest of it."""
    content = path.read_bytes() if path.exists() else b""
    whole = content.rfind(b"\n") + 1
    try:
        return [dict(json.loads(line)) for line in content[:whole].splitlines()], content[whole:]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the store of a search: {error}") from error


def _plain(outcome: Outcome) -> dict[str, Any]:
    values = outcome._asdict().items()
    return {name: None if math.isnan(value) else value for name, value in values}
