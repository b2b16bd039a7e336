"""Finished candidates on disk, so that a killed search continues where it stopped.

The store is a file of JSON lines. The first identifies the search, every other one holds a finished
candidate. Lines are only ever appended, and are flushed to disk before the search continues; an
incomplete last line, left by a kill, is dropped. The file is locked while it is read and written,
so that several processes can run one search: each candidate has one line, that of the first process
to finish it.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from calipers._files import append_to, locked
from calipers.search._result import Outcome

Key = tuple[int, int]

_VERSION = 1  # of the file's layout


class Store:
    """Outcomes by budget of epochs and candidate, in memory and, given a path, in a file.

    ``identity`` identifies the search, in plain JSON values. A file of another search is refused.
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: Mapping[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.outcomes: dict[Key, Outcome] = {}
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = {"calipers_search": _VERSION, **identity}
        with locked(self.path):
            lines, end, incomplete = _read(self.path)
            if lines:
                self._check(lines[0], header)
                self._load(lines[1:])
            elif not _encoded([header]).startswith(incomplete):
                raise ValueError(f"{self.path} is not the store of a search")
            append_to(self.path, _encoded([] if lines else [header]), end)

    def add(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Add finished candidates, and load those that other processes finished meanwhile."""
        if self.path is None:
            self.outcomes.update(outcomes)
            return
        with locked(self.path):
            lines, end, _ = _read(self.path)
            self._load(lines[1:])
            new = {key: outcome for key, outcome in outcomes.items() if key not in self.outcomes}
            self.outcomes.update(new)
            records: list[dict[str, Any]] = []
            for (budget, number), outcome in new.items():
                values = outcome._asdict().items()
                measures = {name: None if math.isnan(v) else v for name, v in values}
                records.append({"budget": budget, "candidate": number, **measures})
            append_to(self.path, _encoded(records), end)

    def _load(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            key = (line.pop("budget"), line.pop("candidate"))
            values: dict[str, Any] = {
                n: math.nan if value is None else value for n, value in line.items()
            }
            self.outcomes[key] = Outcome(**values)

    def _check(self, stored: dict[str, Any], header: dict[str, Any]) -> None:
        if "calipers_search" not in stored:
            raise ValueError(f"{self.path} is not the store of a search")
        header = json.loads(json.dumps(header))
        names = sorted(stored.keys() | header.keys())
        differing = [name for name in names if stored.get(name) != header.get(name)]
        if differing:
            raise ValueError(
                f"{self.path} belongs to another search, which differs in {', '.join(differing)}: "
                "give another store, or remove that file"
            )


def _encoded(records: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode()


def _read(path: Path) -> tuple[list[dict[str, Any]], int, bytes]:
    """Return the complete lines of a file, their bytes, and an incomplete one at its end."""
    content = path.read_bytes() if path.exists() else b""
    end = content.rfind(b"\n") + 1
    try:
        return [dict(json.loads(line)) for line in content[:end].splitlines()], end, content[end:]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the store of a search: {error}") from error
