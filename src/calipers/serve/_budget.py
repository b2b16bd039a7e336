"""Limits on the number and the memory of all requests together."""

import threading

from calipers.serve._problems import HTTPProblem


class Budget:
    """Slots and bytes for all requests together.

    A request for which no slot is left gets 429. Bytes are those of bodies, decoded tables and
    responses; a request for which not enough are left gets 503.
    """

    def __init__(self, requests: int, size: int) -> None:
        self._most, self._size = requests, size
        self._lock = threading.Lock()
        self.requests = self.used = 0

    def account(self) -> "Account":
        """Return an empty account for one request."""
        return Account(self)

    def change(self, requests: int, size: int) -> None:
        """Take or release slots and bytes."""
        with self._lock:
            if requests > 0 and self.requests + requests > self._most:
                raise HTTPProblem(
                    429,
                    f"{self._most} requests are already being processed: try again",
                    {"Retry-After": "1"},
                )
            if size > 0 and self.used + size > self._size:
                raise HTTPProblem(
                    503,
                    f"other requests use up the {self._size:,} bytes of memory that all requests "
                    "may take: try again, or send fewer rows",
                    {"Retry-After": "1"},
                )
            self.requests += requests
            self.used += size

    @property
    def size(self) -> int:
        """Bytes for all requests together."""
        return self._size


class Account:
    """The slot and the bytes that one request holds until its response is sent."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._requests = self._bytes = 0

    @property
    def admitted(self) -> bool:
        """Whether the request holds a slot."""
        return self._requests > 0

    def admit(self) -> None:
        """Take a slot."""
        self._budget.change(1, 0)
        self._requests += 1

    def reserve(self, size: int) -> None:
        """Reserve bytes that are about to be allocated."""
        if self._bytes + size > self._budget.size:
            raise HTTPProblem(
                413,
                f"the request needs more than the {self._budget.size:,} bytes of memory that all "
                "requests together may take: send fewer rows, or request less for each",
            )
        self._budget.change(0, size)
        self._bytes += size

    def close(self) -> None:
        """Release everything."""
        self._budget.change(-self._requests, -self._bytes)
        self._requests = self._bytes = 0
