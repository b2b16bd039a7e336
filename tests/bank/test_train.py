"""Training against a plain loop, and the promises a bank makes."""

import math
import threading
import time
from dataclasses import dataclass, fields, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import joblib
import numpy as np
import optax
import pytest

from calipers import losses
from calipers.bank import (
    Plan,
    Program,
    Settings,
    Table,
    TrainingFailedError,
    _bank,
    _run,
    _train,
    train,
)
from calipers.bank._cache import compiled
from calipers.bank._clock import Clock
from calipers.bank._lanes import Lanes, State
from calipers.bank._shared_rows import padded
from calipers.bank._shuffle import round_keys, shuffled
from calipers.networks import Around, DenseFactory
from calipers.objectives import LOSSES, Density, Objective, QDPlus


class Safe(QDPlus):
    """No crossing, hence no second try."""

    head = "ordered"


SETTINGS = Settings(learning_rate=0.01, decay_rate=0.9, decay_steps=3, epochs=4)
HALVES = (np.arange(115), np.arange(115, 230))


def plans(count, rows=200, **changes):
    settings = SETTINGS._replace(**changes)
    return [Plan(seed, np.arange(rows), settings=settings) for seed in range(count)]


def same(one, other):
    pairs = zip(one.weights, other.weights, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def assert_trained_to(bank, network):
    for ours, theirs in zip(bank.weights, jax.tree.leaves(network), strict=True):
        np.testing.assert_allclose(ours[0], theirs, atol=2e-5)


def plain_loop(program, table, plan, optimizer, loss):
    """One network by the book: a Python loop over epochs and batches, no padding, no masks."""
    key = jax.random.key(plan.seed, impl="threefry2x32")
    network = program.network(program.in_size, program.output.size, key=key)
    state = optimizer.init(network)
    scaling = table.scaling(plan.rows, plan.weights)
    inputs = (table.inputs[plan.rows] - scaling.input_center) / scaling.input_scale
    target = (table.target[plan.rows] - scaling.target_center) / scaling.target_scale
    weights = np.ones(len(plan.rows)) if plan.weights is None else plan.weights
    inputs, target, weights = (jnp.float32(a) for a in (inputs, target, weights))

    @jax.jit
    def step(network, state, batch):
        def objective(network):
            predicted = program.output.parameters(jax.vmap(network)(inputs[batch]))
            return loss(*predicted, target[batch], weight=weights[batch])

        slope = jax.grad(objective)(network)
        updates, state = optimizer.update(slope, state, network)
        return optax.apply_updates(network, updates), state

    for epoch in range(plan.settings.epochs):
        size = jnp.int32(len(plan.rows))
        keys = round_keys(jnp.uint32(plan.seed), jnp.int32(epoch), size)
        order = np.asarray(shuffled(jnp.arange(size, dtype=jnp.uint32), size, keys))
        for start in range(0, len(order), program.batch_size):
            network, state = step(network, state, order[start : start + program.batch_size])
    return network


@pytest.mark.parametrize(
    ("schedule", "rate"),
    [
        ("exponential", lambda step: 0.01 * 0.9 ** (step / 3)),
        ("cosine", lambda step: 0.005 * (1 + jnp.cos(jnp.pi * step / 20))),
    ],
)
def test_a_network_trains_as_a_plain_loop_would(table, program, schedule, rate):
    program = replace(program, schedule=schedule, objective=Safe)
    weights = np.random.default_rng(1).uniform(0.5, 2, 210)
    plan = Plan(7, np.arange(210), weights, settings=SETTINGS)  # 210 rows: the last batch has 10
    expected = plain_loop(program, table, plan, optax.adam(rate), losses.qd_plus)
    bank = train(program, table, [plan])
    assert_trained_to(bank, expected)


def test_clipping_and_weight_decay_are_optax(table, program):
    """With a constant learning rate."""
    program = replace(program, schedule="constant", clipping=True, objective=Safe)
    changed = SETTINGS._replace(clip_norm=0.05, weight_decay=0.1)
    plan = Plan(3, np.arange(200), settings=changed)
    optimizer = optax.chain(
        optax.clip_by_global_norm(0.05),
        optax.adamw(
            0.01, weight_decay=0.1, mask=lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 1, tree)
        ),
    )
    expected = plain_loop(program, table, plan, optimizer, losses.qd_plus)
    bank = train(program, table, [plan])
    assert_trained_to(bank, expected)


