"""RowBlocks: the rows of a table that is streamed in blocks, in as many passes as needed.

A hash of their numbers decides which rows are held out. So these are the same in every pass,
whatever the size of the blocks, and no list of rows is needed.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import FloatArray
from calipers._row_sources import check_columns, delayed_parts, inputs_and_targets, opener

__all__ = ["RowBlocks", "Sample"]

Hashes = NDArray[np.uint64]

_CELLS = 2**24  # values of a sample, at most


class Sample(NamedTuple):
    """Rows drawn at random, in random order."""

    X: Any  #: Their inputs.
    y: FloatArray  #: (rows,): Their targets.
    numbers: NDArray[np.uint64]  #: (rows,): Their row numbers in the source.
    #: (rows,): The hashes that selected them, in ascending order: the first rows of a sample are a
    #: sample, too.
    hashes: Hashes
    total: int  #: Number of rows that they were drawn from.


class RowBlocks:
    """Rows for ``IntervalRegressor.fit`` that need not fit into memory.

    Parameters
    ----------
    source : path, list of paths, array, Dask frame, Arrow dataset, or iterable of blocks
        Source of the rows:

        - names or patterns of files that ``calipers.tables`` reads (Parquet, Arrow, CSV), or a
          folder of them; in one of Parquet files, names of folders such as ``year=2024`` are
          columns;
        - an array that is sliced block by block, such as ``numpy.load(..., mmap_mode="r")``, an
          HDF5 or Zarr dataset, or a Dask array;
        - a pandas or Dask frame, or an Arrow dataset (``pyarrow.dataset.dataset(...)``);
        - an iterable of frames, or of pairs ``(X, y)``; or a function without arguments that
          returns one. A one-time iterator is written to a scratch file.

        Every pass must give the same rows in the same order.
    target : str or array, optional
        Name of the target column, or the targets as an array, of the same length as the inputs.
        None if blocks are pairs.
    drop_missing : bool, default False
        Whether to drop rows without a target instead of raising an error.

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
        self._open = opener(source, target)
        self._left_out: tuple[tuple[int, int], ...] = ()
        self._start = 0  # number of the first row
        self._first: dict[str, int] = {}  # row count and checksum of the first complete pass

    def __iter__(self) -> Iterator[tuple[Any, FloatArray]]:
        """Blocks of inputs and targets."""
        for _, X, y in self.numbered():
            yield X, y

    def hold_out(self, rows: int, seed: int = 0) -> tuple["RowBlocks", Any, FloatArray]:
        """Hold rows out at random, for example to test a model on.

        Parameters
        ----------
        rows : int
            Number of rows to hold out; at most half of all are, and fewer of tables with hundreds
            of columns, since they must fit into memory.
        seed : int
            Seed of the choice.

        Returns
        -------
        rest : RowBlocks
            All other rows.
        X : frame or array
            Inputs of the held-out rows, in memory.
        y : array of shape (rows,)
            Their targets.
        """
        if rows < 1:
            raise ValueError(f"rows to hold out must be at least 1, got {rows}")
        sample = self.sample(rows, seed)
        count = min(len(sample.y), sample.total // 2)
        return self.without(sample, count, seed), sample.X[:count], sample.y[:count]

    def sample(self, rows: int, seed: int) -> Sample:
        """Draw rows at random in one pass, fewer if they have many columns."""
        parts: list[Sample] = []
        limit, held = 2**64 - 1, 0
        for block in self.numbered():
            parts.append(_drawn(block, seed, limit))
            held += len(parts[-1].y)
            if held > 2 * _most_rows(rows, parts[0].X):
                parts = [merged_sample(parts, rows)]
                limit, held = int(parts[0].hashes[-1]), len(parts[0].y)
        return merged_sample(parts, rows)

    def without(self, sample: Sample, rows: int, seed: int) -> "RowBlocks":
        """All rows except the first ``rows`` of a sample that was drawn with this seed."""
        rest = copy(self)
        if rows:
            rest._left_out = (*self._left_out, (seed, int(sample.hashes[rows - 1])))
        return rest

    def partitions(self) -> list[Any]:
        """Lazy blocks of a Dask source."""
        parts = delayed_parts(self.source)
        if self.target is None or isinstance(self.target, str):
            return parts
        pair = dask_function(lambda X, y: (X, y))
        return [pair(X, y) for X, y in zip(parts, delayed_parts(self.target), strict=True)]

    def reader(self) -> Callable[..., "RowBlocks"]:
        """Return a function for other processes, from a block and its first row number to its rows.

        It optionally takes the row count and checksum of the first pass, see ``chosen_rows``.
        """
        target = self.target if isinstance(self.target, str) else None
        return partial(_of_block, target, self.drop_missing, self._left_out)

    def numbered(self) -> Iterator[tuple[Hashes, Any, FloatArray]]:
        """Blocks, and the numbers of their rows in the source.

        Raises
        ------
        ValueError
            If the source gives other rows than in the first pass, or in another order: held-out
            rows are identified by their numbers.
        """
        start, digest, first = self._start, 0, None
        for block in self._open():
            X, y = inputs_and_targets(block, self.target, start)
            first = check_columns(X, first, start)
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
                    f"the target is missing in row {row:,} (from 0): drop such rows by "
                    "RowBlocks(..., drop_missing=True)"
                )
            for seed, limit in self._left_out:
                kept &= _hashes(numbers, seed) > np.uint64(limit)
            if not kept.all():
                chosen = np.flatnonzero(kept)
                numbers, X, y = numbers[chosen], _take(X, chosen), y[chosen]
            if len(y):
                yield numbers, X, y
        rows, checksum = self._first.setdefault("rows", start), self._first.setdefault("y", digest)
        if (rows, checksum) != (start, digest):
            order = "" if rows != start else ", but different ones or in another order"
            raise ValueError(
                f"the source gave {rows:,} rows when first read and {start:,} now{order}: it must "
                "give the same rows each time"
            )


