"""What is watched while models answer: numbers for Prometheus, and coverage once labels come.

Widths and coverages are those of each model's own coverage, whatever callers ask for, so that they
can be compared over time. The intervals of the last so many rows are kept in a ring until labels
arrive; the id of a prediction is its place in that ring, signed, so that memory is what it is from
the start and no id can be made up. A label counts once, so that a post may be repeated.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from calipers._checks import FloatArray
from calipers.calibration import Martingale
from calipers.serve._queries import ServedPrediction

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_MOST_NUMBERS = 4_000_000  # of inputs that are kept until labels come, 32 MB
_PLAIN = struct.calcsize(">QI")


class Rolling:
    """Mean of the last so many values.

    >>> rolling = Rolling(3)
    >>> rolling.add(np.array([9.0, 1.0, 2.0, 3.0]))
    >>> rolling.mean, rolling.count
    (2.0, 3)
    """

    def __init__(self, window: int) -> None:
        self._values = np.full(window, np.nan)
        self._next = 0
        self.count = 0

    def add(self, values: FloatArray) -> None:
        """Take in values; the oldest make room."""
        window = len(self._values)
        recent = values[-window:]
        self._values[(self._next + np.arange(len(recent))) % window] = recent
        self._next = (self._next + len(recent)) % window
        self.count = min(window, self.count + len(recent))

    @property
    def mean(self) -> float:
        """Their mean; NaN before the first."""
        return float(np.mean(self._values[: self.count])) if self.count else float("nan")


class Ring:
    """The intervals of the last ``capacity`` rows, found again by the id of their prediction.

    >>> ring = Ring(2)
    >>> first = ring.put(np.array([0.0]), np.array([1.0]))
    >>> second = ring.put(np.array([0.0, 5.0]), np.array([1.0, 6.0]))
    >>> ring.find(first) is None, ring.find(second)
    (True, array([1, 0]))
    """

    def __init__(self, capacity: int) -> None:
        self.lower, self.upper = np.zeros((2, capacity))
        self.labelled = np.zeros(capacity, dtype=bool)
        self.version = np.zeros(capacity, dtype=np.intp)
        self._inputs = np.zeros((0, 0))
        self._owner = np.zeros(0, dtype=np.intp)  # the place each row of inputs belongs to
        self._rows = 0  # put in so far
        self._key = secrets.token_bytes(32)

    def put(
        self,
        lower: FloatArray,
        upper: FloatArray,
        inputs: FloatArray | None = None,
        version: int | NDArray[np.intp] = 0,
    ) -> str | None:
        """Keep intervals, and inputs as far as there is room; their id, or None if too many."""
        count, capacity = len(lower), len(self.lower)
        if count > capacity:
            return None
        places = (self._rows + np.arange(count)) % capacity
        self.lower[places], self.upper[places], self.labelled[places] = lower, upper, False
        self.version[places] = version
        if inputs is not None and inputs.size:
            self._keep_inputs(places, inputs)
        plain = struct.pack(">QI", self._rows, count)
        self._rows += count
        return base64.urlsafe_b64encode(plain + self._seal(plain)).decode()

    def find(self, key: str) -> NDArray[np.intp] | None:
        """Places of a prediction's rows; None for an id that is not known, or not any more."""
        try:
            raw = base64.b64decode(key, b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        plain, seal = raw[:_PLAIN], raw[_PLAIN:]
        if not hmac.compare_digest(seal, self._seal(plain)):
            return None
        start, count = struct.unpack(">QI", plain)
        if start < self._rows - len(self.lower):
            return None
        return (start + np.arange(count)) % len(self.lower)

    def _keep_inputs(self, places: NDArray[np.intp], inputs: FloatArray) -> None:
        if not len(self._inputs):
            rows = max(1, min(len(self.lower), _MOST_NUMBERS // inputs.shape[1]))
            self._inputs = np.zeros((rows, inputs.shape[1]))
            self._owner = np.full(rows, -1)
        own = places % len(self._inputs)
        self._inputs[own], self._owner[own] = inputs, places

    def inputs(self, places: NDArray[np.intp]) -> tuple[NDArray[np.bool_], FloatArray]:
        """Which of some places still have their inputs, and these."""
        if not len(self._inputs):
            return np.zeros(len(places), dtype=bool), self._inputs
        own = places % len(self._inputs)
        there = self._owner[own] == places
        return there, self._inputs[own[there]]

    def _seal(self, plain: bytes) -> bytes:
        return hashlib.blake2b(plain, key=self._key, digest_size=9).digest()


class Watch:
    """What is watched of one model."""

    def __init__(self, window: int, remember: int) -> None:
        self.outside, self.width, self.covered = (Rolling(window) for _ in range(3))
        self._ring = Ring(remember)
        self._fresh: list[tuple[FloatArray, FloatArray, NDArray[np.intp]]] = []

    def keep(self, answer: ServedPrediction) -> str | None:
        """Take in a prediction; its id, under which labels may come, or None if it is not kept."""
        self.outside.add(np.asarray(answer.outside.any(axis=1), dtype=np.float64))
        if answer.bounds is None:
            return None
        lower, upper = answer.bounds.T
        self.width.add(upper - lower)
        return self._ring.put(lower, upper, answer.inputs, answer.version)

    def label(self, key: str, labels: FloatArray) -> tuple[int, int, int] | None:
        """Compare labels, NaN where there is none yet, with the intervals of a prediction.

        Gives how many counted, how many of them were inside and how many had been there before;
        None if the prediction is not known, or not any more.
        """
        places = self._ring.find(key)
        if places is None:
            return None
        if len(labels) != len(places):
            raise ValueError(
                f"the prediction {key!r} has {len(places)} rows, got {len(labels)} labels; "
                "null stands for a label that is not known yet"
            )
        there = ~np.isnan(labels)
        new = there & ~self._ring.labelled[places]
        inside = (self._ring.lower[places] <= labels) & (labels <= self._ring.upper[places])
        self.covered.add(inside[new].astype(np.float64))
        self._ring.labelled[places[new]] = True
        kept, inputs = self._ring.inputs(places[new])
        if kept.any():
            versions = self._ring.version[places[new]]
            self._fresh.append((inputs, labels[new][kept], versions[kept]))
        return int(new.sum()), int(inside[new].sum()), int((there & ~new).sum())

    def fresh(self) -> tuple[FloatArray, FloatArray, NDArray[np.intp]] | None:
        """Inputs, labels and versions of the model of labels that have come since the last call.

        In the order of their posts.
        """
        parts, self._fresh = self._fresh, []
        if not parts:
            return None
        inputs, labels, versions = (np.concatenate(part) for part in zip(*parts, strict=True))
        return inputs, labels, versions


class Monitor:
    """Everything that is watched, and the registry in which Prometheus finds it."""

    def __init__(
        self, coverages: Mapping[str, float | None], *, window: int, remember: int
    ) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.watches = {name: Watch(window, remember) for name in coverages}
        self._declare()
        for name, coverage in coverages.items():
            if coverage is not None:
                self.nominal.labels(name).set(coverage)
            self._follow(name)

    def _declare(self) -> None:
        def make(kind: Any, name: str, what: str, *labels: str, **options: Any) -> Any:
            return kind(f"calipers_{name}", what, labels, registry=self.registry, **options)

        route = ("route", "status")
        self.requests = make(Counter, "requests", "Requests answered.", *route)
        self.seconds = make(
            Histogram, "request_seconds", "Time to answer.", "route", buckets=_SECONDS
        )
        self.running = make(Gauge, "requests_running", "Requests worked on or waiting.")
        self.memory = make(Gauge, "memory_reserved_bytes", "Estimate of what requests hold.")
        self.batches = make(
            Histogram, "batch_rows", "Rows predicted together.", "model", buckets=_ROWS
        )
        self.rows = make(Counter, "rows", "Rows predicted.", "model")
        self.rows_outside = make(
            Counter, "rows_outside", "Rows with a value that training did not see.", "model"
        )
        self.labels = make(Counter, "labels", "Labels posted back.", "model")
        self.hits = make(Counter, "labels_covered", "Labels inside their interval.", "model")
        self.nominal = make(Gauge, "coverage_nominal", "Coverage intervals should have.", "model")
        self.rolling = {
            "coverage": make(Gauge, "coverage", "Share of recent labels inside.", "model"),
            "coverage_rows": make(Gauge, "coverage_rows", "Labels behind the coverage.", "model"),
            "outside": make(Gauge, "outside_share", "Share of recent rows outside.", "model"),
            "width": make(Gauge, "interval_width", "Mean width of recent intervals.", "model"),
        }
        self.alarm = make(Gauge, "alarm", "1 once labels are not as in training.", "model")
        self.evidence = make(
            Gauge, "alarm_log10_evidence", "Martingale against exchangeability; 2 alarms.", "model"
        )

    def _follow(self, name: str) -> None:
        """Let the rolling numbers be computed when they are read, and show counters from 0."""
        watch = self.watches[name]
        for counter in (self.rows, self.rows_outside, self.labels, self.hits):
            counter.labels(name)
        self.rolling["coverage"].labels(name).set_function(lambda: watch.covered.mean)
        self.rolling["coverage_rows"].labels(name).set_function(lambda: watch.covered.count)
        self.rolling["outside"].labels(name).set_function(lambda: watch.outside.mean)
        self.rolling["width"].labels(name).set_function(lambda: watch.width.mean)

    def learnt(self, name: str, alarm: Martingale) -> None:
        """Show what a model has learnt of its labels."""
        self.alarm.labels(name).set(float(alarm.alarm))
        self.evidence.labels(name).set(alarm.log10)

    def predicted(self, name: str, answer: ServedPrediction) -> str | None:
        """Take in a prediction; its id for labels, or None if it is not kept."""
        self.rows.labels(name).inc(len(answer))
        self.rows_outside.labels(name).inc(int(answer.outside.any(axis=1).sum()))
        return self.watches[name].keep(answer)

    def labelled(self, name: str, key: str, labels: FloatArray) -> tuple[int, int] | None:
        """Take in labels: how many counted and how many were there before; None if unknown."""
        found = self.watches[name].label(key, labels)
        if found is None:
            return None
        new, inside, repeated = found
        self.labels.labels(name).inc(new)
        self.hits.labels(name).inc(inside)
        return new, repeated
