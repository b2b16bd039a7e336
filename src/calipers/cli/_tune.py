"""``calipers tune``: search settings for a table and write them for ``calipers fit --config``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from calipers.cli import _options as common
from calipers.cli._help import with_options
from calipers.cli._printing import print_json, print_rows
from calipers.cli._report import check_place
from calipers.cli._settings_file import BoundsOption, parse_bounds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from calipers._arrays import FloatArray, IntArray
    from calipers.regressor import IntervalRegressor
    from calipers.search import SearchResult


class TuneOptions(NamedTuple):
    """The options in the order of ``--help``."""

    data: common.Files
    target: Annotated[str, typer.Option(help="Column to predict.")]
    out: Annotated[Path, typer.Option(help="TOML file to write.")] = Path("settings.toml")
    paper: Annotated[
        bool, typer.Option("--paper", help="Tune the paper's method, in the paper's search space.")
    ] = False
    candidates: Annotated[int, typer.Option(min=1, help="Number of candidates to try.")] = 30
    splits: Annotated[
        int, typer.Option(min=1, help="Number of splits on which each is evaluated.")
    ] = 3
    finalists: Annotated[
        int, typer.Option(min=1, help="Number of best candidates to evaluate again as ensembles.")
    ] = 3
    coverage: Annotated[float, typer.Option(help="Nominal coverage of the intervals.")] = 0.95
    bounds: BoundsOption = None
    store: Annotated[
        Path | None,
        typer.Option(help="File for intermediate results; by default next to the TOML file."),
    ] = None
    time_budget: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Seconds after which no further candidate is tried; finalists and defaults are "
            "still evaluated.",
        ),
    ] = None
    groups: common.Groups = None
    ignore: common.Ignored = None
    types: common.Types = None
    missing_target: common.MissingTarget = common.OnMissing.drop
    seed: common.Seed = 0
    delimiter: common.Delimiter = None
    encoding: common.Encoding = "utf-8"
    n_jobs: common.Jobs = -1
    cluster: common.OnCluster = None
    as_json: common.AsJSON = False


@with_options
def tune_command(options: TuneOptions) -> None:
    """Search settings for a table, for use with fit --config.

    Candidates are evaluated as single networks, then the best of them and the defaults as whole
    ensembles on new splits. The defaults are kept if nothing is better. The command may be stopped
    at any time: when run again, it continues where it stopped.
    """
    data, target, out, bounds = options.data, options.target, options.out, options.bounds
    common.check_fractions("--coverage", options.coverage)
    check_place(out, "settings.toml")
    form = common.make_form(options.delimiter, options.encoding)
    kinds = common.parse_kinds(options.types)
    from calipers import IntervalRegressor
    from calipers._files import replace_file
    from calipers.cli import _labelled as reading
    from calipers.preprocessing import TableEncoder

    table = reading.read_files(data, form)[1]
    labelled = reading.take_targets(table, [target], kinds, options.missing_target)
    table, y, left_out = labelled.table, labelled.values[target].to_numpy(), labelled.left_out
    inputs, labels = reading.inputs_and_groups(table, [target], options.groups, options.ignore)
    with reading.refusing(table):
        X = TableEncoder(kinds=kinds).fit_transform(inputs)
    make = IntervalRegressor.paper if options.paper else IntervalRegressor
    model = make(coverage=options.coverage, random_state=options.seed, n_jobs=options.n_jobs)
    if bounds is not None:
        model.set_params(bounds=_checked_bounds(bounds, y))
    store = options.store or out.with_name(f"{out.stem}.search.jsonl")
    with common.cluster_at(options.cluster):
        result, default = _search(model, X, y, labels, store, options)
    settings, gain = _select(result, default, options.paper)
    settings |= {} if bounds is None else {"bounds": bounds}
    replace_file(out, _toml(settings, _heading(data, target, result, gain)).encode())
    if options.as_json:
        summary = {"settings": settings, "gain": gain, "rows_without_target": left_out}
        print_json(summary | {"out": str(out), "store": str(store)})
        return
    common.print_left_out(left_out)
    _show(result, default, gain)
    typer.echo(f"\nwritten to {out}; fit with it:")
    typer.echo(f"  calipers fit {' '.join(data)} --target {target} --config {out} --out model")


def _splits(count: int, labels: "NDArray[np.object_] | None", seed: int) -> dict[str, Any]:
    """Return splits for candidates, and new ones for finalists, that split no group."""
    if labels is None:
        return {"splits": count, "final_splits": count}
    import numpy as np
    from sklearn.model_selection import GroupShuffleSplit

    if len(set(labels)) < 2:
        raise typer.BadParameter("--groups needs a column of two or more distinct values")

    def split(random_state: int) -> "list[tuple[IntArray, IntArray]]":
        splitter = GroupShuffleSplit(count, test_size=0.1, random_state=random_state)
        return list(splitter.split(np.empty(len(labels)), groups=labels))

    return {"splits": split(seed), "final_splits": split(seed + 1)}


def _checked_bounds(text: str, y: "FloatArray") -> tuple[float | None, float | None] | str | None:
    """Parse the text of ``--bounds``; refuse bounds that a target violates."""
    from calipers.distributions import learn_support
    from calipers.training import check_bounds

    bounds = parse_bounds(text)
    try:
        check_bounds(bounds)
        learn_support(y, bounds)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return bounds


def _search(
    model: "IntervalRegressor",
    X: "FloatArray",
    y: "FloatArray",
    labels: "NDArray[np.object_] | None",
    store: Path,
    options: TuneOptions,
) -> tuple[Any, Any]:
    """Return the result of the search, and that of the defaults on the same splits."""
    from calipers.search import DEFAULT_SPACE, PAPER_SPACE, search
    from calipers.training import batch_size_of, make_settings

    epochs = make_settings(model, len(y), batch_size_of(model, len(y)), stops=True).epochs
    shared: dict[str, Any] = {
        **_splits(options.splits, labels, options.seed),
        "max_epochs": epochs,
        "patience": max(10, epochs // 5),
        "select": "covered" if options.paper else "interval score",
        "random_state": model.random_state,
        "n_jobs": model.n_jobs,
    }
    result = search(
        model,
        X,
        y,
        PAPER_SPACE if options.paper else DEFAULT_SPACE,
        n_candidates=options.candidates,
        finalists=min(options.finalists, options.candidates),
        store=store,
        time_budget=options.time_budget,
        **shared,
    )
    only_default = {"batch_size": [model.batch_size]}
    shared["store"] = store.with_name(f"{store.stem}.default{store.suffix}")
    return result, search(model, X, y, only_default, n_candidates=1, finalists=1, **shared)


def _select(
    result: "SearchResult", default: "SearchResult", paper: bool
) -> tuple[dict[str, Any], float]:
    """Return the settings to write, and the fraction by which they improve on the defaults."""
    gain = max(0.0, 1 - result.score(result.best) / default.score(default.best))
    best = result.best if gain else default.best
    settings = {"coverage": result.estimator.coverage} | (dict(best.params) if gain else {})
    if paper:  # has no early stopping; the default method finds its epochs by itself
        settings = {"method": "paper"} | settings | {"epochs": best.outcome.whole_epochs}
    return settings, gain


def _heading(data: list[str], target: str, result: "SearchResult", gain: float) -> str:
    files = ", ".join(map(repr, data))
    summary = f"{len(result.candidates)} candidates for {target!r} of {files}"
    outcome = f"the best scores {gain:.1%} better" if gain else "none scores better"
    return f"# calipers tune: {summary}\n# {outcome} than the defaults\n"


def _toml(settings: dict[str, Any], heading: str) -> str:
    """Return settings as TOML; its plain values are written like those of JSON.

    >>> print(_toml({"network__hidden_layers": (64, 64), "method": "paper", "epochs": 10}, ""))
    network__hidden_layers = [64, 64]
    method = "paper"
    epochs = 10
    <BLANKLINE>
    """
    return heading + "".join(f"{name} = {json.dumps(v)}\n" for name, v in settings.items())


def _show(result: "SearchResult", default: "SearchResult", gain: float) -> None:
    """Print the finalists and the defaults as a table."""
    tried = {n: {str(c.params.get(n)) for c in result.candidates} for n in result.best.params}
    names = sorted(name for name, values in tried.items() if len(values) > 1)
    finalists = [c for c in result.ranked() if c.finalist == result.best.finalist]
    rows = []
    for label, candidate in (*((f"{c.number}", c) for c in finalists), ("defaults", default.best)):
        params = ["" if label == "defaults" else str(candidate.params[name]) for name in names]
        outcome = candidate.outcome
        rate, width = f"{outcome.coverage_rate:.1%}", outcome.mean_width
        rows.append((label, *params, rate, width, outcome.interval_score))
    print_rows(("candidate", *names, "inside", "mean width", "interval score"), rows)
    best = f"the best {gain:.1%} better" if gain else "none better"
    typer.echo(
        f"\n{len(result.candidates)} candidates, {best} than the defaults, as ensembles before "
        "calibration"
    )