def dask_function(function: Callable[..., Any]) -> Any:
    """Return a lazy version of a function."""
    from dask.delayed import delayed

    return delayed(function, pure=False)


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


def chosen_rows(rows: RowBlocks, seed: int, limit: int) -> tuple[Sample | None, dict[str, int]]:
    """Return the rows of one block with hashes up to ``limit``; None if it has no rows.

    The last value is the row count and checksum of the pass, by which a later pass is checked.
    """
    drawn = [_drawn(block, seed, limit) for block in rows.numbered()]
    return drawn[0] if drawn else None, rows._first


def _drawn(block: tuple[Hashes, Any, FloatArray], seed: int, limit: int) -> Sample:
    """The rows of a block with hashes up to ``limit``."""
    numbers, X, y = block
    hashes = _hashes(numbers, seed)
    chosen = np.flatnonzero(hashes <= np.uint64(limit))
    return Sample(_take(X, chosen), y[chosen], numbers[chosen], hashes[chosen], len(y))


def merged_sample(parts: Sequence[Sample], rows: int) -> Sample:
    """The rows with the lowest hashes, in ascending order."""
    if not parts:
        raise ValueError("the source has no rows with a target")
    inputs = [part.X for part in parts]
    hashes = np.concatenate([part.hashes for part in parts])
    order = np.argsort(hashes)[: _most_rows(rows, inputs[0])]
    if hasattr(inputs[0], "iloc"):
        import pandas as pd

        X = pd.concat(inputs, ignore_index=True).iloc[order].reset_index(drop=True)
    else:
        X = np.concatenate(inputs)[order]
    y = np.concatenate([part.y for part in parts])[order]
    numbers = np.concatenate([part.numbers for part in parts])[order]
    return Sample(X, y, numbers, hashes[order], sum(part.total for part in parts))


def _most_rows(rows: int, X: Any) -> int:
    return min(rows, max(1, _CELLS // X.shape[1]))


def _hashes(numbers: Hashes, seed: int) -> Hashes:
    """Pseudorandom hashes of row numbers (SplitMix64)."""
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        x = (numbers + state) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))


def _take(X: Any, rows: NDArray[np.intp]) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
