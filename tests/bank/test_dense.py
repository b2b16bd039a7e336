"""Networks predict in NumPy what their compiled programs do, and the same whatever the batch."""

import equinox as eqx
import jax
import numpy as np
import pytest

from calipers.bank import Bank, Program, Scaling, _dense
from calipers.heads import HEADS
from calipers.networks import ACTIVATIONS, Activation, Around, DenseFactory
from calipers.objectives import LOSSES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4))
EMBEDDED = {"frequencies": 3, "columns": (0, 2)}


def bank_of(network, **options):
    """Three networks with weights at random, as training could have left them."""
    program = Program(network, LOSSES["split normal"], in_size=4, **options)
    shapes = [leaf.shape for leaf in jax.tree.leaves(program.weights)]
    weights = [RNG.normal(0, 0.5, (3, *shape)).astype(np.float32) for shape in shapes]
    own = Scaling(RNG.normal(size=(3, 4)), RNG.uniform(1, 2, (3, 4)), np.zeros(3), np.ones(3))
    units = Scaling(np.zeros(4), np.ones(4), 0.0, 1.0)
    none = np.zeros(3, int)
    return Bank(program, weights, own, units, none, none, none, [None] * 3, none == 1)


def by_program(bank, rows):
    """What the compiled program says."""
    other = Bank(**{name: vars(bank)[name] for name in Bank.__dataclass_fields__})
    vars(other)["_dense"] = None
    return other.forward(rows)


NETWORKS = {
    "plain": (DenseFactory((9, 7), "relu"), {}),
    "embedded": (DenseFactory((12,), "silu", **EMBEDDED), {}),
    "clipped": (DenseFactory((12,), "silu", frequencies=0), {}),
    "pieces": (DenseFactory((12, 9), "silu", bins=4, **EMBEDDED), {}),
    "pieces around": (Around(DenseFactory((12,), bins=2, **EMBEDDED), 0, 0.5), {"head": "centred"}),
    "gelu": (DenseFactory((12, 5), "gelu", **EMBEDDED), {}),
    "skip": (DenseFactory((12,), "silu", bins=4, skip=(0,), **EMBEDDED), {"components": 3}),
    "wide": (DenseFactory((300, 290), "tanh"), {}),
    "components": (DenseFactory((12,), "silu"), {"components": 3}),
    "around": (Around(DenseFactory((12,)), 0, 0.5), {"head": "centred"}),
    "no hidden layer": (DenseFactory(()), {}),
}


@pytest.mark.parametrize(("network", "options"), NETWORKS.values(), ids=NETWORKS.keys())
def test_same_as_the_program_and_in_any_batch(network, options):
    bank = bank_of(network, **options)
    assert bank._dense is not None
    rows = X.astype(np.float32)
    whole = bank.forward(rows)
    np.testing.assert_allclose(whole, by_program(bank, rows), rtol=2e-5, atol=1e-5)
    for start, stop in ((0, 1), (3, 12), (60, 131), (149, 150)):
        np.testing.assert_array_equal(bank.forward(rows[start:stop]), whole[:, :, start:stop])


def test_any_number_of_networks():
    bank = bank_of(DenseFactory((6,)))
    many = bank[np.arange(50) % 3]
    rows = X.astype(np.float32)
    assert len(many._dense) == 3
    np.testing.assert_array_equal(many.forward(rows), bank.forward(rows)[np.arange(50) % 3])


def test_every_activation_has_a_form():
    for activation in ACTIVATIONS:
        assert bank_of(DenseFactory((5,), activation))._dense is not None, activation


def test_other_networks_and_heads_keep_their_program(monkeypatch):
    class Own(eqx.Module):
        layer: eqx.nn.Linear

        def __call__(self, x):
            return self.layer(x)

    def own(in_size, out_size, *, key):
        return Own(eqx.nn.Linear(in_size, out_size, key=key))

    assert bank_of(own)._dense is None

    class Traced(type(HEADS["split normal"])):
        name = "traced"

        def parameters(self, raw):
            return tuple(jax.numpy.exp(raw[..., i]) for i in range(3))

    monkeypatch.setitem(HEADS, "traced", Traced())
    bank = bank_of(DenseFactory((5,)), head="traced")
    assert bank._dense is None
    assert np.isfinite(bank.predict(X)["loc"]).all()

    monkeypatch.setitem(ACTIVATIONS, "elu", Activation(jax.nn.elu))
    assert bank_of(DenseFactory((5,), "elu"))._dense is None


def test_inputs_far_out_overflow_as_in_the_program(recwarn):
    bank = bank_of(DenseFactory((12,), "gelu"))
    rows = np.full((3, 4), 1e15, np.float32)
    np.testing.assert_allclose(bank.forward(rows), by_program(bank, rows), rtol=1e-4)
    assert not recwarn.list


def test_a_mistake_is_not_taken_for_a_network_of_another_kind(monkeypatch):
    def mistaken(*_):
        raise IndexError("beyond the last input")

    monkeypatch.setattr(_dense._Embedding, "__init__", mistaken)
    with pytest.raises(IndexError, match="beyond"):
        bank_of(DenseFactory((5,), **EMBEDDED))._dense  # noqa: B018
