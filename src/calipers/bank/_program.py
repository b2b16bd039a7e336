"""The compiled program: any number of networks, one step of each at a time.

Everything here is traced by JAX. A *lane* is one network's place in the program; arrays with a
leading lane axis hold what differs from network to network. Loops stand outside ``vmap``, so that
their lengths are plain numbers and a lane that has finished is only masked.
"""

import sys
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from calipers.bank._cache import single_precision
from calipers.bank._lanes import (
    MEASURES,
    SCHEDULES,
    Array,
    Lanes,
    Scaling,
    Settings,
    State,
    Tree,
)
from calipers.bank._shuffle import round_keys, shuffled
from calipers.heads import HEADS, Head
from calipers.networks import Network, network_code
from calipers.objectives import Objective

SEGMENT = 128  # epochs a program can run, and record, before Python steps in
TILE = 256  # rows evaluated at a time: one size, so that a row's bits do not depend on its company
EARLY = 10  # so many times ``check_every`` epochs are all validated: some data is soon learnt
FEW_STEPS, MANY_STEPS = 8, 16  # of an epoch that an accelerator takes without asking the host
SMALL_TILE = 8  # rows predicted at a time on a CPU: a single row then costs what 8 do, not 256


def _name(part: Any) -> str | None:
    """Where the library, or JAX, has this very class or function; None where neither does."""
    part = getattr(part, "__func__", part)
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if not module or not name or module.partition(".")[0] not in ("calipers", "jax"):
        return None
    found = sys.modules.get(module)
    for step in name.split("."):
        found = getattr(found, step, None)
    return f"{module}.{name}" if found is part else None


def _select(condition: Array, new: Tree, old: Tree) -> Tree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


_one_after_another: Any = jax.lax.optimization_barrier  # which has no types


