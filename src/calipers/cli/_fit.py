"""``calipers fit``: fit a model to a table, evaluate it on held-out rows, and save it."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from calipers._text import counted, describe_support
from calipers.cli import _options as common
from calipers.cli._help import with_options
from calipers.cli._printing import for_terminal, print_json, with_nulls
from calipers.cli._settings_file import BoundsOption, make_model
from calipers.tables import RowSource, TextFormat, find_files

if TYPE_CHECKING:
    from calipers.regressor import IntervalRegressor

LARGE = 2**29  # total bytes from which files are read in blocks by default
REFIT_ROWS = 20_000  # up to which a second fit, on all rows, is worth its time by default


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
    bounds: BoundsOption = None
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
    cluster: common.OnCluster = None
    as_json: common.AsJSON = False

    @property
    def form(self) -> "TextFormat":
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

    def check_learnable(
        self, table: "RowSource", rows: int, ends: dict[str, tuple[float, float]]
    ) -> None:
        """Refuse too few rows for an evaluation, and targets whose two ends are the same."""
        from calipers.preprocessing import DataError

        if self.test_fraction and rows < common.MIN_ROWS:
            shown = "1 row is" if rows == 1 else f"{rows} rows are"
            problem = (
                f"{shown} too few to fit a model and evaluate it on some of them: at least "
                f"{common.MIN_ROWS} are needed, or --test-fraction 0 for no evaluation"
            )
            raise table.placed(DataError(problem))
        for name, (low, high) in ends.items():
            if low == high:
                problem = f"the target is always {low:g}: there is nothing to learn"
                raise table.placed(DataError(problem, column=name))

    def describe(
        self,
        model: "IntervalRegressor",
        files: list[str],
        rows: int,
        target: str,
        kind: str | None,
        evaluation: dict[str, Any] | None,
    ) -> None:
        """Record in a model what is stored about its evaluation, its table and its target."""
        from calipers.preprocessing import how_written

        source = {"files": files, "rows": rows, "target": target, "target_kind": kind}
        source |= {"groups": self.groups, "time_column": self.time_column}
        model.about_ |= {"evaluation": with_nulls(evaluation), "source": source}
        model.target_ = replace(model.target_, note=how_written(kind or ""))


@with_options
def fit_command(options: FitOptions) -> None:
    """Fit a model to a table, evaluate and save it.

    The evaluation is on held-out rows. A minimal call is: calipers fit flats.csv --target price
    --out model
    """
    common.check_fractions("--coverage", options.coverage)
    kinds = common.parse_kinds(options.types)
    if options.more_rows and len(options.target) > 1:
        raise typer.BadParameter("--more-rows works for one target only")
    options.check_folder()
    params = ("coverage", "time_budget", "bounds", "n_jobs")
    settings = {name: getattr(options, name) for name in params} | {"random_state": options.seed}
    model = make_model(options.config, settings)
    began = time.monotonic()
    from calipers.cli._fit_blocks import fit_in_blocks
    from calipers.cli._fit_table import fit_in_memory
    from calipers.cli._labelled import total_size

    files = find_files(options.data)
    in_blocks = options.in_blocks
    if in_blocks is None:
        in_blocks = total_size(files) >= LARGE
    result = (fit_in_blocks if in_blocks else fit_in_memory)(model, files, kinds, options)
    result |= {"model": os.fspath(options.out), "seconds": round(time.monotonic() - began, 1)}
    if options.as_json:
        print_json(result)
    else:
        _print_end(result, options.target[0])


def _print_end(result: dict[str, Any], target: str) -> None:
    """Print the evaluation of the model, and where it was saved."""
    from calipers.cli._holdout import describe_copies
    from calipers.cli._measures import print_measures, print_targets

    result, target = for_terminal(result), for_terminal(target)
    measures = result["evaluation"]
    if measures is None:
        typer.echo("No rows were held out, so the model was not evaluated.")
    else:
        last = "" if measures["last_by"] is None else f"the last by {measures['last_by']}, "
        held_out = counted(measures["rows"], "row").replace(" ", " held-out ")
        typer.echo(f"On {held_out}, {last}which the model has not seen:")
        typer.echo(describe_copies(measures), nl=False)
        if "targets" in measures:
            print_targets(measures)
        else:
            print_measures(measures, target)
        typer.echo("")
        rows, others = result["rows"], result["rows"] - measures["rows"]
        how = f"is the one evaluated, fitted on the other {others:,} rows."
        if measures["refitted"]:
            how = f"was refitted on all {rows:,} rows; these figures are of the model before that."
        typer.echo(f"The saved model {how}")
    if "more_rows" in result:
        typer.echo(result["more_rows"])
    for name, support in result["support"].items():
        typer.echo(f"{describe_support(name, support)} (change with --bounds).")
    typer.echo(f"saved in {result['model']} after {result['seconds']:.0f} s")
