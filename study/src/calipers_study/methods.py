"""The trainings and datasets of the paper, by name."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from calipers.datasets import CATALOGUE


@dataclass(frozen=True)
class Method:
    """A training of the paper."""

    title: str  #: What the paper calls it.
    folder: str  #: Its name in file systems.
    loss: str  #: The loss its networks are trained for, as calipers names it.
    #: The ways its members become one prediction, as calipers names them. Each member by itself is
    #: measured too where members have bounds.
    aggregations: tuple[str, ...]


METHODS: dict[str, Method] = {
    "qd+": Method("QD+", "qd-plus", "qd+", ("snm", "sem", "std")),
    "qd": Method("QD", "qd", "qd", ("sem", "std")),
    "qd-1-layer": Method("QD 1-layer", "qd-1-layer", "qd", ("sem", "std")),
    "mve": Method("MVE", "mve", "normal", ("normal",)),
    "mse": Method("MSE", "mse", "mse", ("mean",)),
}
"""The trainings by name."""

DATASETS: tuple[str, ...] = tuple(CATALOGUE)
"""Names of the paper's datasets, in its order."""


def paper_trials(dataset: str) -> int:
    """Number of trials of a dataset in the paper, one per shuffle."""
    return {"protein": 5, "year": 1}.get(dataset, 20)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that resembles a mistyped one, or an empty string.

    Examples
    --------
    >>> nearest("yatch", ["yacht", "year"])
    "; did you mean 'yacht'?"
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def folder_of(method: str) -> str:
    """Name of a method in file systems."""
    choose([method], METHODS, "method")
    return METHODS[method].folder


def choose(names: Iterable[str] | None, known: Iterable[str], kind: str) -> list[str]:
    """Return the requested names, all by default, in the order of ``known``.

    Raises
    ------
    ValueError
        If a name is unknown; the message suggests the nearest.

    Examples
    --------
    >>> choose(["mse", "qd+"], METHODS, "method")
    ['qd+', 'mse']
    """
    known = list(known)
    if names is None:
        return known
    requested = list(names)
    for name in requested:
        if name not in known:
            raise ValueError(
                f"there is no {kind} {name!r}{nearest(name, known)} (known: {', '.join(known)})"
            )
    return [name for name in known if name in requested]


def sort_out(
    names: Iterable[str], methods: Iterable[str], datasets: Iterable[str]
) -> tuple[list[str] | None, list[str] | None]:
    """Sort bare names into methods and datasets; names may also be separated by commas.

    Examples
    --------
    >>> sort_out(["mse,yacht"], [], ["boston"])
    (['mse'], ['boston', 'yacht'])
    """
    chosen, data, bare = (
        [name for value in values for name in value.split(",") if name]
        for values in (methods, datasets, names)
    )
    choose(chosen, METHODS, "method")
    choose(data, DATASETS, "dataset")
    choose(bare, [*METHODS, *DATASETS], "method or dataset")
    chosen += [name for name in bare if name in METHODS]
    data += [name for name in bare if name in DATASETS]
    return chosen or None, data or None