def test_adversarial_examples_are_added_to_the_loss(table):
    program = Program(DenseFactory((8,)), LOSSES["normal"], 2, batch_size=50, adversarial=True)
    plan = Plan(3, np.arange(200), settings=SETTINGS._replace(adversarial_step=0.1, decay_rate=1.0))

    key = jax.random.key(3, impl="threefry2x32")
    network = program.network(2, 2, key=key)
    optimizer = optax.adam(0.01)
    state = optimizer.init(network)
    scaling = table.scaling(plan.rows)
    inputs = jnp.float32((table.inputs[:200] - scaling.input_center) / scaling.input_scale)
    target = jnp.float32((table.target[:200] - scaling.target_center) / scaling.target_scale)

    def loss(network, x, y):
        return losses.normal_nll(*program.output.parameters(jax.vmap(network)(x)), y)

    @jax.jit
    def step(network, state, x, y):
        moved = x + 0.1 * jnp.sign(jax.grad(loss, argnums=1)(network, x, y))
        slope = jax.grad(lambda n: loss(n, x, y) + loss(n, moved, y))(network)
        updates, state = optimizer.update(slope, state)
        return optax.apply_updates(network, updates), state

    for epoch in range(4):
        size = jnp.int32(200)
        keys = round_keys(jnp.uint32(3), jnp.int32(epoch), size)
        order = np.asarray(shuffled(jnp.arange(200, dtype=jnp.uint32), size, keys))
        for start in range(0, 200, 50):
            batch = order[start : start + 50]
            network, state = step(network, state, inputs[batch], target[batch])
    bank = train(program, table, [plan])
    assert_trained_to(bank, network)


def test_bits_do_not_depend_on_batch_threads_or_padding(table, program):
    alone = [train(program, table, [plan]) for plan in plans(7)]
    together = train(program, table, plans(7))
    threads = train(program, table, plans(7), n_jobs=2)
    # Others of another length, so that lanes are refilled at different times.
    mixed = plans(9, epochs=2) + plans(7)
    crowd = train(program, table, mixed, n_jobs=2)[9:]
    longer = Table(
        np.pad(table.inputs, ((0, 300), (0, 0))), np.pad(table.target, (0, 300)), table.units, 230
    )
    padded = train(program, longer, [*plans(7), Plan(99, np.tile(np.arange(200), 2))])[:7]
    for i, one in enumerate(alone):
        assert same(one, together[i : i + 1])
    for other in (threads, crowd, padded):
        assert same(together, other)


def test_lanes_are_given_up_when_few_still_train(table, program, monkeypatch):
    program = replace(program, objective=Safe)
    monkeypatch.setattr(_run, "_MANY_LANES", 4)
    widths = []
    monkeypatch.setattr(_run, "compiled", lambda f, arguments, **rest: (
        widths.append(len(arguments[1].seed)), compiled(f, arguments, **rest))[1])  # fmt: skip
    monkeypatch.setattr(_run, "_SEGMENT_SECONDS", 1e-9)  # Python steps in after every epoch
    mixed = [*plans(9, epochs=2), *plans(3, epochs=6)]
    shape = _run.Shape(12, padded(200), 0)
    found = _run.run(program, table, mixed, shape, None, Clock(math.inf), 1.0)
    assert widths[-4:] == [3] * 4
    assert set(widths[:-4]) == {12}
    assert [one.epochs for one in found] == [2] * 9 + [6] * 3
    whole = train(program, table, mixed)
    for i, one in enumerate(found):
        for ours, theirs in zip(one.weights, whole.weights, strict=True):
            np.testing.assert_allclose(ours, theirs[i], atol=1e-6)


def test_predictions_do_not_depend_on_the_batch(table, program):
    bank = train(program, table, plans(6))
    x = np.random.default_rng(3).normal(5, 3, (1000, 2))
    whole = bank.predict(x)
    for rows in (slice(0, 1), slice(511, 514), slice(100, 900)):
        for name, part in bank.predict(x[rows]).items():
            assert np.array_equal(part, whole[name][:, rows])
    assert np.array_equal(bank[2:4].predict(x)["lower"], whole["lower"][2:4])


