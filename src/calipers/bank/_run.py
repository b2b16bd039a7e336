"""The training loop, which passes plans through the lanes of one compiled program.

Between segments of epochs, Python collects the networks that have finished, gives their lanes to
waiting plans, reports progress and checks whether it should stop.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import AnyFloatArray, AnyIntArray
from calipers._process import before_computing
from calipers.bank._cache import compiled
from calipers.bank._clock import Clock
from calipers.bank._lanes import MEASURES, Lanes, PyTree, RowIndex, Scaling, Settings, State
from calipers.bank._observer import Observer, StoppedError
from calipers.bank._program import SEGMENT, Program
from calipers.bank._shared_rows import Plan, Table
from calipers.networks import ROWS_FOR_KNOTS, traits

_SEGMENT_SECONDS = 0.5  # target duration of a segment
_MANY_LANES = 128  # from here on, idle lanes slow an accelerator down as much as busy ones

History = NDArray[np.void]
"""Structured array with one row per epoch: the field ``epoch``, the measures on training rows, and
the measures on validation rows under names that begin with ``valid_``."""

HISTORY_TYPE = np.dtype(
    [("epoch", np.int32)]
    + [(prefix + name, np.float32) for prefix in ("", "valid_") for name in MEASURES]
)


class Shape(NamedTuple):
    """Sizes of a program: its lanes, and the rows that each can train and be validated on."""

    lanes: int
    train: int
    valid: int


class Trained(NamedTuple):
    """A network as it came out of its lane; ``examined`` is filled in by ``train``."""

    weights: list[NDArray[np.float32]]
    scaling: Scaling
    loss: float
    epochs: int
    history: History
    out_of_time: bool
    examined: Any = None


def run(
    program: Program,
    table: Table,
    plans: list[Plan],
    shape: Shape,
    observer: Observer | None,
    clock: Clock,
    fraction: float,
) -> list[Trained]:
    """Train all plans, as many at a time as there are lanes.

    Results do not depend on which networks share the lanes, unless the clock is limited: networks
    then train for as many epochs as ``fraction`` of its remaining time allows, at least one.
    """
    before_computing()
    lanes = _OccupiedLanes(program, table, plans, shape)
    epochs, total_seconds, total_epochs = 1, 0.0, 0
    turn = nullcontext if observer is None else observer.turn
    with turn(), ThreadPoolExecutor(1) as pool:
        device = jax.config.jax_default_device  # type: ignore[attr-defined]  # local to this thread
        compiling = pool.submit(lanes.compile, device)  # while ``fill`` compiles its own program
        lanes.fill()
        compiling.result()
    deadline = clock.until(fraction)
    while True:
        queued = time.monotonic()
        with turn():
            if not lanes.fill():
                break
            started = time.monotonic()
            done = lanes.advance(epochs if started < deadline else 1, deadline)
            took = max(time.monotonic() - started, 1e-9)
        if observer is not None:
            observer.report(done)
            if observer.stop.is_set():
                raise StoppedError
        if clock.limited:
            elapsed = time.monotonic() - queued  # includes the turns of other runs
            total_seconds, total_epochs = total_seconds + elapsed, total_epochs + epochs
            lanes.shorten(min(elapsed / epochs, total_seconds / total_epochs), deadline)
        else:
            lanes.compact()
        most = 1 if table.streams else min(SEGMENT, 8 * epochs)
        epochs = int(np.clip(epochs * (_SEGMENT_SECONDS / took), 1, most))
    return [lanes.finished[number] for number in range(len(plans))]


class _OccupiedLanes:
    """The lanes, the plans that occupy them or wait for one, and the networks that are done."""

    def __init__(self, program: Program, table: Table, plans: list[Plan], shape: Shape) -> None:
        self.program = program
        self.table = table
        self.plans = plans
        self.waiting = deque(range(len(plans)))
        self.owner: list[int | None] = [None] * shape.lanes  # number of the plan in each lane
        self.records: list[list[NDArray[np.float32]]] = [[] for _ in plans]
        self.finished: dict[int, Trained] = {}
        self.shape = shape
        idle_plan = Plan(0, np.empty(0, int), settings=Settings(epochs=0))
        unit = Scaling(np.zeros(program.in_size), np.ones(program.in_size), 0.0, 1.0)
        self.defaults = program.objective().numbers()
        self.knots = traits(program.network).knots
        no_knots = self.knots(np.empty((0, program.in_size)))
        idle = _lane(idle_plan, unit, shape, self.defaults, no_knots)
        self.lanes: Lanes = jax.tree.map(lambda leaf: np.stack([leaf] * shape.lanes), idle)
        self.scalings: dict[int, Scaling] = {}  # by number of the plan
        self.scalings_of_rows: dict[int, Scaling] = {}  # by hash of rows and weights
        self.feed = table.feed()
        self.state: State = program.blank(self.lanes)
        self.on_device: Lanes = self.lanes

    def fill(self) -> bool:
        """Give free lanes to waiting plans; return False when nothing is left to train."""
        renew = np.zeros(len(self.owner), dtype=bool)
        if self.table.streams and any(owner is not None for owner in self.owner):
            return True  # all lanes train on the shard of the epoch, and must start together
        for lane, owner in enumerate(self.owner):
            if owner is None and self.waiting:
                self.owner[lane] = number = self.waiting.popleft()
                self._assign(lane, number)
                renew[lane] = True
        if renew.any():
            self.on_device = jax.device_put(self.lanes)
            self._start(renew)
        return any(owner is not None for owner in self.owner)

    def _assign(self, lane: int, number: int) -> None:
        """Write a plan into the arrays of a lane."""
        plan = self.plans[number]
        scaling = self.scalings[number] = plan.scaling or self._scaling(plan)
        target = (self.table.target[plan.rows] - scaling.target_center) / scaling.target_scale
        numbers = self.program.objective.fitted(self.defaults | dict(plan.settings.loss), target)
        knots = None
        if self.lanes.knots is not None:
            sample = plan.rows[:: max(1, len(plan.rows) // ROWS_FOR_KNOTS)]
            inputs = (self.table.inputs[sample] - scaling.input_center) / scaling.input_scale
            knots = self.knots(np.clip(inputs, -1e8, 1e8))  # knots must not be larger than 1e9
        values = _lane(plan, scaling, self.shape, numbers, knots)
        for array, value in zip(jax.tree.leaves(self.lanes), jax.tree.leaves(values), strict=True):
            array[lane] = value

    def _scaling(self, plan: Plan) -> Scaling:
        """The scaling of the plan's rows, computed once for all plans with the same rows."""
        parts = (plan.rows, plan.weights)
        key = hash(tuple(None if part is None else part.tobytes() for part in parts))
        if key not in self.scalings_of_rows:
            self.scalings_of_rows[key] = self.table.scaling(*parts)
        return self.scalings_of_rows[key]

    def _start(self, renew: NDArray[np.bool_]) -> None:
        # Initialisation needs no rows: without them, tables of all sizes share one program.
        train, valid = (
            rows._replace(index=rows.index[:, :1], weight=rows.weight[:, :1])
            for rows in (self.lanes.train, self.lanes.valid)
        )
        lanes = self.lanes._replace(train=train, valid=valid)
        arguments = (self.state, lanes, renew, self._initial())
        self.state = compiled(self.program.start, arguments, results=self.state)(*arguments)

    def _initial(self) -> PyTree | None:
        """The weights that plans start from, or None where all start from random weights."""
        if all(plan.initial is None for plan in self.plans):
            return None
        initial = jax.tree.map(
            lambda s: np.zeros((self.shape.lanes, *s.shape), s.dtype), self.program.weights
        )
        for lane, number in self._occupied():
            leaves = self.plans[number].initial or []
            for array, value in zip(jax.tree.leaves(initial), leaves, strict=True):
                array[lane] = value
        return initial

    def compile(self, device: jax.Device | None) -> None:
        """Compile the program that ``advance`` runs, before the clock starts."""
        with nullcontext() if device is None else jax.default_device(device):
            self._compiled((self.state, self.lanes, self.feed(0), np.int32(1)))

    def _compiled(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        results = (self.state, 0, 0)
        return compiled(self.program.advance, arguments, donate=(0,), results=results)

    def shorten(self, epoch_seconds: float, deadline: float) -> None:
        """Limit epochs to those that fit before the deadline, at the measured pace.

        A schedule that decays fully over fewer epochs does better than one that is cut short.
        """
        busy = [lane for lane, _ in self._occupied()]
        rounds = 1 + len(self.waiting) / max(1, len(busy))
        allowed = max(1, int((deadline - time.monotonic()) / (epoch_seconds * rounds)))
        epoch = np.asarray(self.state.epoch)
        for lane, number in self._occupied():
            planned = int(self.plans[number].settings.epochs)
            self.lanes.settings.epochs[lane] = min(planned, int(epoch[lane]) + allowed)
        settings = jax.device_put(self.lanes.settings)
        self.on_device = self.on_device._replace(settings=settings)

    def compact(self) -> None:
        """Drop most lanes once few still train and no plan waits, since idle lanes cost as much."""
        fewer = len(self.owner) // 4
        busy = [lane for lane, _ in self._occupied()]
        if self.waiting or 4 * fewer < _MANY_LANES or not 0 < len(busy) <= fewer:
            return
        idle = [lane for lane, number in enumerate(self.owner) if number is None]
        kept = [*busy, *idle][:fewer]
        self.owner = [self.owner[lane] for lane in kept]
        self.shape = self.shape._replace(lanes=fewer)
        self.lanes = jax.tree.map(lambda leaf: leaf[kept], self.lanes)
        self.state = jax.tree.map(lambda leaf: np.asarray(leaf)[kept], self.state)
        self.on_device = jax.device_put(self.lanes)

    def advance(self, epochs: int, deadline: float) -> int:
        """Train for up to ``epochs`` epochs, and collect the networks that are then done.

        Returns the number of network-epochs trained.
        """
        before = np.array(self.state.epoch)
        busy = [lane for lane, _ in self._occupied()]
        reached, remaining = int(before[busy].max()), self.lanes.settings.epochs - before
        epochs = max(1, min(epochs, int(remaining[busy].max())))
        arguments = (self.state, self.on_device, self.feed(reached), np.int32(epochs))
        self.state, records, running = self._compiled(arguments)(*arguments)
        running, records = np.asarray(running), np.asarray(records)
        trained = np.asarray(self.state.epoch) - before
        late = time.monotonic() >= deadline
        for lane, number in self._occupied():
            self.records[number].append(records[: trained[lane], lane].copy())
            if late or not running[lane]:
                self.finished[number] = self._collect(lane, number, late and bool(running[lane]))
                self.owner[lane] = None
        return int(trained.sum())

    def _occupied(self) -> Iterator[tuple[int, int]]:
        """Each busy lane with the number of its plan."""
        for lane, number in enumerate(self.owner):
            if number is not None:
                yield lane, number

    def _collect(self, lane: int, number: int, late: bool) -> Trained:
        plan = self.plans[number]
        # Converted to NumPy first: indexing an array of JAX would compile a program.
        best_loss, epoch, loss = (
            np.asarray(getattr(self.state, name))[lane] for name in ("best_loss", "epoch", "loss")
        )
        allowed = int(self.lanes.settings.epochs[lane])
        cut_short = allowed < plan.settings.epochs and int(epoch) >= allowed
        weights = self.program.evaluated_weights(self.state)
        if plan.settings.patience and np.isfinite(best_loss):
            weights = self.state.best
        records = np.concatenate(self.records[number])
        history = np.empty(len(records), dtype=HISTORY_TYPE)
        history["epoch"] = np.arange(1, len(records) + 1)
        unit = self.scalings[number].target_scale * self.table.units.target_scale
        with np.errstate(over="ignore"):  # squares of large units are infinite
            scale = {"width": unit, "mse": np.square(unit)}
            for part, prefix in enumerate(("", "valid_")):
                for column, name in enumerate(MEASURES):
                    history[prefix + name] = records[:, part, column] * scale.get(name, 1.0)
        return Trained(
            [np.asarray(leaf)[lane].copy() for leaf in jax.tree.leaves(weights)],
            self.scalings[number],
            loss=float(loss),
            epochs=len(records),
            history=history,
            out_of_time=late or cut_short,
        )


def _lane(
    plan: Plan, scaling: Scaling, shape: Shape, numbers: dict[str, Any], knots: AnyFloatArray | None
) -> Lanes:
    """Return a plan as the arrays of one lane; ``numbers`` are the parameters of its loss."""

    def rows(index: AnyIntArray, weights: AnyFloatArray | None, size: int) -> RowIndex:
        extra = size - len(index)
        weights = np.ones(len(index)) if weights is None else weights
        return RowIndex(np.pad(index, (0, extra)), np.pad(weights, (0, extra)), len(index))

    lane = Lanes(
        seed=np.uint32(plan.seed),
        settings=plan.settings._replace(loss=numbers),
        train=rows(plan.rows, plan.weights, shape.train),
        valid=rows(plan.validation, plan.validation_weights, shape.valid),
        scaling=scaling,
        knots=knots,
    )
    return jax.tree.map(_single, lane)


def _single(value: ArrayLike) -> NDArray[Any]:
    """Convert a number or array to 32 bits."""
    array = np.asarray(value)
    types = {"f": np.float32, "i": np.int32, "u": np.uint32}
    return array.astype(types[array.dtype.kind])