def _loop(body: Any, count: Any, carry: Any, together: int) -> Any:
    """A loop of so many turns, ``together`` of them between two looks at whether it has ended.

    Turns past its end, which must change nothing, make it a whole number of these.
    """
    if together == 1:
        return jax.lax.fori_loop(0, count, body, carry)

    def several(i: Any, carry: Any) -> Any:
        return jax.lax.fori_loop(0, together, lambda j, c: body(i * together + j, c), carry)

    turns = -(-count // together)
    one = isinstance(turns, int) and turns == 1
    return several(0, carry) if one else jax.lax.fori_loop(0, turns, several, carry)


@dataclass(frozen=True)
class Program:
    """What shapes the compiled code, and is therefore common to a bank."""

    network: Network  #: Factory of Equinox modules, see ``calipers.networks.Network``.
    objective: type[Objective]  #: What the networks are trained for.
    in_size: int  #: Number of inputs.
    batch_size: int = 100  #: Rows of a step; an epoch's last, smaller batch is kept.
    schedule: str = "exponential"  #: A key of ``SCHEDULES``.
    #: Whether gradients are clipped, whether a running average of the weights is kept, and whether
    #: adversarial examples join each batch.
    clipping: bool = False
    averaging: bool = False
    adversarial: bool = False
    head: str = ""  #: A key of ``HEADS``, where it is not the objective's own.
    #: Whether the validation loss is infinite where bounds cross on a validation row, so that early
    #: stopping never keeps such weights. The paper's authors do so; calipers does not, since one
    #: row in thousands would then veto weights that are better everywhere else.
    refuse_crossing: bool = False
    #: Split normals that a network predicts, where its head has a form for several.
    components: int = 1

    @property
    def output(self) -> Head:
        """What the networks' outputs mean."""
        return HEADS[self.head or self.objective.head].with_components(self.components)

    @property
    def code(self) -> tuple[Any, ...]:
        """The classes and functions that names stand for at present: part of what a program is."""
        head = HEADS[self.head or self.objective.head]
        own = (type(self), self.objective, self.objective.loss, SCHEDULES[self.schedule])
        return (*own, type(head), head.parameters, head.interval, *network_code(self.network))

    @property
    def description(self) -> str | None:
        """All that shapes the compiled code, where it is the library's own; None with any other."""
        names = [_name(part) for part in self.code]
        return None if None in names else repr((self, names))

    @cached_property
    def _static(self) -> Tree:
        return eqx.partition(self._outline, _is_array_shape)[1]

    @cached_property
    def _outline(self) -> Tree:
        seed = jax.ShapeDtypeStruct((), jnp.uint32)  # type: ignore[no-untyped-call]
        with single_precision():
            return eqx.filter_eval_shape(self._module, seed)

    @cached_property
    def weights(self) -> Tree:
        """Shapes of one network's weights, as a tree."""
        return eqx.filter(self._outline, _is_array_shape)

    def tree(self, leaves: list[Array]) -> Tree:
        """Weights as a tree, from the plain list that leaves the program."""
        return jax.tree.unflatten(jax.tree.structure(self.weights), leaves)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _module(self, seed: Array) -> eqx.Module:
        key = jax.random.key(seed, impl="threefry2x32")
        return self.network(self.in_size, self.output.size, key=key)

    def _memory(self, lane: Lanes) -> tuple[Any, Any]:
        """What a step leaves of Adam's moments."""
        return 0.9, 0.999

    def _rate(self, lane: Lanes, step: Array) -> Array:
        total = lane.settings.epochs * self._batches(lane.train.count)
        return SCHEDULES[self.schedule](lane.settings, step, total)

    def _batches(self, count: Array) -> Array:
        return -(-count // self.batch_size)

    # One lane. Python calls these through vmap.

    def _fresh(self, lane: Lanes) -> State:
        module = self._module(lane.seed)
        if lane.knots is not None:
            module = self.network.with_knots(module, lane.knots)  # type: ignore[attr-defined]
        network = eqx.filter(module, eqx.is_array)
        return State(
            network,
            network if self.averaging else None,
            optax.scale_by_adam().init(network),
            epoch=jnp.int32(0),
            loss=jnp.float32(0),
            best=network if lane.valid.index.size else None,
            best_loss=jnp.float32(jnp.inf),
            best_epoch=jnp.int32(0),
        )

    def _running(self, state: State, lane: Lanes) -> Array:
        longest = lane.settings.patience
        patience = jnp.maximum(lane.settings.early_patience, 2 * state.best_epoch)
        waited = state.epoch - state.best_epoch
        exhausted = (longest > 0) & (waited >= jnp.minimum(longest, patience))
        return (state.epoch < lane.settings.epochs) & jnp.isfinite(state.loss) & ~exhausted

    def _rows(
        self, table: tuple[Array, Array], scaling: Scaling, row: Array
    ) -> tuple[Array, Array]:
        inputs, target = (a.at[row].get(mode="promise_in_bounds") for a in table)
        target = (target - scaling.target_center) / scaling.target_scale
        return (inputs - scaling.input_center) / scaling.input_scale, target

    def _predict(self, network: Tree, inputs: Array) -> tuple[Array, ...]:
        module = eqx.combine(network, self._static)
        return self.output.parameters(jax.vmap(module)(inputs))

    def _batch_loss(
        self, predicted: tuple[Array, ...], target: Array, weight: Array, settings: Settings
    ) -> Array:
        numbers = {"coverage": settings.coverage, **settings.loss}
        return self.objective.loss(*predicted, target, weight=weight, **numbers)

    def _loss(
        self, network: Tree, inputs: Array, target: Array, weight: Array, settings: Settings
    ) -> tuple[Array, tuple[Array, ...]]:
        predicted = self._predict(network, inputs)
        loss = self._batch_loss(predicted, target, weight, settings)
        return loss, predicted

    def _training_loss(
        self, network: Tree, inputs: Array, target: Array, weight: Array, settings: Settings
    ) -> tuple[Array, tuple[Array, ...]]:
        loss, predicted = self._loss(network, inputs, target, weight, settings)
        if self.adversarial:
            slope = jax.grad(lambda x: self._loss(network, x, target, weight, settings)[0])(inputs)
            moved = jax.lax.stop_gradient(inputs + settings.adversarial_step * jnp.sign(slope))
            attack = self._loss(network, moved, target, weight, settings)[0]
            loss = loss + jnp.where(settings.adversarial_step > 0, attack, 0)
        return loss, predicted

    def _sums(
        self,
        predicted: tuple[Array, ...],
        loss: Array,
        target: Array,
        weight: Array,
        settings: Settings,
    ) -> Array:
        """Weight, and weighted sums of ``MEASURES``."""
        lower, point, upper = self.output.interval(*predicted, coverage=settings.coverage)
        total = jnp.sum(weight)
        captured = (lower <= target) & (target <= upper)
        rows = jnp.stack([captured, upper - lower, (point - target) ** 2])
        kept = jnp.where(weight > 0, rows, 0)  # rows of padding may hold anything
        return jnp.concatenate([jnp.stack([total, total * loss]), kept @ weight])

    def _step(
        self,
        lane: Lanes,
        state: State,
        sums: Array,
        keys: tuple[Array, Array],
        running: Array,
        start: Array,
        table: tuple[Array, Array],
    ) -> tuple[State, Array]:
        position = start + jnp.arange(self.batch_size)
        inside = position < lane.train.count
        order = shuffled(position.astype(jnp.uint32), lane.train.count, keys)
        slot = jnp.where(inside, order, 0)
        weight = jnp.where(inside, lane.train.weight[slot], 0)
        inputs, target = self._rows(table, lane.scaling, lane.train.index[slot])
        (loss, predicted), slope = jax.value_and_grad(self._training_loss, has_aux=True)(
            state.network, inputs, target, weight, lane.settings
        )
        live = running & (start < lane.train.count)
        batch = self._sums(predicted, loss, target, weight, lane.settings)
        return self._moved(lane, state, slope, live), sums + jnp.where(live, batch, 0)

    def _moved(self, lane: Lanes, state: State, slope: Tree, live: Array) -> State:
        """The state after a step of Adam with decoupled decay, as it was unless the lane is live.

        Moments are done before weights, and these before their average: computed at the same time,
        each would be copied first, for the others to read.
        """
        settings, before = lane.settings, state.optimizer
        if self.clipping:
            clip = optax.clip_by_global_norm(settings.clip_norm)
            slope = clip.update(slope, optax.EmptyState())[0]
        memory, rate = self._memory(lane), self._rate(lane, before.count)
        moments = optax.scale_by_adam(*memory).update(slope, before)[1]
        moments = _one_after_another(_select(live, moments, before))
        first, second = (1 - kept**moments.count for kept in memory)

        def weights(old: Array, mean: Array, square: Array) -> Array:
            update = mean / first / (jnp.sqrt(square / second) + 1e-8)
            decay = settings.weight_decay * old if old.ndim > 1 else 0
            return jnp.where(live, old - rate * (update + decay), old)

        network = jax.tree.map(weights, state.network, moments.mu, moments.nu)
        moved = state._replace(network=network, optimizer=moments)
        if not self.averaging:
            return moved
        keep = jnp.minimum(settings.averaging, (1 + before.count) / (10 + before.count))
        new = _one_after_another(network)
        average = jax.tree.map(lambda a, b: keep * a + (1 - keep) * b, state.average, new)
        return moved._replace(network=new, average=_select(live, average, state.average))

    def _validation_measures(
        self, lane: Lanes, predicted: tuple[Array, ...], table: tuple[Array, Array]
    ) -> Array:
        """Measures on the validation rows."""
        real = jnp.arange(lane.valid.index.size) < lane.valid.count
        weight = jnp.where(real, lane.valid.weight, 0)
        target = self._rows(table, lane.scaling, lane.valid.index)[1]
        loss = self._batch_loss(predicted, target, weight, lane.settings)
        if self.refuse_crossing:
            lower, _, upper = self.output.interval(*predicted, coverage=lane.settings.coverage)
            loss = jnp.where(jnp.any(real & ~(lower < upper)), jnp.inf, loss)
        sums = self._sums(predicted, loss, target, weight, lane.settings)
        return sums[1:] / sums[0]

    def product(self, state: State) -> Tree:
        """The weights that a training is for."""
        return state.average if self.averaging else state.network

    def blank(self, lanes: Lanes) -> State:
        """The state of lanes that hold nothing yet, all zeros, without tracing a network."""
        count = lanes.seed.shape[0]

        def zeros(leaf: Any) -> Array:
            return np.zeros((count, *leaf.shape), leaf.dtype)

        network = jax.tree.map(zeros, self.weights)
        with single_precision():
            optimizer = jax.eval_shape(optax.scale_by_adam().init, self.weights)
        return State(
            network,
            network if self.averaging else None,
            jax.tree.map(zeros, optimizer),
            epoch=np.zeros(count, np.int32),
            loss=np.zeros(count, np.float32),
            best=network if lanes.valid.index.size else None,
            best_loss=np.zeros(count, np.float32),
            best_epoch=np.zeros(count, np.int32),
        )

    # All lanes. These are compiled.

    def start(self, state: State, lanes: Lanes, renew: Array, given: Tree | None) -> State:
        """Put fresh networks into the lanes marked ``renew``; ``given`` weights, where not None."""
        fresh = jax.vmap(self._fresh)(lanes)
        if given is not None:
            best = given if fresh.best is not None else None
            average = given if self.averaging else None
            fresh = fresh._replace(network=given, average=average, best=best)
        choose = jax.vmap(_select)
        return choose(renew, fresh, state)

    def advance(
        self, state: State, lanes: Lanes, table: tuple[Array, Array], epochs: Array
    ) -> tuple[State, Array, Array]:
        """Train every lane for some epochs, at most ``SEGMENT``.

        Gives the state, measures of shape (SEGMENT, lanes, 2, measures) on training and validation
        rows, NaN where there are none, and which lanes have not finished.
        """
        lane_count = lanes.seed.shape[0]
        records = jnp.full((SEGMENT, lane_count, 2, len(MEASURES)), jnp.nan)

        together = self._epochs_together(lanes)

        def epoch(i: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
            asked = together == 1 or i < epochs
            state, record = self._epoch(carry[0], lanes, table, asked)
            return state, carry[1].at[i].set(record)

        state, records = _loop(epoch, epochs, (state, records), together)
        return state, records, jax.vmap(self._running)(state, lanes)

    def _epoch(
        self, state: State, lanes: Lanes, table: tuple[Array, Array], asked: Array | bool
    ) -> tuple[State, Array]:
        running = jax.vmap(self._running)(state, lanes) & asked
        keys = jax.vmap(round_keys)(lanes.seed, state.epoch, lanes.train.count)
        batches = jnp.max(jnp.where(running, self._batches(lanes.train.count), 0))

        def step(i: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
            return jax.vmap(self._step, in_axes=(0, 0, 0, 0, 0, None, None))(
                lanes, *carry, keys, running, i * self.batch_size, table
            )

        sums = jnp.zeros((lanes.seed.shape[0], 1 + len(MEASURES)))
        together = self._steps_together(lanes)
        known = together == self._most_steps(lanes) and self._epochs_together(lanes) > 1
        # An epoch that is not trained has no steps, but to learn so takes a look.
        count = together if known else batches
        state, sums = _loop(step, count, (state, sums), together)
        trained = jnp.where(running[:, None], sums[:, 1:] / sums[:, :1], jnp.nan)
        state = state._replace(
            epoch=state.epoch + running, loss=jnp.where(running, trained[:, 0], state.loss)
        )
        if not lanes.valid.index.shape[1]:
            return state, jnp.stack([trained, jnp.full_like(trained, jnp.nan)], axis=1)
        state, validated = self._validate(state, lanes, table, running)
        return state, jnp.stack([trained, validated], axis=1)

    def _most_steps(self, lanes: Lanes) -> int:
        """Steps of an epoch of as many rows as a lane can have."""
        return -(-lanes.train.index.shape[1] // self.batch_size)

    def _steps_together(self, lanes: Lanes) -> int:
        """Steps between looks at whether an epoch has ended; those past its end change nothing.

        An accelerator waits for the host at every look, for longer than a small step takes.
        """
        if jax.default_backend() == "cpu":
            return 1
        most = self._most_steps(lanes)
        return min(most, FEW_STEPS) if most < 4 * MANY_STEPS else MANY_STEPS

    def _epochs_together(self, lanes: Lanes) -> int:
        """Epochs between looks, where they are of few steps; a power of two."""
        if jax.default_backend() == "cpu" or lanes.valid.index.shape[1]:
            return 1
        return 2 ** int(np.log2(max(1, 4 * MANY_STEPS // self._most_steps(lanes))))

    def _validate(
        self, state: State, lanes: Lanes, table: tuple[Array, Array], running: Array
    ) -> tuple[State, Array]:
        spacing = lanes.settings.check_every
        last = state.epoch >= lanes.settings.epochs
        early = state.epoch <= EARLY * spacing
        due = running & (last | early | (state.epoch % spacing == 0))
        validated = jax.lax.cond(
            jnp.any(due),
            lambda: self._evaluate(self.product(state), lanes, table),
            lambda: jnp.full((running.size, len(MEASURES)), jnp.nan),
        )
        validated = jnp.where(due[:, None], validated, jnp.nan)
        better = validated[:, 0] < state.best_loss  # False for NaN
        return state._replace(
            best=jax.vmap(_select)(better, self.product(state), state.best),
            best_loss=jnp.where(better, validated[:, 0], state.best_loss),
            best_epoch=jnp.where(better, state.epoch, state.best_epoch),
        ), validated

    def _evaluate(self, network: Tree, lanes: Lanes, table: tuple[Array, Array]) -> Array:
        lane_count, size = lanes.valid.index.shape
        width = len(self.output.fields)

        def forward(network: Tree, lane: Lanes, start: Array) -> Array:
            row = jax.lax.dynamic_slice(lane.valid.index, (start,), (TILE,))
            inputs, _ = self._rows(table, lane.scaling, row)
            return jnp.stack(self._predict(network, inputs))

        def tile(i: Array, predicted: Array) -> Array:
            part = jax.vmap(forward, in_axes=(0, 0, None))(network, lanes, i * TILE)
            return jax.lax.dynamic_update_slice(predicted, part, (0, 0, i * TILE))

        tiles = -(-jnp.max(lanes.valid.count) // TILE)
        predicted = jnp.zeros((lane_count, width, size))
        predicted = jax.lax.fori_loop(0, tiles, tile, predicted)
        return jax.vmap(self._validation_measures, in_axes=(0, 0, None))(lanes, predicted, table)

    def predict(self, network: Tree, scaling: Scaling, inputs: Array, count: Array) -> Array:
        """Parameters of the first ``count`` rows in standardised units, (lanes, fields, rows)."""
        lane_count = scaling.target_scale.shape[0]
        width = len(self.output.fields)
        size = SMALL_TILE if jax.default_backend() == "cpu" else TILE

        def forward(network: Tree, scaling: Scaling, rows: Array) -> Array:
            scaled = (rows - scaling.input_center) / scaling.input_scale
            return jnp.stack(self._predict(network, scaled))

        def tile(i: Array, predicted: Array) -> Array:
            rows = jax.lax.dynamic_slice(inputs, (i * size, 0), (size, inputs.shape[1]))
            part = jax.vmap(forward, in_axes=(0, 0, None))(network, scaling, rows)
            return jax.lax.dynamic_update_slice(predicted, part, (0, 0, i * size))

        predicted = jnp.zeros((lane_count, width, inputs.shape[0]))
        return jax.lax.fori_loop(0, -(-count // size), tile, predicted)


def _is_array_shape(leaf: object) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)
