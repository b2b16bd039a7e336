"""Pooled scores: out-of-fold scores alone cover too much, pooled ones as much as nominal.

Simulated without networks: members predict the truth, a common bias and independent errors of
standard deviation tau, with normal noise distributions of scale s. Noise has the scale 1.
"""

import runpy
from pathlib import Path

import numpy as np
import pytest

from calipers.calibration import (
    CalibratedMixture,
    Calibration,
    normal_scores,
    out_of_fold,
    unseen_pools,
)
from calipers.calibration._deconvolution import noise_of
from calipers.distributions import SplitNormal, SplitNormalMixture

NEW = 500


def noise(rng, kind, n):
    return rng.standard_normal(n) if kind == "normal" else (rng.gamma(2.0, 1.0, n) - 2) / 2**0.5


def pooled_scores(components, y, network_folds, row_folds):
    """Scores of drawn pools, of shape (draws, n)."""
    return unseen_pools(components, y, network_folds, row_folds).scores.reshape(-1, len(y))


def predictions(rng, n, folds, per_fold, tau, scale, omega=0.0):
    shape = (folds, per_fold, n)
    means = rng.standard_normal(shape) + omega * rng.standard_normal((folds, 1, n))
    return SplitNormal(0.2 + tau * means.reshape(-1, n), scale, scale)


def coverages(seed, n, folds, per_fold, tau, scale, kind="normal", omega=0.0, memory=0.5):
    """Coverage of 95% intervals for new rows, with plain and with pooled scores."""
    rng = np.random.default_rng(seed)
    network_folds, row_folds = np.repeat(np.arange(folds), per_fold), np.arange(n) % folds
    known = predictions(rng, n, folds, per_fold, tau, scale, omega)
    # Networks that have seen a row differ less about it.
    shrink = np.where(network_folds[:, None] == row_folds, 1.0, memory)
    known = SplitNormal(0.2 + shrink * (known.loc - 0.2), scale, scale)
    new = SplitNormalMixture(predictions(rng, NEW, folds, per_fold, tau, scale, omega))
    y, target = noise(rng, kind, n), noise(rng, kind, NEW)
    held_out = out_of_fold(known, network_folds, row_folds)
    both = (
        normal_scores(held_out, y),
        pooled_scores(known, y, network_folds, row_folds),
    )
    for scores in both:
        lower, upper = CalibratedMixture(new, Calibration.from_scores(scores)).interval(0.95)
        yield np.mean((lower <= target) & (target <= upper))


def mean_coverages(runs, **setting):
    return np.mean([list(coverages(seed, **setting)) for seed in range(runs)], axis=0)


# Of 30 runs the mean coverage has a standard error of at most 0.0035 at n = 200.
@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize(("tau", "scale"), [(0.3, 0.5), (0.5, 1.0), (1.0, 2.0)])
def test_pooled_scores_cover_as_they_should(kind, tau, scale):
    setting = {"n": 200, "folds": 5, "per_fold": 2, "tau": tau, "scale": scale, "kind": kind}
    plain, pooled = mean_coverages(30, **setting)
    assert pooled < plain - 0.005
    assert 0.935 < pooled < 0.97


@pytest.mark.parametrize("tau", [1.0, 2.0])
def test_networks_that_differ_by_more_than_their_noise_cover_as_they_should(tau):
    plain, pooled = mean_coverages(30, n=200, folds=5, per_fold=2, tau=tau, scale=0.7)
    assert 0.937 < pooled < 0.963 < plain - 0.01


def test_folds_that_differ_are_accounted_for():
    setting = {"n": 300, "folds": 5, "per_fold": 3, "tau": 0.4, "scale": 1.0, "omega": 1.0}
    plain, pooled = mean_coverages(30, **setting)
    assert plain > pooled + 0.01
    assert 0.935 < pooled < 0.967


def test_correction_is_bounded_whatever_folds_differ_by():
    rng = np.random.default_rng(0)
    network_folds, row_folds = np.repeat(np.arange(5), 2), np.arange(200) % 5
    own = network_folds[:, None] == row_folds
    apart = 100.0 * np.repeat(rng.standard_normal((5, 200)), 2, axis=0)  # seen rows
    loc = np.where(own, 0.0, apart) + rng.standard_normal((10, 200))
    components, y = SplitNormal(loc, 1.0, 1.0), rng.standard_normal(200)
    scores = normal_scores(out_of_fold(components, network_folds, row_folds), y)
    pooled = pooled_scores(components, y, network_folds, row_folds)
    assert 0.45 * scores.std() < pooled.std() < 0.95 * scores.std()


