"""The compiled program, which trains any number of networks at once.

Everything here is traced by JAX. A *lane* is one network's place in the program, and arrays that
differ from network to network have a leading lane axis. Loops stand outside ``vmap``: their lengths
are then the same for all lanes, and the updates of a lane that has finished are merely masked.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from calipers._arrays import Array
from calipers.bank._cache import single_precision
from calipers.bank._lanes import (
    MEASURES,
    SCHEDULES,
    Lanes,
    Moments,
    PyTree,
    Scaling,
    Settings,
    State,
)
from calipers.bank._shared_rows import DeviceRows
from calipers.bank._shuffle import round_keys, shuffled
from calipers.bank._steps import adam_moments, clipped_gradient, loop, select
from calipers.heads import HEADS, Head
from calipers.networks import Network, network_code
from calipers.objectives import Objective

SEGMENT = 128  # most epochs that one call of ``advance`` trains and records
TILE = 256  # rows evaluated at a time: a fixed number, so that a row's bits depend on no other row
SMALL_TILE = 8  # the same for predictions on a CPU, where a single row then costs 8 rows, not 256
EARLY = 10  # the first ``EARLY * check_every`` epochs are all validated: some tables train quickly
FEW_STEPS, MANY_STEPS = 8, 16  # steps of an accelerator between two checks by the host

Fields = tuple[jax.Array, ...]  # what the head makes of the networks' outputs, one array per field

_barrier: Any = jax.lax.optimization_barrier  # untyped in JAX


@dataclass(frozen=True)
class Program:
    """Everything that shapes the compiled code, and is therefore common to a bank."""

    network: Network  #: Factory of Equinox modules, see ``calipers.networks.Network``.
    objective: type[Objective]  #: What the networks are trained for.
    in_size: int  #: Number of inputs.
    batch_size: int = 100  #: Rows per step; the last, smaller batch of an epoch is kept.
    schedule: str = "exponential"  #: A key of ``SCHEDULES``.
    #: Whether gradients are clipped, whether a running average of the weights is kept, and whether
    #: adversarial examples are added to each batch.
    clipping: bool = False
    averaging: bool = False
    adversarial: bool = False
    head: str = ""  #: A key of ``HEADS``; the objective's own head by default.
    #: Whether the validation loss is infinite if bounds cross on any validation row, so that early
    #: stopping never keeps such weights. The paper's authors do so; calipers does not, since one
    #: row in thousands would then veto weights that are better everywhere else.
    refuse_crossing: bool = False
    #: Number of split normals that a network predicts, for heads that support several.
    components: int = 1

    @property
    def output(self) -> Head:
        """The head, which gives the networks' outputs their meaning."""
        return HEADS[self.head or self.objective.head].with_components(self.components)

    @property
    def code(self) -> tuple[Any, ...]:
        """The classes and functions that the program's names refer to at present.

        They are part of its identity: a registry may have been changed since it was compiled.
        """
        head = HEADS[self.head or self.objective.head]
        program = (type(self), self.objective, self.objective.loss, SCHEDULES[self.schedule])
        return (*program, type(head), head.parameters, head.interval, *network_code(self.network))

    @property
    def description(self) -> str | None:
        """A text that determines the compiled code, or None if user code has a part in it."""
        names = [_name(part) for part in self.code]
        return None if None in names else repr((self, names))

    @cached_property
    def weights(self) -> PyTree:
        """Shapes of one network's weights, as a tree."""
        return eqx.filter(self._outline, _is_array_shape)

    def tree(self, leaves: Sequence[Array]) -> PyTree:
        """Weights as a tree, from the flat list in which they leave the program."""
        return jax.tree.unflatten(jax.tree.structure(self.weights), leaves)

    def evaluated_weights(self, state: State) -> PyTree:
        """The weights to validate and return: their running average, if ``averaging``."""
        return state.average if self.averaging else state.network

    def blank(self, lanes: Lanes) -> State:
        """The state of empty lanes, all zeros, made without tracing a network."""
        count = lanes.seed.shape[0]

        def zeros(leaf: jax.ShapeDtypeStruct) -> NDArray[Any]:
            return np.zeros((count, *leaf.shape), leaf.dtype)

        network = jax.tree.map(zeros, self.weights)
        return State(
            network,
            network if self.averaging else None,
            Moments(np.zeros(count, np.int32), network, network),
            epoch=np.zeros(count, np.int32),
            loss=np.zeros(count, np.float32),
            best=network if lanes.valid.index.size else None,
            best_loss=np.zeros(count, np.float32),
            best_epoch=np.zeros(count, np.int32),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _static(self) -> PyTree:
        return eqx.partition(self._outline, _is_array_shape)[1]

    @cached_property
    def _outline(self) -> PyTree:
        seed = jax.ShapeDtypeStruct((), jnp.uint32)  # type: ignore[no-untyped-call]
        with single_precision():
            return eqx.filter_eval_shape(self._module, seed)

    def _module(self, seed: jax.Array) -> eqx.Module:
        key = jax.random.key(seed, impl="threefry2x32")
        return self.network(self.in_size, self.output.size, key=key)

    # Functions of all lanes: ``start``, ``advance`` and ``predict`` are compiled.

    def start(self, state: State, lanes: Lanes, renew: jax.Array, initial: PyTree | None) -> State:
        """Put new networks into the lanes marked in ``renew``.

        Their weights are ``initial``, or random where that is None.
        """
        fresh = jax.vmap(self._fresh)(lanes)
        if initial is not None:
            best = initial if fresh.best is not None else None
            average = initial if self.averaging else None
            fresh = fresh._replace(network=initial, average=average, best=best)
        return jax.vmap(select)(renew, fresh, state)

    def advance(
        self, state: State, lanes: Lanes, table: DeviceRows, epochs: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """Train every lane for ``epochs`` epochs, at most ``SEGMENT``.

        Returns the state; the ``MEASURES`` of each epoch on training and validation rows, of shape
        (SEGMENT, lanes, 2, measures) and NaN where there are none; and which lanes still run.
        """
        lane_count = lanes.seed.shape[0]
        records = jnp.full((SEGMENT, lane_count, 2, len(MEASURES)), jnp.nan)

        per_check = self._epochs_per_check(lanes)

        def epoch(i: jax.Array | int, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            requested = per_check == 1 or i < epochs
            state, record = self._epoch(carry[0], lanes, table, requested)
            return state, carry[1].at[i].set(record)

        state, records = loop(epoch, epochs, (state, records), per_check)
        return state, records, jax.vmap(self._running)(state, lanes)

    def _epoch(
        self, state: State, lanes: Lanes, table: DeviceRows, requested: jax.Array | bool
    ) -> tuple[State, jax.Array]:
        """One pass of every running lane over its training rows, and its measures."""
        running = jax.vmap(self._running)(state, lanes) & requested
        keys = jax.vmap(round_keys)(lanes.seed, state.epoch, lanes.train.count)
        batches = jnp.max(jnp.where(running, self._batches(lanes.train.count), 0))

        def step(i: jax.Array | int, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            return jax.vmap(self._step, in_axes=(0, 0, 0, 0, 0, None, None))(
                lanes, *carry, keys, running, i * self.batch_size, table
            )

        sums = jnp.zeros((lanes.seed.shape[0], 1 + len(MEASURES)))
        per_check = self._steps_per_check(lanes)
        # Where epochs are short enough to run several of them unchecked, ``batches`` is replaced by
        # a static bound: to use its value, even 0, the host would have to wait for the device.
        static = per_check == self._max_steps(lanes) and self._epochs_per_check(lanes) > 1
        count = per_check if static else batches
        state, sums = loop(step, count, (state, sums), per_check)
        trained = jnp.where(running[:, None], sums[:, 1:] / sums[:, :1], jnp.nan)
        state = state._replace(
            epoch=state.epoch + running, loss=jnp.where(running, trained[:, 0], state.loss)
        )
        if not lanes.valid.index.shape[1]:
            return state, jnp.stack([trained, jnp.full_like(trained, jnp.nan)], axis=1)
        state, validated = self._validate(state, lanes, table, running)
        return state, jnp.stack([trained, validated], axis=1)

    def _max_steps(self, lanes: Lanes) -> int:
        """Steps of an epoch over as many training rows as a lane can hold."""
        return -(-lanes.train.index.shape[1] // self.batch_size)

    def _steps_per_check(self, lanes: Lanes) -> int:
        """Steps between two tests of whether an epoch has ended; any beyond its end are masked.

        An accelerator waits for the host at every test, for longer than a small step takes.
        """
        if jax.default_backend() == "cpu":
            return 1
        most = self._max_steps(lanes)
        return min(most, FEW_STEPS) if most < 4 * MANY_STEPS else MANY_STEPS

    def _epochs_per_check(self, lanes: Lanes) -> int:
        """Epochs between two such tests, a power of two: more than 1 where epochs are short."""
        if jax.default_backend() == "cpu" or lanes.valid.index.shape[1]:
            return 1
        return 2 ** int(np.log2(max(1, 4 * MANY_STEPS // self._max_steps(lanes))))

    def _validate(
        self, state: State, lanes: Lanes, table: DeviceRows, running: jax.Array
    ) -> tuple[State, jax.Array]:
        """Validate the lanes that are due, and remember the best weights of each."""
        spacing = lanes.settings.check_every
        last = state.epoch >= lanes.settings.epochs
        early = state.epoch <= EARLY * spacing
        due = running & (last | early | (state.epoch % spacing == 0))
        validated = jax.lax.cond(
            jnp.any(due),
            lambda: self._evaluate(self.evaluated_weights(state), lanes, table),
            lambda: jnp.full((running.size, len(MEASURES)), jnp.nan),
        )
        validated = jnp.where(due[:, None], validated, jnp.nan)
        better = validated[:, 0] < state.best_loss  # False for NaN
        return state._replace(
            best=jax.vmap(select)(better, self.evaluated_weights(state), state.best),
            best_loss=jnp.where(better, validated[:, 0], state.best_loss),
            best_epoch=jnp.where(better, state.epoch, state.best_epoch),
        ), validated

    def _evaluate(self, network: PyTree, lanes: Lanes, table: DeviceRows) -> jax.Array:
        """Measures of each lane on its validation rows, which are predicted tile by tile."""
        lane_count, size = lanes.valid.index.shape
        width = len(self.output.fields)

        def forward(network: PyTree, lane: Lanes, start: jax.Array) -> jax.Array:
            row = jax.lax.dynamic_slice(lane.valid.index, (start,), (TILE,))
            inputs, _ = self._rows(table, lane.scaling, row)
            return jnp.stack(self._predict(network, inputs))

        def tile(i: jax.Array, predicted: jax.Array) -> jax.Array:
            part = jax.vmap(forward, in_axes=(0, 0, None))(network, lanes, i * TILE)
            return jax.lax.dynamic_update_slice(predicted, part, (0, 0, i * TILE))

        tiles = -(-jnp.max(lanes.valid.count) // TILE)
        predicted = jnp.zeros((lane_count, width, size))
        predicted = jax.lax.fori_loop(0, tiles, tile, predicted)
        return jax.vmap(self._validation_measures, in_axes=(0, 0, None))(lanes, predicted, table)

    def predict(
        self, network: PyTree, scaling: Scaling, inputs: jax.Array, count: jax.Array
    ) -> jax.Array:
        """Parameters of the first ``count`` rows in standardised units, (lanes, fields, rows)."""
        lane_count = scaling.target_scale.shape[0]
        width = len(self.output.fields)
        size = SMALL_TILE if jax.default_backend() == "cpu" else TILE

        def forward(network: PyTree, scaling: Scaling, rows: jax.Array) -> jax.Array:
            scaled = (rows - scaling.input_center) / scaling.input_scale
            return jnp.stack(self._predict(network, scaled))

        def tile(i: jax.Array, predicted: jax.Array) -> jax.Array:
            rows = jax.lax.dynamic_slice(inputs, (i * size, 0), (size, inputs.shape[1]))
            part = jax.vmap(forward, in_axes=(0, 0, None))(network, scaling, rows)
            return jax.lax.dynamic_update_slice(predicted, part, (0, 0, i * size))

        predicted = jnp.zeros((lane_count, width, inputs.shape[0]))
        return jax.lax.fori_loop(0, -(-count // size), tile, predicted)

    # Functions of one lane, which the functions above vmap.

    def _fresh(self, lane: Lanes) -> State:
        """The state of a network with random weights before its first step."""
        module = self._module(lane.seed)
        if lane.knots is not None:
            module = self.network.with_knots(module, lane.knots)  # type: ignore[attr-defined]
        network = eqx.filter(module, eqx.is_array)
        zeros = jax.tree.map(jnp.zeros_like, network)
        return State(
            network,
            network if self.averaging else None,
            Moments(jnp.int32(0), zeros, zeros),
            epoch=jnp.int32(0),
            loss=jnp.float32(0),
            best=network if lane.valid.index.size else None,
            best_loss=jnp.float32(jnp.inf),
            best_epoch=jnp.int32(0),
        )

    def _running(self, state: State, lane: Lanes) -> jax.Array:
        """Whether a network continues to train: not done, not diverged and not stopped early."""
        patience = lane.settings.patience
        early_patience = jnp.maximum(lane.settings.early_patience, state.best_epoch)
        waited = state.epoch - state.best_epoch
        exhausted = (patience > 0) & (waited >= jnp.minimum(patience, early_patience))
        return (state.epoch < lane.settings.epochs) & jnp.isfinite(state.loss) & ~exhausted

    def _step(
        self,
        lane: Lanes,
        state: State,
        sums: jax.Array,
        keys: tuple[jax.Array, jax.Array],
        running: jax.Array,
        start: jax.Array | int,
        table: DeviceRows,
    ) -> tuple[State, jax.Array]:
        """Train on the batch that begins at position ``start`` of the epoch's shuffled rows.

        ``sums``, from which the measures of the epoch are computed, grow by those of the batch.
        """
        position = start + jnp.arange(self.batch_size)
        inside = position < lane.train.count
        order = shuffled(position.astype(jnp.uint32), lane.train.count, keys)
        slot = jnp.where(inside, order, 0)
        weight = jnp.where(inside, lane.train.weight[slot], 0)
        inputs, target = self._rows(table, lane.scaling, lane.train.index[slot])
        (loss, predicted), gradient = jax.value_and_grad(self._training_loss, has_aux=True)(
            state.network, inputs, target, weight, lane.settings
        )
        live = running & (start < lane.train.count)
        batch_sums = self._sums(predicted, loss, target, weight, lane.settings)
        return self._update(lane, state, gradient, live), sums + jnp.where(live, batch_sums, 0)

    def _update(self, lane: Lanes, state: State, gradient: PyTree, live: jax.Array) -> State:
        """The state after a step of AdamW, or unchanged where the lane is not live.

        Moments are updated before weights, and weights before their average: if XLA interleaved
        these updates, it would first copy each array for the others to read. Biases do not decay.
        """
        settings, before = lane.settings, state.optimizer
        if self.clipping:
            gradient = clipped_gradient(gradient, settings.clip_norm)
        betas, rate = self._memory(lane), self._rate(lane, before.count)
        moments = _barrier(select(live, adam_moments(before, gradient, betas), before))
        first, second = (1 - beta**moments.count for beta in betas)  # bias corrections

        def descend(old: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
            update = mean / first / (jnp.sqrt(square / second) + 1e-8)
            decay = settings.weight_decay * old if old.ndim > 1 else 0
            return jnp.where(live, old - rate * (update + decay), old)

        network = jax.tree.map(descend, state.network, moments.mean, moments.square)
        state = state._replace(network=network, optimizer=moments)
        if not self.averaging:
            return state
        keep = jnp.minimum(settings.averaging, (1 + before.count) / (10 + before.count))
        network = _barrier(network)
        average = jax.tree.map(lambda a, b: keep * a + (1 - keep) * b, state.average, network)
        return state._replace(network=network, average=select(live, average, state.average))

    def _memory(self, lane: Lanes) -> tuple[Any, Any]:
        """Decay rates of Adam's moments (its betas)."""
        return 0.9, 0.999

    def _rate(self, lane: Lanes, step: jax.Array) -> jax.Array:
        """The learning rate of a step."""
        total = lane.settings.epochs * self._batches(lane.train.count)
        return SCHEDULES[self.schedule](lane.settings, step, total)

    def _batches(self, count: jax.Array) -> jax.Array:
        return -(-count // self.batch_size)

    def _rows(self, table: DeviceRows, scaling: Scaling, row: jax.Array) -> DeviceRows:
        """Inputs and target of rows of the table, standardised for a lane."""
        inputs, target = (a.at[row].get(mode="promise_in_bounds") for a in table)
        target = (target - scaling.target_center) / scaling.target_scale
        return (inputs - scaling.input_center) / scaling.input_scale, target

    def _predict(self, network: PyTree, inputs: jax.Array) -> Fields:
        module = eqx.combine(network, self._static)
        return self.output.parameters(jax.vmap(module)(inputs))

    def _batch_loss(
        self, predicted: Fields, target: jax.Array, weight: jax.Array, settings: Settings
    ) -> jax.Array:
        """The loss of predictions for some rows; rows of padding have the weight 0."""
        numbers = {"coverage": settings.coverage, **settings.loss}
        return self.objective.loss(*predicted, target, weight=weight, **numbers)

    def _loss(
        self,
        network: PyTree,
        inputs: jax.Array,
        target: jax.Array,
        weight: jax.Array,
        settings: Settings,
    ) -> tuple[jax.Array, Fields]:
        """The loss of a network on some rows, and its predictions."""
        predicted = self._predict(network, inputs)
        return self._batch_loss(predicted, target, weight, settings), predicted

    def _training_loss(
        self,
        network: PyTree,
        inputs: jax.Array,
        target: jax.Array,
        weight: jax.Array,
        settings: Settings,
    ) -> tuple[jax.Array, Fields]:
        """Like ``_loss``, with the loss of adversarial examples added if requested."""
        loss, predicted = self._loss(network, inputs, target, weight, settings)
        if self.adversarial:
            slope = jax.grad(lambda x: self._loss(network, x, target, weight, settings)[0])(inputs)
            moved = jax.lax.stop_gradient(inputs + settings.adversarial_step * jnp.sign(slope))
            attack = self._loss(network, moved, target, weight, settings)[0]
            loss = loss + jnp.where(settings.adversarial_step > 0, attack, 0)
        return loss, predicted

    def _sums(
        self,
        predicted: Fields,
        loss: jax.Array,
        target: jax.Array,
        weight: jax.Array,
        settings: Settings,
    ) -> jax.Array:
        """The total weight of some rows, followed by weighted sums of ``MEASURES``."""
        lower, point, upper = self.output.interval(*predicted, coverage=settings.coverage)
        total = jnp.sum(weight)
        captured = (lower <= target) & (target <= upper)
        rows = jnp.stack([captured, upper - lower, (point - target) ** 2])
        rows = jnp.where(weight > 0, rows, 0)  # padding may have any values, even NaN
        return jnp.concatenate([jnp.stack([total, total * loss]), rows @ weight])

    def _validation_measures(self, lane: Lanes, predicted: Fields, table: DeviceRows) -> jax.Array:
        """Weighted means of ``MEASURES`` over the validation rows."""
        real = jnp.arange(lane.valid.index.size) < lane.valid.count
        weight = jnp.where(real, lane.valid.weight, 0)
        target = self._rows(table, lane.scaling, lane.valid.index)[1]
        loss = self._batch_loss(predicted, target, weight, lane.settings)
        if self.refuse_crossing:
            lower, _, upper = self.output.interval(*predicted, coverage=lane.settings.coverage)
            loss = jnp.where(jnp.any(real & ~(lower < upper)), jnp.inf, loss)
        sums = self._sums(predicted, loss, target, weight, lane.settings)
        return sums[1:] / sums[0]


def _is_array_shape(leaf: object) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _name(part: object) -> str | None:
    """Return the import path of a class or function of calipers or JAX; None for other code."""
    part = getattr(part, "__func__", part)
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if not module or not name or module.partition(".")[0] not in ("calipers", "jax"):
        return None
    value = sys.modules.get(module)
    for attribute in name.split("."):
        value = getattr(value, attribute, None)
    return f"{module}.{name}" if getattr(value, "__func__", value) is part else None
