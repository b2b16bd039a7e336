"""``calipers predict --cluster``: workers score Parquet files into a folder of parts.

The parts are planned before anything is scored. Every part is one file. Its name follows from the
plan, it appears complete or not at all, and its task does nothing if it exists. So whichever
process is killed, the same command continues with the missing parts, and no row is lost or
duplicated.
"""

import json
import os
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from calipers._files import replace_file, replacing
from calipers._progress import progress
from calipers.cli._labelled import load_single
from calipers.cli._options import cluster_at
from calipers.cli._scoring import RowScorer
from calipers.tables import Part, find_parts, read_part

if TYPE_CHECKING:
    from calipers.cluster import Cluster
    from calipers.regressor import IntervalRegressor

PLAN, DONE = "_calipers.json", "_SUCCESS"
"""Files in a folder of parts: the plan, and the mark that it is complete. Readers of Parquet
folders skip names that begin with ``_``."""

_VERSION = 1  # of the layout of the folder


def score_parts(
    model: str, data: list[str], out: str, options: dict[str, Any], address: str
) -> dict[str, Any]:
    """Score Parquet files on a cluster, into a folder of parts; an unfinished run is continued.

    ``options`` has the ``query``, ``keep`` and ``mark_outside`` of ``RowScorer``.
    The result has ``rows``, ``parts``, ``kept`` (parts that existed already), ``outside`` and
    ``out``.
    """
    fitted = load_single(model).set_params(n_jobs=1)  # parts run in parallel, not rows
    record = json.loads(Path(model, "model.json").read_bytes())
    parts, sources = find_parts(data)
    folder = Path(out).absolute()
    if any(folder.is_relative_to(Path(name).absolute()) for name in data):
        raise typer.BadParameter(f"--out {out} lies inside a folder of inputs: name another folder")
    plan = {"calipers_parts": _VERSION, "model": record["sha256"], **options, "inputs": sources}
    plan |= {name: value for name, value in vars(plan.pop("query")).items() if value}
    done = _claim(folder, plan, parts)
    if done is None:
        with cluster_at(address) as cluster:
            done = _score_all(cluster, fitted, parts, folder, options)
        for leftover in folder.glob(".*part-*.parquet.*"):  # of killed workers
            leftover.unlink(missing_ok=True)
        replace_file(folder / DONE, json.dumps(done, indent=2).encode())
    return done | {"parts": len(done["parts"]), "out": out}


def _score_all(
    cluster: "Cluster",
    model: "IntervalRegressor",
    parts: list[Part],
    folder: Path,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Score all missing parts; return the totals."""
    import distributed  # not at the top: ``cluster_at`` says how to install it

    rows = kept = rows_outside = cells = 0
    first = None
    columns: Counter[str] = Counter()
    names = []
    with progress("predicting", len(parts)) as report:
        shared = {"model": cluster.send(model), "folder": os.fspath(folder), "options": options}
        futures = cluster.client.map(_score, parts, pure=False, **shared)
        finished: Any = distributed.as_completed(futures, with_results=True)  # type: ignore[no-untyped-call]
        for future, summary in finished:
            future.release()
            rows, kept = rows + summary["rows"], kept + summary["kept"]
            rows_outside += summary["outside"]["rows"]
            columns.update(summary["outside"]["columns"])
            if unread := summary["outside"].get("unread"):
                cells, first = cells + unread["cells"], first or unread["first"]
            names += [summary["name"]] if summary["rows"] else []
            report(1)
    outside = {"rows": rows_outside, "columns": dict(columns.most_common())}
    outside |= {"unread": {"cells": cells, "first": first}} if cells else {}
    return {"rows": rows, "parts": sorted(names), "kept": kept, "outside": outside}


def _score(
    part: Part, *, model: "IntervalRegressor", folder: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Score one part, on a worker; return its summary."""
    path = Path(folder, part.name)
    existing = _read_summary(path)
    if existing is not None:
        return existing | {"kept": 1}
    scorer = RowScorer(model, **options, as_text=False)
    tables = scorer.score(read_part(part))

    def summary() -> dict[str, Any]:
        return {"name": part.name, "rows": scorer.rows, "outside": scorer.outside_report()}

    first = next(tables, None)
    if first is not None:  # a file without rows has no part
        # A worker presumed lost may still write the same part.
        with replacing(path, race=True) as file, pq.ParquetWriter(file, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
            writer.add_key_value_metadata({"calipers": json.dumps(summary())})
    return summary() | {"kept": 0}


def _read_summary(path: Path) -> dict[str, Any] | None:
    """Return the summary stored in a part; None if the part is missing or damaged."""
    try:
        metadata = pq.read_metadata(path)
        summary: dict[str, Any] = json.loads(metadata.metadata[b"calipers"])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None
    return summary if summary.get("rows") == metadata.num_rows else None


def _claim(folder: Path, plan: dict[str, Any], parts: list[Part]) -> dict[str, Any] | None:
    """Create the folder, or check that it is of this run; return the totals of a finished run."""
    if folder.exists() and not folder.is_dir():
        raise typer.BadParameter(f"--out {folder} is a file: with --cluster it must be a folder")
    folder.mkdir(parents=True, exist_ok=True)
    plan_file = folder / PLAN
    plan = json.loads(json.dumps(plan | {"parts": len(parts)}))
    if not plan_file.exists():
        if any(name.name != f".{PLAN}.part" for name in folder.iterdir()):
            raise typer.BadParameter(
                f"--out {folder} already contains other files: name a new folder"
            )
        replace_file(plan_file, json.dumps(plan, indent=2).encode())
        return None
    stored = json.loads(plan_file.read_bytes())
    differing = [key for key in plan | stored if plan.get(key) != stored.get(key)]
    if differing:
        raise typer.BadParameter(
            f"--out {folder} already contains predictions of another run, which differs in "
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
