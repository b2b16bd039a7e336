"""``calipers fit`` on files that are streamed in blocks, since they may not fit into memory."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import typer

from calipers.cli import _labelled as reading
from calipers.cli._columns import print_table
from calipers.cli._fit import FitOptions
from calipers.cli._measures import measure
from calipers.distributions import Bounds
from calipers.preprocessing import DataError
from calipers.regressor import IntervalRegressor
from calipers.rowblocks import RowBlocks
from calipers.tables import RowSource, read_blocks

_UNSUPPORTED = ("groups", "time_column", "more_rows", "cluster", "refit")

_TEST_ROWS = 50_000  # held out for evaluation, at most


def fit_in_blocks(
    model: IntervalRegressor, files: list[str], kinds: dict[str, str], options: FitOptions
) -> dict[str, Any]:
    """Fit a model to files, evaluate and save it; return the summary as plain JSON."""
    _refuse_unsupported(files, options)
    if not options.as_json:
        typer.echo("The files are read in blocks, with held-out rows in place of cross-validation.")
    target = options.target[0]
    blocks = _TargetBlocks(files, kinds.pop(target, None), model.bounds, options)
    seed, rows = options.seed, RowBlocks(blocks, target)
    sample = rows.sample(_TEST_ROWS, seed + 1)
    options.check_learnable(blocks.whole, sample.total, {target: (blocks.low, blocks.high)})
    test_rows = min(len(sample.y), int(options.test_fraction * sample.total))
    given = model.get_params()["preprocessor__kinds"] or {}
    model.set_params(preprocessor__kinds=given | kinds)
    model.fit(rows.without(sample, test_rows, seed + 1))
    measures = None
    if test_rows:
        measures, _ = measure(model, sample.X[:test_rows], sample.y[:test_rows], model.coverage)
        measures |= {"copies": None, "last_by": None, "refitted": False}
    options.describe(model, files, sample.total, target, blocks.kind, measures)
    model.save(options.out)
    result = {
        "files": files,
        "rows": sample.total,
        "rows_without_target": blocks.left_out,
        "target": model.target_.to_document(),
        "columns": [column.to_document() for column in model.inputs_],
        "held_out": model.about_["held_out"],
        "evaluation": measures,
        "support": {target: str(model.support_)},
    }
    if not options.as_json:
        print_table(result)
    return result


def _refuse_unsupported(files: list[str], options: FitOptions) -> None:
    """Refuse options that need all rows in memory."""
    names = {f"--{name.replace('_', '-')}": name for name in _UNSUPPORTED}
    given = [option for option, name in names.items() if getattr(options, name)]
    given += ["a second --target"] * (len(options.target) > 1)
    if given:
        raise typer.BadParameter(
            f"{given[0]} needs all rows in memory, and these files are read in blocks: leave it "
            "out, or give --in-memory"
        )
    if "-" in files:
        raise typer.BadParameter(
            "standard input cannot be read in blocks: name files, or give --in-memory"
        )


@dataclass(eq=False)
class _TargetBlocks:
    """Blocks of the labelled rows of files.

    After a pass, ``kind`` is the number format of the target, ``left_out`` the number of rows
    without one, and ``low`` and ``high`` are the smallest and the largest target.
    """

    files: list[str]
    given_kind: str | None  # number format of the target, or None to detect it
    bounds: Bounds
    options: FitOptions

    @property
    def whole(self) -> RowSource:
        """An empty source with the names of the files, for error messages."""
        return RowSource(None, tuple((name, 0) for name in self.files))

    def __call__(self) -> Iterator[pd.DataFrame]:
        """Read all files and yield frames of inputs with the target as a number."""
        self.left_out, self.low, self.high = 0, math.inf, -math.inf
        kind, name, form = self.given_kind, self.options.target[0], self.options.form
        missing = self.options.missing_target
        for block in (block for file in self.files for block in read_blocks(file, form=form)):
            table, values, left_out, kinds = reading.take_targets(
                block, [name], {name: kind}, missing, whole=False
            )
            reading.refuse_out_of_bounds(self.bounds, values, table)
            inputs, _ = reading.inputs_and_groups(table, [name], None, self.options.ignore)
            inputs = inputs.reset_index(drop=True)
            self.left_out += left_out
            if len(target := values[name]):
                kind = kinds[name]
                self.low, self.high = min(self.low, target.min()), max(self.high, target.max())
                yield inputs.assign(**{name: target})
        self.kind = kind
        if self.low > self.high:
            problem = f"the target is missing in all {self.left_out:,} rows"
            raise self.whole.placed(DataError(problem, column=name))
