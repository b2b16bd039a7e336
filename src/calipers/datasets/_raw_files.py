"""Reading of dataset files, which are checked against the catalogue.

A file is an ``.npz`` with arrays `X` and `y`, a source text, or a zip file with a source text.
Files are not trusted: pickles are refused, and shape, finiteness and checksum are checked before
any value is returned.
"""

import hashlib
import io
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import FloatArray
from calipers.datasets._catalogue import DatasetCorruptError, Entry


@contextmanager
def _open_text(path: Path) -> Iterator[Any]:
    """Open a source text, or the one in a zip file, as bytes."""
    if ".zip" in path.suffixes:  # perhaps followed by the suffix of a temporary file
        with zipfile.ZipFile(path) as archive:
            members = [name for name in archive.namelist() if name.endswith(".txt")]
            if len(members) != 1:
                raise DatasetCorruptError(
                    f"{path} should hold one .txt file, but holds {archive.namelist()}."
                )
            with archive.open(members[0]) as member:
                yield member
    else:
        with path.open("rb") as file:
            yield file


def source_sha256(path: Path) -> str:
    """Checksum of a source text, or of the one in a zip file."""
    with _reading(path), _open_text(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def values_sha256(X: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """Checksum of the values, which does not depend on the file format.

    >>> values_sha256(np.zeros((2, 1)), np.zeros(2))[:8]
    '66687aad'
    """
    digest = hashlib.sha256(np.ascontiguousarray(X, dtype="<f8").tobytes())
    digest.update(np.ascontiguousarray(y, dtype="<f8").tobytes())
    return digest.hexdigest()


def read(path: Path, entry: Entry, *, verify: bool = True) -> tuple[FloatArray, FloatArray]:
    """Read inputs and target from an ``.npz``, ``.txt`` or ``.zip`` file, in the order of its rows.

    Raises ``DatasetCorruptError`` if it does not match ``entry``; its checksum is only checked with
    ``verify``.
    """
    with _reading(path):
        X, y = _read_npz(path) if path.suffix == ".npz" else _read_text(path, entry)
    expected, found = ((entry.rows, entry.inputs), (entry.rows,)), (X.shape, y.shape)
    if found != expected:
        raise DatasetCorruptError(
            f"{path} should hold X and y of shapes {expected[0]} and {expected[1]} "
            f"for {entry.name!r}, but holds {found[0]} and {found[1]}."
        )
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        row = int(np.argmin(np.isfinite(X).all(axis=1) & np.isfinite(y)))
        raise DatasetCorruptError(f"{path} has a value that is not finite in row {row}.")
    if verify:
        _verify(path, entry, X, y)
    return X, y


def _verify(path: Path, entry: Entry, X: NDArray[np.float64], y: NDArray[np.float64]) -> None:
    if entry.values_sha256 is not None:
        require_sha256(path, entry.values_sha256, values_sha256(X, y), "its values")
    elif path.suffix != ".npz":
        require_sha256(path, entry.sha256, source_sha256(path), "its text")
    elif entry.target_range is not None:
        low, high = entry.target_range
        wrong = (y != np.round(y)) | (y < low) | (y > high)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DatasetCorruptError(
                f"{path} has the target {y[row]} in row {row}; "
                f"{entry.target_name} is a whole number from {low} to {high}."
            )


def require_sha256(where: Path | str, expected: str, found: str, what: str) -> None:
    """Raise DatasetCorruptError unless two checksums agree."""
    if expected != found:
        raise DatasetCorruptError(
            f"{where} is not the file the catalogue describes: "
            f"sha256 of {what} should be {expected}, but is {found}."
        )


def _read_npz(path: Path) -> tuple[FloatArray, FloatArray]:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)


def _read_text(path: Path, entry: Entry) -> tuple[FloatArray, FloatArray]:
    columns = [*range(entry.first_input, entry.first_input + entry.inputs), entry.target_column]
    with _open_text(path) as file, warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # NumPy only warns of an empty file
        lines = io.TextIOWrapper(file, encoding="ascii")
        table = np.loadtxt(lines, delimiter=entry.delimiter, usecols=columns, ndmin=2)
    return np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise the many exceptions that malformed files cause as one error that names the file."""
    try:
        yield
    except DatasetCorruptError:
        raise
    except (ValueError, KeyError, EOFError, UserWarning, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetCorruptError(f"{path} cannot be read as a dataset: {error}") from error
