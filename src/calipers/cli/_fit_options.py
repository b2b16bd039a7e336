"""The options of ``calipers fit``, and what it records about a model, however rows are read."""

import os
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from calipers.cli import _table_options as common
from calipers.cli._cluster import OnCluster
from calipers.cli._printing import finite
from calipers.cli._settings_file import Bounds

LARGE = 2**29
"""Total size of the files, in bytes, from which they are read in blocks by default."""

REFIT_ROWS = 20_000
"""Number of rows up to which a second fit, on all rows, is worth its time by default."""


class FitOptions(NamedTuple):
    """The options in the order of ``--help``."""

    data: common.Files
    target: Annotated[
        list[str],
        typer.Option(help="Column to predict; repeat it for several targets with joint intervals."),
    ]
    out: Annotated[Path, typer.Option(help="Folder for the model.")]
    coverage: Annotated[
        float | None, typer.Option(help="Nominal coverage of the intervals, such as 0.95.")
    ] = None
    bounds: Bounds = None
    time_budget: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Seconds that training may take; shared between the evaluation fit and the final "
            "one, and between targets.",
        ),
    ] = None
    seed: common.Seed = 0
    config: Annotated[
        Path | None, typer.Option(help="Parameters of IntervalRegressor in a TOML file.")
    ] = None
    groups: common.Groups = None
    time_column: Annotated[
        str | None,
        typer.Option(help="Column of dates or numbers; the latest rows by it are held out."),
    ] = None
    ignore: common.Ignored = None
    types: common.Types = None
    missing_target: common.MissingTarget = common.OnMissing.drop
    test_fraction: Annotated[
        float,
        typer.Option(min=0.0, max=0.9, help="Fraction of rows held out for evaluation, or 0."),
    ] = 0.2
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Whether the model is refitted on all rows after the evaluation; by default up to "
            f"{REFIT_ROWS:,} rows.",
        ),
    ] = None
    more_rows: Annotated[
        bool,
        typer.Option(
            "--more-rows", help="Estimate the benefit of more rows, from a fit to half of them."
        ),
    ] = False
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that is already in the folder.")
    ] = False
    in_blocks: Annotated[
        bool | None,
        typer.Option(
            "--in-blocks/--in-memory",
            help="Whether files are read in blocks, with held-out rows in place of "
            f"cross-validation; by default if they are {LARGE // 2**20} MiB or more.",
        ),
    ] = None
    delimiter: common.Delimiter = None
    encoding: common.Encoding = "utf-8"
    n_jobs: common.Jobs = -1
    cluster: OnCluster = None
    as_json: common.AsJSON = False

    @property
    def form(self) -> Any:
        """The format of text files."""
        return common.make_form(self.delimiter, self.encoding)

    def check_folder(self) -> None:
        """Refuse an unsuitable folder for the model before the work, not after."""
        from calipers.storage import ModelFileError

        out = self.out
        if out.exists() and not out.is_dir():
            raise ModelFileError(f"{out} is a file: a model needs a folder of its own")
        if (out / "model.json").exists() and not self.overwrite:
            raise ModelFileError(
                f"{out} already contains a model: name another folder, or give --overwrite"
            )
        if out.exists() and not (out / "model.json").exists() and any(out.iterdir()):
            raise ModelFileError(f"{out} already contains other files: name a new or empty folder")
        parent = next(path for path in (out, *out.absolute().parents) if path.exists())
        if not parent.is_dir():
            raise ModelFileError(f"{out} cannot be created: {parent} is a file")
        if not os.access(parent, os.W_OK):
            raise ModelFileError(f"{out} cannot be created: {parent} is not writable")

    def check_learnable(self, table: Any, rows: int, spans: dict[str, tuple[float, float]]) -> None:
        """Refuse too few rows for an evaluation, and targets that are constant.

        ``spans`` has the smallest and the largest value of each target.
        """
        from calipers.preprocessing import DataError

        if self.test_fraction and rows < common.FEWEST_ROWS:
            shown = "1 row is" if rows == 1 else f"{rows} rows are"
            problem = (
                f"{shown} too few to fit a model and evaluate it on some of them: at least "
                f"{common.FEWEST_ROWS} are needed, or --test-fraction 0 for no evaluation"
            )
            raise table.placed(DataError(problem))
        for name, (low, high) in spans.items():
            if low == high:
                problem = f"the target is always {low:g}: there is nothing to learn"
                raise table.placed(DataError(problem, column=name))

    def about(
        self, files: list[str], rows: int, target: str, kind: str | None, evaluation: Any
    ) -> dict[str, Any]:
        """Return what a model remembers of its evaluation and of its table."""
        source = {"files": files, "rows": rows, "target": target, "target_kind": kind}
        source |= {"groups": self.groups, "time_column": self.time_column}
        return {"evaluation": finite(evaluation), "source": source}
