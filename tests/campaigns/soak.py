"""Good requests by the thousand, and fits: the process is no larger at the end than early on."""

import os

import numpy as np

from calipers import IntervalRegressor

from ._models import settings
from ._server import PREDICT, Server, memory
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
            response = link.getresponse()
            text = response.read()
            tally.check(
                response.status == 200 and bool(text), "answered", f"{number}: {response.status}"
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


def fits(count: int, seed: int) -> Tally:
    """Fits in one process, each of other rows and of one of five sizes."""
    tally, rng = Tally(), np.random.default_rng(seed)
    early = 0
    for number in range(count):
        X = rng.normal(size=(60 * (1 + number % 5), 3))
        model = IntervalRegressor(**settings(random_state=number, n_jobs=1)).fit(X, X[:, 0])
        right = bool(np.isfinite(model.predict_interval(X, coverage=0.5)).all())
        tally.check(right, "fitted", f"fit {number} of seed {seed}")
        if number == count // 5:
            early = memory(os.getpid())
    grown = memory(os.getpid()) - early
    tally.notes.append(f"{grown / 2**20:+.0f} MiB in the last four fifths")
    if grown > GROWTH:
        tally.wrong(f"the process grew by {grown:,} bytes")
    return tally


PARTS = (
    Part("soak", "good requests over four connections", 30_000, soak, 60),
    Part("soak", "fits of five sizes in one process", 50, fits, 0),
)
