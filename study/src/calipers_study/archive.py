"""A store as one compressed file, small enough for a repository.

The predictions of a trial are rounded to a power of two that is at most a thousandth of a typical
length: the width of its intervals, or four times the error of its points. They are then stored as
integers, each as the difference from a neighbour, and all files of the store are compressed
together. Unpacking gives an ordinary store, from which tables and figures can be made.
"""

import io
import json
import lzma
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calipers_study.files import replace_file
from calipers_study.store import ResultStore, StoreEntry, StoreError

_FINENESS = 1000  # rounding steps in a typical length, at least
_FIELDS = ("point", "mean", "lower", "upper", "scale")
_KEPT_IN_FULL = ("members", "seeds", "retries")


def pack(store: str | os.PathLike[str], archive: str | os.PathLike[str]) -> int:
    """Write all entries of a store into one file, and return its size in bytes."""
    source = ResultStore(store)
    names = source.names()
    if not names:
        raise StoreError(f"{store} holds nothing to pack")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in names:
            _add(tar, f"{name}.npz", _packed(source.read(name)))
        for path in sorted((source.folder / "extras").rglob("*.json")):
            _add(tar, path.relative_to(source.folder).as_posix(), path.read_bytes())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9}]  # its dictionary is as large as the store
    content = lzma.compress(buffer.getvalue(), format=lzma.FORMAT_XZ, filters=filters)
    replace_file(Path(archive), content)
    return len(content)


def unpack(archive: str | os.PathLike[str], store: str | os.PathLike[str]) -> int:
    """Unpack a file into a store, keep entries that exist, and return the number of entries."""
    target = ResultStore(store)
    count = 0
    with target.writing(), tarfile.open(archive, mode="r:xz") as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is None or ".." in Path(member.name).parts or member.name.startswith("/"):
                raise StoreError(f"{archive} holds {member.name!r}, which is not a store entry")
            content = file.read()
            if member.name.endswith(".npz"):
                name = member.name[: -len(".npz")]
                if target.record(name) is None:
                    entry = _unpacked(content)
                    target.write(name, entry.record, entry.arrays)
            else:
                replace_file(target.folder / member.name, content)
            count += 1
    return count


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    tar.addfile(header, io.BytesIO(content))


def _step(arrays: dict[str, NDArray[Any]]) -> float:
    """The step to which the predictions of a trial are rounded."""
    if "lower" in arrays:
        length = np.median(arrays["upper"] - arrays["lower"]) if arrays["lower"].size else 1.0
    elif "scale" in arrays:
        length = 4 * np.median(arrays["scale"])
    else:
        length = 4 * np.sqrt(np.mean((arrays["point"] - arrays["target"]) ** 2))
    return float(2.0 ** np.floor(np.log2(max(float(length), 1e-6) / _FINENESS)))


def _packed(entry: StoreEntry) -> bytes:
    """An entry as an uncompressed archive of arrays, since all entries are compressed together."""
    arrays: dict[str, NDArray[Any]] = {}
    record = dict(entry.record)
    if "target" in entry.arrays:
        step = record.setdefault("rounded_to", _step(entry.arrays))  # as before, if unpacked
        whole = {
            n: np.rint(entry.arrays[n] / step).astype(np.int64)
            for n in _FIELDS
            if n in entry.arrays
        }
        arrays = {name: entry.arrays[name].astype(np.int64) for name in _KEPT_IN_FULL}
        arrays["target"] = entry.arrays["target"].astype(np.float32)
        base = np.rint(arrays["target"].astype(np.float64) / step).astype(np.int64)
        middle = record["settings"]["loss"] == "qd"  # the point is the middle of the bounds
        for name, values in whole.items():
            if not (middle and name == "point"):
                arrays[name] = _planes(values - _neighbour(name, whole, base, middle=middle))
    else:
        arrays = {
            n: a.astype(np.float32) if a.dtype == np.float64 else a for n, a in entry.arrays.items()
        }
    buffer = io.BytesIO()
    arrays["record"] = np.array(json.dumps(record, sort_keys=True))
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _neighbour(
    name: str, whole: dict[str, NDArray[np.int64]], base: NDArray[np.int64], *, middle: bool
) -> NDArray[np.int64]:
    """What a field is stored as the difference from: the target, or another field."""
    if name == "scale":
        return np.zeros_like(base)
    if name == "upper":
        return whole["lower"] if middle else whole["point"]
    return whole["point"] if name == "lower" and not middle else base


def _planes(values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Integers as two bytes (or four), with all high bytes first, which compress well."""
    kind = "<i2" if np.abs(values).max(initial=0) < 2**15 else "<i4"
    narrow = np.ascontiguousarray(values.astype(kind))
    split = narrow.view(np.uint8).reshape(*values.shape, narrow.itemsize)
    return np.moveaxis(split, -1, 0)[::-1]


def _whole(planes: NDArray[np.uint8]) -> NDArray[np.int64]:
    narrow = np.ascontiguousarray(np.moveaxis(planes[::-1], 0, -1))
    return narrow.view(f"<i{len(planes)}")[..., 0].astype(np.int64)


def _unpacked(content: bytes) -> StoreEntry:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    record = json.loads(str(arrays.pop("record")))
    if "rounded_to" not in record:
        return StoreEntry(record, arrays)
    step, middle = record["rounded_to"], record["settings"]["loss"] == "qd"
    base = np.rint(arrays["target"].astype(np.float64) / step).astype(np.int64)
    whole: dict[str, NDArray[np.int64]] = {}
    for name in _FIELDS:
        if name in arrays:
            change = _whole(arrays[name])
            whole[name] = change + _neighbour(name, whole, base, middle=middle)
    fields = {name: (values * step).astype(np.float32) for name, values in whole.items()}
    if middle:
        fields["point"] = (fields["lower"] + fields["upper"]) / 2
    kept = {name: arrays[name] for name in _KEPT_IN_FULL}
    return StoreEntry(record, {**kept, "target": arrays["target"].astype(np.float64), **fields})