def test_pools_are_as_wide_as_those_of_new_rows():
    rng = np.random.default_rng(0)
    network_folds, row_folds = np.repeat(np.arange(5), 2), np.arange(1000) % 5
    known = predictions(rng, 1000, 5, 2, tau=1.0, scale=0.5)
    new = SplitNormalMixture(predictions(rng, 1000, 5, 2, tau=1.0, scale=0.5))
    pools = unseen_pools(known, rng.standard_normal(1000), network_folds, row_folds)
    assert pools.dist.components.shape == (10, len(pools.row))
    assert np.bincount(pools.row).tolist() == [4] * 1000
    assert pools.dist.var.mean() == pytest.approx(new.var.mean(), rel=0.05)
    again = unseen_pools(known, rng.standard_normal(1000), network_folds, row_folds)
    assert (again.dist.components.left_scale == pools.dist.components.left_scale).all()


def test_point_masses_leave_scores_as_they_are():
    components = SplitNormal(np.zeros((4, 6)), 0.0, 0.0)
    scores = pooled_scores(components, np.zeros(6), [0, 0, 1, 1], np.arange(6) % 2)
    assert np.isfinite(scores).all()


def test_networks_that_agree_need_no_correction():
    rng = np.random.default_rng(0)
    components = SplitNormal(np.zeros((6, 40)), 1.0, 1.0)
    y, folds = rng.standard_normal(40), np.repeat([0, 1, 2], 2)
    assert np.allclose(pooled_scores(components, y, folds, np.arange(40) % 3), y, atol=0.02)


@pytest.mark.parametrize("seed", range(4))
def test_hardly_anything_is_taken_from_errors_where_networks_hardly_disagree(seed):
    error = np.random.default_rng(seed).gamma(3.0, 1.0, 1000) - 3.0
    variance = np.full(1000, 3.0)
    found = noise_of(error, 0.001 * variance, variance, 0.002 * variance, 0.0015)
    levels = [0.005, 0.025, 0.1, 0.9, 0.975]
    np.testing.assert_allclose(np.quantile(found, levels), np.quantile(error, levels), rtol=0.002)


def test_pooled_scores_keep_order_and_stay_finite_for_outliers():
    rng = np.random.default_rng(0)
    components = SplitNormal(rng.standard_normal((10, 50)), 1.0, 1.0)
    y = np.append(rng.standard_normal(48), [1e6, -1e8])
    z = pooled_scores(components, y, np.repeat(np.arange(5), 2), np.arange(50) % 5)
    assert np.isfinite(z).all()
    assert (z.argmax(axis=1) == 48).all()
    assert (z.argmin(axis=1) == 49).all()


def test_out_of_fold_networks_are_those_of_the_rows_own_fold():
    components = SplitNormal(np.arange(12.0).reshape(6, 2), 1.0, 1.0)
    held_out = out_of_fold(components, ["b", "a", "b", "a", "c", "c"], ["a", "c"])
    assert held_out.components.loc.tolist() == [[2.0, 9.0], [6.0, 11.0]]


@pytest.mark.parametrize(
    ("networks", "rows", "message"),
    [
        ([0, 0, 1], [0, 1], "same number of networks"),
        ([0, 0, 1, 1], [0, 2], "without fold"),
        ([0, 0, 1, 1], [0, 1, 1], "must fit components"),
        ([0, 1, 2, 3], [0, 1], "at least 2 networks"),
    ],
)
def test_folds_that_do_not_fit_are_refused(networks, rows, message):
    components = SplitNormal(np.zeros((len(networks), 2)), 1.0, 1.0)
    with pytest.raises(ValueError, match=message):
        pooled_scores(components, [0.0, 1.0], networks, rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "skewed"])
