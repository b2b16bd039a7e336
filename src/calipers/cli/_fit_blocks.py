"""``calipers fit`` of files that are read in blocks, since they may be more than memory."""

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
"""Bytes of files from which on they are read in blocks."""

_TEST_ROWS = 50_000  # held out to evaluate, at most

InBlocks = Annotated[
    bool | None,
    typer.Option(
        "--in-blocks/--in-memory",
        help="Whether rows are read in blocks, and rows held out take the place of folds; by "
        f"default from {LARGE // 2**20} MiB of files on.",
    ),
]


def are_large(files: list[str]) -> bool:
    """Whether files are to be read in blocks."""
    there = [name for name in files if name != "-" and os.path.exists(name)]  # noqa: PTH110
    return sum(os.path.getsize(name) for name in there) >= LARGE  # noqa: PTH202


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
    unable: dict[str, Any],
    as_json: bool,
) -> dict[str, Any]:
    """Fit a model to files, evaluate and save it; gives what there is to say of it."""
    given = [name for name, value in unable.items() if value]
    if given:
        raise typer.BadParameter(
            f"{given[0]} needs all rows in memory, and these files are read in blocks: leave it "
            "out, or give --in-memory"
        )
    if "-" in files:
        raise typer.BadParameter("standard input is read in memory: name files, or --in-memory")
    from calipers.rowblocks import RowBlocks

    if not as_json:
        typer.echo("The files are read in blocks: rows held out take the place of folds.")
    blocks = _TargetBlocks(files, form, target, kinds.pop(target, None), ignore, missing)
    seed = model.random_state
    rows = RowBlocks(blocks, target)
    sample = rows.sample(_TEST_ROWS, seed + 1)
    common.check_learnable(blocks.whole, sample.total, {target: (blocks.low, blocks.high)})
    tested = min(len(sample.y), int(test_fraction * sample.total))
    model.set_params(preprocessor__kinds=(model.preprocessor.kinds or {}) | kinds)
    model.fit(rows.without(sample, tested, seed + 1))
    found = None
    if tested:
        found, _ = measure(model, sample.X[:tested], sample.y[:tested], model.coverage)
        found |= {"copies": None, "last_by": None, "refitted": False}
    source = {"files": files, "rows": sample.total, "target": target, "target_kind": blocks.kind}
    source |= {"groups": None, "time_column": None}
    model.about_ |= {"evaluation": finite(found), "source": source}
    model.save(out)
    return {
        "files": files,
        "rows": sample.total,
        "rows_without_target": blocks.left_out,
        "target": model.target_.to_document(),
        "columns": [column.to_document() for column in model.inputs_],
        "held_out": model.about_["held_out"],
        "evaluation": found,
        "support": {target: str(model.support_)},
        "model": os.fspath(out),
    }


@dataclass(eq=False)
class _TargetBlocks:
    """Blocks of the rows of files that have a target.

    After a reading, ``kind`` says how the target is written, ``left_out`` how many rows lacked one,
    and ``low`` and ``high`` are the ends of all targets.
    """

    files: list[str]
    form: Any
    target: str
    given: str | None  # how the target is written, if that is known
    ignore: list[str]
    missing: common.OnMissing

    @property
    def whole(self) -> Any:
        """The files as errors name them."""
        from calipers.tables import RowSource

        return RowSource(None, tuple((name, 0) for name in self.files))

    def __call__(self) -> Iterator[Any]:
        """Read all files: frames of inputs and the target, as a number."""
        from calipers.preprocessing import DataError
        from calipers.tables import read_blocks

        self.left_out, self.low, self.high = 0, math.inf, -math.inf
        kind, name = self.given, self.target
        for block in (block for file in self.files for block in read_blocks(file, form=self.form)):
            table, values, lacking, found = common.take_target(
                block, name, kind, self.missing, whole=False
            )
            own = common.drop_columns(table, [name], self.ignore).reset_index(drop=True)
            self.left_out += lacking
            if len(values):
                kind = found[name]
                self.low, self.high = min(self.low, values.min()), max(self.high, values.max())
                yield own.assign(**{name: values})
        self.kind = kind
        if self.low > self.high:
            problem = f"the target is missing in all {self.left_out:,} rows"
            raise self.whole.placed(DataError(problem, column=name))
