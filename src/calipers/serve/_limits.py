"""How much a request may hold, and how much all of them together."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from calipers.serve._problems import HTTPProblem

_EXPANSION = 4  # a decoded table against the longest body; also the bytes of a wide character


@dataclass(frozen=True)
class Limits:
    """Most of what a table may have.

    Examples
    --------
    >>> Limits(body=100, rows=10, columns=5, cells=20).check(3, 4)
    """

    body: int  # bytes as it is sent
    # cells are rows times columns
    rows: int
    columns: int
    cells: int

    @property
    def decoded(self) -> int:
        """Bytes of values that are written out."""
        return _EXPANSION * self.body

    def check(self, rows: int, columns: int) -> None:
        """Refuse a table that is too large."""
        if columns > self.columns:
            raise HTTPProblem(413, f"the table has more than {self.columns:,} columns")
        if rows > self.rows:
            raise HTTPProblem(413, f"the table has more than the {self.rows:,} rows allowed")
        if rows * columns > self.cells:
            raise HTTPProblem(
                413, f"the table has more than {self.cells:,} values: send fewer rows at a time"
            )


class Budget:
    """Places and bytes for all requests together.

    A request for which no place is left gets 429. Bytes are those of bodies, decoded tables and
    answers; a request for which none are left gets 503.
    """

    def __init__(self, requests: int, size: int) -> None:
        self._most, self._size = requests, size
        self._lock = threading.Lock()
        self.requests = self.used = 0

    def account(self) -> "Account":
        """What one request will hold."""
        return Account(self)

    def change(self, requests: int, size: int) -> None:
        """Take or give back places and bytes."""
        with self._lock:
            if requests > 0 and self.requests + requests > self._most:
                raise HTTPProblem(
                    429,
                    f"{self._most} requests are being answered: try again",
                    {"Retry-After": "1"},
                )
            if size > 0 and self.used + size > self._size:
                raise HTTPProblem(
                    503,
                    f"the requests being answered fill the {self._size:,} bytes of memory that "
                    "they may take: try again, or with fewer rows",
                    {"Retry-After": "1"},
                )
            self.requests += requests
            self.used += size

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self._size


class Account:
    """A place and bytes that one request holds until its answer is sent."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._requests = self._bytes = 0

    @property
    def admitted(self) -> bool:
        """Whether it holds a place."""
        return self._requests > 0

    def admit(self) -> None:
        """Hold a place."""
        self._budget.change(1, 0)
        self._requests += 1

    def reserve(self, size: int) -> None:
        """Hold bytes that are about to be allocated."""
        if self._bytes + size > self._budget.size:
            raise HTTPProblem(
                413,
                f"the request needs more than the {self._budget.size:,} bytes of memory that all "
                "requests together may take: send fewer rows, or ask less about each",
            )
        self._budget.change(0, size)
        self._bytes += size

    def close(self) -> None:
        """Give everything back."""
        self._budget.change(-self._requests, -self._bytes)
        self._requests = self._bytes = 0


Reserve = Callable[[int], None]
"""Called with a number of bytes before they are allocated; raises if they are too many."""
