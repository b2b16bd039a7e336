"""RowBlocks: rows of a table that is read in blocks, as often as needed, and never whole.

Which rows are set aside is decided by a hash of their numbers, so that it is the same in every
reading, whatever the size of the blocks, and needs no list of rows.
"""

import math
import os
import pickle
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calipers._checks import FloatArray
from calipers._text import did_you_mean
from calipers.cluster import is_lazy
from calipers.preprocessing import is_frame
from calipers.tables import find_files, read_blocks

Hashes = NDArray[np.uint64]

_ROWS, _VALUES = 2**16, 2**22  # of a block of an array, at most
_CELLS = 2**24  # values of a sample, at most


class Sample(NamedTuple):
    """Rows drawn at random, in random order."""

    X: Any  #: Their inputs.
    y: FloatArray  #: (rows,): Their targets.
    #: (rows,): By which they were drawn, in ascending order: the first rows of a sample are a
    #: sample, too.
    hashes: Hashes
    total: int  #: How many rows there are to draw from.


class RowBlocks:
    """Rows for ``IntervalRegressor.fit`` that need not fit into memory.

    Parameters
    ----------
    source : path, list of paths, array, frame of Dask, dataset of Arrow, or iterable of blocks
        Where the rows are:

        - names or patterns of files that ``calipers.tables`` reads (Parquet, Arrow, CSV), or a
          folder of them;
        - an array that is sliced block by block, such as ``numpy.load(..., mmap_mode="r")`` or a
          dataset of HDF5 or Zarr, or an array of Dask;
        - a frame of pandas or Dask, or a dataset of Arrow (``pyarrow.dataset.dataset(...)``);
        - an iterable of frames, or of pairs ``(X, y)``; or a function without arguments that gives
          one. An iterator that can be gone through only once is written to a scratch file.

        Every reading must give the same rows in the same order.
    target : str or array, optional
        Name of the column to predict; or the targets themselves, an array as long as that of
        inputs. None where blocks are pairs.
    drop_missing : bool, default False
        Whether rows without a target are left out; otherwise they are an error.

    Examples
    --------
    >>> X = np.arange(10.0)[:, None]
    >>> rows = RowBlocks(X, X[:, 0] ** 2)
    >>> [len(y) for X, y in rows]
    [10]
    >>> rest, X, y = rows.hold_out(4, seed=0)
    >>> X.shape, sum(len(y) for _, y in rest)
    ((4, 1), 6)
    """

    def __init__(self, source: Any, target: Any = None, *, drop_missing: bool = False) -> None:
        self.source = source
        self.target = target
        self.drop_missing = drop_missing
        self._open = _opener(source, target)
        self._left_out: tuple[tuple[int, int], ...] = ()
        self._start = 0  # number of the first row
        self._first: dict[str, int] = {}  # what the first whole reading has found

    def __iter__(self) -> Iterator[tuple[Any, FloatArray]]:
        """Blocks of inputs and targets."""
        for _, X, y in self.numbered():
            yield X, y

    def hold_out(self, rows: int, seed: int = 0) -> tuple["RowBlocks", Any, FloatArray]:
        """Set rows aside at random, such as to test a model on.

        Parameters
        ----------
        rows : int
            How many; at most half of all.
        seed : int
            Decides which; another seed gives other rows.

        Returns
        -------
        rest : RowBlocks
            All other rows.
        X : frame or array
            Inputs of the rows held out, which are read at once.
        y : array of shape (rows,)
            Their targets.
        """
        if rows < 1:
            raise ValueError(f"rows to hold out must be at least 1, got {rows}")
        found = self.sample(rows, seed)
        kept = min(rows, found.total // 2)
        return self.without(found, kept, seed), found.X[:kept], found.y[:kept]

    def sample(self, rows: int, seed: int) -> Sample:
        """Draw rows at random, fewer where they are wide, in one reading."""
        kept: list[tuple[Hashes, Any, FloatArray]] = []
        limit, held, count = 2**64 - 1, 0, 0
        for numbers, X, y in self.numbered():
            rows = min(rows, max(1, _CELLS // X.shape[1]))
            count += len(y)
            hashes = _hashes(numbers, seed)
            chosen = np.flatnonzero(hashes <= limit)
            kept.append((hashes[chosen], _take(X, chosen), y[chosen]))
            held += len(chosen)
            if held > 2 * rows:
                kept = [_lowest(kept, rows)]
                limit, held = int(kept[0][0][-1]), rows
        if not count:
            raise ValueError("the source has no rows with a target")
        hashes, X, y = _lowest(kept, rows)
        return Sample(X, y, hashes, count)

    def without(self, sample: Sample, rows: int, seed: int) -> "RowBlocks":
        """All rows but the first of a sample that was drawn by the seed."""
        rest = RowBlocks.__new__(RowBlocks)
        rest.__dict__ |= self.__dict__
        if rows:
            rest._left_out = (*self._left_out, (seed, int(sample.hashes[rows - 1])))
        return rest

    def partitions(self) -> list[Any]:
        """Blocks that are not computed yet, of a source of Dask."""
        parts = _delayed(self.source)
        if self.target is None or isinstance(self.target, str):
            return parts
        pair = dask_function(_pair)
        return [pair(X, y) for X, y in zip(parts, _delayed(self.target), strict=True)]

    def reader(self) -> Callable[..., "RowBlocks"]:
        """A function for other processes: from a block and its first number to its rows.

        What a first reading has found, see ``chosen_rows``, may be given besides.
        """
        target = self.target if isinstance(self.target, str) else None
        return partial(_of_block, target, self.drop_missing, self._left_out)

    def numbered(self) -> Iterator[tuple[Hashes, Any, FloatArray]]:
        """Blocks, and the numbers of their rows in the source.

        Raises
        ------
        ValueError
            If the source gives other rows than when it was first read, or in another order: rows
            held out are known by their numbers.
        """
        start, digest, first = self._start, 0, None
        for block in self._open():
            X, y = _parted(block, self.target, start)
            first = _check_columns(X, first, start)
            numbers = np.arange(start, start + len(y), dtype=np.uint64)
            start += len(y)
            digest = zlib.crc32(y.astype(np.float32).tobytes(), digest)
            kept = np.ones(len(y), dtype=bool)
            missing = np.isnan(y)
            if self.drop_missing:
                kept = ~missing
            elif missing.any():
                row = int(numbers[missing][0])
                raise ValueError(
                    f"the target is missing in row {row:,} (from 0): leave such rows out by "
                    "RowBlocks(..., drop_missing=True)"
                )
            for seed, limit in self._left_out:
                kept &= _hashes(numbers, seed) > np.uint64(limit)
            if not kept.all():
                chosen = np.flatnonzero(kept)
                numbers, X, y = numbers[chosen], _take(X, chosen), y[chosen]
            if len(y):
                yield numbers, X, y
        rows, known = self._first.setdefault("rows", start), self._first.setdefault("y", digest)
        if (rows, known) != (start, digest):
            order = "" if rows != start else ", but others or in another order"
            raise ValueError(
                f"the source gave {rows:,} rows when first read and {start:,} now{order}: it must "
                "give the same rows each time"
            )


def dask_function(function: Callable[..., Any]) -> Any:
    """A function that Dask calls later."""
    from dask.delayed import delayed

    return delayed(function, pure=False)


def _delayed(source: Any) -> list[Any]:
    whole = source.rechunk({1: -1}) if hasattr(source, "rechunk") and source.ndim == 2 else source
    return list(np.ravel(whole.to_delayed()))


def _pair(X: Any, y: Any) -> tuple[Any, Any]:
    return X, y


def _of_block(
    target: str | None,
    drop_missing: bool,
    left_out: tuple[tuple[int, int], ...],
    block: Any,
    start: int,
    first: dict[str, int] | None = None,
) -> RowBlocks:
    rows = RowBlocks([block], target, drop_missing=drop_missing)
    rows._left_out, rows._start, rows._first = left_out, start, dict(first or {})
    return rows


Chosen = tuple[Hashes, Any, FloatArray, int, dict[str, int]]


def chosen_rows(rows: RowBlocks, seed: int, limit: int) -> Chosen:
    """Rows of one block whose hash is low enough, how many there are, and what was found."""
    found: tuple[Hashes, Any, FloatArray, int] = np.empty(0, np.uint64), None, np.empty(0), 0
    for numbers, X, y in rows.numbered():
        hashes = _hashes(numbers, seed)
        chosen = np.flatnonzero(hashes <= np.uint64(limit))
        found = hashes[chosen], _take(X, chosen), y[chosen], len(y)
    return *found, rows._first


def merged_sample(parts: Iterable[Chosen], rows: int) -> Sample:
    """The sample that ``RowBlocks.sample`` would have drawn of all blocks."""
    found = [part for part in parts if part[3]]
    if not found:
        raise ValueError("the source has no rows with a target")
    rows = min(rows, max(1, _CELLS // found[0][1].shape[1]))
    hashes, X, y = _lowest([part[:3] for part in found], rows)
    return Sample(X, y, hashes, sum(part[3] for part in found))


def _hashes(numbers: Hashes, seed: int) -> Hashes:
    """Random numbers that belong to row numbers (SplitMix64)."""
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        x = (numbers + state) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))


def _take(X: Any, rows: NDArray[np.intp]) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _lowest(parts: list[tuple[Hashes, Any, FloatArray]], rows: int) -> tuple[Hashes, Any, Any]:
    """The rows of lowest hash, in ascending order."""
    hashes = np.concatenate([part[0] for part in parts])
    order = np.argsort(hashes)[:rows]
    inputs = [part[1] for part in parts]
    if hasattr(inputs[0], "iloc"):
        import pandas as pd

        X = pd.concat(inputs, ignore_index=True).iloc[order].reset_index(drop=True)
    else:
        X = np.concatenate(inputs)[order]
    return hashes[order], X, np.concatenate([part[2] for part in parts])[order]


def _parted(block: Any, target: Any, start: int) -> tuple[Any, FloatArray]:
    """Inputs and targets of a block, which begins at some row."""
    if isinstance(target, str):
        if not is_frame(block):
            raise TypeError(
                f"target={target!r} names a column, and a block is of {type(block).__name__}: give "
                "frames, or pairs of inputs and targets with target=None"
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
            f"a block must be a pair (X, y), or target must name a column, got a block of "
            f"{type(block).__name__} and target={target!r}"
        )
    values = _as_target(y, start)
    if len(X) != len(values):
        raise ValueError(
            f"the block from row {start:,} on has {len(X):,} rows of inputs and {len(values):,} "
            "targets"
        )
    return X, values


def _check_columns(X: Any, first: Any, start: int) -> Any:
    """Refuse a block that has no columns, or others than the first; gives those of the first."""
    place = f"the block from row {start:,} on has inputs of shape {X.shape}"
    if X.ndim != 2 or not X.shape[1]:
        right = "(rows, columns), with a column beside the target"
        raise ValueError(f"{place}: it must be {right}")
    own = set(X.columns) if hasattr(X, "iloc") else X.shape[1]
    if not len(X) or first is None or own == first:
        return own if first is None else first
    other = f"{first} columns" if isinstance(first, int) else ", ".join(sorted(map(str, first)))
    raise ValueError(f"{place} and other columns than blocks before it, which have {other}")


def _as_target(y: Any, start: int) -> FloatArray:
    """Targets as numbers, NaN where they are missing."""
    try:
        if hasattr(y, "isna"):  # of pandas, whose missing values are of several kinds
            return np.asarray(y.to_numpy(np.float64, na_value=np.nan)).ravel()
        values = np.asarray(y)
        return (values.astype(object) if np.iscomplexobj(y) else values).astype(np.float64).ravel()
    except (TypeError, ValueError):
        for row, value in enumerate(np.asarray(y, object).ravel()):
            try:
                float(value)
            except (TypeError, ValueError):
                shown = f"got {str(value)!r} in row {start + row:,} (from 0)"
                raise ValueError(f"the target must hold numbers, {shown}") from None
        raise


def _as_pandas(block: Any) -> Any:
    return block.to_pandas() if hasattr(block, "to_pandas") else block


def _opener(source: Any, target: Any) -> Callable[[], Iterator[Any]]:
    """A function that begins a reading of a source."""
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
        "source must be names of files, an array, a frame, a dataset of Arrow or an iterable of "
        f"blocks, got {type(source).__name__}"
    )


def _of_files(names: list[str]) -> Callable[[], Iterator[Any]]:
    files: list[str] = []
    for name in names:
        if Path(name).is_dir():
            inside = sorted(path for path in Path(name).rglob("*") if path.is_file())
            files += [os.fspath(path) for path in inside if not _is_hidden(path, name)]
        else:
            files += find_files([name])
    if not files:
        raise ValueError(f"there are no files in {names[0]}")
    return lambda: (block.frame for name in files for block in read_blocks(name))


def _is_hidden(path: Path, folder: str) -> bool:
    """Whether a file, or a folder on the way to it, is for the notes of some program."""
    return any(part[0] in "._" for part in path.relative_to(folder).parts)


def _of_dask(source: Any, target: Any) -> Callable[[], Iterator[Any]]:
    """Partitions of a frame, or rows of blocks of an array, computed one after another."""
    rows = source.rechunk({1: -1}) if hasattr(source, "rechunk") else source
    count, parts = rows.npartitions, rows.partitions
    if target is None or isinstance(target, str):
        return lambda: (parts[i].compute() for i in range(count))
    if not is_lazy(target):
        raise TypeError(f"target must be of Dask as the source is, got {type(target).__name__}")
    own = target.partitions
    if target.npartitions != count:
        raise ValueError(f"source has {count} partitions and target {target.npartitions}")
    return lambda: ((parts[i].compute(), own[i].compute()) for i in range(count))


def _of_array(source: Any, target: Any) -> Callable[[], Iterator[Any]]:
    rows = source.iloc if hasattr(source, "iloc") else source
    width = math.prod(source.shape[1:])
    size = int(np.clip(_VALUES // max(1, width), 1, _ROWS))
    starts = range(0, len(source), size)
    if target is None or isinstance(target, str):
        return lambda: (rows[i : i + size] for i in starts)
    if len(target) != len(source):
        raise ValueError(f"source has {len(source):,} rows and target {len(target):,}")
    own = target.iloc if hasattr(target, "iloc") else target
    return lambda: ((rows[i : i + size], own[i : i + size]) for i in starts)


class _Spool:
    """An iterator of blocks that can be gone through again, by a scratch file without a name."""

    def __init__(self, blocks: Iterator[Any]) -> None:
        self.blocks = blocks
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the object
        weakref.finalize(self, self.file.close)
        self.starts: list[int] = []
        self.whole = True

    def __call__(self) -> Iterator[Any]:
        if not self.whole:
            raise ValueError("the iterator of blocks has failed before its end: make a new one")
        for start in self.starts[:]:
            self.file.seek(start)
            yield pickle.load(self.file)  # noqa: S301 - written below
        self.whole = False
        for block in self.blocks:  # those that no reading has come to
            self.starts.append(self.file.seek(0, os.SEEK_END))
            pickle.dump(block, self.file, protocol=5)
            self.whole = True
            yield block
            self.whole = False
        self.whole = True
