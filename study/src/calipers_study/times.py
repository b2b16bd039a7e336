"""Where the time of a run went, from the records of its store; and how a time is written."""

import json
from datetime import datetime, timedelta
from typing import Any

from calipers_study.cells import Results
from calipers_study.extras import GROUPS
from calipers_study.methods import DATASETS, METHODS
from calipers_study.store import Store

Found = dict[tuple[str, str], Results]


def written_time(seconds: float) -> str:
    """Write a time for people.

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


def time_markdown(store: Store, results: Found) -> str:
    """Seconds of every training, and of what stands beside the paper, by device."""
    shown = [name for name in DATASETS if any(results[m, name].trials for m in METHODS)]
    lines = ["## Where the time went", "", "| training | " + " | ".join(shown) + " | sum |"]
    lines.append("|---|" + "---:|" * (len(shown) + 1))
    for method, entry in METHODS.items():
        own = [_seconds(results[method, name]) for name in shown]
        cells = [f"{seconds:.0f}" for seconds in (*own, sum(own))]
        lines.append(f"| {entry.title} | " + " | ".join(cells) + " |")
    lines += ["", f"Seconds of a process, beside others on the same device. {_span(results)}", ""]
    rows = [row for group in GROUPS for row in _groups(store, group)]
    if rows:
        lines += [
            "| beside the paper | device | parts | seconds | longest |",
            "|---|---|---:|---:|---|",
        ]
        lines += [*rows, ""]
    return "\n".join(lines)


def _seconds(found: Results) -> float:
    return float(sum(trial.record["seconds"] for trial in found.trials))


def _span(results: Found) -> str:
    """From the beginning of the first training to the end of the last, if one device made all."""
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


def _groups(store: Store, group: str) -> list[str]:
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
        rows.append(f"| {group} | {device} | {len(own)} | {total:.0f} | {last} |")
    return rows
