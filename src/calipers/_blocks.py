"""Process large arrays block by block, on the threads of the active joblib configuration.

Every operation of the distributions goes through `blockwise`, so temporaries have the size of a
block and not of the data. NumPy and SciPy release the interpreter lock inside their loops, which
makes threads worthwhile. A row's numbers depend on that row alone: neither the size of the blocks
nor the number of threads can change a result.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import joblib
import numpy as np

from calipers._arrays import FloatArray

Result = TypeVar("Result")
Index = tuple[slice, ...]

# Numbers per array and block: some twenty temporaries of this size fit into a core's cache, and the
# C library reuses their memory without requesting new pages from the system.
BLOCK_SIZE = 20_480
# With fewer rows, one call that keeps all partial sums is faster than one call per member.
FEW_ROWS = 64


def sum_members(values: FloatArray) -> FloatArray:
    """Sum over the first axis, one member after the other.

    The order of NumPy's sum depends on the number of rows and the memory layout, so that the last
    bits of a row would depend on the other rows in the batch.

    >>> sum_members(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([4., 6.])
    """
    if values[0].size < FEW_ROWS:
        return np.add.accumulate(values, axis=0, dtype=np.float64)[-1]
    total = np.array(values[0], dtype=np.float64)
    for value in values[1:]:
        total += value
    return total


def blocks(shape: tuple[int, ...], size: int) -> Iterator[Index]:
    """Cut an array of this shape into slices of at most `size` elements each.

    >>> list(blocks((5,), 2))
    [(slice(0, 2, None),), (slice(2, 4, None),), (slice(4, 6, None),)]
    """
    if not shape:
        yield ()
        return
    step = max(1, size // max(1, math.prod(shape[1:])))
    for start in range(0, shape[0], step):
        for rest in blocks(shape[1:], size):
            yield (slice(start, start + step), *rest)


def run_blocks(work: Callable[[Index], Result], shape: tuple[int, ...], size: int) -> list[Result]:
    """Call `work` on blocks of `size` elements of `shape`; results in order.

    Formulas here rely on the limits of IEEE arithmetic (1/0 is infinite, exp(-inf) is 0), so
    NumPy's warnings about them are off while a block is worked on.
    """

    def quietly(index: Index) -> Result:
        with np.errstate(all="ignore"):
            return work(index)

    threads = _threads() if math.prod(shape) > size else 1
    if threads == 1:
        return [quietly(index) for index in blocks(shape, size)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(quietly, blocks(shape, size)))


def _threads() -> int:
    """Number of threads of an enclosing ``joblib.parallel_config``, by default one."""
    backend, n_jobs = joblib.parallel.get_active_backend()
    return joblib.effective_n_jobs(n_jobs) if getattr(backend, "supports_sharedmem", False) else 1


def blockwise(
    function: Callable[..., FloatArray | tuple[FloatArray, ...]],
    rows: Sequence[FloatArray],
    members: Sequence[FloatArray] = (),
    *,
    outputs: int | None = None,
    block_rows: int | None = None,
) -> FloatArray:
    """Apply `function` to arrays that broadcast against each other, in blocks on threads.

    The function takes the blocks of `rows`, each of shape (n,), then those of `members`, which have
    a leading axis, each of shape (m, n). It returns an array of shape (n,), or `outputs` of them.
    The result has the common shape, after a leading axis of `outputs` if that is given; a common
    shape of () gives scalars. Blocks have `block_rows` rows, by default as many as fit into a
    core's cache.
    """
    shape, cut = _cutter(rows, members)
    size = block_rows or _block_rows(members)
    if 0 < math.prod(shape) <= size:
        with np.errstate(all="ignore"):
            values = function(*cut((slice(None),) * len(shape)))
        full_shape = shape if outputs is None else (outputs, *shape)
        return np.array(values, np.float64).reshape(full_shape)[()]
    result = np.empty((outputs or 1, *shape))

    def work(index: Index) -> None:
        part = result[(slice(None), *index)]
        part[...] = np.reshape(function(*cut(index)), part.shape)

    run_blocks(work, shape, size)
    return result if outputs else result[0]


def blockwise_ragged(
    function: Callable[..., tuple[FloatArray, ...]],
    rows: Sequence[FloatArray],
    members: Sequence[FloatArray],
    *,
    outputs: int,
    block_rows: int | None = None,
) -> list[FloatArray]:
    """Like `blockwise`, for a function that gives a varying number of values per row.

    The function returns `outputs` arrays of shape (k, n), padded with NaN, whose k may differ
    between blocks. So does this, each of shape (largest k, *common shape).
    """
    shape, cut = _cutter(rows, members)
    size = block_rows or _block_rows(members)
    parts = run_blocks(lambda index: (index, function(*cut(index))), shape, size)
    most = max((len(arrays[0]) for _, arrays in parts), default=0)
    results = [np.full((most, *shape), np.nan) for _ in range(outputs)]
    for index, arrays in parts:
        for result, array in zip(results, arrays, strict=True):
            part = result[(slice(len(array)), *index)]
            part[...] = array.reshape(part.shape)
    return results


def _block_rows(members: Sequence[FloatArray]) -> int:
    """Rows per block, fewer if there are more members."""
    return max(1, BLOCK_SIZE // max((len(array) for array in members), default=1))


def _cutter(
    rows: Sequence[FloatArray], members: Sequence[FloatArray]
) -> tuple[tuple[int, ...], Callable[[Index], list[FloatArray]]]:
    """Return the common shape, and a function that cuts one block out of every array."""
    shape = np.broadcast_shapes(*(a.shape for a in rows), *(a.shape[1:] for a in members))
    wide_rows = [a if a.shape == shape else np.broadcast_to(a, shape) for a in rows]
    wide_members = [_broadcast_members(a, shape) for a in members]

    def cut(index: Index) -> list[FloatArray]:
        of_rows = [a[index].reshape(-1) for a in wide_rows]
        return of_rows + [a[(slice(None), *index)].reshape(len(a), -1) for a in wide_members]

    return shape, cut


def _broadcast_members(array: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Broadcast all axes but the first to `shape`.

    >>> _broadcast_members(np.zeros((5, 3)), (2, 3)).shape
    (5, 2, 3)
    """
    if array.shape[1:] == shape:
        return array
    new_axes = (1,) * (len(shape) - array.ndim + 1)
    wide = array.reshape(len(array), *new_axes, *array.shape[1:])
    return np.broadcast_to(wide, (len(array), *shape))
