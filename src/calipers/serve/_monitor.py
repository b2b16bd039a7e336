"""Monitoring: metrics for Prometheus, and observed coverage once labels arrive.

Widths and coverages are those of each model's own coverage, whatever callers request, so that they
can be compared over time. The intervals of the last rows are kept in a ring buffer until their
labels arrive. The id of a prediction is its position in that buffer, signed: memory is bounded from
the start, and no id can be made up. A label counts once, so a post may be repeated.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from calipers._arrays import FloatArray
from calipers.calibration import Martingale
from calipers.serve._served import ServedPrediction

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_MAX_NUMBERS = 4_000_000  # of inputs that are kept until labels arrive, 32 MB
_PLAIN = struct.calcsize(">QI")
_ROLLING = {
    "coverage": "Fraction of recent labels inside.",
    "coverage_rows": "Labels behind the coverage.",
    "outside_share": "Fraction of recent rows outside the training range.",
    "interval_width": "Mean width of recent intervals.",
}


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
        self._owner = np.zeros(0, dtype=np.intp)  # position that each row of inputs belongs to
        self._rows = 0  # added so far
        self._key = secrets.token_bytes(32)

    def put(
        self,
        lower: FloatArray,
        upper: FloatArray,
        inputs: FloatArray | None = None,
        version: int | NDArray[np.intp] = 0,
    ) -> str | None:
        """Keep intervals, and inputs if they fit; return their id, or None if too many."""
        count, capacity = len(lower), len(self.lower)
        if count > capacity:
            return None
        at = (self._rows + np.arange(count)) % capacity
        self.lower[at], self.upper[at], self.labelled[at] = lower, upper, False
        self.version[at] = version
        if inputs is not None and inputs.size:
            if not len(self._inputs):
                rows = max(1, min(capacity, _MAX_NUMBERS // inputs.shape[1]))
                self._inputs, self._owner = np.zeros((rows, inputs.shape[1])), np.full(rows, -1)
            rows_at = at % len(self._inputs)
            self._inputs[rows_at], self._owner[rows_at] = inputs, at
        plain = struct.pack(">QI", self._rows, count)
        self._rows += count
        return base64.urlsafe_b64encode(plain + self._seal(plain)).decode()

    def find(self, key: str) -> NDArray[np.intp] | None:
        """Return the positions of a prediction's rows; None if its id is unknown or too old."""
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

    def inputs(self, at: NDArray[np.intp]) -> tuple[NDArray[np.bool_], FloatArray]:
        """Return which of some positions still have their inputs, and these inputs."""
        if not len(self._inputs):
            return np.zeros(len(at), dtype=bool), self._inputs
        rows_at = at % len(self._inputs)
        kept = self._owner[rows_at] == at
        return kept, self._inputs[rows_at[kept]]

    def _seal(self, plain: bytes) -> bytes:
        return hashlib.blake2b(plain, key=self._key, digest_size=9).digest()


class Watch:
    """The rolling numbers and the kept predictions of one model."""

    def __init__(self, window: int, remember: int) -> None:
        self.outside, self.width, self.covered = (deque[float](maxlen=window) for _ in range(3))
        self._ring = Ring(remember)
        self._fresh: list[tuple[FloatArray, FloatArray, NDArray[np.intp]]] = []

    def rolling(self, name: str) -> float:
        """Return one of the numbers of ``_ROLLING``, as of now."""
        if name == "coverage_rows":
            return len(self.covered)
        values = {"coverage": self.covered, "outside_share": self.outside}.get(name, self.width)
        return float(np.mean(values)) if values else float("nan")

    def keep(self, prediction: ServedPrediction) -> str | None:
        """Record a prediction; return its id, for labels, or None if it is not kept."""
        self.outside.extend(np.any(prediction.outside, axis=1).tolist())
        if prediction.bounds is None:
            return None
        lower, upper = prediction.bounds.T
        self.width.extend((upper - lower).tolist())
        return self._ring.put(lower, upper, prediction.inputs, prediction.version)

    def label(self, key: str, labels: FloatArray) -> tuple[int, int, int] | None:
        """Compare labels, with NaN for those not known yet, with the intervals of a prediction.

        Returns how many counted, how many of these were inside and how many had been posted before;
        None if the prediction is unknown or too old.
        """
        at = self._ring.find(key)
        if at is None:
            return None
        if len(labels) != len(at):
            raise ValueError(
                f"the prediction {key!r} has {len(at)} rows, got {len(labels)} labels; "
                "use null for a label that is not known yet"
            )
        present = ~np.isnan(labels)
        new = present & ~self._ring.labelled[at]
        inside = (self._ring.lower[at] <= labels) & (labels <= self._ring.upper[at])
        self.covered.extend(inside[new].tolist())
        self._ring.labelled[at[new]] = True
        kept, inputs = self._ring.inputs(at[new])
        if kept.any():
            versions = self._ring.version[at[new]]
            self._fresh.append((inputs, labels[new][kept], versions[kept]))
        return int(new.sum()), int(inside[new].sum()), int((present & ~new).sum())

    def fresh(self) -> tuple[FloatArray, FloatArray, NDArray[np.intp]] | None:
        """Return the inputs, labels and model versions of labels since the last call, in order."""
        parts, self._fresh = self._fresh, []
        if not parts:
            return None
        inputs, labels, versions = map(np.concatenate, zip(*parts, strict=True))
        return inputs, labels, versions


