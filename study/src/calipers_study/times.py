"""Times of a run, from the records of its store."""

import json
from datetime import datetime, timedelta
from typing import Any

from calipers_study.cells import Results
from calipers_study.extras import GROUPS
from calipers_study.files import markdown_table
from calipers_study.methods import DATASETS, METHODS
from calipers_study.store import ResultStore

Found = dict[tuple[str, str], Results]


def written_time(seconds: float) -> str:
    """A duration as text.

    Examples
    --------
    >>> written_time(42.0), written_time(253.0), written_time(5000.0)
    ('42 s', '4 min 13 s', '1 h 23 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def time_markdown(store: ResultStore, results: Found) -> str:
    """The tables of seconds of every training, and of results beyond the paper by device."""
    shown = [name for name in DATASETS if any(results[m, name].trials for m in METHODS)]
    trained = []
    for method, entry in METHODS.items():
        own = [_seconds(results[method, name]) for name in shown]
        trained.append([entry.title, *(f"{seconds:.0f}" for seconds in (*own, sum(own)))])
    lines = ["## Where the time went", "", *markdown_table(["training", *shown, "sum"], trained)]
    lines += ["", f"Seconds of a process, beside others on the same device. {_span(results)}", ""]
    if rows := [row for group in GROUPS for row in _groups(store, group)]:
        header = ["beside the paper", "device", "longest", "parts", "seconds"]
        lines += [*markdown_table(header, rows, 3), ""]
    return "\n".join(lines)


def _seconds(found: Results) -> float:
    return float(sum(trial.record["seconds"] for trial in found.trials))


def _span(results: Found) -> str:
    """A sentence with the time from the first training to the last, if all ran on one device."""
    records = [[t.record for t in found.trials] for found in results.values() if found.trials]
    devices = {record["device"] for own in records for record in own}
    if len(devices) != 1:
        return f"Devices: {', '.join(sorted(devices))}."
    ends = [max(datetime.fromisoformat(r["finished"]) for r in own) for own in records]
    begins = [
        end - timedelta(seconds=sum(r["seconds"] for r in own))
        for end, own in zip(ends, records, strict=True)
    ]
    span = (max(ends) - min(begins)).total_seconds()
    return (
        f"All of them on one {devices.pop()}: {written_time(span)} from the beginning of the first "
        "to the end of the last."
    )


def _groups(store: ResultStore, group: str) -> list[list[str]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((store.folder / "extras" / group).glob("*/*.json")):
        content = json.loads(path.read_text("utf-8"))
        content["place"] = f"{content['name']} on {path.stem}"
        found.setdefault(content["device"], []).append(content)
    rows = []
    for device, own in sorted(found.items()):
        longest = max(own, key=lambda content: content["seconds"])
        total = sum(content["seconds"] for content in own)
        last = f"{longest['place']}, {longest['seconds']:.0f} s"
        rows.append([group, device, last, f"{len(own)}", f"{total:.0f}"])
    return rows
