"""The shuffle is a permutation, fresh each epoch, and as good as uniform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calipers.bank._shuffle import round_keys, shuffled


def orders(count, epochs, seed=1):
    """Rows in their order, one line per epoch."""

    def order(epoch, size):
        keys = round_keys(jnp.uint32(seed), epoch, size)
        return shuffled(jnp.arange(count, dtype=jnp.uint32), size, keys)

    many = jax.jit(jax.vmap(order, in_axes=(0, None)))
    return np.asarray(many(jnp.arange(epochs), jnp.int32(count))).astype(int)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100, 455, 1024, 70_001])
def test_every_row_comes_once(count):
    for order in orders(count, 5):
        assert np.array_equal(np.sort(order), np.arange(count))


def test_epochs_and_seeds_differ():
    first, second = orders(100, 2)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, orders(100, 1, seed=2)[0])


def test_all_permutations_of_five_are_equally_likely():
    found = orders(5, 120 * 300)
    _, counts = np.unique(found @ 5 ** np.arange(5), return_counts=True)
    assert len(counts) == 120
    assert stats.chisquare(counts).pvalue > 1e-4  # fails once in 10,000 seeds


def test_pairs_of_positions_are_equally_likely():
    found = orders(30, 40_000)
    pairs = np.bincount(found[:, 3] * 30 + found[:, 17], minlength=900).reshape(30, 30)
    assert stats.chisquare(pairs[~np.eye(30, dtype=bool)]).pvalue > 1e-4  # likewise
    steps = np.bincount((found[:, 1] - found[:, 0]) % 30, minlength=30)[1:]
    assert stats.chisquare(steps).pvalue > 1e-4  # likewise
