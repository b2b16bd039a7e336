"""Requests that wait while a model is busy are answered together by its next call.

A lone request starts at once. While the model works on it, others gather, and the next call takes
them all, up to a number of rows. The busier the server, the larger its batches; no request is
delayed in order to fill one. A few rows of a quick model are not worth another thread: to hand them
over and back takes longer than to predict them.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar, cast

from calipers.serve._queries import Piece, ServedPrediction

_SMALL = 2**16  # bytes that are read and rows times numbers that are written without a thread

# Rows of a batch, numbers that answer it, and seconds that the last such one took, at most.
_FEW_ROWS, _FEW_NUMBERS, _QUICK = 8, 400, 0.005

LARGE = _SMALL + 1
"""Stands for work of a size that is not known."""

T = TypeVar("T")


async def aside(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function, in a thread where it would keep others waiting.

    Whoever gives up waiting still waits for a call that has begun: what it holds stays counted
    until it is let go.
    """
    if size <= _SMALL:
        return function(*arguments)
    given_up = threading.Event()

    def call() -> T | None:
        return None if given_up.is_set() else function(*arguments)

    future = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        return cast(T, await asyncio.shield(future))
    except asyncio.CancelledError:
        given_up.set()
        await asyncio.wait([future])
        raise


class _Waiting(NamedTuple):
    piece: Piece
    numbers: int
    future: "asyncio.Future[ServedPrediction]"


class Batcher:
    """A thread of its own for one model, and the pieces that wait for it.

    ``work`` is called in the thread, or by the loop if that is quick, with a list of pieces, of
    ``max_rows`` in all, and gives a list of results, an exception in place of one that failed.

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
        self._quick = False  # not before it has been measured

    def __len__(self) -> int:
        """Pieces that wait."""
        return len(self._waiting)

    async def submit(self, piece: Piece, numbers: int = 0) -> ServedPrediction:
        """Wait for the result of a piece; whoever gives up waiting takes it out of the queue.

        ``numbers`` is how many answer the request that it is of.
        """
        future: asyncio.Future[ServedPrediction] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(piece, numbers, future))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := self._next():
                pieces = [one.piece for one in batch]
                few = sum(map(len, pieces)) <= _FEW_ROWS
                few = few and sum(one.numbers for one in batch) <= _FEW_NUMBERS
                try:
                    if few and self._quick:
                        results = self._timed(pieces)
                    else:
                        work = self._timed if few else self._work
                        results = await loop.run_in_executor(self._thread, work, pieces)
                except Exception as error:
                    results = [error] * len(batch)
                for one, result in zip(batch, results, strict=True):
                    if one.future.done():
                        continue
                    if isinstance(result, Exception):
                        one.future.set_exception(result)
                    else:
                        one.future.set_result(result)
        finally:
            self._task = None

    def _timed(self, pieces: list[Piece]) -> list[ServedPrediction | Exception]:
        """Results for a few rows; whether they were quick decides where the next are worked on."""
        began = time.perf_counter()
        try:
            return self._work(pieces)
        finally:
            self._quick = time.perf_counter() - began < _QUICK

    def _next(self) -> list[_Waiting]:
        """The pieces that go next: in their order, as many as fit."""
        batch: list[_Waiting] = []
        rows = 0
        while self._waiting:
            first = self._waiting[0]
            if first.future.done():  # its request has been given up
                self._waiting.popleft()
                continue
            if batch and rows + len(first.piece) > self._max_rows:
                break
            batch.append(self._waiting.popleft())
            rows += len(first.piece)
        return batch

    def close(self) -> None:
        """Let the thread end once it has done its work."""
        self._thread.shutdown(wait=True)
