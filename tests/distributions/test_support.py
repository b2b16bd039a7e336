"""What is assumed of a target's values, and what is not."""

import json

import numpy as np
import pytest

from calipers.distributions import Support, learn_support

RNG = np.random.default_rng(0)
TARGETS = {
    "any number": RNG.normal(0, 1, 500),
    "non-negative numbers": RNG.gamma(2, 1, 500),
    "non-negative integers": RNG.poisson(3.0, 500),
    "integers": np.round(RNG.normal(0, 3, 500)),
    "integers from 0 to 1": RNG.random(500) < 0.3,
    "integers from 1 to 5": RNG.integers(1, 6, 500),
    "multiples of 0.5 from 1 to 3": RNG.integers(2, 7, 500) / 2,
    "non-negative multiples of 0.001": np.round(0.95 + 0.001 * RNG.integers(0, 51, 2000), 3),
    "numbers up to 1": np.minimum(RNG.normal(0, 1, 500), 1.0),
    "numbers from 0 to 50": np.minimum(RNG.normal(38, 8, 500), 50),
}


def standardised(y):
    return (y - np.mean(y)) / np.std(y)


TARGETS |= {
    "numbers 0.707 apart from -1.414214 to 1.414214": standardised(np.arange(500) % 5),
    "numbers 0.0679 apart": standardised(RNG.integers(0, 51, 2000) / 1000 + 0.95),
    "numbers 0.324 apart from -1.297771 to 0.973329": standardised(np.tile([2, 4, 9, 9], 50)),
}


OTHER = np.random.default_rng(1)
TARGETS |= {
    "any number, often 0": np.where(OTHER.random(500) < 0.3, 0.0, OTHER.normal(0, 9, 500)),
    "numbers up to 20, often 0 and 7.5": np.minimum(
        np.where(OTHER.random(500) < 0.6, OTHER.choice([0.0, 7.5], 500), OTHER.normal(9, 12, 500)),
        20.0,
    ),
}


@pytest.mark.parametrize("words", TARGETS)
def test_what_is_found(words):
    y = np.asarray(TARGETS[words], np.float64)
    found = learn_support(y)
    assert str(found) == words
    assert found.holds(y).all()
    assert found.observe(y).tolist() == y.tolist()  # bit for bit, or ties would be missed
    assert not found.given


def test_bounds_off_the_lattice_are_no_values():
    y = np.maximum(RNG.poisson(1.0, 500), 1).astype(float)
    found = learn_support(y, (0.5, 6.7))
    assert str(found) == "integers from 1 to 6"
    assert (found.ends, found.bounds) == ((1.0, 6.0), (0.5, 6.7))
    assert found.observe([-9.0, 0.7, 99.0]).tolist() == [1.0, 1.0, 6.0]
    assert found.holds([0.6, 1.0, 6.9]).tolist() == [False, True, False]
    with pytest.raises(ValueError, match=r"bounds=\(0.5, 6.7\): y must not be below 0.5, got 0"):
        learn_support(np.append(y, 0.0), (0.5, 6.7))
    assert found.widened([0.6]).ends == (0.5, 6.7)  # a value within the bounds, off the lattice


def test_few_equal_values_are_not_frequent():
    y = np.round(RNG.normal(0, 1, 500), 2)  # 0 is in about four rows
    assert not learn_support(y).atoms
    y[:60] = 0.0
    assert learn_support(y).atoms == (0.0,)
    assert not learn_support(y, None).atoms
    assert learn_support(y, (-9, None)).atoms == (0.0,)
    assert not learn_support(y[:40]).atoms


def test_zeros_and_a_positive_rest():
    y = np.where(RNG.random(500) < 0.2, 0.0, RNG.gamma(2, 1, 500))
    assert str(learn_support(y)) == "non-negative numbers"


@pytest.mark.parametrize(
    "y",
    [
        RNG.poisson(3.0, 30),
        np.full(500, 2.0),
        np.round(RNG.normal(0, 1000, 500)),
        RNG.choice(RNG.normal(0, 1, 20), 500),
    ],
    ids=["few rows", "a constant", "integers that hardly repeat", "values anywhere that repeat"],
)
def test_nothing_is_assumed(y):
    assert learn_support(np.asarray(y, np.float64)).is_line


def test_the_largest_count_is_no_bound():
    for mean in (0.05, 0.3, 2.0, 20.0):
        y = np.random.default_rng(1).poisson(mean, 2000).astype(float)
        assert learn_support(y).high is None, mean


def test_a_guessed_bound_lies_on_the_lattice():
    found = learn_support(np.repeat(np.arange(3, 43, 2.0), 20))
    assert str(found) == "numbers 2 apart from 1 upwards"
    assert found.holds(found.observe([-3.0, 0.2, 1.0])).all()


