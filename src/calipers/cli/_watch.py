"""``calipers watch``: online calibration of a model on a stream of rows in a file."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from calipers._files import append_to
from calipers._text import few_digits
from calipers.cli import _options as common
from calipers.cli._help import with_options
from calipers.cli._printing import meaningful, print_json

if TYPE_CHECKING:
    import pandas as pd

    from calipers._arrays import FloatArray, IntArray
    from calipers.calibration import Learned
    from calipers.regressor import IntervalRegressor
    from calipers.tables import RowSource, TextFormat

_WINDOW = 200  # rows of the recent coverage


@with_options
def watch_command(
    model: common.ModelFolder,
    data: common.Files,
    out: Annotated[
        str | None, typer.Option(help="CSV file to which predictions are appended, row by row.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage to report; the model's own by default.")
    ] = None,
    block: Annotated[int, typer.Option(min=1, help="Save the model after this many rows.")] = 500,
    delay: Annotated[
        int,
        typer.Option(min=0, help="Number of rows predicted before the target of a row arrives."),
    ] = 0,
    *,
    options: common.RowOptions,
) -> None:
    """Predict a stream row by row, and adapt to its targets.

    Rows are read in time order; each is predicted before its target is used. Intervals adapt so
    that coverage is kept under any drift, and an alarm is raised when rows are no longer like those
    of training. The adapted model is saved in its folder after every block. After a kill, or when
    the file has grown, the same command continues where it stopped.
    """
    common.check_fractions("--coverage", coverage)
    if delay > block:
        raise typer.BadParameter(
            f"--delay {delay} exceeds --block {block}: blocks should be many times as long"
        )
    from calipers.cli._labelled import load_single
    from calipers.preprocessing import DataError

    fitted = load_single(model).set_params(n_jobs=options.n_jobs)
    level = coverage or fitted.coverage
    files, (table, values, _, _) = options.read(fitted, data, _read)
    targets = values.iloc[:, 0].to_numpy()
    log = _Log(fitted, model, files, out, level)
    numbers, start = table.row_numbers, 0
    try:
        inputs = fitted.pick(table.frame)
        digests = _RowDigests(table.frame, targets, [column.name for column in fitted.inputs_])
        for start in range(log.start(numbers, digests), len(targets), block):
            rows = slice(start, start + block)
            updated = fitted.update(inputs[rows], targets[rows], delay=delay)
            last = start + len(updated.y) - 1
            log.take(updated, int(numbers[last]), digests[last])
            if not options.as_json:
                typer.echo(log.line())
    except DataError as error:
        row = None if error.row is None else error.row + start
        raise table.placed(DataError(error.problem, column=error.column, row=row)) from None
    if options.as_json:
        print_json({"model": model, "files": files} | log.summary())
    elif not log.added:
        typer.echo(f"no new rows: the model has learned from all {log.state['rows']:,}")


def _read(data: list[str], form: "TextFormat") -> "tuple[list[str], RowSource]":
    """Return the files and their rows, without a last one that is still being written."""
    import numpy as np

    from calipers.cli._labelled import read_files
    from calipers.tables import find_files, whole_lines

    before = whole_lines(find_files(data)[-1])
    files, table = read_files(data, form)
    if before is None or whole_lines(files[-1]) != before:  # no end, or grown meanwhile
        typer.echo(f"the last line of {files[-1]} is skipped until it is complete", err=True)
        table = table.take(np.arange(table.table.num_rows) < table.table.num_rows - 1)
    return files, table


class _RowDigests:
    """Digests of rows, to check that a file still has the rows that the model learned from."""

    def __init__(self, frame: "pd.DataFrame", values: "FloatArray", names: list[str]) -> None:
        self.columns = [frame[name] for name in sorted(names) if name in frame]
        self.values = values

    def __getitem__(self, row: int) -> str:
        cells = [str(column.iloc[row]) for column in self.columns]
        return hashlib.sha256(repr([float(self.values[row]), *cells]).encode()).hexdigest()[:16]


class _Log:
    """The state of a stream, kept in the model and so saved atomically with it.

    Predictions are written to their file first, then the model is saved with the file's length. If
    the command is killed in between, the surplus is truncated when it continues.
    """

    def __init__(
        self,
        model: "IntervalRegressor",
        folder: str,
        files: list[str],
        out: str | None,
        coverage: float,
    ) -> None:
        self.model, self.folder, self.out, self.added = model, folder, out, 0
        state = _state_of(model.about_.get("watched"), files)
        if state.get("coverage") != coverage:  # counts start again, what was learned stays
            if out is not None and state.get("out") == out and state.get("bytes"):
                raise typer.BadParameter(
                    f"--out {out} has the columns of --coverage {state['coverage']:g}, not of "
                    f"--coverage {coverage:g}: name another file"
                )
            state |= {"coverage": coverage, "counted": 0, "covered": 0, "recent": ""}
        self.state = model.about_["watched"] = state
        if state.get("out") != out or (out is not None and "bytes" not in state):
            if out is not None and Path(out).exists() and Path(out).stat().st_size:
                raise typer.BadParameter(
                    f"--out {out} exists and does not belong to this stream: name another file"
                )
            state |= {"out": out, "bytes": 0}
            model.save(folder)  # records that the file belongs to this stream
        if out is not None:
            size = Path(out).stat().st_size if Path(out).exists() else 0
            if size < state["bytes"]:
                raise typer.BadParameter(
                    f"--out {out} has only {size:,} of the {state['bytes']:,} bytes written: "
                    "restore it, or name another file"
                )
            append_to(out, b"", state["bytes"])

    def start(self, numbers: "IntArray", digests: _RowDigests) -> int:
        """Return the index of the first new row, given the numbers of all rows in the files."""
        import numpy as np

        if "place" not in self.state:  # a new stream, or saved by an old version
            return int(self.state["rows"])
        last, digest = self.state["place"], self.state.get("mark")
        start = int(np.searchsorted(numbers, last, side="right"))
        present = start > 0 and numbers[start - 1] == last
        if digest is not None and not (present and digests[start - 1] == digest):
            raise typer.BadParameter(
                f"{', '.join(self.state['files'])}: row {last:,}, the last one learned, has "
                "changed or is missing: was the file truncated or replaced? Restore it, or give "
                "the rows that follow in a file of another name"
            )
        return start

    def take(self, updated: "Learned", last: int, digest: str) -> None:
        """Write a block whose last row has this number and digest, and save the model."""
        state, coverage = self.state, self.state["coverage"]
        bounds = updated.intervals(coverage)
        hits = (bounds[:, 0] <= updated.y) & (updated.y <= bounds[:, 1])
        if self.out is not None:
            state["bytes"] = self._append(self.out, updated, bounds)
        state |= {"place": last, "mark": digest}
        state["rows"] += len(hits)
        state["counted"] += len(hits)
        state["covered"] += int(hits.sum())
        state["recent"] = (state["recent"] + "".join("1" if hit else "0" for hit in hits))[
            -_WINDOW:
        ]
        if updated.alarm and state["alarm_at"] is None:
            state["alarm_at"] = state["rows"]
        self.width, self.added = float((bounds[:, 1] - bounds[:, 0]).mean()), len(hits)
        self.model.save(self.folder)

    def _append(self, out: str, updated: "Learned", bounds: "FloatArray") -> int:
        """Append rows to the file of predictions; return its new length."""
        import numpy as np
        import pandas as pd

        from calipers.prediction import interval_names, quantile_names

        target = self.model.target_
        spread = cast(float, target.high) - cast(float, target.low)
        names = [*quantile_names([0.5]), *interval_names([self.state["coverage"]])]
        predicted = np.column_stack([updated.quantiles(0.5)[:, 0], bounds])
        table = pd.DataFrame(meaningful(predicted, spread), columns=names)
        start = self.state["bytes"]
        text = table.assign(target=updated.y).to_csv(index=False, header=start == 0)
        return append_to(out, text.encode(), start)

    def summary(self) -> dict[str, Any]:
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
        """Return one line about the stream so far."""
        summary = self.summary()
        text = (
            f"{summary['rows']:>9,} rows  coverage {summary['observed']:.1%} (nominal "
            f"{summary['coverage']:.0%}), {summary['observed_recently']:.1%} of the last "
            f"{len(self.state['recent'])}  mean width {few_digits(self.width)}"
        )
        if summary["alarm"]:
            text += f"  ALARM: not like training, detected by row {summary['alarm_at']:,}"
        return text


def _state_of(before: Any, files: list[str]) -> dict[str, Any]:
    """Return the state of a stream, which continues if all its files come first, in their order."""
    paths = [_path(file) for file in files]
    learned = [_path(file) for file in before["files"]] if isinstance(before, dict) else []
    if learned and paths[: len(learned)] == learned:
        return before | {"files": paths}
    again = next((file for file, path in zip(files, paths, strict=True) if path in learned), None)
    if again is not None:
        raise typer.BadParameter(
            f"rows of {again} have been learned, as part of {', '.join(learned)}: name these files "
            "first, in this order, and new ones after them; or only new ones"
        )
    return {"files": paths, "rows": 0, "alarm_at": None}


def _path(file: str) -> str:
    """Return the name of a file that does not depend on the working directory."""
    return file if file == "-" else os.path.realpath(file)
