"""The map between levels and scores: monotone, invertible, unbiased or on the safe side."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import ndtri

from calipers.calibration import Calibration, rows_needed

LEVELS = np.concatenate([np.logspace(-9, -2, 30), np.linspace(0.011, 0.989, 400)])
LEVELS = np.concatenate([LEVELS, 1.0 - np.logspace(-2, -9, 30)])
WEIGHTS = [None, 0.0, 0.3, 1.0, 7.0, 500.0]

# Few distinct values, so that ties are the rule.
TIED = st.lists(st.integers(-4, 4).map(lambda k: k / 2), min_size=1, max_size=40)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_map_is_increasing_and_has_an_inverse(calibration, weight):
    z = calibration.score_of_level(LEVELS, weight)
    assert (np.diff(z) > 0).all()
    tails = np.minimum(LEVELS, 1.0 - LEVELS)
    assert (np.abs(calibration.level_of_score(z, weight) - LEVELS) <= 1e-7 * tails).all()


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_map_has_no_jump(calibration, weight):
    v = np.linspace(-4.0, 4.0, 20_001)
    z = calibration.to_score(v, weight)
    again = calibration.to_score(np.nextafter(v, np.inf), weight)
    assert np.abs(again - z).max() < 1e-9
    nearby = calibration.from_score(np.nextafter(z, np.inf), weight) - v
    assert np.quantile(np.abs(nearby), 0.999) < 1e-9


@pytest.mark.parametrize("weight", WEIGHTS)
def test_both_tails_keep_their_digits_on_the_normal_scale(calibration, weight):
    v = np.concatenate([-np.logspace(5, 0, 50), np.logspace(0, 5, 50)])
    assert np.allclose(calibration.from_score(calibration.to_score(v, weight), weight), v)


@given(scores=TIED, strict=st.booleans(), weight=st.sampled_from(WEIGHTS))
def test_ties_leave_the_map_increasing_and_invertible(scores, strict, weight):
    calibration = Calibration.from_scores(scores, strict=strict)
    z = calibration.score_of_level(LEVELS, weight)
    assert (np.diff(z) > 0).all()
    assert np.allclose(calibration.level_of_score(z, weight), LEVELS, rtol=1e-7)


@pytest.mark.parametrize("n", [10, 100, 1000, 10_000])
def test_scores_of_a_perfect_model_change_nothing(n):
    calibration = Calibration.from_scores(ndtri(np.arange(1, n + 1) / (n + 1)))
    v = np.linspace(-5, 5, 1001)
    assert np.abs(calibration.to_score(v) - v).max() < 2.0 / np.sqrt(n)
    inner = np.abs(v) < 1.5
    assert np.abs(calibration.to_score(v) - v)[inner].max() < 0.3 / n ** (1 / 2)


def test_the_kth_of_n_scores_has_the_level_k_over_n_plus_one():
    z = np.sort(np.random.default_rng(0).standard_normal(9))
    calibration = Calibration.from_scores(z)
    outer = [0, 1, 2, 3, 5, 6, 7, 8]
    assert np.allclose(calibration.level_of_score(z)[outer], (np.arange(1, 10) / 10)[outer])


def outermost_valid(scores, p):
    """Ranks as split conformal prediction has them: floor from below, ceiling from above."""
    n, ordered = len(scores), np.sort(scores)
    low, high = np.floor(p * (n + 1) + 1e-9), np.ceil(p * (n + 1) - 1e-9)
    return ordered[low.astype(int) - 1], ordered[np.minimum(high.astype(int), n) - 1]


@given(seed=st.integers(0, 10**6), n=st.integers(2, 400), ties=st.booleans())
def test_strict_quantiles_are_never_inside_of_the_conformal_ones(seed, n, ties):
    scores = np.random.default_rng(seed).standard_normal(n)
    scores = np.round(scores, 1) if ties else scores
    calibration = Calibration.from_scores(scores, strict=True)
    p = np.linspace(1.0 / (n + 1), 0.498, 200)
    assert (calibration.score_of_level(p) <= outermost_valid(scores, p)[0] + 1e-9).all()
    assert (calibration.score_of_level(1 - p) >= outermost_valid(scores, 1 - p)[1] - 1e-9).all()


@pytest.mark.long
@given(seed=st.integers(0, 10**6), n=st.integers(5, 60), own=st.floats(0.01, 5.0))
def test_weighted_strict_quantiles_are_never_inside_of_the_conformal_ones(seed, n, own):
    rng = np.random.default_rng(seed)
    scores, weights = np.sort(rng.standard_normal(n)), rng.uniform(0.1, 3.0, n)
    calibration = Calibration.from_scores(scores, weights, strict=True)
    total = weights.sum() + own
    for p in np.linspace(0.55, 0.999, 50):
        if calibration.supports(p, own):
            enough = np.searchsorted(np.cumsum(weights), p * total - 1e-9)
            assert calibration.score_of_level(p, own) >= scores[enough] - 1e-9
            mirrored = np.searchsorted(np.cumsum(weights[::-1]), p * total - 1e-9)
            assert calibration.score_of_level(1 - p, own) <= scores[::-1][mirrored] + 1e-9


def test_equal_weights_are_no_weights(scores):
    plain = Calibration.from_scores(scores, strict=True)
    heavy = Calibration.from_scores(scores, np.full(len(scores), 4.0), strict=True)
    assert np.allclose(plain.score_of_level(LEVELS), heavy.score_of_level(LEVELS, 4.0))
    assert np.allclose(plain.score_of_level(LEVELS), heavy.score_of_level(LEVELS))


def test_whole_weights_are_repeated_scores():
    scores, weights = np.array([-1.0, 0.0, 0.5, 2.0, 2.5]), np.array([2, 1, 3, 0, 2])
    for strict in (False, True):
        weighted = Calibration.from_scores(scores, weights, strict=strict)
        repeated = Calibration.from_scores(np.repeat(scores, weights), strict=strict)
        assert np.allclose(weighted.score_of_level(LEVELS, 1.0), repeated.score_of_level(LEVELS))


@pytest.mark.parametrize(("n", "coverage"), [(19, 0.9), (39, 0.95), (199, 0.99), (9, 0.8)])
@pytest.mark.parametrize("strict", [False, True])
def test_support_ends_where_the_rows_do(n, coverage, strict):
    scores = np.random.default_rng(0).standard_normal(n)
    exact = Calibration.from_scores(scores, strict=strict)
    short = Calibration.from_scores(scores[1:], strict=strict)
    tail = (1 - coverage) / 2
    assert exact.supports([tail, 1 - tail]).all()
    assert not short.supports([tail, 1 - tail]).any()
    assert rows_needed(coverage) == n
    assert np.isclose(exact.smallest_alpha(), 1 - coverage)
    assert exact.smallest_alpha(2.0) > 1 - coverage


def test_two_strict_rows_support_a_third():
    calibration = Calibration.from_scores([1.0, 2.0], strict=True)
    assert np.isclose(calibration.smallest_alpha(), 2 / 3)
    low, high = calibration.score_of_level([1 / 3, 2 / 3])
    assert low <= 1.0
    assert high >= 2.0


def test_tails_continue_at_the_scale_of_the_scores():
    calibration = Calibration.from_scores(3.0 * ndtri(np.arange(1, 200) / 200) + 1.0)
    assert np.allclose(calibration.to_score([-9.0, 9.0]), [-26.0, 28.0], atol=0.1)


def test_many_rows_need_few_knots():
    scores = np.random.default_rng(0).standard_normal(100_000)
    assert len(Calibration.from_scores(scores).scores) < 300
    assert len(Calibration.from_scores(scores, strict=True).scores) < 2000


def test_it_is_stored_as_plain_arrays(calibration):
    arrays = calibration.to_arrays()
    written = json.loads(json.dumps({name: array.tolist() for name, array in arrays.items()}))
    for again in (Calibration.from_arrays(arrays), Calibration.from_arrays(written)):
        assert np.array_equal(again.score_of_level(LEVELS), calibration.score_of_level(LEVELS))
        assert again.strict is calibration.strict
        assert again.n_rows == calibration.n_rows


@pytest.mark.parametrize(
    ("scores", "weights", "message"),
    [
        ([], None, "at least one score"),
        ([0.0, np.inf], None, "scores must be finite, got inf at index"),
        ([0.0, 1.0], [1.0], "one number per score"),
        ([0.0, 1.0], [0.0, 0.0], "not all zero"),
        ([0.0, 1.0], [-1.0, 1.0], "weights must be finite and not negative, got -1.0"),
    ],
)
def test_bad_scores_are_refused(scores, weights, message):
    with pytest.raises(ValueError, match=message):
        Calibration.from_scores(scores, weights)
