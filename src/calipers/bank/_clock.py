"""The time that training may take.

A budget buys training: the clock starts when the first program has been compiled.
"""

import math
import threading
import time

_STARTING = threading.Lock()


class Clock:
    """So many seconds for some chunks of a bank, from when the first of them starts.

    Chunks on threads share one clock, so that what one leaves another has. A chunk in another
    process has its own.

    >>> Clock().until(0.5)
    inf
    """

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self.end: float | None = None

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.seconds < math.inf

    def until(self, share: float) -> float:
        """Time, as of ``time.monotonic``, by which a share of what is left is used up."""
        if not self.limited:
            return math.inf
        now = time.monotonic()
        with _STARTING:
            if self.end is None:
                self.end = now + self.seconds
        return now + share * max(0.0, self.end - now)
