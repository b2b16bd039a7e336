"""Save a model as a folder: JSON and safetensors, nothing that can run code.

A model folder holds two files::

    model.json                               a description of the model, human-readable
    weights-<start of SHA-256>.safetensors   its arrays

``model.json`` names the weights file with its size and SHA-256 and ends with a checksum of
itself, so that a changed byte in either file is detected. Checksums detect damage, not tampering:
whoever rewrites a model with its checksums has made another model, but one that is still only data.

A save writes the new weights next to the old ones, then replaces ``model.json`` atomically, then
removes files that it no longer names. A process killed at any moment leaves the old model or the
new one, complete; the next save removes other leftovers. Writers lock the folder if the file system
supports it; readers need no lock.
"""

import hashlib
import json
import os
import platform
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import safetensors
import safetensors.numpy

from calipers._files import locked, replacing
from calipers._text import JSON, plain

__all__ = ["ModelFileError", "read_model", "versions", "write_model"]

FORMAT = "calipers-model"
FORMAT_VERSION = 2  # 1 is that of calipers 0.1, which can still be loaded

_PACKAGES = ("calipers", "equinox", "jax", "numpy", "safetensors", "scikit-learn", "scipy")
_RECORD = "model.json"
_RECORD_KEYS = {"format", "format_version", "created", "versions", "weights", "document", "sha256"}
_WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
_WEIGHTS_KEYS = {"file", "sha256", "bytes"}
_TEMPORARY = re.compile(
    r"\.calipers-[0-9a-f]{16}\.tmp"  # of version 0.1
    r"|\.(model\.json|weights-[0-9a-f]{16}\.safetensors)(\.[0-9a-f]{16})?\.part"
)


class ModelFileError(ValueError):
    """A folder that is not a complete calipers model, or not one that this version can read."""


def write_model(
    folder: str | os.PathLike[str], document: Mapping[str, JSON], arrays: Mapping[str, np.ndarray]
) -> None:
    """Save a model as a folder, replacing an earlier model there atomically.

    Parameters
    ----------
    folder : path
        Created with its parents if it does not exist. An existing folder must be empty or contain a
        calipers model; other files in it are not touched.
    document : mapping of str to JSON values
        Nested mappings, lists, strings, numbers, booleans and None. Floats are restored exactly,
        tuples as lists. NaN and infinity do not exist in JSON; `arrays` can contain them.
    arrays : mapping of str to array
        Booleans, integers and floats of up to 64 bits, in any shape.

    Raises
    ------
    TypeError, ValueError
        If a value cannot be stored; the message says where it is, and nothing is written.
    ModelFileError
        If `folder` is a file or contains something other than a calipers model.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_model(folder, {"coverage": 0.95}, {"weights": np.eye(2)})
    ...     document, arrays = read_model(folder)
    >>> document
    {'coverage': 0.95}
    >>> arrays["weights"]
    array([[1., 0.],
           [0., 1.]])
    """
    folder, weights = Path(folder), _encode_arrays(arrays)
    digest = hashlib.sha256(weights).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    record = _seal(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "created": datetime.now(UTC).isoformat(timespec="microseconds"),
            "versions": versions(),
            "weights": {"file": name, "sha256": digest, "bytes": len(weights)},
            "document": plain(document, "document"),
        }
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        _refuse(folder, "cannot be created as a folder, since a file is in the way; save elsewhere")
    with locked(folder):
        _refuse_foreign(folder)
        try:
            for path, content in ((folder / name, weights), (folder / _RECORD, record)):
                if path.is_symlink():  # it could lead out of the folder
                    path.unlink()
                with replacing(path, wait=True) as file:
                    file.write(content)
        finally:
            _sweep(folder)


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Load what `write_model` saved.

    Parameters
    ----------
    folder : path
        A model folder. Both files must be plain files with exactly the bytes that were written.

    Returns
    -------
    document : dict
        As it was saved.
    arrays : dict of str to ndarray
        As they were saved, but in any order; writable.

    Raises
    ------
    ModelFileError
        If the folder contains no calipers model, a damaged one, or one of a newer format.

    Examples
    --------
    >>> read_model("no-such-model")
    Traceback (most recent call last):
    calipers.storage.ModelFileError: no-such-model: no such folder
    """
    folder = Path(folder)
    record = _read_record(folder)
    while True:
        path = folder / record["weights"]["file"]
        try:
            return record["document"], _read_arrays(path, record["weights"])
        except FileNotFoundError:
            # Either the weights are lost, or a save has just replaced them and model.json. The
            # loop ends, since every iteration needs another finished save.
            previous, record = record, _read_record(folder)
            if record == previous:
                _refuse(path, "is missing; copy the whole folder again, or save the model again")


def _refuse(path: Path, problem: str) -> NoReturn:
    raise ModelFileError(f"{path} {problem}") from None


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries behind a model, without importing them."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:  # reading them takes longer than refitting a small model
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _encode_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Encode arrays as safetensors, which ignores strides and reserves one name."""
    plain(dict.fromkeys(arrays), "arrays")
    dense = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in dense.items():
        if name == "__metadata__":
            raise ValueError("arrays has the key '__metadata__', which safetensors reserves")
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise TypeError(
                f"arrays[{name!r}] is of type {array.dtype}; "
                "use booleans, integers or floats of up to 64 bits"
            )
    return safetensors.numpy.save(dense)


