"""``calipers watch``: a model that follows a stream of rows in a file."""

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from calipers.cli import _table_options as common
from calipers.cli._predict import ModelFolder
from calipers.cli._printing import print_json, show
from calipers.cli._row_options import RowOptions, with_row_options

_WINDOW = 200  # rows of the coverage that is called recent


@with_row_options
def watch_command(
    model: ModelFolder,
    data: common.Files,
    out: Annotated[
        str | None, typer.Option(help="CSV file that predictions are added to, row by row.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage to watch; the model's own by default.")
    ] = None,
    block: Annotated[int, typer.Option(min=1, help="Rows after which the model is saved.")] = 500,
    delay: Annotated[
        int, typer.Option(min=0, help="Rows predicted between a row and its target.")
    ] = 0,
    *,
    options: RowOptions,
) -> None:
    """Predict each row of a table in time order, then learn from its target.

    Intervals adapt so that coverage is kept whatever the drift, and an alarm says when the rows
    have stopped being like those of the fit. What was learnt is saved in the model's folder after
    every block. The same command goes on where it stopped, after a kill or when the file has grown.
    """
    common.check_coverage(coverage)
    if delay > block:
        raise typer.BadParameter(
            f"--delay {delay} is more than --block {block}: take blocks many times as long"
        )
    from calipers import load
    from calipers.preprocessing import DataError

    fitted = load(model).set_params(n_jobs=options.n_jobs)
    level = coverage or fitted.coverage
    files, (table, values, _, _) = options.read(fitted, data, _read)
    log = _Log(fitted, model, files, out, level)
    numbers, start = table.row_numbers, 0
    try:
        inputs = fitted.pick(table.frame)
        marks = _Marks(table.frame, values, [column.name for column in fitted.inputs_])
        for start in range(log.start(numbers, marks), len(values), block):
            rows = slice(start, start + block)
            found = fitted.update(inputs[rows], values[rows], delay=delay)
            last = start + len(found.y) - 1
            log.take(found, int(numbers[last]), marks[last])
            if not options.as_json:
                typer.echo(log.line())
    except DataError as error:
        row = None if error.row is None else error.row + start
        raise table.placed(DataError(error.problem, column=error.column, row=row)) from None
    if options.as_json:
        print_json({"model": model, "files": files} | log.summary())
    elif not log.added:
        typer.echo(f"no new rows: all {log.rows:,} had been learnt")


def _read(data: list[str], form: Any) -> tuple[list[str], Any]:
    """Files, and their rows but one that is still being written: it has no end, or a file grows."""
    import numpy as np

    from calipers.tables import find_files, whole_lines

    before = whole_lines(find_files(data)[-1])
    files, table = common.read_files(data, form)
    if before is None or whole_lines(files[-1]) != before:
        typer.echo(f"the last line of {files[-1]} waits until it has an end", err=True)
        table = table.take(np.arange(table.table.num_rows) < table.table.num_rows - 1)
    return files, table


class _Marks:
    """Digests of rows, by which it is known that they are the ones that were learnt."""

    def __init__(self, frame: Any, values: Any, names: list[str]) -> None:
        self.columns = [frame[name] for name in sorted(names) if name in frame]
        self.values = values

    def __getitem__(self, row: int) -> str:
        cells = [str(column.iloc[row]) for column in self.columns]
        return hashlib.sha256(repr([float(self.values[row]), *cells]).encode()).hexdigest()[:16]


