"""Coverage of the default over many refits, against the truth of synthetic problems.

A mean of a few refits is off by chance: coverage of 95% intervals has a standard deviation of up to
0.045 over refits at 50 rows, 0.03 at 100, 0.023 at 200 and 0.008 at 1,000. So chance alone fails a
default of exactly nominal coverage on one problem in up to 2% of runs at 50 rows, 0.5% at 100 and
less than 0.1% from 200 on, and over all problems of one size in less than 0.1%. With 480 refits,
coverage of 95% intervals at 50 rows of toy, the lowest, is 0.949 (0.002).
"""

import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from calipers import IntervalRegressor
from calipers.datasets import PROBLEMS
from calipers.networks import MLP
from calipers.prediction import Query

_PATH = Path(__file__).parents[1] / "benchmarks" / "validity.py"
_SPEC = importlib.util.spec_from_file_location("validity", _PATH)
validity = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(validity)

pytestmark = pytest.mark.slow
BANDS = {50: (0.94, 0.99), 100: (0.94, 0.985), 200: (0.94, 0.97), 1000: (0.94, 0.965)}
REFITS = {50: 80, 100: 60, 200: 60, 1000: 12}
DEVIATION = {50: 0.045, 100: 0.03, 200: 0.023, 1000: 0.008}  # over refits
NAMES = ("toy", "skewed", "two_modes", "gap", "friedman")


@lru_cache
def found(name, rows):
    model = IntervalRegressor(verbose=0)
    return list(validity.evaluate(PROBLEMS[name], model, rows, REFITS[rows]))


def mean_coverage(name, rows):
    return {row["coverage"]: row["mean"] for row in found(name, rows)}


def by_chance(rows, refits):
    """Margin by which a mean over refits falls below its expectation in 1 of 1,000 runs."""
    return norm.isf(0.001) * DEVIATION[rows] / refits**0.5


@pytest.mark.parametrize("rows", REFITS)
@pytest.mark.parametrize("name", NAMES)
def test_default_has_its_nominal_coverage(name, rows, record_property):
    record_property("rows", validity.markdown(found(name, rows)).splitlines()[-1])
    mean = mean_coverage(name, rows)
    low, high = BANDS[rows]
    assert low < mean[0.95] < high
    assert abs(mean[0.5] - 0.5) < 0.05
    assert abs(mean[0.8] - 0.8) < 0.07


@pytest.mark.parametrize("rows", REFITS)
def test_coverage_over_problems_is_nominal(rows):
    """Bounds of 0.940 at 50 rows, 0.942 at 100, 0.943 at 200 and 0.944 at 1,000."""
    mean = np.mean([mean_coverage(name, rows)[0.95] for name in NAMES])
    assert 0.947 - by_chance(rows, len(NAMES) * REFITS[rows]) < mean < BANDS[rows][1]


def test_refits_are_independent_and_bounds_are_ordered():
    model = IntervalRegressor(
        n_networks=4, cv=2, network=MLP(hidden_layers=(8,), frequencies=0), epochs=20, verbose=0
    )
    problem = PROBLEMS["toy"]
    inputs, _ = problem.sample(50, random_state=0)
    fitted = validity.refits(model, problem, 60, 2)
    first, second = (ensemble.predict(inputs, Query((0.9,))).intervals for ensemble in fitted)
    assert (first[:, 0] <= first[:, 1]).all()
    assert not np.allclose(first, second)
    covered = validity.true_coverage(problem, inputs, first)
    assert covered.shape == (1, 50)
    assert ((covered >= 0) & (covered <= 1)).all()