def test_predictions_are_the_network_in_the_unit_of_the_target(table, program):
    bank = train(program, table, plans(1))
    module = eqx.combine(program.tree(bank.weights_of(0)), program._static)
    x = np.array([[4.0, 6.0]])
    scaled = (x - table.units.input_center) / table.units.input_scale
    scaled = (scaled - bank.scaling.input_center[0]) / bank.scaling.input_scale[0]
    raw = np.asarray(module(jnp.float32(scaled[0])), float)
    inner = raw * bank.scaling.target_scale[0] + bank.scaling.target_center[0]
    expected = inner * table.units.target_scale + table.units.target_center
    found = [bank.predict(x)[name][0, 0] for name in ("lower", "point", "upper")]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_early_stopping_restores_the_best_weights(table, program):
    rng = np.random.default_rng(0)
    rows = rng.permutation(230)
    settings = SETTINGS._replace(learning_rate=0.1, epochs=200, patience=5, decay_rate=1.0)
    plan = Plan(1, rows[:30], validation=rows[30:], settings=settings)
    bank = train(program, table, [plan], retries=0, needed=0, largest_loss=np.inf)
    history = bank.histories[0]
    best = np.argmin(history["valid_loss"])
    assert len(history) == history["epoch"][best] + 5 < 200
    scaling = table.scaling(plan.rows)
    target = (table.target[rows[30:]] - scaling.target_center) / scaling.target_scale
    lower, point, upper = bank.forward(table.inputs[rows[30:]])[0]
    restored = losses.qd_plus(lower, point, upper, target.astype(np.float32))
    np.testing.assert_allclose(restored, history["valid_loss"][best], rtol=1e-4)
    unit = float(table.units.target_scale * scaling.target_scale)
    width = (upper - lower).mean() * unit
    np.testing.assert_allclose(width, history["valid_width"][best], rtol=1e-4)


@pytest.mark.parametrize("around", [False, True])
def test_inputs_are_cut_at_quantiles_of_the_rows_that_a_network_trains_on(table, around):
    network = DenseFactory((4,), "silu", 1, columns=(1,), bins=4)
    network = Around(network, 0, 0.5) if around else network
    program = Program(network, Density, 2, head="centred" if around else "", averaging=True)
    settings = SETTINGS._replace(epochs=20, weight_decay=0.1, averaging=0.9)
    plans = [Plan(seed, rows, settings=settings) for seed, rows in enumerate(HALVES)]
    bank = train(program, table, plans)
    for network, rows in enumerate(HALVES):
        scaling = table.scaling(rows)
        inputs = (table.inputs[rows] - scaling.input_center) / scaling.input_scale
        knots = np.quantile(inputs[:, 1], [0, 0.25, 0.5, 0.75, 1])
        np.testing.assert_allclose(bank.weights[-2][network], knots, rtol=1e-4, atol=1e-6)


