"""Finished candidates on disk, so that a search that was killed goes on where it stopped.

One file of JSON lines. The first says which search it belongs to, every other one holds a finished
candidate. Lines are only ever appended, and are on the disk before the search goes on; a last line
that was cut short by a kill is dropped. The file is locked while it is read and written, so that
several processes can run one search: each candidate has one line, that of the first to finish it.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calipers._files import locked
from calipers.search._result import Outcome

Key = tuple[int, int]

_VERSION = 1  # of the file's layout


class Store:
    """Outcomes by budget of epochs and candidate, in memory and, given a path, in a file.

    ``identity`` is what makes the search, in plain JSON values. A file of another search is
    refused.
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: Mapping[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.outcomes: dict[Key, Outcome] = {}
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = {"calipers_search": _VERSION, **identity}
        with locked(self.path):
            lines, cut_short = _read(self.path)
            if lines:
                self._check(lines[0], header)
                self._remember(lines[1:])
            elif not _encoded([header]).startswith(cut_short):
                raise ValueError(f"{self.path} is not the store of a search")
            _append(self.path, [] if lines else [header], cut_short)

    def add(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Keep finished candidates, and those that other processes have finished meanwhile."""
        if self.path is None:
            self.outcomes.update(outcomes)
            return
        with locked(self.path):
            lines, cut_short = _read(self.path)
            self._remember(lines[1:])
            new = {key: outcome for key, outcome in outcomes.items() if key not in self.outcomes}
            self.outcomes.update(new)
            records = (
                {"budget": budget, "candidate": number, **_plain(outcome)}
                for (budget, number), outcome in new.items()
            )
            _append(self.path, records, cut_short)

    def _remember(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            key = (line.pop("budget"), line.pop("candidate"))
            values: Any = {n: math.nan if value is None else value for n, value in line.items()}
            self.outcomes[key] = Outcome(**values)

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


def _append(path: Path, records: Iterable[Mapping[str, Any]], cut_short: bytes) -> None:
    """Write lines in place of one that was cut short, and see them to the disk."""
    with path.open("ab") as file:
        if cut_short:
            file.truncate(file.tell() - len(cut_short))
        file.write(_encoded(records))
        file.flush()
        os.fsync(file.fileno())


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
