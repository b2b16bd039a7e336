"""The catalogue of datasets, with the metadata and checksums of each."""

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
    """The data was neither found nor downloaded; the message says how to provide it."""


class DatasetCorruptError(DatasetError, ValueError):
    """A file was found, but it is not the dataset that the catalogue describes."""


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
    #: Human-readable texts.
    description: str
    citation: str
    licence: str
    url: str  #: Public copy of the source file.
    #: Names under which a source file is recognised; a download is stored under the first.
    file_names: tuple[str, ...]
    sha256: str  #: Checksum of the source text; for a zip file, of the text inside.
    #: Columns of the first input and of the target in the source text, from 0.
    first_input: int
    target_column: int
    #: Checksum of `X` and then `y` as little-endian float64 in C order, from whatever file they
    #: were read; None if it is not known.
    values_sha256: str | None = None
    delimiter: str | None = None  #: Between columns; None means white space.
    #: Set where the source prescribes a split: this many rows from the top are for training, all
    #: others for testing.
    train_rows: int | None = None
    #: Smallest and largest value of an integer target; checked if there is no `values_sha256`.
    target_range: tuple[float, float] | None = None

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(self.feature_names)


_TEXT = resources.files("calipers.datasets").joinpath("catalogue.toml").read_text("utf-8")

_TABLES: dict[str, dict[str, Any]] = {
    name: {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    for name, table in tomllib.loads(_TEXT).items()
}

CATALOGUE: dict[str, Entry] = {name: Entry(name=name, **table) for name, table in _TABLES.items()}
"""Every dataset that :func:`load` knows, by name."""


def lookup(name: str) -> Entry:
    """Entry of the catalogue by name.

    Raises
    ------
    UnknownDatasetError
        If the name is unknown; the message lists all names and suggests a similar one.

    Examples
    --------
    >>> lookup("yacht").rows
    308
    """
    if name in CATALOGUE:
        return CATALOGUE[name]
    hint, known = did_you_mean(name, CATALOGUE), ", ".join(sorted(CATALOGUE))
    raise UnknownDatasetError(f"There is no dataset {name!r}{hint}. Known: {known}.")
