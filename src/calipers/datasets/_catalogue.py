"""The catalogue: what is known about each dataset before any file is opened."""

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from calipers._text import did_you_mean


class DatasetError(Exception):
    """Any failure of :mod:`calipers.datasets`."""


class UnknownDatasetError(DatasetError, ValueError):
    """The name is not in the catalogue."""


class DatasetUnavailableError(DatasetError):
    """The data is neither at hand nor to be had; the message says how to provide it."""


class DatasetCorruptError(DatasetError, ValueError):
    """A file is there, but it does not hold the dataset that the catalogue describes."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One dataset of the catalogue."""

    #: Short name used in code, and full name.
    name: str
    title: str
    rows: int  #: Number of rows.
    feature_names: tuple[str, ...]  #: Names of the inputs, in column order.
    #: Name of the target and its unit: ``"1"`` if it has none, empty if the source states none.
    target_name: str
    target_unit: str
    #: For people.
    description: str
    citation: str
    licence: str
    url: str  #: Public copy of the source file.
    #: Names under which a source file is recognised; a download is kept under the first.
    file_names: tuple[str, ...]
    sha256: str  #: Checksum of the source text; for a zip file, of the text inside.
    #: Where the inputs begin and where the target stands in the source text.
    first_input: int
    target_column: int
    #: Checksum of `X` and then `y` as little-endian float64 in C order, whatever file they came in;
    #: None if it is not known.
    values_sha256: str | None = None
    delimiter: str | None = None  #: Between columns; None means white space.
    #: Set where the source fixes one split: that many rows from the top train, the rest test.
    train_rows: int | None = None
    #: Smallest and largest whole number the target takes; stands in for a missing `values_sha256`.
    target_range: tuple[float, float] | None = None

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(self.feature_names)


_TEXT = resources.files("calipers.datasets").joinpath("catalogue.toml").read_text("utf-8")

_TABLES: dict[str, dict[str, Any]] = {
    name: {key: tuple(value) if isinstance(value, list) else value for key, value in own.items()}
    for name, own in tomllib.loads(_TEXT).items()
}

CATALOGUE: dict[str, Entry] = {name: Entry(name=name, **own) for name, own in _TABLES.items()}
"""Every dataset that :func:`load` knows, by name."""


def lookup(name: str) -> Entry:
    """Entry of the catalogue by name.

    Raises
    ------
    UnknownDatasetError
        With the nearest known name, if one is near, and the list of all.

    Examples
    --------
    >>> lookup("yacht").rows
    308
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    hint, known = did_you_mean(name, CATALOGUE), ", ".join(sorted(CATALOGUE))
    raise UnknownDatasetError(f"There is no dataset {name!r}{hint}. Known: {known}.")
