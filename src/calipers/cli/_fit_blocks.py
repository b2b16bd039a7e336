"""``calipers fit`` on files that are streamed in blocks, since they may not fit into memory."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from calipers.cli import _table_options as common
from calipers.cli._measures import measure
from calipers.cli._printing import finite

LARGE = 2**29
"""Total size of the files, in bytes, from which they are read in blocks by default."""

_TEST_ROWS = 50_000  # held out for evaluation, at most

InBlocks = Annotated[
    bool | None,
    typer.Option(
        "--in-blocks/--in-memory",
        help="Whether files are read in blocks, with held-out rows in place of cross-validation; "
        f"by default if they are {LARGE // 2**20} MiB or more.",
    ),
]


def are_large(files: list[str]) -> bool:
    """Whether the files are so large that they are read in blocks by default."""
    existing = [name for name in files if name != "-" and os.path.exists(name)]  # noqa: PTH110
    return sum(os.path.getsize(name) for name in existing) >= LARGE  # noqa: PTH202


def fit_in_blocks(
    model: Any,
    files: list[str],
    target: str,
    out: Path,
    form: Any,
    kinds: dict[str, str],
    ignore: list[str],
    missing: common.OnMissing,
    test_fraction: float,
    unsupported: dict[str, Any],
    as_json: bool,
) -> dict[str, Any]:
    """Fit a model to files, evaluate and save it; return the summary as plain JSON.

    ``unsupported`` has the values of options that need all rows in memory, by name.
    """
    options = [name for name, value in unsupported.items() if value]
    if options:
        raise typer.BadParameter(
            f"{options[0]} needs all rows in memory, and these files are read in blocks: leave it "
            "out, or give --in-memory"
        )
    if "-" in files:
        raise typer.BadParameter(
            "standard input cannot be read in blocks: name files, or give --in-memory"
        )
    from calipers.rowblocks import RowBlocks

    if not as_json:
        typer.echo("The files are read in blocks, with held-out rows in place of cross-validation.")
    blocks = _TargetBlocks(files, form, target, kinds.pop(target, None), ignore, missing)
    seed = model.random_state
    rows = RowBlocks(blocks, target)
    sample = rows.sample(_TEST_ROWS, seed + 1)
    common.check_learnable(blocks.whole, sample.total, {target: (blocks.low, blocks.high)})
    test_rows = min(len(sample.y), int(test_fraction * sample.total))
    model.set_params(preprocessor__kinds=(model.preprocessor.kinds or {}) | kinds)
    model.fit(rows.without(sample, test_rows, seed + 1))
    measures = None
    if test_rows:
        measures, _ = measure(model, sample.X[:test_rows], sample.y[:test_rows], model.coverage)
        measures |= {"copies": None, "last_by": None, "refitted": False}
    source = {"files": files, "rows": sample.total, "target": target, "target_kind": blocks.kind}
    source |= {"groups": None, "time_column": None}
    model.about_ |= {"evaluation": finite(measures), "source": source}
    model.save(out)
    return {
        "files": files,
        "rows": sample.total,
        "rows_without_target": blocks.left_out,
        "target": model.target_.to_document(),
        "columns": [column.to_document() for column in model.inputs_],
        "held_out": model.about_["held_out"],
        "evaluation": measures,
        "support": {target: str(model.support_)},
        "model": os.fspath(out),
    }


@dataclass(eq=False)
class _TargetBlocks:
    """Blocks of the labelled rows of files.

    After a pass, ``kind`` is the number format of the target, ``left_out`` the number of rows
    without one, and ``low`` and ``high`` are the smallest and the largest target.
    """

    files: list[str]
    form: Any
    target: str
    given_kind: str | None  # number format of the target, or None to detect it
    ignore: list[str]
    missing: common.OnMissing

    @property
    def whole(self) -> Any:
        """An empty source with the names of the files, for error messages."""
        from calipers.tables import RowSource

        return RowSource(None, tuple((name, 0) for name in self.files))

    def __call__(self) -> Iterator[Any]:
        """Read all files and yield frames of inputs with the target as a number."""
        from calipers.preprocessing import DataError
        from calipers.tables import read_blocks

        self.left_out, self.low, self.high = 0, math.inf, -math.inf
        kind, name = self.given_kind, self.target
        for block in (block for file in self.files for block in read_blocks(file, form=self.form)):
            table, values, left_out, kinds = common.take_target(
                block, name, kind, self.missing, whole=False
            )
            inputs = common.drop_columns(table, [name], self.ignore).reset_index(drop=True)
            self.left_out += left_out
            if len(values):
                kind = kinds[name]
                self.low, self.high = min(self.low, values.min()), max(self.high, values.max())
                yield inputs.assign(**{name: values})
        self.kind = kind
        if self.low > self.high:
            problem = f"the target is missing in all {self.left_out:,} rows"
            raise self.whole.placed(DataError(problem, column=name))