@pytest.mark.parametrize(("folds", "per_fold"), [(5, 2), (5, 3), (5, 4), (10, 2)])
@pytest.mark.parametrize("n", [200, 1000])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
def test_pooled_scores_cover_over_the_whole_grid(share, scale, n, folds, per_fold, kind):
    """Networks that differ by up to half of the noise, true or predicted; errors are 0.002."""
    runs, tau = 60 if n == 200 else 20, share * min(scale, 1.0)
    setting = {"n": n, "folds": folds, "per_fold": per_fold, "tau": tau, "scale": scale}
    _, pooled = mean_coverages(runs, **setting, kind=kind)
    high = 0.965 if kind == "normal" else 0.97
    assert 0.936 < pooled < high


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [f"disagreement {tau}" for tau in ("0.25", "0.5", "1", "1.5", "2")]
)
def test_coverage_is_nominal_whatever_networks_disagree_by(name):
    """At all levels, by the benchmark; standard errors are 0.003, so that 1 run in 1,000 fails."""
    path = Path(__file__).parents[2] / "benchmarks" / "pooling.py"
    pooling = runpy.run_path(str(path))
    case = pooling["CASES"][name]
    found = np.mean([list(pooling["coverages"](seed, *case))[1] for seed in range(60)], axis=0)
    assert np.abs(found - pooling["LEVELS"]).max() < 0.01 + 0.01


def humps(rng, n, off):
    """Networks that predict two modes with errors in the weight of the right one, and targets."""
    odds = rng.standard_normal(n)
    share = 1 / (1 + np.exp(-(odds + off)))
    loc = np.tile([[-1.0], [1.0]], (len(off), n))
    weights = np.stack([1 - share, share], axis=1).reshape(-1, n)
    mixture = SplitNormalMixture(SplitNormal(loc, 0.3, 0.3), weights, per_network=2)
    right = rng.random(n) < 1 / (1 + np.exp(-odds))
    return mixture, np.where(right, 1.0, -1.0) + 0.3 * rng.standard_normal(n)


def test_networks_that_disagree_in_shares_of_humps():
    rng = np.random.default_rng(0)
    network_folds, row_folds = np.repeat(np.arange(5), 2), np.arange(3000) % 5
    seen = np.where(network_folds[:, None] == row_folds, 1.0, 0.5)
    known, y = humps(rng, 3000, seen * rng.standard_normal((10, 3000)))
    new, target = humps(rng, 3000, rng.standard_normal((10, 3000)))
    pools = unseen_pools(known, y, network_folds, row_folds)
    moved = normal_scores(pools.dist, y[pools.row])

    def covered(scores):
        dist = CalibratedMixture(new, Calibration.from_scores(scores.reshape(-1, 3000)))
        lower, upper = dist.interval(0.8)
        return np.mean((lower <= target) & (target <= upper))

    assert covered(pools.scores) == pytest.approx(0.8, abs=0.02)
    assert covered(moved) < 0.77  # by pools that are moved as wholes


def test_scores_far_out_keep_their_order():
    mixture, y = humps(np.random.default_rng(0), 50, np.zeros((4, 50)))
    y[:4] = [4.0, 30.0, -4.0, -30.0]
    scores = unseen_pools(mixture, y, [0, 0, 1, 1], np.arange(50) % 2).scores[:4]
    assert np.allclose(scores, normal_scores(mixture[:4], y[:4]), rtol=0.05)


def test_errors_that_new_rows_do_not_have_are_removed():
    n, surplus = 4000, 0.5
    rng = np.random.default_rng(0)
    network_folds, row_folds = np.repeat(np.arange(5), 2), np.arange(n) % 5
    known = predictions(rng, n, 5, 2, 0.3, 1.0)
    y = rng.normal(0.2, 1.0, n)
    error = rng.normal(0.0, surplus**0.5, n)  # of an input that all networks share
    shifted = SplitNormal(known.loc + error, 1.0, 1.0)
    args = (network_folds, row_folds)
    expected = unseen_pools(known, y, *args).scores
    worse = unseen_pools(shifted, y, *args).scores
    mended = unseen_pools(shifted, y, *args, np.full(n, surplus)).scores
    assert np.std(worse) > 1.15 * np.std(expected)
    levels = [0.025, 0.25, 0.5, 0.75, 0.975]
    np.testing.assert_allclose(*(np.quantile(s, levels) for s in (mended, expected)), atol=0.08)


def test_a_surplus_is_at_most_most_of_the_errors():
    n = 200
    rng = np.random.default_rng(1)
    known, y = predictions(rng, n, 5, 2, 0.3, 1.0), rng.normal(0.2, 1.0, n)
    args = (known, y, np.repeat(np.arange(5), 2), np.arange(n) % 5)
    enormous = unseen_pools(*args, np.full(n, 1e6)).scores
    assert np.isfinite(enormous).all()
    assert np.std(enormous) > 0.3 * np.std(unseen_pools(*args).scores)
