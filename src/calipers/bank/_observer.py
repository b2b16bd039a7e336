"""Progress, stopping and turns of the runs that train in threads."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MAX_WAIT = 30.0  # seconds to wait for work that cannot be interrupted, such as compiling


class StoppedError(Exception):
    """Training was stopped by the caller."""


class Observer:
    """Reports the progress of runs in threads, stops and awaits them, and lets them take turns."""

    def __init__(self, report: Callable[[int], None], jobs: int) -> None:
        self.report = report
        self.stop = threading.Event()
        self._free = jobs
        self._queue: deque[threading.Event] = deque()
        self._turns = threading.Lock()
        self._change = threading.Condition()
        self._running = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count a run for as long as it lasts."""
        with self._change:
            self._running += 1
        try:
            yield
        finally:
            with self._change:
                self._running -= 1
                self._change.notify_all()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for this run's turn to compute: first come, first served.

        Ten chunks on eight cores then end together, instead of two of them long after the others.
        """
        granted = threading.Event()
        with self._turns:
            if self._free:
                self._free -= 1
                granted.set()
            else:
                self._queue.append(granted)
        granted.wait()
        try:
            yield
        finally:
            with self._turns:
                if self._queue:
                    self._queue.popleft().set()
                else:
                    self._free += 1

    def end(self) -> None:
        """Stop all runs and wait for them: a thread cut off inside XLA aborts the process."""
        self.stop.set()
        with self._change:
            self._change.wait_for(lambda: not self._running, timeout=_MAX_WAIT)
