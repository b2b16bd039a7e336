"""Batching: requests that arrive while a model is busy are predicted together by its next call.

A single request starts at once. While the model works on it, others queue, and the next call takes
them all, up to a number of rows. The busier the server, the larger its batches; no request is
delayed to fill one. A few rows of a fast model are not worth another thread: handing them over and
back takes longer than predicting them.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar, cast

from calipers.serve._served import Piece, ServedPrediction

_SMALL = 2**16  # bytes to read, or numbers to write, up to which no thread is used
# A batch is predicted without a thread if it has at most this many rows and numbers in its
# response, and the last such one took at most this many seconds.
_FEW_ROWS, _FEW_NUMBERS, _QUICK = 8, 400, 0.005

LARGE = _SMALL + 1  # to give for work of unknown size

T = TypeVar("T")


async def offload(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function, in a thread if its work is large and would block the event loop.

    On cancellation, a call that has begun is still awaited, so that its memory stays counted until
    it is released.
    """
    if size <= _SMALL:
        return function(*arguments)
    cancelled = threading.Event()

    def call() -> T | None:
        return None if cancelled.is_set() else function(*arguments)

    future = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return cast(T, await asyncio.shield(future))
    except asyncio.CancelledError:
        cancelled.set()
        await asyncio.wait([future])
        raise


class _Waiting(NamedTuple):
    piece: Piece
    numbers: int
    future: "asyncio.Future[ServedPrediction]"


class Batcher:
    """A thread for one model, and the queue of pieces that wait for it.

    ``work`` is called with a list of pieces, of at most ``max_rows`` rows in total unless a single
    piece has more, and returns a list of results, with an exception for a piece that failed. It is
    called in the thread, or by the event loop if that is quick.

    >>> async def main():
    ...     batcher = Batcher(lambda pieces: [sum(piece) for piece in pieces], max_rows=10)
    ...     results = await asyncio.gather(*(batcher.submit([n, n]) for n in range(3)))
    ...     batcher.close()
    ...     return results
    >>> asyncio.run(main())
    [0, 2, 4]
    """

    def __init__(
        self, work: Callable[[list[Piece]], list[ServedPrediction | Exception]], max_rows: int
    ) -> None:
        self._work = work
        self._max_rows = max_rows
        self._waiting: deque[_Waiting] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="calipers-model")
        self._task: asyncio.Task[None] | None = None
        self._quick = False  # until it has been measured

    def __len__(self) -> int:
        return len(self._waiting)

    async def submit(self, piece: Piece, numbers: int = 0) -> ServedPrediction:
        """Return the result of a piece; ``numbers`` counts those in the response to its request."""
        future: asyncio.Future[ServedPrediction] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(piece, numbers, future))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := self._next():
                pieces = [waiting.piece for waiting in batch]
                few = sum(map(len, pieces)) <= _FEW_ROWS
                few = few and sum(waiting.numbers for waiting in batch) <= _FEW_NUMBERS
                try:
                    if few and self._quick:
                        results = self._timed(pieces)
                    else:
                        work = self._timed if few else self._work
                        results = await loop.run_in_executor(self._thread, work, pieces)
                except Exception as error:
                    results = [error] * len(batch)
                for waiting, result in zip(batch, results, strict=True):
                    if waiting.future.done():
                        continue
                    if isinstance(result, Exception):
                        waiting.future.set_exception(result)
                    else:
                        waiting.future.set_result(result)
        finally:
            self._task = None

    def _timed(self, pieces: list[Piece]) -> list[ServedPrediction | Exception]:
        """Return the results of a few rows, and note if that was quick enough without a thread."""
        began = time.perf_counter()
        try:
            return self._work(pieces)
        finally:
            self._quick = time.perf_counter() - began < _QUICK

    def _next(self) -> list[_Waiting]:
        """Return the pieces of the next batch: in their order, as many as fit."""
        batch: list[_Waiting] = []
        rows = 0
        while self._waiting:
            first = self._waiting[0]
            if first.future.done():  # its request was cancelled
                self._waiting.popleft()
                continue
            if batch and rows + len(first.piece) > self._max_rows:
                break
            batch.append(self._waiting.popleft())
            rows += len(first.piece)
        return batch

    def close(self) -> None:
        """Let the thread end when it has finished its work."""
        self._thread.shutdown(wait=True)
