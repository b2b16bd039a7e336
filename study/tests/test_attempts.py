"""The authors' rule for networks that failed."""

import numpy as np
import pytest

from calipers import losses
from calipers.bank import Plan, Program, Settings, Table, spawn_seeds
from calipers.networks import DenseFactory
from calipers.objectives import LOSSES
from calipers_study import attempts
from calipers_study.attempts import final_losses, train_networks


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    return Table.from_arrays(X, X[:, 0] + 0.3 * rng.normal(size=80))


PROGRAM = Program(DenseFactory((4,)), LOSSES["qd"], 2, batch_size=20)
NUMBERS = Settings(learning_rate=0.01, epochs=60, loss={"coverage_weight": 4.0})


def plans(count):
    return [Plan(seed, np.arange(5, 75), settings=NUMBERS) for seed in range(count)]


def test_loss_is_that_of_all_rows_at_once(table):
    bank = train_networks(PROGRAM, table, plans(3), tries=3)
    found = final_losses(bank, table, plans(3))
    for i in range(len(bank)):
        fields = bank.forward(table.inputs[:80])[i]
        scaling = bank.scaling_of(i)
        target = (table.target[5:75] - scaling.target_center) / scaling.target_scale
        lower, _, upper = fields[:, 5:75].astype(np.float64)
        width = np.sum((upper - lower)[(lower < target) & (target < upper)])
        inside = np.sum((lower < target) & (target < upper))
        soft = losses.soft_capture(lower, upper, target, softness=160.0).mean()
        by_hand = width / (inside + 0.001) + 4 * 70**0.5 * max(0, 0.95 - soft) ** 2
        assert found[i] == pytest.approx(by_hand, rel=1e-4)


def test_networks_above_the_limit_are_trained_again_and_given_up(table):
    bank = train_networks(PROGRAM, table, plans(2), tries=3, largest_loss=0.0)
    assert len(bank) == 0
    every = train_networks(PROGRAM, table, plans(4), tries=5)
    limit = float(np.median(final_losses(every, table, plans(4))))
    some = train_networks(PROGRAM, table, plans(4), tries=2, largest_loss=limit)
    assert (final_losses(some, table, plans(4)) <= limit).all()
    again = some.failures > 0
    for number, seed in zip(some.numbers[again], some.seeds[again], strict=True):
        assert seed == spawn_seeds((int(number), 1), 1)[0]
    assert (some.seeds[~again] == some.numbers[~again]).all()


def test_attempts_ahead_give_the_same_networks(table, monkeypatch):
    every = train_networks(PROGRAM, table, plans(4), tries=5)
    limit = float(np.median(final_losses(every, table, plans(4))))
    options = {"tries": 4, "largest_loss": limit}
    one_by_one = train_networks(PROGRAM, table, plans(4), **options)
    monkeypatch.setattr(attempts, "_ahead", lambda *_, first: 1 if first else 3)
    at_once = train_networks(PROGRAM, table, plans(4), **options)
    assert one_by_one.numbers.tolist() == at_once.numbers.tolist()
    assert one_by_one.seeds.tolist() == at_once.seeds.tolist()
    assert one_by_one.failures.tolist() == at_once.failures.tolist()
    for mine, theirs in zip(one_by_one.weights, at_once.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
