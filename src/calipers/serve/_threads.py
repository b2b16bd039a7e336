"""Work that would keep the event loop from others goes to a thread."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

_SMALL = 2**16  # bytes that are read and rows times numbers that are written without a thread

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
