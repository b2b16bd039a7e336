"""Sources of ``RowBlocks``, which can be read repeatedly, and their blocks."""

import math
import os
import pickle
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calipers._arrays import FloatArray
from calipers._text import did_you_mean
from calipers.cluster import is_lazy
from calipers.preprocessing import DataError, is_frame, read_target
from calipers.tables import (
    RowSource,
    find_files,
    find_parts,
    read_blocks,
    read_part,
    visible_paths,
)

_ROWS, _VALUES = 2**16, 2**22  # of a block of an array, at most


def opener(source: Any, target: Any) -> Callable[[], Iterator[Any]]:
    """Return a function that starts a pass over a source."""
    if isinstance(source, str | os.PathLike):
        source = [source]
    names = source if isinstance(source, list | tuple) else [None]
    if names and all(isinstance(name, str | os.PathLike) for name in names):
        return _of_files([os.fspath(name) for name in source])
    if is_lazy(source):
        return _of_dask(source, target)
    if hasattr(source, "to_batches"):
        return lambda: (batch.to_pandas() for batch in source.to_batches() if batch.num_rows)
    if getattr(source, "shape", ()) and not callable(source):
        return _of_array(source, target)
    if callable(source):
        return lambda: iter(source())
    if isinstance(source, Iterator):
        return _Spool(source)
    if isinstance(source, Iterable):
        return lambda: iter(source)
    raise TypeError(
        "source must be names of files, an array, a frame, an Arrow dataset or an iterable of "
        f"blocks, got {type(source).__name__}"
    )


def _of_files(names: list[str]) -> Callable[[], Iterator[Any]]:
    readers = [reader for name in names for reader in _readers(name)]
    if not readers:
        raise ValueError(f"there are no files in {names[0]}")
    return lambda: (block.frame for reader in readers for block in reader())


def _readers(name: str) -> list[Callable[[], Iterator[RowSource]]]:
    """Return a function for each file, or part of a folder, that reads it block by block."""
    if not Path(name).is_dir():
        return [partial(read_blocks, file) for file in find_files([name])]
    files = [path for path in visible_paths(Path(name)) if path.is_file()]
    if files and all(path.suffix == ".parquet" for path in files):
        return [partial(read_part, part) for part in find_parts([name])[0]]
    return [partial(read_blocks, os.fspath(path)) for path in files]


def _of_dask(source: Any, target: Any) -> Callable[[], Iterator[Any]]:
    """Partitions of a frame, or row blocks of an array, computed one after another."""
    parts = delayed_parts(source)
    if target is None or isinstance(target, str):
        return lambda: (part.compute() for part in parts)
    if not is_lazy(target):
        raise TypeError(
            f"target must be a Dask collection like the source, got {type(target).__name__}"
        )
    targets = delayed_parts(target)
    if len(targets) != len(parts):
        raise ValueError(f"source has {len(parts)} partitions and target {len(targets)}")
    return lambda: ((X.compute(), y.compute()) for X, y in zip(parts, targets, strict=True))


def delayed_parts(source: Any) -> list[Any]:
    """Lazy partitions of a Dask frame, or row blocks of a Dask array."""
    whole = source.rechunk({1: -1}) if hasattr(source, "rechunk") and source.ndim == 2 else source
    return list(np.ravel(whole.to_delayed()))


def _of_array(source: Any, target: Any) -> Callable[[], Iterator[Any]]:
    rows = source.iloc if hasattr(source, "iloc") else source
    width = math.prod(source.shape[1:])
    size = int(np.clip(_VALUES // max(1, width), 1, _ROWS))
    starts = range(0, len(source), size)
    if target is None or isinstance(target, str):
        return lambda: (rows[i : i + size] for i in starts)
    if len(target) != len(source):
        raise ValueError(f"source has {len(source):,} rows and target {len(target):,}")
    targets = target.iloc if hasattr(target, "iloc") else target
    return lambda: ((rows[i : i + size], targets[i : i + size]) for i in starts)


class _Spool:
    """Makes an iterator of blocks repeatable, by an unnamed scratch file."""

    def __init__(self, blocks: Iterator[Any]) -> None:
        self.blocks = blocks
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the object
        weakref.finalize(self, self.file.close)
        self.starts: list[int] = []
        self.whole = True

    def __call__(self) -> Iterator[Any]:
        if not self.whole:
            raise ValueError("the iterator of blocks failed before its end: make a new one")
        for start in self.starts[:]:
            self.file.seek(start)
            yield pickle.load(self.file)  # noqa: S301 - written below
        self.whole = False
        for block in self.blocks:  # those that no pass has reached yet
            self.starts.append(self.file.seek(0, os.SEEK_END))
            pickle.dump(block, self.file, protocol=5)
            self.whole = True
            yield block
            self.whole = False
        self.whole = True


def inputs_and_targets(block: Any, target: Any, start: int) -> tuple[Any, FloatArray]:
    """Return inputs and targets of a block, whose first row number is ``start``."""
    if isinstance(target, str):
        if not is_frame(block):
            raise TypeError(
                f"target={target!r} is a column name, but a block is of type "
                f"{type(block).__name__}: use frames, or pairs (X, y) with target=None"
            )
        frame = _as_pandas(block)
        if target not in frame:
            raise ValueError(f"there is no column {target!r}{did_you_mean(target, frame)}")
        X, y = frame.drop(columns=target), frame[target]
    elif isinstance(block, tuple) and len(block) == 2:
        X, y = block
        X = _as_pandas(X) if is_frame(X) else np.asarray(X)
    else:
        raise TypeError(
            f"a block must be a pair (X, y), or target must name a column, got a "
            f"{type(block).__name__} and target={target!r}"
        )
    values = _as_target(y, X, start)
    if len(X) != len(values):
        raise ValueError(
            f"the block from row {start:,} on has {len(X):,} rows of inputs and {len(values):,} "
            "targets"
        )
    return X, values


def check_columns(X: Any, first: Any, start: int) -> Any:
    """Refuse a block without columns, or with others than the first; return those of the first."""
    place = f"the block from row {start:,} on has inputs of shape {X.shape}"
    if X.ndim != 2 or not X.shape[1]:
        right = "(rows, columns), with at least one column besides the target"
        raise ValueError(f"{place}: it must be {right}")
    columns = set(X.columns) if hasattr(X, "iloc") else X.shape[1]
    if not len(X) or first is None or columns == first:
        return columns if first is None else first
    other = f"{first} columns" if isinstance(first, int) else ", ".join(sorted(map(str, first)))
    raise ValueError(f"{place} and other columns than blocks before it, which have {other}")


def _as_target(y: ArrayLike, X: Any, start: int) -> FloatArray:
    """Return targets as numbers, with NaN for missing ones."""
    try:
        return read_target(y, X, plain=True).ravel()
    except DataError as error:
        row = error.row or 0
        shown = f"got {str(np.ravel(np.asarray(y, object))[row])!r} in row {start + row:,} (from 0)"
        raise ValueError(
            f"the target must hold numbers, {shown}: convert text in all blocks alike, by "
            "calipers.preprocessing.read_number(y, kind)"
        ) from None


def _as_pandas(block: Any) -> Any:
    return block.to_pandas() if hasattr(block, "to_pandas") else block
