"""``calipers fit`` of files that are read in blocks, since they may be more than memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from calipers.cli._measures import measure
from calipers.cli._table_options import OnMissing, finite, take_target

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
    missing: OnMissing,
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
    kind = kinds.pop(target, None)

    def blocks() -> Iterator[Any]:
        from calipers._text import did_you_mean
        from calipers.preprocessing import DataError
        from calipers.tables import read_blocks

        written = kind
        for name in files:
            for block in read_blocks(name, form=form):
                for column in ignore:
                    if column not in block.frame:
                        problem = (
                            f"there is no column {column!r}{did_you_mean(column, block.frame)}"
                        )
                        raise block.placed(DataError(problem))
                table, values, _, written = take_target(block, target, written, missing)
                own = table.frame.drop(columns=[target, *ignore]).reset_index(drop=True)
                yield own.assign(**{target: values})

    seed = model.random_state
    rows = RowBlocks(blocks, target)
    sample = rows.sample(_TEST_ROWS, seed + 1)
    tested = min(len(sample.y), int(test_fraction * sample.total))
    model.set_params(preprocessor__kinds=(model.preprocessor.kinds or {}) | kinds)
    model.fit(rows.without(sample, tested, seed + 1))
    found = None
    if tested:
        found, _ = measure(model, sample.X[:tested], sample.y[:tested], model.coverage)
        found |= {"copies": None, "last_by": None, "refitted": False}
    source = {"files": files, "rows": sample.total, "target": target, "target_kind": kind}
    source |= {"groups": None, "time_column": None}
    model.about_ |= {"evaluation": finite(found), "source": source}
    model.save(out)
    return {
        "files": files,
        "rows": sample.total,
        "rows_without_target": 0,
        "target": model.target_.to_document(),
        "columns": [column.to_document() for column in model.inputs_],
        "held_out": model.about_["held_out"],
        "evaluation": found,
        "support": {target: str(model.support_)},
        "model": os.fspath(out),
    }
