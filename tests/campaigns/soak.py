"""Thousands of good requests: all answered, and the process no larger at the end than early on."""

import numpy as np

from ._server import PREDICT, Server
from ._tally import Part, Tally
from .request_abuse import good

GROWTH = 48 * 2**20  # bytes: what allocators keep, not what a leak of kilobytes a request leaves


def soak(count: int, seed: int) -> Tally:
    """Requests of all formats and of one to 300 rows over connections that are kept."""
    tally, rng = Tally(), np.random.default_rng(seed)
    with Server() as server:
        links = [server.connection() for _ in range(4)]
        early = (0, 0)
        for number in range(count):
            body, kind = good(rng, int(rng.choice([1, 1, 1, 30, 300])))[rng.integers(3)]
            link = links[number % len(links)]
            link.request("POST", PREDICT, body, {"Content-Type": kind})
            answer = link.getresponse()
            text = answer.read()
            tally.check(
                answer.status == 200 and bool(text), "answered", f"{number}: {answer.status}"
            )
            if number == count // 4:
                early = server.memory(), server.files()
        late = server.memory(), server.files()
        grown = late[0] - early[0]
        tally.notes.append(
            f"{grown / 2**20:+.0f} MiB and {late[1] - early[1]:+d} files in the last three quarters"
        )
        if grown > GROWTH or late[1] > early[1] + 4:
            tally.wrong(f"the process grew: {early} to {late}")
        for link in links:
            link.close()
    return tally


PARTS = (Part("soak", "good requests over four connections", 30_000, soak, 60),)