class _Log:
    """What has been watched of a stream, kept with the model and so saved in one step with it.

    Rows go to the file of predictions first, then the model is saved with the file's length. What
    a kill in between has left at its end is cut off when the command goes on.
    """

    def __init__(
        self, model: Any, folder: str, files: list[str], out: str | None, coverage: float
    ) -> None:
        self.model, self.folder, self.out, self.added = model, folder, out, 0
        state = _state_of(model.about_.get("watched"), files)
        if state.get("coverage") != coverage:  # rows stay learnt, and are counted again
            if out is not None and state.get("out") == out and state.get("bytes"):
                raise typer.BadParameter(
                    f"--out {out} has intervals of --coverage {state['coverage']:g}, and those of "
                    f"--coverage {coverage:g} have other columns: name another file"
                )
            state |= {"coverage": coverage, "counted": 0, "covered": 0, "recent": ""}
        self.state = model.about_["watched"] = state
        if state.get("out") != out or (out is not None and "bytes" not in state):
            _refuse_foreign(out)
            state |= {"out": out, "bytes": 0}
            model.save(folder)  # from now on the file is known to be of this stream
        if out is not None:
            with Path(out).open("ab") as file:
                if file.tell() < state["bytes"]:
                    raise typer.BadParameter(
                        f"--out {out} has {file.tell():,} of the {state['bytes']:,} bytes that "
                        "were written: bring it back, or name another file"
                    )
                file.truncate(state["bytes"])

    @property
    def rows(self) -> int:
        """Rows learnt so far."""
        return int(self.state["rows"])

    def start(self, numbers: Any, marks: _Marks) -> int:
        """Which of the rows is the first new one, given their numbers in the files."""
        import numpy as np

        if "place" not in self.state:  # as saved before places were, or a new stream
            return self.rows
        place, mark = self.state["place"], self.state.get("mark")
        start = int(np.searchsorted(numbers, place, side="right"))
        there = start > 0 and numbers[start - 1] == place
        if mark is not None and not (there and marks[start - 1] == mark):
            raise typer.BadParameter(
                f"{', '.join(self.state['files'])}: row {place:,}, the last one learnt, is another "
                "or gone: was the file cut off or replaced? Bring it back, or give the rows that "
                "follow in a file of another name"
            )
        return start

    def take(self, found: Any, place: int, mark: str) -> None:
        """Write a block that ends with this row of the files, and save the model."""
        state, coverage = self.state, self.state["coverage"]
        bounds = found.intervals(coverage)
        hits = (bounds[:, 0] <= found.y) & (found.y <= bounds[:, 1])
        if self.out is not None:
            state["bytes"] = _append(self.out, found, bounds, coverage)
        state |= {"place": place, "mark": mark}
        state["rows"] += len(hits)
        state["counted"] += len(hits)
        state["covered"] += int(hits.sum())
        state["recent"] = (state["recent"] + "".join("1" if hit else "0" for hit in hits))[
            -_WINDOW:
        ]
        if found.alarm and state["alarm_at"] is None:
            state["alarm_at"] = state["rows"]
        self.width, self.added = float((bounds[:, 1] - bounds[:, 0]).mean()), len(hits)
        self.model.save(self.folder)

    def summary(self) -> dict[str, Any]:
        """Numbers so far."""
        state = self.state
        recent = state["recent"]
        return {
            "rows": state["rows"],
            "coverage": state["coverage"],
            "observed": state["covered"] / state["counted"] if state["counted"] else None,
            "observed_recently": recent.count("1") / len(recent) if recent else None,
            "alarm": state["alarm_at"] is not None,
            "alarm_at": state["alarm_at"],
        }

    def line(self) -> str:
        """One line about the stream so far."""
        found = self.summary()
        text = (
            f"{found['rows']:>9,} rows  covered {found['observed']:.1%} of "
            f"{found['coverage']:.0%}, of the last {len(self.state['recent'])} "
            f"{found['observed_recently']:.1%}  mean width {show(self.width)}"
        )
        if found["alarm"]:
            text += f"  ALARM: not as in training, noticed by row {found['alarm_at']:,}"
        return text


def _state_of(before: Any, files: list[str]) -> dict[str, Any]:
    """What is known of a stream, which goes on if all its files come first, in their order."""
    paths = [_path(file) for file in files]
    known = [_path(file) for file in before["files"]] if isinstance(before, dict) else []
    if known and paths[: len(known)] == known:
        return before | {"files": paths}
    learnt = next((file for file, path in zip(files, paths, strict=True) if path in known), None)
    if learnt is not None:
        raise typer.BadParameter(
            f"rows of {learnt} have been learnt, as part of {', '.join(known)}: name these files "
            "first, in this order, and new ones after them; or new ones alone"
        )
    return {"files": paths, "rows": 0, "alarm_at": None}


def _path(file: str) -> str:
    """A file by the one name that does not depend on where the command runs."""
    return file if file == "-" else os.path.realpath(file)


def _refuse_foreign(out: str | None) -> None:
    """Refuse to write to a file of another purpose."""
    if out is not None and Path(out).exists() and Path(out).stat().st_size:
        raise typer.BadParameter(f"--out {out} is there and not of this stream: name another file")


def _append(out: str, found: Any, bounds: Any, coverage: float) -> int:
    """Add rows to a file of predictions; its length then."""
    import numpy as np
    import pandas as pd

    from calipers.prediction import interval_names

    names = interval_names(np.array([coverage]))
    columns = {"prediction": found.quantiles(0.5)[:, 0]} | dict(zip(names, bounds.T, strict=True))
    with Path(out).open("ab") as file:
        header = file.tell() == 0
        text = pd.DataFrame(columns | {"target": found.y}).to_csv(index=False, header=header)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
        return file.tell()
