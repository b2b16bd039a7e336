"""Coverage where it may hide, with and without the correction by predicted width.

    CALIPERS_DATA=folder python benchmarks/conditional.py [--cache folder] [--names yacht toy ...]

Fits the default to the first splits of the nine datasets (at most 3,000 rows of training, the rest
of the table is tested too) and to 1,000 rows of synthetic problems, and compares two calibrations
of the same networks: ``calibration="map"`` and ``calibration="width"``. For 90% and 95% intervals:
coverage of all test rows; the lowest, the highest and the root mean squared error over tenths of
the rows by width; the lowest over fifths of each input; in the worst slab of inputs; and the
interval score over that of "map". Rates of several splits are pooled. ``--cache`` keeps what the
networks say, so that a second run trains nothing.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from calipers import IntervalRegressor, crossfit
from calipers.calibration import Calibration, WidthCalibration, normal_scores, unseen_pools
from calipers.datasets import PROBLEMS, load
from calipers.distributions import SplitNormal, SplitNormalMixture
from calipers.metrics import interval_score, worst_slab_coverage
from calipers_study.splits import paper_splits

RESULTS = Path(__file__).resolve().parents[1] / "results" / "validity" / "conditional.csv"
LEVELS = (0.9, 0.95)
DATASETS = {"yacht": 3, "boston": 2, "energy": 2, "concrete": 2, "wine": 2}
DATASETS |= dict.fromkeys(("kin8nm", "power", "naval", "protein"), 1)
LARGEST = {"naval": 2000}  # training rows, 3,000 for the others
TEST, ROWS = 4000, 1000
SYNTHETIC = ("hetero", *PROBLEMS)
COLUMNS = ("name", "rows", "test_rows", "level", "calibration", "coverage", "lowest_tenth")
COLUMNS += ("highest_tenth", "rms_of_tenths", "lowest_fifth_of_input", "worst_slab", "score")


def heteroscedastic(rng, n):
    """Four inputs; the noise grows tenfold along the first."""
    X = rng.uniform(-1, 1, (n, 4))
    scale = 0.1 * 10 ** ((X[:, 0] + 1) / 2)
    return X, np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3] + scale * rng.standard_normal(n)


def rows_of(name, split):
    """Training and test rows of one split."""
    if name == "hetero":
        rng = np.random.default_rng([ROWS, split, 79])
        return *heteroscedastic(rng, ROWS), *heteroscedastic(rng, TEST)
    if name in PROBLEMS:
        rngs = (np.random.default_rng([ROWS, split, seed]) for seed in (77, 78))
        train, test = (
            PROBLEMS[name].sample(n, rng) for n, rng in zip((ROWS, TEST), rngs, strict=True)
        )
        return *train, *test
    data, chosen = load(name), paper_splits(name, random_state=0)[split]
    rng, train, test = np.random.default_rng(split), chosen.train, chosen.test
    most = LARGEST.get(name, 3000)
    if len(train) > most:
        mixed = rng.permutation(train)
        train, test = mixed[:most], np.concatenate([test, mixed[most:]])
    test = rng.permutation(test)[:TEST] if len(test) > TEST else test
    return data.X[train], data.y[train], data.X[test], data.y[test]


def members(name, split, cache):
    """What every network says of training and test rows, the folds, and the rows."""
    kept = None if cache is None else cache / f"{name}-{split}.npz"
    if kept is not None and kept.exists():
        return dict(np.load(kept))
    X, y, X_test, y_test = rows_of(name, split)
    caught, calibrate = {}, crossfit.calibrate

    def catch(ensemble, folds, fold_of, *rest):
        caught.update(folds=folds, fold_of=fold_of)
        return calibrate(ensemble, folds, fold_of, *rest)

    import calipers._fitting as fitting

    fitting.calibrate = catch
    model = IntervalRegressor(random_state=split, verbose=0).fit(X, y)
    row_fold = np.empty(len(y), int)
    for number, fold in enumerate(caught["folds"]):
        row_fold[fold.held_out] = number
    found = {"fold_of": caught["fold_of"], "row_fold": row_fold, "y": y, "yt": y_test}
    found |= {"X": X, "Xt": X_test}
    for key, inputs in (("train", X), ("test", X_test)):
        parts = model.ensemble_.mixture(inputs).components
        found[key] = np.stack([parts.loc, parts.left_scale, parts.right_scale]).astype(np.float32)
    if kept is not None:
        np.savez(kept, **found)
    return found


def bounds(found, kind):
    """Bounds of shape (levels, 2, rows) and the predicted widths of test rows."""
    train, test = (SplitNormal(*found[key].astype(float)) for key in ("train", "test"))
    new, y = SplitNormalMixture(test), found["y"].astype(float)
    pools = unseen_pools(train, y, found["fold_of"], found["row_fold"])
    scores = normal_scores(pools.dist, y[pools.row])
    first = WidthCalibration.from_rows(pools.dist, scores, len(y)) if kind == "width" else None
    dist = new
    if first is not None:
        scores = first.from_score(scores, first.steps(pools.dist))
        dist = first.calibrated(new, found["Xt"])
    dist = Calibration.from_scores(scores.reshape(-1, len(y))).calibrated(dist, found["Xt"])
    lower, upper = dist.interval(np.array(LEVELS)[:, None])
    return np.stack([lower, upper], axis=1), new.var


def _tenths(values, count=10):
    return np.argsort(np.argsort(values, kind="stable")) * count // len(values)


def evaluate(name, splits, cache):
    """Rows of the table for one problem."""
    all_found = [members(name, split, cache) for split in range(splits)]
    base = {}
    for kind in ("map", "width"):
        made = [bounds(found, kind) for found in all_found]
        for i, level in enumerate(LEVELS):
            inside, tenths, fifths, slabs, scores = [], [], [], [], []
            for found, (both, var) in zip(all_found, made, strict=True):
                lower, upper = both[i]
                y = found["yt"].astype(float)
                inside.append((lower <= y) & (y <= upper))
                tenths.append(_tenths(var))
                fifths.append([_tenths(column, 5) for column in found["Xt"].T])
                slabs.append(worst_slab_coverage(y, lower, upper, found["Xt"]))
                scores.append(interval_score(y, lower, upper, coverage=level) / y.std())
            held, tenth = np.concatenate(inside), np.concatenate(tenths)
            by_tenth = np.array([held[tenth == k].mean() for k in range(10)])
            by_input = np.concatenate(fifths, axis=1)
            lowest = min(held[own == k].mean() for own in by_input for k in range(5))
            score = np.mean(scores)
            base.setdefault(level, score)
            yield (
                *(name, len(all_found[0]["y"]), len(held), level, kind, held.mean()),
                *(by_tenth.min(), by_tenth.max(), np.sqrt(np.mean((by_tenth - level) ** 2))),
                *(lowest, np.mean(slabs), score / base[level]),
            )


def main():
    """Evaluate and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [*DATASETS, *SYNTHETIC]
    parser.add_argument("--names", nargs="+", choices=every, default=every)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name in options.names:
            for row in evaluate(name, DATASETS.get(name, 2), options.cache):
                shown = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in row]
                writer.writerow(shown)
                print(*shown, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
