"""Fits of millions of rows: in blocks, in memory, and conformalised boosted quantiles.

    python benchmarks/large.py blocks --rows 10000000
    python benchmarks/large.py workers --rows 30000    # a Dask array, on two workers
    python benchmarks/large.py memory --rows 1000000
    python benchmarks/large.py boosting --rows 10000000 --seconds 300
    python benchmarks/large.py blocks --table air
    python benchmarks/large.py memory --table air --share 40 --weeks

The rows are drawn from a known truth (20 inputs, of which five matter; noise that depends on one)
into memory maps in the folder for temporary files. ``boosting`` is XGBoost's quantile objective if
it is installed, otherwise scikit-learn's histogram gradient boosting. Trees are added until the
seconds are spent, and intervals are corrected on 51,000 held-out rows, or a tenth if that is less
(conformalised quantile regression). One line of JSON is printed: seconds, the peak memory beyond
that of JAX at rest (anonymous pages only, since the system can reclaim those of files), and
interval score, coverage and error of the point on 100,000 new rows, next to the score of the truth.

``--table air`` is a real table of 1.4 million rows: hours of Beijing's air (the series of
``CALIPERS_DATA``) times 48 hours ahead, 22 inputs, with the later PM2.5 as the target. Every fifth
week is for testing. With ``--weeks`` the rows of a week are a group: fits in memory hold out whole
weeks, and boosting corrects its intervals on whole weeks. ``--share 40`` takes one row in forty.
"""

import argparse
import csv
import gzip
import json
import os
import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np

from calipers.bank import _shards
from calipers.metrics import interval_score

INPUTS, BLOCK, COVERAGE, CALIBRATION = 20, 100_000, 0.95, 51_000
WINDS = dict(zip(
    ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW",
     "WSW", "W", "WNW", "NW", "NNW"),
    np.arange(16) * np.pi / 8, strict=True,
))  # fmt: skip
QUANTILES = ((1 - COVERAGE) / 2, 0.5, (1 + COVERAGE) / 2)


def center(X):
    """Mean of the target."""
    return X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * X[:, 0] + np.abs(X[:, 4])


def spread(X):
    """Standard deviation of the target."""
    return 0.2 + 0.5 / (1 + np.exp(-2 * X[:, 3]))


def block(number, rows):
    """Some rows."""
    rng = np.random.default_rng([7, number])
    X = rng.normal(size=(rows, INPUTS)).astype(np.float32)
    return X, (center(X) + spread(X) * rng.normal(size=rows)).astype(np.float32)


def write(rows):
    """Write all rows to memory maps of unnamed files."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("X.npy", "y.npy")]
        shapes = [(rows, INPUTS), (rows,)]
        maps = [
            np.lib.format.open_memmap(path, "w+", np.float32, shape)
            for path, shape in zip(paths, shapes, strict=True)
        ]
        for start in range(0, rows, BLOCK):
            for array, part in zip(maps, block(start, min(BLOCK, rows - start)), strict=True):
                array[start : start + BLOCK] = part
        for array in maps:
            array.flush()
        del maps
        return [np.load(path, mmap_mode="r") for path in paths]


def air(ahead=48):
    """Rows, targets and week numbers for training and for testing."""
    path = Path(os.environ["CALIPERS_DATA"], "series", "beijing_air.csv.gz")
    with gzip.open(path, "rt") as file:
        hours = list(csv.DictReader(file))
    names = [name for name in hours[0] if name not in ("time", "wd")]
    now = np.array([[float(hour[name] or "nan") for name in names] for hour in hours])
    angle = np.array([WINDS.get(hour["wd"], np.nan) for hour in hours])
    past = [np.roll(now[:, 0], lag) for lag in (1, 2, 3, 23)]  # the first day is not used
    known = np.column_stack([now, np.sin(angle), np.cos(angle), *past])
    found = {False: [], True: []}
    at = np.arange(24, len(hours) - ahead)
    for later in range(1, ahead + 1):
        then = at + later
        turns = 2 * np.pi * np.stack([then / 24, then / 24 / 365.25])
        calendar = np.concatenate([np.sin(turns), np.cos(turns), np.full((1, len(at)), later)])
        rows = np.column_stack([known[at], calendar.T, at // 168, now[then, 0]]).astype(np.float32)
        tests, ends_in_test = at // 168 % 5 == 4, then // 168 % 5 == 4
        whole = np.isfinite(rows).all(axis=1) & (tests == ends_in_test)
        for test, own in found.items():
            own.append(rows[whole & (tests == test)])
    table = {test: np.concatenate(own) for test, own in found.items()}
    return [
        part
        for own in table.values()
        for part in (own[:, :-2].copy(), own[:, -1].copy(), own[:, -2].astype(int))
    ]


def anonymous():
    """Anonymous memory of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


class Peak:
    """Peak memory from now on, beyond the current usage."""

    def __init__(self):
        self.base = self.largest = anonymous()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            self.largest = max(self.largest, anonymous())
            time.sleep(0.05)


@contextmanager
def on_workers(count=2):
    """Let joblib use a cluster of processes on this machine."""
    import joblib
    from distributed import Client, LocalCluster

    options = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        LocalCluster(**options, memory_limit=0) as cluster,
        Client(cluster) as client,
        joblib.parallel_config(backend="dask", client=client),
    ):
        yield


