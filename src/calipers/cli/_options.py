"""Options that commands share, and how their values are parsed.

Tables are read by ``_labelled``, which this module does not import, so that help appears at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from calipers._text import did_you_mean
from calipers.tables import TextFormat, format_names

if TYPE_CHECKING:
    from calipers.cli._labelled import Labelled
    from calipers.multitarget import MultiTargetRegressor
    from calipers.regressor import IntervalRegressor
    from calipers.tables import RowSource

ModelFolder = Annotated[str, typer.Argument(help="Folder of a saved model.")]
Files = Annotated[
    list[str],
    typer.Argument(
        help=f"Tables: {format_names()}, optionally compressed. Names, patterns such as "
        "'data/*.csv', or - for standard input."
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="Column delimiter of text files, 'tab' for a tab; detected by default."),
]
Encoding = Annotated[str, typer.Option(help="Character encoding of text files.")]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        help="Type of a column, such as zip=category, 'price=number 1,234.5' or "
        "'day=date %d/%m/%Y'; may be repeated.",
    ),
]


Target = Annotated[
    str | None,
    typer.Option(help="Column of the target; by default the one the model was fitted to."),
]
Groups = Annotated[
    str | None,
    typer.Option(
        help="Column of groups: their rows stay on one side of every split, and the column is not "
        "an input."
    ),
]
Ignored = Annotated[
    list[str] | None,
    typer.Option("--ignore", "--id", help="Column that is not an input; may be repeated."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
OnCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Run the work on the cluster of this Dask scheduler, such as tcp://10.0.0.1:8786.",
    ),
]
MIN_ROWS = 20  # fewest rows for a meaningful evaluation of a part of them; fits take fewer


class OnMissing(StrEnum):
    """What happens to rows without a target."""

    drop = "drop"
    refuse = "refuse"


MissingTarget = Annotated[
    OnMissing, typer.Option(help="Whether rows without a target are dropped or refused.")
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _threads(count: int) -> int:
    if count == 0:
        raise typer.BadParameter("must not be 0: give the number of threads, or -1 for all cores")
    return count


Jobs = Annotated[
    int, typer.Option("--n-jobs", callback=_threads, help="Number of threads; -1 for all cores.")
]


def make_form(delimiter: str | None, encoding: str) -> TextFormat:
    """Return the format of text files from the options."""
    char = "\t" if delimiter in ("tab", "\\t") else delimiter
    if char is not None and (len(char) != 1 or not char.isascii() or char in '"\r\n'):
        raise typer.BadParameter(
            f"--delimiter takes one ASCII character, no quotation mark or line break; got {char!r}"
        )
    return TextFormat(char, encoding)


def parse_kinds(types: list[str] | None) -> dict[str, str]:
    """Parse the types of columns, given as ``name=kind``.

    >>> parse_kinds(["zip=category", "day=date %d/%m/%Y"])
    {'zip': 'category', 'day': 'date %d/%m/%Y'}
    """
    if not types:
        return {}
    from calipers.preprocessing import KINDS

    kinds = {}
    for text in types:
        name, sign, kind = text.rpartition("=")
        if not sign or not name:
            raise typer.BadParameter(f"--type takes name=kind, such as zip=category; got {text!r}")
        word = kind.partition(" ")[0]  # a format may follow
        if word not in KINDS:
            raise typer.BadParameter(
                f"--type {text}: {word!r} is not a type; use {', '.join(KINDS[:-1])} or "
                f"{KINDS[-1]}{did_you_mean(word, KINDS)}"
            )
        kinds[name] = kind
    return kinds


def parse_fractions(text: str | None, option: str) -> list[float] | None:
    """Parse distinct numbers between 0 and 1, separated by commas.

    >>> parse_fractions("0.5, 0.9", "--coverage")
    [0.5, 0.9]
    """
    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{option} takes numbers between 0 and 1, such as 0.5,0.9; got {text!r}"
        ) from None
    check_fractions(option, *values)
    return list(dict.fromkeys(values))


def check_fractions(option: str, *values: float | None) -> None:
    """Refuse numbers that are not between 0 and 1, or too close to them for any model."""
    from calipers._checks import COVERAGES

    low, high = COVERAGES
    for value in values:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(
                f"{option} must be between 0 and 1, such as 0.95; got {value:.12g}"
            )


def print_left_out(count: int) -> None:
    """Print how many rows were dropped for lack of a target."""
    if count:
        rows = "row without a target was" if count == 1 else "rows without a target were"
        typer.echo(f"{count:,} {rows} left out")


@contextmanager
def cluster_at(address: str | None) -> Iterator[Any]:
    """Connect to the cluster at ``address`` and yield it, or None without an address."""
    if address is None:
        yield None
        return
    from calipers.cluster import connect

    with connect(address) as cluster:
        typer.echo(
            f"{cluster.workers} workers with {cluster.threads} threads at {address}", err=True
        )
        if cluster.processors > 1:
            typer.echo(
                f"the workers have {cluster.processors} kinds of processors: results will not be "
                "bit-identical to those of a single kind",
                err=True,
            )
        yield cluster


class RowOptions(NamedTuple):
    """Options that these commands share, in the order of ``--help``."""

    target: Target = None
    types: Types = None
    missing_target: MissingTarget = OnMissing.drop
    delimiter: Delimiter = None
    encoding: Encoding = "utf-8"
    n_jobs: Jobs = -1
    as_json: AsJSON = False

    @property
    def form(self) -> TextFormat:
        """The format of text files."""
        return make_form(self.delimiter, self.encoding)

    def load(self, folder: str) -> "IntervalRegressor":
        """Load a model of one target; of a multi-target one that of ``--target``."""
        from calipers.multitarget import MultiTargetRegressor

        fitted = self.load_any(folder)
        if isinstance(fitted, MultiTargetRegressor):
            raise _no_target(folder, fitted.target_names_)
        return fitted

    def load_any(self, folder: str) -> "IntervalRegressor | MultiTargetRegressor":
        """Load a model; of a multi-target one only ``--target``, if it is given."""
        from calipers.cli._labelled import load_any
        from calipers.multitarget import models_of

        fitted = load_any(folder, self.n_jobs)
        models = {single.target_.name: single for single in models_of(fitted)}
        if self.target is None or len(models) == 1:
            return fitted
        if self.target not in models:
            raise _no_target(folder, models)
        return models[self.target]

    def read(
        self,
        model: "IntervalRegressor | MultiTargetRegressor",
        data: Sequence[str],
        reader: Callable[..., tuple[list[str], "RowSource"]] | None = None,
    ) -> tuple[list[str], "Labelled"]:
        """Return the names of the files, and their rows that have the targets of the model."""
        from calipers.cli import _labelled as reading
        from calipers.multitarget import models_of

        models = models_of(model)
        names = [self.target] if self.target else [single.target_.name for single in models]
        kinds: dict[str, Any] = parse_kinds(self.types)
        for other in kinds.keys() - set(names):
            shown = " and ".join(map(repr, names))
            raise typer.BadParameter(f"--type works for the target {shown} only, got {other!r}")
        for source in (single.about_.get("source") or {} for single in models):
            if source.get("target") in names:  # as in training, unless an option says otherwise
                kinds.setdefault(source["target"], source.get("target_kind"))
        files, table = (reader or reading.read_files)(data, self.form)
        return files, reading.take_targets(table, names, kinds, self.missing_target)


def _no_target(folder: str, names: Iterable[str]) -> typer.BadParameter:
    return typer.BadParameter(f"{folder} predicts {', '.join(names)}: choose one with --target")
