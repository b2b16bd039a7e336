"""Loading of datasets from the user's own folder, the cache or the public copy."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calipers._files import cache_folder
from calipers.datasets._catalogue import DatasetCorruptError, DatasetUnavailableError, Entry, lookup
from calipers.datasets._download import TransferError, download
from calipers.datasets._raw_files import read, require_sha256, source_sha256


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table of inputs and a target, with its origin and licence."""

    name: str  #: Name in the catalogue.
    #: (n_rows, n_inputs): Inputs in their own units, rows in the order of the source.
    X: NDArray[np.float64] = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)  #: (n_rows,): Target in its own unit.
    feature_names: tuple[str, ...]  #: Names of the columns of `X`.
    #: Name and unit of `y`; the unit is ``"1"`` if it has none, empty if the source states none.
    target_name: str
    target_unit: str
    #: Where the data comes from and on what terms.
    description: str = field(repr=False)
    citation: str = field(repr=False)
    licence: str = field(repr=False)
    source: Path  #: The file that was read.


def load(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = True,
    verify: bool = True,
    timeout: float = 30.0,
    verbose: int = 1,
) -> Dataset:
    """Load one of the datasets in :data:`CATALOGUE`.

    These places are searched in order:

    1. `folder`, or else the folder that the environment variable ``CALIPERS_DATA`` names:
       ``<name>.npz`` with arrays `X` and `y`, or the source file as ``<name>/data.txt``; for
       ``"year"`` as ``yearpredictionmsd.zip``, ``YearPredictionMSD.txt.zip`` or
       ``YearPredictionMSD.txt``, in ``year/`` or in the folder itself;
    2. the cache, see :func:`cache_folder`;
    3. the public address, or ``<mirror>/<name>/<file>`` if the environment variable
       ``CALIPERS_MIRROR`` holds the address of a mirror. The download is stored in the cache if
       its sha256 is that of the catalogue, and refused otherwise.

    Parameters
    ----------
    name : str
        A key of :data:`CATALOGUE`.
    folder : path-like, optional
        A folder of your own with data files.
    download : bool, default=True
        Whether to use the network if the data is not on this machine.
    verify : bool, default=True
        Whether files in your own folder must have the checksum of the catalogue. If False, a file
        that differs is accepted as long as it has the right shape and only finite values. The
        cache and downloads are always verified.
    timeout : float, default=30.0
        Seconds of silence after which a server counts as stalled.
    verbose : int, default=1
        0 hides the progress bar of a download; it is never shown outside a terminal.

    Returns
    -------
    Dataset
        The data as in the source: not scaled or shuffled, and without dropped rows.

    Raises
    ------
    UnknownDatasetError
        If the name is not in the catalogue.
    DatasetUnavailableError
        If the data is not available; the message says how to provide it by hand.
    DatasetCorruptError
        If a file that was found or downloaded is not the dataset.

    Examples
    --------
    >>> data = load("yacht")  # doctest: +SKIP
    >>> data.X.shape  # doctest: +SKIP
    (308, 6)
    >>> load("yatch")
    Traceback (most recent call last):
        ...
    calipers.datasets._catalogue.UnknownDatasetError: There is no dataset 'yatch' (did you \
mean 'yacht'?). Known: boston, concrete, energy, kin8nm, naval, power, protein, wine, yacht, year.
    """
    entry = lookup(name)
    user_folder = own_folder(folder)
    path = _find(entry, user_folder)
    if path is None:
        path, verify = _cached(entry), False  # since the text is verified here
        if not _intact(path, entry):
            if not download:
                raise DatasetUnavailableError(_advice(entry, user_folder, "Nothing was downloaded"))
            _fetch(entry, path, user_folder, timeout=timeout, verbose=verbose)
    X, y = read(path, entry, verify=verify)
    metadata = {k: v for k, v in vars(entry).items() if k in Dataset.__dataclass_fields__}
    return Dataset(X=X, y=y, source=path, **metadata)


def available(name: str, *, folder: str | os.PathLike[str] | None = None) -> bool:
    """Whether :func:`load` would find a file for a dataset on this machine.

    Only names are checked; :func:`load` reports damaged files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "yacht.npz").write_bytes(b"")
    ...     available("yacht", folder=folder)
    True
    """
    entry = lookup(name)
    return _find(entry, own_folder(folder)) is not None or _cached(entry).is_file()


def own_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """The user's own folder: the argument, or else ``CALIPERS_DATA``; None if neither is set."""
    chosen = folder if folder is not None else os.environ.get("CALIPERS_DATA") or None
    if chosen is None:
        return None
    path = Path(chosen)
    if not path.is_dir():
        origin = "CALIPERS_DATA" if folder is None else "folder"
        raise DatasetUnavailableError(f"{origin} is {str(path)!r}, which is not a folder.")
    return path


def _find(entry: Entry, folder: Path | None) -> Path | None:
    """The file of a dataset in the user's own folder, or None."""
    if folder is None:
        return None
    names = [f"{entry.name}.npz", *(f"{entry.name}/{file}" for file in entry.file_names)]
    # Outside a subfolder, a file data.txt could belong to any dataset.
    names += [file for file in entry.file_names if file != "data.txt"]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _cached(entry: Entry) -> Path:
    return cache_folder() / "datasets" / entry.name / entry.file_names[0]


def _intact(path: Path, entry: Entry) -> bool:
    try:
        return path.is_file() and source_sha256(path) == entry.sha256
    except DatasetCorruptError:
        return False


def _fetch(entry: Entry, path: Path, own: Path | None, *, timeout: float, verbose: int) -> None:
    """Download a source file into the cache, or explain how to provide it by hand."""
    url = entry.url
    if mirror := os.environ.get("CALIPERS_MIRROR"):
        url = f"{mirror.rstrip('/')}/{entry.name}/{entry.file_names[0]}"

    def check(downloaded: Path) -> None:
        require_sha256(url, entry.sha256, source_sha256(downloaded), "its text")

    try:
        download(url, path, check=check, timeout=timeout, verbose=verbose)
    except DatasetCorruptError as error:
        raise DatasetCorruptError(_advice(entry, own, str(error))) from error
    except TransferError as error:
        raise DatasetUnavailableError(_advice(entry, own, str(error))) from error
    except OSError as error:
        reason = f"The cache cannot be written ({error}); set CALIPERS_CACHE to a folder that can"
        raise DatasetUnavailableError(_advice(entry, own, reason)) from error


def _advice(entry: Entry, own: Path | None, reason: str) -> str:
    """A message that says what failed and how to provide the file by hand."""
    lines = [f"The dataset {entry.name!r} is not available. {reason.rstrip('.')}."]
    if _cached(entry).is_file():
        lines.append(f"{_cached(entry)} is damaged or another file.")
    sample = f"{entry.name}_partial.npz"
    if own is not None and (own / sample).is_file():
        lines.append(f"{own / sample} is only a sample of it and cannot replace it.")
    lines.append(f"To provide it by hand, download\n    {entry.url}\nand save it as")
    lines.append(f"    {_cached(entry)}")
    if own is not None:
        lines.append(f"or\n    {own / entry.name / entry.file_names[0]}")
    return "\n".join(lines)