def calipers_model(X, y, weeks, how, options):
    """Intervals and points of a fitted model, its seconds, megabytes and notes."""
    import jax

    from calipers import IntervalRegressor, RowBlocks

    jax.block_until_ready(jax.numpy.ones(8) @ jax.numpy.ones(8))  # the framework's own memory
    peak, began = Peak(), time.monotonic()
    model = IntervalRegressor(coverage=COVERAGE, random_state=0, verbose=0, **options)
    if how == "workers":
        import dask.array as da

        size = -(-len(X) // 8)
        X, y = da.from_array(np.array(X), (size, -1)), da.from_array(np.array(y), size)
    if how == "memory":
        model.fit(np.array(X), np.array(y), groups=weeks)
    else:
        model.fit(RowBlocks(X, y))
    seconds = time.monotonic() - began
    about = {k: v for k, v in model.about_.items() if k in ("held_out", "shapes", "time_budget")}
    about["epochs"] = [len(history) for history in model.ensemble_.bank.histories]
    found = {"seconds": seconds, "base_mb": peak.base, "more_mb": peak.largest - peak.base}
    return found | about, model.predict_interval, model.predict


def boosted(X, y, weeks, limit):
    """The same for boosted quantiles."""
    peak, began = Peak(), time.monotonic()
    X, y = np.array(X), np.array(y)
    count = min(CALIBRATION, len(y) // 10)
    train = np.ones(len(y), bool)
    order = np.random.default_rng(0).permutation(len(y) if weeks is None else weeks.max() + 1)
    train[
        (order if weeks is None else np.argsort(np.argsort(order)[weeks], kind="stable"))[:count]
    ] = False
    kept, known = X[~train], y[~train]
    try:
        grow = _xgboost(X[train], y[train])
        name = "xgboost"
    except ImportError:
        grow = _histogram(X[train], y[train])
        name = "scikit-learn"
    trees = 0
    while time.monotonic() - began < limit:
        predict, trees = grow()
    low, _, high = predict(kept)
    scores = np.maximum(low - known, known - high)
    level = min(1.0, COVERAGE * (1 + 1 / count))
    margin = np.quantile(scores, level, method="higher")
    seconds = time.monotonic() - began

    def interval(rows):
        low, _, high = predict(rows)
        return np.stack([low - margin, high + margin], axis=1)

    found = {"seconds": seconds, "more_mb": peak.largest - peak.base, "by": name, "trees": trees}
    return found, interval, lambda rows: predict(rows)[1]


def _xgboost(X, y):
    import xgboost

    settings = {"objective": "reg:quantileerror", "quantile_alpha": list(QUANTILES)}
    settings |= {"tree_method": "hist", "learning_rate": 0.1, "max_depth": 8}
    data = xgboost.QuantileDMatrix(X, y)
    model = xgboost.Booster(settings, [data])

    def grow():
        model.update(data, model.num_boosted_rounds())
        return (
            lambda rows: model.predict(xgboost.DMatrix(rows)).T,
            model.num_boosted_rounds(),
        )

    return grow


def _histogram(X, y, step=5):
    from sklearn.ensemble import HistGradientBoostingRegressor

    models = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=q, max_iter=0 + step, warm_start=True, early_stopping=False
        )
        for q in QUANTILES
    ]

    def grow():
        for model in models:
            if hasattr(model, "n_iter_"):
                model.max_iter += step
            model.fit(X, y)
        return (lambda rows: [model.predict(rows) for model in models]), models[0].n_iter_

    return grow


def main():
    """Fit, and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("how", choices=("blocks", "workers", "memory", "boosting"))
    parser.add_argument("--table", choices=("truth", "air"), default="truth")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, help="for training; for boosting, in all")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--networks", type=int, default=10)
    parser.add_argument("--shard", type=int, help="rows per shard, to get several from few rows")
    parser.add_argument("--share", type=int, default=1, help="with air: one row in this many")
    parser.add_argument("--weeks", action="store_true", help="with air: hold out whole weeks")
    parser.add_argument("--sorted", action="store_true", help="sort the rows by target")
    chosen = parser.parse_args()
    known = chosen.table == "truth"
    if known:
        X, y, weeks, *new = [*write(chosen.rows), None, *block(2**40, 100_000)]
    else:
        X, y, weeks, *new = air()[:5]
        some = np.random.default_rng(1).permutation(len(y))[: len(y) // chosen.share]
        X, y = (X, y) if chosen.share == 1 else (X[some], y[some])
        weeks = (weeks if chosen.share == 1 else weeks[some]) if chosen.weeks else None
    if chosen.sorted:
        order = np.argsort(y)
        X, y = X[order], y[order]
    if chosen.shard:
        _shards._SHARD = (chosen.shard, chosen.shard)
    if chosen.how == "boosting":
        found, interval, point = boosted(X, y, weeks, chosen.seconds or 60)
    else:
        options = {"time_budget": chosen.seconds, "epochs": chosen.epochs}
        options["n_networks"] = chosen.networks
        with on_workers() if chosen.how == "workers" else nullcontext():
            found, interval, point = calipers_model(X, y, weeks, chosen.how, options)
    rows, (X, y) = len(y), new
    lower, upper = interval(X).T
    found |= {
        "how": chosen.how + " of sorted rows" * chosen.sorted,
        "table": chosen.table,
        "rows": rows,
        "cores": len(os.sched_getaffinity(0)),
        "interval_score": float(interval_score(y, lower, upper, coverage=COVERAGE)),
        "coverage": float(np.mean((lower <= y) & (y <= upper))),
        "rmse": float(np.sqrt(np.mean((point(X) - y) ** 2))),
    }
    if known:
        truth = center(X) - 1.96 * spread(X), center(X) + 1.96 * spread(X)
        found["score_of_truth"] = float(interval_score(y, *truth, coverage=COVERAGE))
        found["rmse_of_point"] = float(np.sqrt(np.mean((point(X) - center(X)) ** 2)))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