def test_decimal_numbers_in_single_precision_are_a_lattice():
    y = np.round(np.random.default_rng(0).normal(20, 5, 5000), 1)
    y = y.astype(np.float32).astype(float)
    found = learn_support(y)
    assert found.step == 0.1
    assert found.holds(y).all()
    np.testing.assert_array_equal(found.observe(y + 0.04), y)
    np.testing.assert_allclose(found.upper_edge(y) - found.lower_edge(y), 0.1, rtol=1e-9)


def test_none_assumes_nothing():
    assert learn_support(np.arange(100.0) % 3, None).is_line


def test_bounds_given_are_taken_and_a_lattice_still_found():
    found = learn_support(np.arange(300.0) % 7, (0, 20))
    assert (found.low, found.high, found.step, found.given) == (0.0, 20.0, 1.0, True)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((0, None), r"bounds=\(0, None\): y must not be below 0, got -2 in row 3 .*, and 1 more"),
        ((None, 4.5), r"must not be above 4.5, got 5 in row 1 \(from 0\)$"),
    ],
)
def test_targets_outside_are_named(bounds, message):
    with pytest.raises(ValueError, match=message):
        learn_support(np.array([1.0, 5.0, 2.0, -2.0, -1.0]), bounds)


def test_what_new_rows_contradict_is_given_up():
    counts = Support(low=0.0, step=1.0)
    assert counts.widened([3.0, 0.0]) == counts
    assert str(counts.widened([-1.0])) == "integers"
    assert str(counts.widened([0.5])) == "non-negative numbers"
    assert counts.widened([-0.5]) == Support()
    matched = Support(low=0.0, step=1.0, latent=(0.1, 0.9), observed=(0.5, 3.5))
    assert matched.widened([0.5]).latent == matched.latent
    assert matched.widened([-0.5]) == Support()


def test_values_with_mass_keep_it_when_an_assumption_is_given_up():
    """All cells between two knots a step apart are those of matched values."""
    edges = {"latent": (-5.0, 0.1, 0.9, 2.0), "observed": (-0.5, 0.5, 1.5, 4.5)}
    counts, values = Support(low=0.0, step=1.0, **edges), np.array([0.0, 1.0])
    assert str(counts.widened([-1.0])) == "integers"
    assert str(counts.widened([0.5])) == "non-negative numbers, often 1"
    assert str(counts.widened([-0.5])) == "any number, often 0 and 1"
    for contrary, low in ((-1.0, -5.0), (0.5, -np.inf), (-0.5, -5.0)):
        found = counts.widened([contrary])
        assert found.holds([contrary, *values]).all()
        np.testing.assert_allclose(found.lower_edge(values), [low, 0.1], atol=1e-3)
        np.testing.assert_allclose(found.upper_edge(values), [0.1, 0.9], atol=1e-3)
        assert (found.observe([0.0, 0.5]) == values).all()
        assert (np.diff(found.latent) > 0).all()
    capped = Support(high=9.0, latent=(3.0, 7.0, 20.0), observed=(4.0, 9.0, 9.0))
    assert capped.lower_edge(9.0) == 7
    wider = capped.widened([9.5])
    assert str(wider) == "any number, often 9"
    assert (wider.lower_edge(9.0), wider.upper_edge(9.0)) == (7, 20)


@pytest.mark.parametrize("impossible", [{"low": 5.0, "high": 0.0}, {"step": -1.0}, {"low": np.nan}])
def test_impossible_supports_are_refused(impossible):
    with pytest.raises(ValueError, match="must"):
        Support(**impossible)


def test_texts_have_all_digits_that_matter():
    assert (
        str(Support(low=20000001.0, step=2.0, origin=1.0))
        == "numbers 2 apart from 20000001 upwards"
    )
    assert (
        str(Support(step=5.4, origin=3.7, decimals=1, low=3.7))
        == "numbers 5.4 apart from 3.7 upwards"
    )
    assert str(Support(high=1234567.25)) == "numbers up to 1234567.25"
    with pytest.raises(ValueError, match=r"below 1234567\.5, got 1234567\.25 in row 0"):
        learn_support(np.array([1234567.25]), (1234567.5, None))


def test_zeros_have_no_sign():
    y = np.where(np.arange(500) % 3 == 0, -0.0, RNG.gamma(2, 1, 500))
    for bounds in ("auto", (-0.0, None)):
        assert not np.signbit(learn_support(y, bounds).observe(-1.0))


@pytest.mark.parametrize("y", [RNG.poisson(3, 500) + 1e15, 1e13 * RNG.poisson(3, 500)])
def test_large_integers_are_a_lattice(y):
    found = learn_support(y)
    assert found.holds(y).all()
    assert found.step == np.diff(np.unique(y)).min()
    assert (found.lower_edge(y) < found.upper_edge(y)).all()


def test_a_support_survives_json():
    support = Support(0.0, 5.0, 0.5, 0.25, 2, (0.1, 0.9), (0.5, 1.0), True)
    assert Support.from_dict(json.loads(json.dumps(support.to_dict()))) == support
