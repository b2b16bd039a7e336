"""The time limit of training, which starts when the first program has been compiled."""

import math
import threading
import time
from dataclasses import dataclass

_STARTING = threading.Lock()


@dataclass(eq=False)
class Clock:
    """A time limit for the chunks of a bank, which starts with the first of them.

    Chunks on threads share one clock, so that one chunk can use the time that another leaves. A
    chunk in another process has its own clock.

    >>> Clock().until(0.5)
    inf
    """

    seconds: float = math.inf
    end: float | None = None

    @property
    def limited(self) -> bool:
        return self.seconds < math.inf

    def until(self, fraction: float) -> float:
        """Time, on ``time.monotonic``, when a fraction of the remaining time is used up."""
        if not self.limited:
            return math.inf
        now = time.monotonic()
        with _STARTING:
            if self.end is None:
                self.end = now + self.seconds
        return now + fraction * max(0.0, self.end - now)
