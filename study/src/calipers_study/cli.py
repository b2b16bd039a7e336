"""``calipers study``: the paper's experiments, tables and figures.

calipers finds ``app`` through the entry point in this distribution's ``pyproject.toml``. Libraries
that take time to import are imported inside the commands.
"""

from pathlib import Path
from typing import Annotated

import typer

from calipers.cli import OnCluster, cluster_at

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The paper's experiments: train them, and make every table and figure from the store.",
)

Out = Annotated[Path, typer.Option(help="Folder for tables and figures.")]
StoreFolder = Annotated[Path, typer.Option("--store", help="Folder of the predictions.")]
SettingsFolder = Annotated[
    Path | None,
    typer.Option("--settings", help="Folder with settings that override the published ones."),
]
Jobs = Annotated[int, typer.Option("--n-jobs", help="Threads; -1 for all cores.")]
Processes = Annotated[
    int,
    typer.Option(min=1, help="Trainings at a time, each in its own process; for an accelerator."),
]

MaxSteps = Annotated[
    int,
    typer.Option(
        min=0,
        help="Most steps of a network in the search, which limits epochs on large datasets; "
        "0 for no limit.",
    ),
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
        int | None, typer.Option(min=1, help="Number of trials of each dataset, the first ones.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the predictions.")] = _STORE,
    settings: SettingsFolder = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of shuffles and networks.")] = 0,
    n_jobs: Jobs = -1,
    processes: Processes = 1,
    cluster: OnCluster = None,
) -> None:
    """Train what is missing. May be interrupted at any moment and started again.

    ``calipers study run --method qd+ --dataset boston yacht`` trains one method on two datasets.
    """
    from calipers_study.run import run

    methods, datasets = _sort_out(names or [], method, dataset)
    with cluster_at(cluster):
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


@app.command("all")
def all_command(
    store: StoreFolder = _STORE,
    out: Out = Path("results"),
    max_steps: MaxSteps = 0,
    processes: Processes = 1,
) -> None:
    """Train everything that is missing, search, and write all tables and figures, with times."""
    from calipers_study.full_study import run_all

    seconds = run_all(
        store=store, out=out, max_steps=max_steps or None, processes=processes, notify=typer.echo
    )
    typer.echo(f"all of it: {sum(seconds.values()):.0f} s")


@app.command("tables")
def tables_command(store: StoreFolder = _STORE, out: Out = Path("results")) -> None:
    """Write the six tables, each cell with the published one and a verdict."""
    from calipers_study.tables import write_tables

    typer.echo(write_tables(store, out))
    typer.echo(f"written to {out / 'cells.csv'} and {out / 'tables'}")


@app.command("again")
def again_command(
    other: Annotated[Path, typer.Argument(help="Folder or packed file of the second run.")],
    store: StoreFolder = _STORE,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("results/again.md"),
) -> None:
    """Compare the cells of a second run with those of the store, in standard errors."""
    import tempfile

    from calipers_study.archive import unpack
    from calipers_study.files import replace_file
    from calipers_study.second_run import again_markdown

    with tempfile.TemporaryDirectory() as folder:
        if other.is_file():
            unpack(other, folder)
            other = Path(folder)
        text = again_markdown(store, other)
    replace_file(out, text.encode())
    typer.echo(text)


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
    """Train what goes beyond the paper: experiments, future work, baselines, shift, figures."""
    from calipers_study.extras import run_extras

    failed = run_extras(
        groups or None, dataset or None, store=store, processes=processes, notify=typer.echo
    )
    if failed:
        raise typer.Exit(1)


@app.command("pack")
def pack_command(store: StoreFolder = _STORE, archive: Archive = _ARCHIVE) -> None:
    """Write the store to one small file, with predictions rounded and compressed."""
    from calipers_study.archive import pack

    typer.echo(f"{pack(store, archive):,} bytes written to {archive}")


@app.command("unpack")
def unpack_command(archive: Archive = _ARCHIVE, store: StoreFolder = _STORE) -> None:
    """Restore a store from such a file, for tables and figures without training."""
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
        str, typer.Option(help="Score that selects settings, see calipers.search.")
    ] = "covered",
    max_steps: MaxSteps = 40_000,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Number of trials of each dataset, the first ones.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the search.")] = Path("results/search"),
    store: StoreFolder = _STORE,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    n_jobs: Jobs = -1,
    processes: Processes = 1,
    cluster: OnCluster = None,
) -> None:
    """Search settings of QD+ within the training rows of trial 0, and compare them."""
    from calipers_study.search import Protocol, search_settings

    _, chosen = _sort_out([], None, [*(dataset or []), *(names or [])])
    protocol = Protocol(candidates, select, max_steps=max_steps or None)
    with cluster_at(cluster):
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
    """Show which trials are done and missing, and the time spent."""
    from calipers_study.status import status, status_lines

    for line in status_lines(status(store, settings=settings)):
        typer.echo(line)


def _sort_out(
    names: list[str], methods: list[str] | None, datasets: list[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    from calipers_study.methods import sort_out

    try:
        return sort_out(names, methods or [], datasets or [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
