"""What the steps of a compiled program are made of, traced by JAX like the program itself."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from calipers.bank._lanes import Moments, PyTree

Carry = TypeVar("Carry")


def select(condition: jax.Array, new: PyTree, old: PyTree) -> PyTree:
    """``jnp.where`` on every leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def adam_moments(before: Moments, gradient: PyTree, betas: tuple[Any, Any]) -> Moments:
    """Adam's moments after a step."""
    first, second = betas
    mean = jax.tree.map(lambda g, old: (1 - first) * g + first * old, gradient, before.mean)
    square = jax.tree.map(
        lambda g, old: (1 - second) * g**2 + second * old, gradient, before.square
    )
    return Moments(before.count + 1, mean, square)


def clipped_gradient(gradient: PyTree, largest: jax.Array) -> PyTree:
    """The gradient, scaled down to a norm of ``largest`` if it is longer."""
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    return jax.tree.map(lambda g: jnp.where(norm < largest, g, g / norm * largest), gradient)


def loop(
    body: Callable[[jax.Array | int, Carry], Carry],
    count: jax.Array | int,
    carry: Carry,
    per_check: int,
) -> Carry:
    """A ``fori_loop`` that tests only every ``per_check`` iterations whether it has ended.

    It runs up to ``per_check - 1`` iterations too many, and ``body`` must then change nothing.
    """
    if per_check == 1:
        return jax.lax.fori_loop(0, count, body, carry)

    def group(i: jax.Array | int, carry: Carry) -> Carry:
        return jax.lax.fori_loop(0, per_check, lambda j, c: body(i * per_check + j, c), carry)

    groups = -(-count // per_check)
    if isinstance(groups, int) and groups == 1:
        return group(0, carry)
    return jax.lax.fori_loop(0, groups, group, carry)
