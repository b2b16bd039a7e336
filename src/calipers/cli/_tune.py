"""``calipers tune``: settings that suit a table, as a file for ``calipers fit --config``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from calipers.cli import _table_options as common
from calipers.cli._cluster import OnCluster, spread
from calipers.cli._printing import print_json, print_rows
from calipers.cli._report import check_place
from calipers.cli._settings_file import Bounds, parse_bounds


def tune_command(
    data: common.Files,
    target: Annotated[str, typer.Option(help="Column to predict.")],
    out: Annotated[Path, typer.Option(help="The TOML file.")] = Path("settings.toml"),
    paper: Annotated[
        bool, typer.Option("--paper", help="Search the paper's space for the paper's method.")
    ] = False,
    candidates: Annotated[int, typer.Option(min=1, help="Settings to try.")] = 30,
    splits: Annotated[int, typer.Option(min=1, help="Splits on which each is evaluated.")] = 3,
    finalists: Annotated[
        int, typer.Option(min=1, help="Best of them to evaluate again, as whole ensembles.")
    ] = 3,
    coverage: Annotated[
        float, typer.Option(help="Probability that an interval is to hold.")
    ] = 0.95,
    bounds: Bounds = None,
    store: Annotated[
        Path | None,
        typer.Option(help="File that keeps what is done; beside the TOML file by default."),
    ] = None,
    time_budget: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Seconds after which no further candidate is tried; finalists and defaults are "
            "still evaluated.",
        ),
    ] = None,
    groups: common.Groups = None,
    ignore: common.Ignored = None,
    types: common.Types = None,
    missing_target: common.MissingTarget = common.OnMissing.drop,
    seed: common.Seed = 0,
    delimiter: common.Delimiter = None,
    encoding: common.Encoding = "utf-8",
    n_jobs: common.Jobs = -1,
    cluster: OnCluster = None,
    as_json: common.AsJSON = False,
) -> None:
    """Search settings for a table and write them as a file that ``fit --config`` takes.

    Candidates are evaluated as single networks, the best of them again as whole ensembles on new
    splits, as the defaults are; these stay if nothing is better. May be stopped at any moment: the
    same command goes on where it was.
    """
    common.check_coverage(coverage)
    check_place(out, "settings.toml")
    form = common.make_form(delimiter, encoding)
    kinds = common.parse_kinds(types)
    from calipers import IntervalRegressor

    table = common.read_files(data, form)[1]
    labelled = common.take_target(table, target, kinds.pop(target, None), missing_target)
    table, y, left_out = labelled.table, labelled.values.to_numpy(), labelled.left_out
    X, labels = _numbers(table, target, groups, ignore or [], kinds)
    kept = store or out.with_name(f"{out.stem}.search.jsonl")
    make = IntervalRegressor.paper if paper else IntervalRegressor
    model = make(coverage=coverage, random_state=seed, n_jobs=n_jobs)
    if bounds is not None:
        model.set_params(bounds=_checked_bounds(bounds, y))
    counts = _splits(splits, labels, seed) | {"finalists": min(finalists, candidates)}
    with spread(cluster):
        result, usual = _search(model, X, y, paper, candidates, counts, kept, time_budget)
    settings, gain = _chosen(result, usual, paper)
    settings |= {} if bounds is None else {"bounds": bounds}
    from calipers._files import replace_file

    replace_file(out, _toml(settings, _heading(data, target, result, gain)).encode())
    if as_json:
        found = {"settings": settings, "gain": gain, "rows_without_target": left_out}
        print_json(found | {"out": str(out), "store": str(kept)})
        return
    common.say_left_out(left_out)
    _show(result, usual, gain)
    typer.echo(f"\nwritten to {out}; fit with it:")
    typer.echo(f"  calipers fit {' '.join(data)} --target {target} --config {out} --out model")


def _numbers(
    table: Any, target: str, groups: str | None, ignore: list[str], kinds: dict[str, str]
) -> tuple[Any, Any]:
    """Inputs as numbers, and labels of groups."""
    from calipers.preprocessing import TableEncoder

    inputs = common.drop_columns(table, [target], [*ignore, *([groups] if groups else [])])
    labels = common.group_labels(table, groups)
    with common.refusing(table):
        return TableEncoder(kinds=kinds).fit_transform(inputs), labels


def _splits(count: int, labels: Any, seed: int) -> dict[str, Any]:
    """Splits for candidates, and new ones for finalists, that part no group."""
    if labels is None:
        return {"splits": count, "final_splits": count}
    import numpy as np
    from sklearn.model_selection import GroupShuffleSplit

    if len(set(labels)) < 2:
        raise typer.BadParameter("--groups needs a column of two or more distinct values")

    def made(own: int) -> Any:
        splitter = GroupShuffleSplit(count, test_size=0.1, random_state=own)
        return list(splitter.split(np.empty(len(labels)), groups=labels))

    return {"splits": made(seed), "final_splits": made(seed + 1)}


def _checked_bounds(text: str, y: Any) -> Any:
    """Bounds from their text, which all targets must keep to."""
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
    model: Any,
    X: Any,
    y: Any,
    paper: bool,
    candidates: int,
    counts: dict[str, Any],
    store: Path,
    seconds: float | None,
) -> tuple[Any, Any]:
    """What the search found, and how the model's own settings do on the same splits."""
    from calipers.search import DEFAULT_SPACE, PAPER_SPACE, search
    from calipers.training import batch_size_of, make_settings

    epochs = make_settings(model, len(y), batch_size_of(model, len(y)), stops=True).epochs
    shared: Any = {
        **counts,
        "max_epochs": epochs,
        "patience": max(10, epochs // 5),
        "select": "covered" if paper else "interval score",
        "random_state": model.random_state,
        "n_jobs": model.n_jobs,
    }
    space = PAPER_SPACE if paper else DEFAULT_SPACE
    result = search(
        model, X, y, space, n_candidates=candidates, store=store, time_budget=seconds, **shared
    )
    own = {"batch_size": [model.batch_size]}
    beside = store.with_name(f"{store.stem}.default{store.suffix}")
    shared |= {"n_candidates": 1, "finalists": 1, "store": beside}
    return result, search(model, X, y, own, **shared)


def _chosen(result: Any, usual: Any, paper: bool) -> tuple[dict[str, Any], float]:
    """Settings to write, and how much better than the defaults they score, as a share."""
    gain = max(0.0, 1 - result.score(result.best) / usual.score(usual.best))
    best = result.best if gain else usual.best
    settings = {"coverage": result.estimator.coverage} | (dict(best.params) if gain else {})
    if paper:  # which has no early stopping; the default method finds its epochs by itself
        settings = {"method": "paper"} | settings | {"epochs": best.outcome.whole_epochs}
    return settings, gain


def _heading(data: list[str], target: str, result: Any, gain: float) -> str:
    files = ", ".join(map(repr, data))
    tried = f"{len(result.candidates)} candidates for {target!r} of {files}"
    found = f"score {gain:.1%} better than that of the defaults" if gain else "none was better"
    return f"# calipers tune: {tried}\n# {found}\n"


def _toml(settings: dict[str, Any], heading: str) -> str:
    """Settings as TOML, whose plain values are written as those of JSON.

    >>> print(_toml({"network__hidden_layers": (64, 64), "method": "paper", "epochs": 10}, ""))
    network__hidden_layers = [64, 64]
    method = "paper"
    epochs = 10
    <BLANKLINE>
    """
    return heading + "".join(f"{name} = {json.dumps(v)}\n" for name, v in settings.items())


def _show(result: Any, usual: Any, gain: float) -> None:
    """The finalists beside the defaults."""
    tried = {n: {str(c.params.get(n)) for c in result.candidates} for n in result.best.params}
    names = sorted(name for name, values in tried.items() if len(values) > 1)
    last = [c for c in result.ranked() if c.finalist == result.best.finalist]
    rows = []
    for label, candidate in (*((f"{c.number}", c) for c in last), ("defaults", usual.best)):
        own = ["" if label == "defaults" else str(candidate.params[name]) for name in names]
        outcome = candidate.outcome
        rate, width = f"{outcome.coverage_rate:.1%}", outcome.mean_width
        rows.append((label, *own, rate, width, outcome.interval_score))
    print_rows(("candidate", *names, "inside", "mean width", "interval score"), rows)
    said = f"{gain:.1%} better than the defaults" if gain else "none better than the defaults"
    typer.echo(f"\n{len(result.candidates)} candidates, {said} as an ensemble before calibration")
