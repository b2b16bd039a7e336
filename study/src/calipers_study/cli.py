"""``calipers study``: the paper's experiments, tables and figures.

calipers finds ``app`` through the entry point in this distribution's ``pyproject.toml``. Libraries
that take time to import are imported inside the commands.
"""

from pathlib import Path
from typing import Annotated

import typer

from calipers.cli import OnCluster, spread

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The paper's experiments: train them, and make every table and figure from what is kept.",
)

Out = Annotated[Path, typer.Option(help="Folder for tables and figures.")]
StoreFolder = Annotated[Path, typer.Option("--store", help="Folder that keeps the predictions.")]
SettingsFolder = Annotated[
    Path | None,
    typer.Option("--settings", help="Folder with settings that go before the published ones."),
]
Jobs = Annotated[int, typer.Option("--n-jobs", help="Threads; -1 for all cores.")]
Processes = Annotated[
    int,
    typer.Option(min=1, help="Trainings at a time, in processes of their own; for an accelerator."),
]

Archive = Annotated[Path, typer.Option(help="File with the whole store.")]

_STORE = Path("results/study")
_ARCHIVE = Path("results/study.tar.xz")


@app.command("run")
def run_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Methods and datasets by name, as with the options; all by default."),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="qd+, qd, qd-1-layer, mve or mse; may be repeated.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="A dataset of the paper; may be repeated.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many trials of each dataset.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder that keeps the predictions.")] = _STORE,
    settings: SettingsFolder = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of shuffles and networks.")] = 0,
    n_jobs: Jobs = -1,
    processes: Processes = 1,
    cluster: OnCluster = None,
) -> None:
    """Train what is missing. May be stopped at any moment and started again.

    ``calipers study run --method qd+ --dataset boston yacht`` trains one method on two datasets.
    """
    from calipers_study.run import run

    methods, datasets = _sort_out(names or [], method, dataset)
    with spread(cluster):
        report = run(
            methods,
            datasets,
            trials=trials,
            store=out,
            settings=settings,
            seed=seed,
            n_jobs=n_jobs,
            processes=processes,
            notify=typer.echo,
        )
    lost = f", {report.lost} networks given up" if report.lost else ""
    typer.echo(
        f"{report.trained} trials trained in {report.seconds:.1f} s, {report.kept} were in the "
        f"store, {report.retries} retries{lost}"
    )


@app.command("tables")
def tables_command(store: StoreFolder = _STORE, out: Out = Path("results")) -> None:
    """Write the six tables, each cell beside the published one and with a verdict."""
    from calipers_study.tables import write_tables

    typer.echo(write_tables(store, out))
    typer.echo(f"written to {out / 'cells.csv'} and {out / 'tables'}")


@app.command("extras")
def extras_command(
    groups: Annotated[
        list[str] | None,
        typer.Argument(help="experiments, future, baselines, shift or figures; all by default."),
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="A dataset of the paper; may be repeated.")
    ] = None,
    store: StoreFolder = _STORE,
    processes: Processes = 1,
) -> None:
    """Train what stands beside the paper: experiments, future work, baselines, shift, figures."""
    from calipers_study.extras import run_extras

    failed = run_extras(
        groups or None, dataset or None, store=store, processes=processes, notify=typer.echo
    )
    if failed:
        raise typer.Exit(1)


@app.command("pack")
def pack_command(store: StoreFolder = _STORE, archive: Archive = _ARCHIVE) -> None:
    """Write the store into one small file, predictions rounded and compressed."""
    from calipers_study.archive import pack

    typer.echo(f"{pack(store, archive):,} bytes written to {archive}")


@app.command("unpack")
def unpack_command(archive: Archive = _ARCHIVE, store: StoreFolder = _STORE) -> None:
    """Make a store of such a file, for tables and figures without training."""
    from calipers_study.archive import unpack

    typer.echo(f"{unpack(archive, store)} entries in {store}")