def test_pieces_between_equal_quantiles_are_left_out():
    factory = DenseFactory((4,), "silu", 1, bins=4)
    inputs = np.column_stack([np.repeat([0.0, 1.0, 5.0], [80, 10, 10]), np.zeros(100)])
    knots = factory.knots(inputs).reshape(2, 5)
    np.testing.assert_array_equal(knots, [[0, 5, 5, 5, 5], [0, 0, 0, 0, 0]])
    module = factory.with_knots(factory(2, 3, key=jax.random.key(0)), knots.ravel())
    filled = module.segments.filled(jnp.array([2.5, 7.0]))
    np.testing.assert_allclose(filled, [0.5, 0, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(("early", "waited"), [(30, 30), (2, 5), (50, 40)])
def test_patience_is_short_where_the_best_epoch_came_soon(program, early, waited):
    settings = SETTINGS._replace(epochs=100, patience=40, early_patience=early)
    lane = Lanes(0, settings, None, None, None)
    for epoch, goes_on in ((5 + waited - 1, True), (5 + waited, False)):
        state = State(None, None, None, epoch, 0.0, None, 0.5, best_epoch=5)
        assert bool(program._running(state, lane)) is goes_on


def test_validation_follows_check_every(table, program):
    plan = Plan(
        1,
        np.arange(100),
        validation=np.arange(100, 230),
        settings=SETTINGS._replace(epochs=37, check_every=3),
    )
    history = train(program, table, [plan]).histories[0]
    looked = np.isfinite(history["valid_loss"])
    assert history["epoch"][looked].tolist() == [*range(1, 31), 33, 36, 37]
    assert np.isfinite(history["loss"]).all()


def test_a_time_limit_shortens_plans_and_takes_networks_as_they_are(table, program):
    settings = SETTINGS._replace(epochs=100_000, learning_rate=1e-3)
    long = [Plan(seed, np.arange(100), settings=settings) for seed in range(12)]
    began = time.time()
    program = replace(program, objective=Safe)
    bank = train(program, table, long, seconds=1, retries=0, largest_loss=1e9)
    assert time.time() - began < 60  # hours without it; the machine may be busy
    assert all(1 <= len(history) < 100_000 for history in bank.histories)
    assert bank.out_of_time.all()
    assert bank[:3].out_of_time.shape == (3,)


def test_networks_that_the_clock_ended_count_also_after_an_early_best_epoch(program):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (150, 1))
    y = np.where(np.arange(150) < 100, 1.0, -1.0) * X[:, 0]  # the rest disagrees
    settings = SETTINGS._replace(epochs=100_000, learning_rate=0.02, patience=100_000)
    plan = Plan(1, np.arange(100), validation=np.arange(100, 150), settings=settings)
    safe = replace(program, objective=Safe, in_size=1)
    bank = train(safe, Table.from_arrays(X, y), [plan], seconds=1, retries=0, largest_loss=1e9)
    losses = bank.histories[0]["valid_loss"]
    assert 2 * np.nanargmin(losses) < len(losses) < 100_000
    assert bank.out_of_time.all()


def test_a_time_limit_counts_from_when_programs_are_compiled(table, program, monkeypatch):
    from calipers.bank import _run

    waits = []

    def slow(*arguments, **options):
        if not waits:  # as long as compiling may take, on a clock of its own
            waits.append(time.monotonic)
            monkeypatch.setattr(time, "monotonic", lambda: waits[0]() + 1000)
        return compiled(*arguments, **options)

    compiled = _run.compiled
    monkeypatch.setattr(_run, "compiled", slow)
    bank = train(program, table, plans(3, epochs=20), n_jobs=1, seconds=100, retries=0, needed=0)
    assert [len(history) for history in bank.histories] == [20] * len(bank)
    assert not bank.out_of_time.any()


def test_plans_that_are_in_time_keep_their_epochs(table, program):
    brief = plans(3, epochs=4)
    bank = train(program, table, brief, seconds=600, retries=0, needed=0)
    assert [len(history) for history in bank.histories] == [4] * len(bank)


def test_failures_are_trained_again_and_counted(table, program):
    # Untrained free bounds cross about half the time.
    once = plans(12, epochs=1, learning_rate=1e-6)
    with pytest.raises(TrainingFailedError, match=r"12 networks failed 1 times.*seeds.*Try a sm"):
        train(program, table, once, retries=0)
    few = train(program, table, once, retries=0, needed=0)
    assert len(few) < 12
    more = train(program, table, once, retries=30, needed=0)
    assert len(more) >= len(few)
    assert more.failures.sum() > 0
    assert set(more.seeds[more.failures == 0]) == set(few.seeds)
    again = train(
        program, table, [Plan(int(more.seeds[-1]), np.arange(200), settings=once[0].settings)]
    )
    assert same(again, more[-1:])


def test_a_network_that_diverges_is_a_failure(table, program):
    wild = plans(2, learning_rate=1e30, epochs=50)
    with pytest.raises(TrainingFailedError):
        train(program, table, wild, retries=1)


def test_a_network_can_be_trained_further(table, program):
    bank = train(program, table, plans(2, epochs=30))
    onward = [
        replace(plan, initial=bank.weights_of(i), scaling=bank.scaling_of(i))
        for i, plan in enumerate(plans(2, epochs=1, learning_rate=1e-9))
    ]
    further = train(program, table, onward)
    x = np.random.default_rng(3).normal(5, 3, (50, 2))
    np.testing.assert_allclose(
        further.predict(x)["point"], bank.predict(x)["point"], rtol=1e-4, atol=1e-4
    )


class Residual(eqx.Module):
    inner: eqx.Module
    outer: eqx.nn.Linear

    def __call__(self, x):
        return self.outer(x + self.inner(x))


@dataclass(frozen=True)
class ResidualFactory:
    width: int = 8

    def __call__(self, in_size, out_size, *, key):
        first, second = jax.random.split(key)
        inner = DenseFactory((self.width,))(in_size, in_size, key=first)
        return Residual(inner, eqx.nn.Linear(in_size, out_size, key=second))


def test_a_network_and_a_loss_of_ones_own(table):
    class Own(Objective):
        head = "ordered"

        @staticmethod
        def loss(lower, point, upper, target, *, weight, coverage):
            width = losses.pinball(upper, target, quantile=0.9, weight=weight)
            width += losses.pinball(lower, target, quantile=0.1, weight=weight)
            return width + losses.squared_error(point, target, weight=weight)

    program = Program(ResidualFactory(), Own, 2, batch_size=50)
    bank = train(program, table, plans(3, epochs=60))
    values = bank.predict(table.inputs[:200] * table.units.input_scale + table.units.input_center)
    assert (values["lower"] < values["point"]).all()
    assert (values["point"] < values["upper"]).all()
    assert bank.histories[0]["loss"][-1] < bank.histories[0]["loss"][0] / 2


def test_stopping_from_outside(table, program):
    def interrupt(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(program, table, plans(3, epochs=10_000), report=interrupt)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        train(program, table, plans(12, epochs=200_000), n_jobs=2, report=interrupt)
    deadline = time.monotonic() + 20  # a thread may take a moment to end, on a busy machine
    while threading.active_count() > before + 2:  # joblib's idle helpers, nothing that trains
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_plans_go_to_threads_as_they_are(table, program, monkeypatch, n_jobs):
    seen = []

    def run(program, table, plans, *rest):
        seen.extend(plans)
        return original(program, table, plans, *rest)

    original = _train.run
    monkeypatch.setattr(_train, "run", run)
    given = plans(7)
    train(program, table, given, n_jobs=n_jobs)
    assert {id(plan) for plan in given} <= {id(plan) for plan in seen}  # the rest are retries


@pytest.mark.long
def test_other_processes_can_do_the_work(table, program):
    here = train(program, table, plans(7))
    with joblib.parallel_config(backend="loky", n_jobs=2):
        elsewhere = train(program, table, plans(7), n_jobs=2)
    assert same(here, elsewhere)


class Opening(Objective):
    """Bounds that start at random, crossed on some rows, and are drawn to -1 and 1."""

    @staticmethod
    def loss(lower, point, upper, target, *, weight, coverage):
        """Squared distance from the places."""
        return (((lower + 1) ** 2 + (upper - 1) ** 2) * weight).sum() / weight.sum()


def test_crossed_bounds_on_validation_rows_may_be_refused(table):
    rows = np.arange(200)
    settings = SETTINGS._replace(epochs=100, patience=100, decay_rate=1.0)
    losses = {}
    for refuse in (False, True):
        program = Program(DenseFactory((8,)), Opening, 2, batch_size=50, refuse_crossing=refuse)
        plan = Plan(5, rows[:100], validation=rows[100:], settings=settings)
        losses[refuse] = train(program, table, [plan], retries=0).histories[0]["valid_loss"]
    crossed = np.isinf(losses[True])
    assert crossed[0]
    assert not crossed[-1]
    assert np.isfinite(losses[False]).all()
    np.testing.assert_array_equal(losses[True][~crossed], losses[False][~crossed])


def test_the_range_of_the_training_targets_normalises_the_width(table):
    """NMPIW by name is QD+ with the range of a network's own standardised targets."""
    rows = np.arange(200)
    target = table.target[rows]
    extent = float((target.max() - target.min()) / target.std())
    settings = SETTINGS._replace(epochs=150, decay_rate=1.0)
    by_name, by_hand, plain = (
        train(
            Program(DenseFactory((8,)), LOSSES[name], 2, batch_size=50),
            table,
            [Plan(5, rows, settings=settings._replace(loss=numbers))],
        ).histories[0]["loss"]
        for name, numbers in (
            ("qd+ nmpiw", {}),
            ("qd+", {"target_range": extent}),
            ("qd+", {}),
        )
    )
    np.testing.assert_allclose(by_name[:20], by_hand[:20], rtol=1e-3)
    assert by_name[-1] < plain[-1]


@pytest.mark.parametrize(("cores", "expected"), [(1, 5), (2, 5), (4, 2), (8, 1), (64, 1)])
def test_networks_to_a_chunk_leave_every_core_some(monkeypatch, cores, expected):
    monkeypatch.setattr(_bank.joblib, "cpu_count", lambda: cores)
    assert _bank.lane_count(None, 10, rows=10_000) == expected
    assert _bank.lane_count(None, 10, rows=1000) == 5  # steps cost more than cores would save


@dataclass(frozen=True)
class Grouped(Program):
    """Looks at whether loops have ended are as rare as on an accelerator."""

    steps: int = 2
    epochs: int = 4

    def _steps_per_check(self, lanes):
        return self.steps

    def _epochs_per_check(self, lanes):
        return self.epochs


@pytest.mark.parametrize(("steps", "rows"), [(3, 200), (4, 200), (4, 120)])
def test_turns_past_the_end_of_a_loop_change_nothing(table, program, steps, rows):
    given = {field.name: getattr(program, field.name) for field in fields(program)}
    chosen = [*plans(2, epochs=6), *plans(1, rows, epochs=3)]
    alone = train(program, table, chosen, needed=0)
    found = train(Grouped(**given, steps=steps), table, chosen, needed=0)
    for ours, theirs in zip(found.weights, alone.weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert [len(history) for history in found.histories] == [6, 6, 3]
