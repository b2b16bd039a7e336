"""Effect of gross errors in a table: score, error and coverage on clean test rows.

    python benchmarks/gross_errors.py              # the library's rule
    python benchmarks/gross_errors.py --trusting   # without the rule
    python benchmarks/gross_errors.py --rule 2000  # false positives of the rule on heavy tails

Each line is the mean over seeds: a toy problem with two inputs and noise that grows with the first,
and two targets with heavy tails but without errors, which must not suffer.
"""

import argparse
import warnings

import numpy as np

from calipers import IntervalRegressor, metrics
from calipers._estimator import training_rows
from calipers._outliers import outlying_targets
from calipers.bank import _shared_rows as shared_rows


def toy(rows, rng):
    """Inputs and a target of size one."""
    X = rng.uniform(-2, 2, (rows, 2))
    return X, X[:, 0] ** 2 - X[:, 1] + rng.normal(0, 0.2 + 0.1 * np.abs(X[:, 0]))


def lognormal(rows, rng):
    """A target with multiplicative noise."""
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.exp(X[:, 0] + rng.normal(0, 0.7, rows))


def student(rows, rng, degrees=2):
    """Student's t noise with two degrees of freedom, or with one, which is Cauchy."""
    X = rng.uniform(-2, 2, (rows, 2))
    return X, X[:, 0] ** 2 - X[:, 1] + 0.3 * rng.standard_t(degrees, rows)


def one_target(X, y, rng):
    """A single target of a million."""
    y[rng.integers(len(y))] = 1e6


def many_targets(X, y, rng):
    """One in a hundred targets in another unit."""
    y[rng.choice(len(y), len(y) // 100, replace=False)] *= 1000


def shifted_targets(X, y, rng):
    """One in a hundred targets is a code for missing."""
    y[rng.choice(len(y), len(y) // 100, replace=False)] = -9999


def one_input(X, y, rng):
    """A single input of a million."""
    X[rng.integers(len(y)), 0] = 1e6


def nothing(X, y, rng):
    """No error at all."""


CASES = {
    "clean": (toy, nothing),
    "one target of 10^6": (toy, one_target),
    "1 % of targets times 1,000": (toy, many_targets),
    "1 % of targets -9999": (toy, shifted_targets),
    "one input of 10^6": (toy, one_input),
    "lognormal, clean": (lognormal, nothing),
    "Student's t with 2 degrees, clean": (student, nothing),
}


def measure(case, rows, seed, networks, epochs):
    """Measures of one fit."""
    make, spoil = CASES[case]
    rng = np.random.default_rng(seed)
    X, y = make(rows, rng)
    X_test, y_test = make(2000, rng)
    spoil(X, y, rng)
    model = IntervalRegressor(n_networks=networks, epochs=epochs, random_state=seed, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, y)
    lower, upper = model.predict_interval(X_test).T
    return (
        np.sqrt(np.mean((model.predict(X_test) - y_test) ** 2)),
        metrics.interval_score(y_test, lower, upper, coverage=0.95),
        metrics.coverage_rate(y_test, lower, upper),
        np.median(upper - lower),
        "far_targets" in model.about_,
    )


def mistaken(degrees, rows, samples):
    """Fraction of samples without errors in which the rule finds one."""
    drawn = (student(rows, np.random.default_rng(seed), degrees) for seed in range(samples))
    return np.mean([outlying_targets(X, y).any() for X, y in drawn])


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--networks", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--trusting", action="store_true", help="trust every value")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--rule", type=int, help="samples of each heavy-tailed noise")
    given = parser.parse_args()
    if given.rule:
        for name, degrees in (("Student's t with 2 degrees", 2), ("Cauchy", 1)):
            share = mistaken(degrees, given.rows, given.rule)
            print(f"{name}: {share:.1%} of {given.rule:,} samples of {given.rows:,} rows")
        return
    if given.trusting:
        training_rows.outlying_targets = lambda X, y: np.zeros(len(y), dtype=bool)
        shared_rows.ordinary_limits = lambda columns: None
    print("| table | RMSE | interval score | coverage | median width | fits with a warning |")
    print("|---|--:|--:|--:|--:|--:|")
    for case in given.cases:
        seeds = range(given.seeds)
        found = [measure(case, given.rows, s, given.networks, given.epochs) for s in seeds]
        rmse, score, rate, width, warned = np.mean(found, axis=0)
        cells = f"{rmse:.3g} | {score:.3g} | {rate:.1%} | {width:.3g} | {warned:.0%}"
        print(f"| {case} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
