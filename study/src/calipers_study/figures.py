"""The figures of the paper, and some further ones, drawn from the store."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from calipers.plots import style
from calipers_study import draw
from calipers_study.methods import choose
from calipers_study.sensitivity import sensitivity
from calipers_study.store import ResultStore, StoreError
from calipers_study.toy import toy


@dataclass(frozen=True)
class Context:
    """Arguments that a figure may need."""

    store: ResultStore
    grid: int
    folder: str | os.PathLike[str] | None
    verify: bool
    n_jobs: int | None


def _toy(context: Context) -> Figure:
    with context.store.writing():
        return draw.toy(toy(context.store, n_jobs=context.n_jobs))


def _sensitivity(context: Context) -> Figure:
    with context.store.writing():
        maps = {
            weight: sensitivity(
                context.store,
                weight,
                grid=context.grid,
                folder=context.folder,
                verify=context.verify,
                n_jobs=context.n_jobs,
            )
            for weight in (10.0, 0.0)
        }
    return draw.sensitivity(maps)


FIGURES: dict[str, Callable[[Context], Figure]] = {
    "toy": _toy,
    "mixture": lambda _: draw.mixture(),
    "sensitivity": _sensitivity,
    "robustness": lambda context: draw.robustness(context.store),
    "calibration": lambda context: draw.calibration(context.store),
    "pit": lambda context: draw.pit(context.store),
    "width": lambda context: draw.width(context.store),
}
"""The figures by name."""


def write_figures(
    names: Iterable[str] | None = None,
    *,
    store: str | os.PathLike[str] = "results/study",
    out: str | os.PathLike[str] = "results",
    grid: int = 101,
    folder: str | os.PathLike[str] | None = None,
    verify: bool = True,
    n_jobs: int | None = -1,
    notify: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Draw figures as PNG and PDF into the folder ``figures``.

    Only the toy problem and the sensitivity maps train networks, and only where the store lacks
    them.

    Parameters
    ----------
    names : iterable of str, optional
        Keys of ``FIGURES``; all by default, where figures whose trials the store lacks are left
        out.
    store, out : path-like
        Folder of the store, and folder to write to.
    grid : int
        Values of each weight in the sensitivity maps.
    folder, verify
        As in ``run``.
    n_jobs : int, optional
        Threads.
    notify : callable
        Called with a line of text for each figure that is left out.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    StoreError
        If the store lacks the trials of a figure that was requested by name.
    """
    context = Context(ResultStore(store), grid, folder, verify, n_jobs)
    target = Path(out, "figures")
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name in choose(names, FIGURES, "figure"):
        with style():
            try:
                figure = FIGURES[name](context)
            except StoreError as error:
                if names is not None:
                    raise
                notify(f"{name} is left out: {error}")
                continue
            figure.savefig(target / f"{name}.png", metadata={"Software": None})
            figure.savefig(target / f"{name}.pdf", metadata={"CreationDate": None})
        written += [target / f"{name}.png", target / f"{name}.pdf"]
    return written