@app.command("figures")
def figures_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Figures by name; all by default.")
    ] = None,
    store: StoreFolder = _STORE,
    out: Out = Path("results"),
    grid: Annotated[
        int, typer.Option(min=2, help="Values of each weight in the sensitivity maps.")
    ] = 101,
    n_jobs: Jobs = -1,
) -> None:
    """Draw the figures. Trains the toy problem and the sensitivity maps if the store lacks them."""
    from calipers_study.figures import write_figures

    paths = write_figures(
        names or None, store=store, out=out, grid=grid, n_jobs=n_jobs, notify=typer.echo
    )
    for path in paths:
        typer.echo(f"written to {path}")


@app.command("search")
def search_command(
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="A dataset of the paper; may be repeated. Those on this machine by default."
        ),
    ] = None,
    names: Annotated[list[str] | None, typer.Argument(help="Further datasets by name.")] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Settings to try.")] = 300,
    select: Annotated[
        str, typer.Option(help="Score that decides, see calipers.search.")
    ] = "covered",
    halving: Annotated[
        int | None, typer.Option(min=2, help="Keep one in so many candidates in each round.")
    ] = None,
    max_steps: Annotated[
        int,
        typer.Option(
            min=0, help="Most steps of a network, fewer epochs on large datasets; 0 for no limit."
        ),
    ] = 40_000,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many trials of each dataset.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the search.")] = Path("results/search"),
    store: StoreFolder = _STORE,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    n_jobs: Jobs = -1,
    processes: Processes = 1,
    cluster: OnCluster = None,
) -> None:
    """Search settings of QD+ inside the training rows of trial 0, and compare them."""
    from calipers_study.search import Protocol, search_settings

    _, chosen = _sort_out([], None, [*(dataset or []), *(names or [])])
    protocol = Protocol(candidates, select, halving, max_steps=max_steps or None)
    with spread(cluster):
        found = search_settings(
            chosen,
            protocol,
            trials=trials,
            out=out,
            published=store,
            seed=seed,
            n_jobs=n_jobs,
            processes=processes,
            notify=typer.echo,
        )
    for one in found:
        measures = ", ".join(f"{name} {value:.4g}" for name, value in one.mean.items())
        typer.echo(f"{one.dataset}, {one.settings} settings, {one.trials}: {measures}")


@app.command("status")
def status_command(store: StoreFolder = _STORE, settings: SettingsFolder = None) -> None:
    """Show what is done, what is missing, and the time spent."""
    from calipers_study.methods import DATASETS, METHODS
    from calipers_study.status import status

    parts = status(store, settings=settings)
    done, wanted = sum(p.done for p in parts), sum(p.wanted for p in parts)
    typer.echo(f"{'dataset':<10}" + "".join(f"{name:>14}" for name in METHODS))
    for name in DATASETS:
        row = [p for p in parts if p.dataset == name]
        typer.echo(f"{name:<10}" + "".join(f"{f'{p.done}/{p.wanted}':>14}" for p in row))
    seconds = sum(p.seconds for p in parts)
    typer.echo(f"{done} of {wanted} trials are done, in {_time(seconds)} of training")
    missing = [f"{p.method} on {p.dataset}" for p in parts if p.done < p.wanted]
    if missing:
        shown = ", ".join(missing[:5]) + (" and more" if len(missing) > 5 else "")
        typer.echo(f"missing: {shown}")


def _sort_out(
    names: list[str], methods: list[str] | None, datasets: list[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """Sort bare names into methods and datasets; commas separate names as well."""
    from calipers_study.methods import DATASETS, METHODS, choose

    def split(values: list[str] | None) -> list[str]:
        return [name for value in values or [] for name in value.split(",") if name]

    chosen, data, bare = split(methods), split(datasets), split(names)
    known = [*METHODS, *DATASETS]
    try:
        choose(chosen, METHODS, "method")
        choose(data, DATASETS, "dataset")
        choose(bare, known, "method or dataset")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    chosen += [name for name in bare if name in METHODS]
    data += [name for name in bare if name in DATASETS]
    return chosen or None, data or None


def _time(seconds: float) -> str:
    """Write a time for people.

    Examples
    --------
    >>> _time(42.0), _time(5000.0)
    ('42 s', '1 h 23 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
