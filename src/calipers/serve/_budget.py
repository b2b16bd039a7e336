"""How much all requests together may hold."""

import threading

from calipers.serve._problems import HTTPProblem


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