def _seal(body: Mapping[str, Any]) -> bytes:
    """Bytes of ``model.json``: the body and the checksum of its most compact form."""
    shortest = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    sealed = {**body, "sha256": hashlib.sha256(shortest.encode()).hexdigest()}
    return (json.dumps(sealed, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode()


def _refuse_foreign(folder: Path) -> None:
    """Refuse to save among foreign files; leftovers of a killed save are not foreign."""
    names = sorted(entry.name for entry in folder.iterdir())
    if _RECORD in names:
        try:
            _parse_record(folder / _RECORD)
        except ModelFileError as error:
            _refuse(folder, f"is not changed: {error}; save in a new or empty folder")
        return
    for name in names:
        if not (_WEIGHTS.fullmatch(name) or _TEMPORARY.fullmatch(name)):
            _refuse(folder, f"holds {name!r} but no calipers model; save in a new or empty folder")


def _sweep(folder: Path) -> None:
    """Remove temporary files and weights without a model; the next save retries what fails."""
    with suppress(OSError):
        record = folder / _RECORD
        named = record.read_bytes() if record.exists() else b""
        for entry in list(folder.iterdir()):
            orphan = _WEIGHTS.fullmatch(entry.name) and entry.name.encode() not in named
            if orphan or _TEMPORARY.fullmatch(entry.name):
                entry.unlink(missing_ok=True)


def _read_file(path: Path, size: int | None = None) -> bytes:
    """Bytes of a regular file after a check of its size; links could lead out of the folder."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, "is a link, a folder or a device; the files of a model are regular files")
    if size is not None and status.st_size != size:
        _refuse(path, f"has {status.st_size} bytes instead of {size}: it is cut off or replaced")
    return path.read_bytes()


def _parse_record(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Bytes and content of a ``model.json`` that claims to be a calipers model."""
    raw = _read_file(path)
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        _refuse(path, "is not JSON: it is damaged, or not part of a calipers model")
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        _refuse(path, f"is not part of a calipers model, which has 'format': {FORMAT!r}")
    return raw, record


def _read_record(folder: Path) -> dict[str, Any]:
    """Content of ``model.json`` after all checks that need no other file."""
    if not folder.exists():
        raise ModelFileError(f"{folder}: no such folder")
    if not folder.is_dir():
        _refuse(folder, "is not a folder: a calipers model is a folder with a model.json")
    path = folder / _RECORD
    try:
        raw, record = _parse_record(path)
    except FileNotFoundError:
        _refuse(folder, "is not a calipers model: it has no model.json")
    _check_version(path, record)
    _check_keys(path, "model.json", record, _RECORD_KEYS)
    try:
        intact = raw == _seal({key: record[key] for key in record if key != "sha256"})
    except (ValueError, RecursionError):  # contains what a save never writes, such as NaN
        intact = False
    if not intact:
        _refuse(path, "does not match its checksum: it was changed after it was saved")
    _check_keys(path, "'weights'", record["weights"], _WEIGHTS_KEYS)
    name = record["weights"]["file"]
    if not (isinstance(name, str) and _WEIGHTS.fullmatch(name)):
        _refuse(path, f"has weights {name!r} instead of weights-<16 hex digits>.safetensors")
    if not isinstance(record["document"], dict):
        _refuse(path, "has a 'document' that is not a JSON object")
    return record


def _check_version(path: Path, record: Mapping[str, Any]) -> None:
    version, libraries = record.get("format_version"), record.get("versions")
    if type(version) is not int or version < 1:
        _refuse(path, f"has 'format_version' {version!r}, which must be an integer from 1 on")
    if version > FORMAT_VERSION:
        writer = libraries.get("calipers", "?") if isinstance(libraries, dict) else "?"
        written = f"was written by calipers {writer} in format {version}"
        _refuse(path, f"{written}; this version reads up to {FORMAT_VERSION}: upgrade calipers")


def _check_keys(path: Path, owner: str, found: object, expected: set[str]) -> None:
    keys = set(found) if isinstance(found, dict) else set()
    if keys != expected:
        missing, extra = sorted(expected - keys), sorted(keys - expected)
        _refuse(path, f"has wrong keys in {owner}: missing {missing}, extra {extra}")


def _read_arrays(path: Path, entry: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of a weights file that matches its entry in ``model.json``."""
    raw = _read_file(path, entry["bytes"])
    if hashlib.sha256(raw).hexdigest() != entry["sha256"]:
        _refuse(path, "does not match its checksum: it was changed after it was saved")
    try:
        arrays: dict[str, np.ndarray] = safetensors.numpy.load(raw)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        _refuse(path, f"cannot be read as safetensors: {error}")
    return arrays
