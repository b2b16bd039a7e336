"""A model as a folder: JSON and safetensors, nothing that can run code.

A model folder holds two files::

    model.json                               what the model is, for people to read
    weights-<start of SHA-256>.safetensors   its arrays

``model.json`` names the weights file with its size and SHA-256 and ends with a checksum of
itself, so that a byte changed in either file is found. Checksums find damage, not forgery: whoever
rewrites a model and its checksums has made another model, yet one that is still only data.

A save puts the new weights beside the old ones, then replaces ``model.json`` in one step, then
removes what it no longer names. A process killed at any moment leaves the old model or the new
one, whole; what it left behind goes with the next save. Writers lock the folder where the file
system can; readers need no lock.
"""

import hashlib
import json
import math
import os
import platform
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

if sys.platform != "win32":
    import fcntl

__all__ = ["JSON", "ModelFileError", "read_model", "write_model"]

JSON: TypeAlias = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]

FORMAT = "calipers-model"
FORMAT_VERSION = 1

_RECORD_NAME = "model.json"
_RECORD_KEYS = {"format", "format_version", "created", "versions", "weights", "document", "sha256"}
_RECORD_LIMIT = 64 * 2**20  # bytes; longer tables of numbers belong in the arrays
_WEIGHTS_KEYS = {"file", "sha256", "bytes"}
_WEIGHTS_NAME = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
_TEMPORARY_NAME = re.compile(r"\.calipers-[0-9a-f]{16}\.tmp")
_DTYPES = ("bool", "float16", "float32", "float64") + tuple(
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
)
_PACKAGES = (
    "calipers", "equinox", "jax", "jaxlib", "numpy", "optax", "safetensors", "scikit-learn", "scipy"
)  # fmt: skip


class ModelFileError(ValueError):
    """A folder that is not a whole calipers model, or not one this version can read."""


def write_model(
    folder: str | os.PathLike[str], document: Mapping[str, JSON], arrays: Mapping[str, np.ndarray]
) -> None:
    """Save a model as a folder, replacing the model that was there in one step.

    Parameters
    ----------
    folder : path
        Made with its parents where it does not exist. An existing folder must be empty or hold a
        calipers model; files that are not the model's stay untouched.
    document : mapping of str to JSON values
        Nested mappings, lists, strings, numbers, booleans and None. Floats come back exactly,
        tuples as lists. NaN and infinity do not exist in JSON: keep them in `arrays`.
    arrays : mapping of str to array
        Booleans, integers or floats of 16, 32 or 64 bits (integers also of 8) and of any shape.

    Raises
    ------
    TypeError, ValueError
        If a value cannot be stored; the message names its place. Nothing has been written then.
    ModelFileError
        If `folder` is a file or holds something else than a calipers model.

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
    weights = _encode_arrays(arrays)
    digest = hashlib.sha256(weights).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    body = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "versions": _versions(),
        "weights": {"file": name, "sha256": digest, "bytes": len(weights)},
        "document": _plain(document, "document"),
    }
    record = _seal(body)
    if len(record) > _RECORD_LIMIT:
        msg = f"document takes {len(record)} bytes, the limit is {_RECORD_LIMIT}: use arrays"
        raise ValueError(msg)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        msg = f"cannot save a model in {folder}: {error.filename} is a file, not a folder"
        raise ModelFileError(msg) from error
    with _locked(folder) as directory:
        _refuse_foreign(folder)
        try:
            _replace(folder / name, weights, directory)
            _replace(folder / _RECORD_NAME, record, directory)
        finally:
            _sweep(folder)


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Load what `write_model` saved.

    Parameters
    ----------
    folder : path
        A model folder. Its files have to be plain files of exactly the bytes written.

    Returns
    -------
    document : dict
        As it was saved.
    arrays : dict of str to ndarray
        As they were saved, though not in their order; writable.

    Raises
    ------
    ModelFileError
        If the folder holds no calipers model, a damaged one, or one of a newer format.

    Examples
    --------
    >>> read_model("no/such/model")
    Traceback (most recent call last):
    calipers.storage.ModelFileError: no/such/model is not a folder; a calipers model is a folder ...
    """
    folder = Path(folder)
    record = _read_record(folder)
    while True:
        path = folder / record["weights"]["file"]
        try:
            return record["document"], _read_arrays(path, record["weights"])
        except FileNotFoundError:
            # A save since then has removed these weights and named others, or they were lost.
            # Each further round takes another finished save, so the loop ends.
            previous, record = record, _read_record(folder)
            if record == previous:
                _refuse(path, "is missing; copy it from where the model was saved")


def _refuse(path: Path, problem: str) -> NoReturn:
    msg = f"{path} {problem}"
    raise ModelFileError(msg) from None


def _versions() -> dict[str, str]:
    """Versions of Python and of the libraries behind a model, none of them imported."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _plain(value: object, place: str) -> JSON:
    """Copy of a value in JSON's own types, or an error that names the place of what is not."""
    if isinstance(value, Mapping):
        if unnamed := [key for key in value if not isinstance(key, str)]:
            msg = f"{place} has the key {unnamed[0]!r}; JSON keys are strings"
            raise TypeError(msg)
        for key in value:
            _plain(key, f"a key of {place}")
        return {str(key): _plain(item, f"{place}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{index}]") for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            msg = f"{place} is {value}, which JSON does not have: use None, or put it in arrays"
            raise ValueError(msg)
        return float(value)
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            msg = f"{place} is {value!r}, which is not valid Unicode text"
            raise ValueError(msg)
        return str(value)
    msg = f"{place} is of type {type(value).__name__}, which JSON does not have: {value!r}"
    raise TypeError(msg)


def _seal(body: Mapping[str, Any]) -> bytes:
    """Text of ``model.json``: the body and a checksum of its shortest spelling."""
    shortest = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    sealed = {**body, "sha256": hashlib.sha256(shortest.encode()).hexdigest()}
    return (json.dumps(sealed, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode()
