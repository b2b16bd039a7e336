"""``calipers predict --cluster``: Parquet scored by workers into a folder of parts.

A folder of parts is planned before anything is scored. Every part is one file under a name that
follows from the plan, appears whole or not at all, and is scored by a task that does nothing where
the part is there. So whatever is killed, the same command goes on with what is missing, and no row
is lost or doubled.
"""

import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from calipers.cli._cluster import spread

if TYPE_CHECKING:
    from calipers.tables import Part

PLAN, DONE = "_calipers.json", "_SUCCESS"
"""Marks in a folder of parts: what it is to hold, and that it holds it. Readers of folders of
Parquet pass over names that begin with ``_``."""

_VERSION = 1  # of the layout of the folder


def score_parts(
    model: str, data: list[str], out: str, asked: dict[str, Any], address: str
) -> dict[str, Any]:
    """Score Parquet files on a cluster, into a folder of parts; an unfinished run is continued.

    ``asked`` says what to answer: ``coverages``, ``quantiles``, ``keep`` and ``mark_outside``. The
    result has ``rows``, ``parts``, ``kept`` (parts that were there already), ``outside`` and
    ``out``.
    """
    from calipers import load
    from calipers.tables import find_parts

    fitted = load(model).set_params(n_jobs=1)  # parts are what runs side by side
    record = json.loads(Path(model, "model.json").read_bytes())
    parts, sources = find_parts(data)
    folder = Path(out).absolute()
    if any(folder.is_relative_to(Path(name).absolute()) for name in data):
        raise typer.BadParameter(f"--out {out} lies in a folder that is read: name another")
    plan = {"calipers_parts": _VERSION, "model": record["sha256"], **asked, "inputs": sources}
    done = _claim(folder, plan, parts)
    if done is None:
        with spread(address) as cluster:
            done = _score_all(cluster, fitted, parts, folder, asked)
        _finish(folder, done)
    return done | {"parts": len(done["parts"]), "out": out}


def _score_all(
    cluster: Any, model: Any, parts: "list[Part]", folder: Path, asked: dict[str, Any]
) -> dict[str, Any]:
    """Score all parts that are not there, and count."""
    import distributed

    from calipers._progress import progress

    rows = kept = rows_outside = 0
    columns: Counter[str] = Counter()
    names = []
    with progress("predicting", len(parts)) as report:
        shared = {"model": cluster.send(model), "folder": os.fspath(folder), "asked": asked}
        futures = cluster.client.map(_score, parts, pure=False, **shared)
        finished: Any = distributed.as_completed(futures, with_results=True)  # type: ignore[no-untyped-call]
        for future, found in finished:
            future.release()
            rows, kept = rows + found["rows"], kept + found["kept"]
            rows_outside += found["outside"]["rows"]
            columns.update(found["outside"]["columns"])
            names += [found["name"]] if found["rows"] else []
            report(1)
    outside = {"rows": rows_outside, "columns": dict(columns.most_common())}
    return {"rows": rows, "parts": sorted(names), "kept": kept, "outside": outside}


def _score(part: "Part", *, model: Any, folder: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Score one part, on a worker; gives what is counted of it."""
    from calipers._files import replacing
    from calipers.cli._predict import RowScorer

    path = Path(folder, part.name)
    there = _summary(path)
    if there is not None:
        return there | {"kept": 1}
    asking = RowScorer(model, **asked, as_text=False)
    tables = _answers(asking, part)
    first = next(tables, None)
    if first is not None:  # a file without rows has no part
        # A worker that was given up may still write the same: each writes a file of its own.
        own = path.with_name(f".{part.name}.{secrets.token_hex(8)}")
        with replacing(own) as file:
            _write(file, chain([first], tables), lambda: _counted(part, asking))
        own.replace(path)
    return _counted(part, asking) | {"kept": 0}


def _answers(asking: Any, part: "Part") -> Iterator[Any]:
    from calipers.preprocessing import DataError
    from calipers.tables import read_part

    for block in read_part(part):
        try:
            yield asking._answer(block)
        except DataError as error:
            raise block.placed(error) from None


def _write(file: Any, tables: Iterator[Any], count: Callable[[], dict[str, Any]]) -> None:
    """Write tables as Parquet, with what was counted of them."""
    import pyarrow.parquet as pq

    first = next(tables)
    with pq.ParquetWriter(file, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
        writer.add_key_value_metadata({"calipers": json.dumps(count())})


def _counted(part: "Part", asking: Any) -> dict[str, Any]:
    return {"name": part.name, "rows": asking.rows, "outside": asking.outside_report()}


def _summary(path: Path) -> dict[str, Any] | None:
    """What was counted of a part that is there; None where it is not, or is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.read_metadata(path)
        summary: dict[str, Any] = json.loads(found.metadata[b"calipers"])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
    return summary if summary.get("rows") == found.num_rows else None


def _claim(folder: Path, plan: dict[str, Any], parts: "list[Part]") -> dict[str, Any] | None:
    """Make the folder, or find it again; gives what a finished run has counted."""
    from calipers._files import replace_file

    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"--out {folder} is a file: with --cluster it is a folder")
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / PLAN
    plan = json.loads(json.dumps(plan | {"parts": len(parts)}))
    if not place.exists():
        if any(name.name != f".{PLAN}.part" for name in folder.iterdir()):
            raise typer.BadParameter(f"--out {folder} holds other files: name a new folder")
        replace_file(place, json.dumps(plan, indent=2).encode())
        return None
    found = json.loads(place.read_bytes())
    differing = [key for key in plan | found if plan.get(key) != found.get(key)]
    if differing:
        raise typer.BadParameter(
            f"--out {folder} holds predictions of another run, which differs in "
            f"{', '.join(differing)}: name another folder"
        )
    mark = folder / DONE
    if not mark.exists():
        return None
    done: dict[str, Any] = json.loads(mark.read_bytes())
    if all((folder / name).exists() for name in done["parts"]):
        return done | {"kept": len(done["parts"])}
    mark.unlink()
    return None


def _finish(folder: Path, done: dict[str, Any]) -> None:
    """Mark the folder as whole, and remove what kills have left."""
    from calipers._files import replace_file

    for leftover in folder.glob(".*part-*.parquet.*"):
        leftover.unlink(missing_ok=True)
    replace_file(folder / DONE, json.dumps(done, indent=2).encode())
