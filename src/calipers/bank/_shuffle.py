"""A random permutation of any number of rows, computed one position at a time.

Sorting random keys would take as long as a third of training on a CPU. A swap-or-not shuffle
(Hoang, Morris and Rogaway, 2012) needs no sort and no memory: it maps each position to its row by a
few rounds in which a position either stays or changes places with its mirror image about a random
pivot. The result depends on the seed, the epoch and the number of rows alone, never on padding.
"""

import jax
import jax.numpy as jnp

_ROUNDS = 16  # a row stays where it was with probability 2**-16


def _mix(x: jax.Array) -> jax.Array:
    """Scramble 32-bit integers; neighbours become unrelated."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def round_keys(seed: jax.Array, epoch: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys and pivots of one epoch's shuffle, computed once for all its batches."""
    rounds = jnp.arange(1, _ROUNDS + 1, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    keys = _mix(_mix(_mix(seed) + epoch.astype(jnp.uint32)) + rounds)
    return keys, keys % jnp.maximum(count.astype(jnp.uint32), 1)


def shuffled(position: jax.Array, count: jax.Array, keys: tuple[jax.Array, jax.Array]) -> jax.Array:
    """The row at each position of the epoch; positions must be below ``count``."""
    count = count.astype(jnp.uint32)
    for key, pivot in zip(*keys, strict=True):
        mirror = pivot - position
        mirror = jnp.minimum(mirror, mirror + count)  # modulo count: negatives wrap to huge numbers
        swap = _mix(jnp.maximum(position, mirror) ^ key) >> 31
        position = jnp.where(swap == 1, mirror, position)
    return position