class Monitor:
    """The watches of all models, and the registry of Prometheus metrics."""

    def __init__(
        self, coverages: Mapping[str, float | None], *, window: int, remember: int
    ) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.watches = {name: Watch(window, remember) for name in coverages}

        def make(cls: type[_Metric], name: str, text: str, *labels: str, **options: Any) -> _Metric:
            return cls(f"calipers_{name}", text, labels, registry=self.registry, **options)

        self.requests = make(Counter, "requests", "Requests answered.", "route", "status")
        self.seconds = make(
            Histogram, "request_seconds", "Time to answer.", "route", buckets=_SECONDS
        )
        self.running = make(Gauge, "requests_running", "Requests in progress or queued.")
        self.memory = make(Gauge, "memory_reserved_bytes", "Estimated memory of all requests.")
        self.batches = make(
            Histogram, "batch_rows", "Rows predicted together.", "model", buckets=_ROWS
        )
        self.rows = make(Counter, "rows", "Rows predicted.", "model")
        text = "Rows with a value outside the training range."
        self.rows_outside = make(Counter, "rows_outside", text, "model")
        self.labels = make(Counter, "labels", "Labels posted back.", "model")
        self.hits = make(Counter, "labels_covered", "Labels inside their interval.", "model")
        nominal = make(Gauge, "coverage_nominal", "Nominal coverage of intervals.", "model")
        rolling = {name: make(Gauge, name, text, "model") for name, text in _ROLLING.items()}
        self.alarm = make(Gauge, "alarm", "1 once labels are not like training.", "model")
        text = "Log10 of the martingale against exchangeability; the alarm is raised at 2."
        self.evidence = make(Gauge, "alarm_log10_evidence", text, "model")
        for name, coverage in coverages.items():
            if coverage is not None:
                nominal.labels(name).set(coverage)
            for counter in (self.rows, self.rows_outside, self.labels, self.hits):
                counter.labels(name)  # starts with 0
            for key, gauge in rolling.items():
                gauge.labels(name).set_function(partial(self.watches[name].rolling, key))

    def learned(self, name: str, alarm: Martingale) -> None:
        self.alarm.labels(name).set(float(alarm.alarm))
        self.evidence.labels(name).set(alarm.log10)

    def predicted(self, name: str, prediction: ServedPrediction) -> str | None:
        """Record a prediction; return its id for labels, or None if it is not kept."""
        self.rows.labels(name).inc(len(prediction))
        self.rows_outside.labels(name).inc(int(prediction.outside.any(axis=1).sum()))
        return self.watches[name].keep(prediction)

    def labelled(self, name: str, key: str, labels: FloatArray) -> tuple[int, int] | None:
        """Record labels; return how many counted and how many were repeated, or None if unknown."""
        counts = self.watches[name].label(key, labels)
        if counts is None:
            return None
        new, inside, repeated = counts
        self.labels.labels(name).inc(new)
        self.hits.labels(name).inc(inside)
        return new, repeated
