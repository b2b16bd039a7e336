"""What coverage rows support: groups, weights and repeated scores count for what they are worth."""

import numpy as np
import pytest
from sklearn.model_selection import RepeatedKFold

from calipers import IntervalRegressor
from calipers._schema import SchemaError
from calipers.calibration import Calibration
from calipers.calibration._effective import effective_number
from calipers.networks import MLP

SMALL = {
    "network": MLP(hidden_layers=(4,), frequencies=0),
    "epochs": 2,
    "random_state": 0,
    "verbose": 0,
}


def test_the_effective_number_by_hand():
    assert effective_number(np.full(7, 3.0)) == 7.0
    assert effective_number(np.array([2.0, 1.0, 1.0])) == pytest.approx(16 / 6)
    assert effective_number(np.ones(6), ["a", "a", "b", "b", "b", "c"]) == pytest.approx(36 / 14)
    assert effective_number(np.array([1e300, 1e300])) == 2.0
    with pytest.raises(ValueError, match=r"one label per score, shape \(3,\)"):
        effective_number(np.ones(3), [0, 1])


def test_weights_worth_20_rows_support_what_20_rows_do():
    weights = np.r_[np.full(20, 1.0), np.full(220, 1e-6)]
    calibration = Calibration.from_scores(np.linspace(-2, 2, 240), weights)
    assert calibration.n_effective == pytest.approx(20, rel=1e-3)
    assert calibration.supports(0.05)
    assert not calibration.supports(0.025)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (240, 2))
    return X, X[:, 0] + rng.normal(0, 0.3, 240)


def is_finite(model, X, coverage):
    return np.isfinite(model.predict_interval(X[:3], coverage=coverage)).all()


def test_groups_weights_and_repeats_decide_what_fit_supports(rows):
    X, y = rows
    small = IntervalRegressor(n_networks=4, cv=2, **SMALL)
    assert is_finite(small.fit(X, y), X, 0.99)
    small.fit(X, y, groups=np.repeat(np.arange(40), 6))
    assert small.ensemble_.calibrations[-1].n_effective == 40
    assert is_finite(small, X, 0.95)
    assert not is_finite(small, X, 0.99)
    small.set_params(unsupported="raise")
    with pytest.raises(ValueError, match=r"got 240 of total weight 240 \(effective sample size 40"):
        small.predict_interval(X[:3], coverage=0.99)
    heavy = IntervalRegressor(n_networks=4, cv=2, **SMALL)
    with pytest.warns(UserWarning, match=r"240 \(effective sample size 20.44\)"):
        heavy.fit(X, y, sample_weight=np.r_[np.ones(20), np.full(220, 1e-3)])
    assert not is_finite(heavy, X, 0.95)
    repeated = IntervalRegressor(n_networks=4, cv=RepeatedKFold(n_splits=2, n_repeats=2), **SMALL)
    repeated.fit(X[:120], y[:120])
    assert repeated.ensemble_.calibrations[-1].n_effective == 120
    assert not is_finite(repeated, X, 0.99)


# The lower band is four standard errors of 600 runs: a right method fails 1 run in 30,000. Groups
# differ by place, or by how they scatter.
@pytest.mark.parametrize(("correlation", "spread"), [(0.0, 0), (0.5, 0), (0.95, 0), (0.0, 1)])
def test_forty_clusters_cover_what_they_promise(correlation, spread):
    rng = np.random.default_rng(0)
    groups, covered = np.repeat(np.arange(40), 6), []
    new = rng.standard_normal(20_000) * np.exp(0.5 * spread * rng.standard_normal(20_000))
    for _ in range(600):
        common, own = rng.standard_normal(40)[groups], rng.standard_normal(240)
        scores = correlation**0.5 * common + (1 - correlation) ** 0.5 * own
        scores *= np.exp(0.5 * spread * rng.standard_normal(40))[groups]
        found = Calibration.from_scores(scores, units=groups)
        lower, upper = found.score_of_level([0.025, 0.975])
        covered.append(np.mean((lower <= new) & (new <= upper)))
        assert not found.supports(0.005)
    assert np.mean(covered) > 0.95 - 4 * np.std(covered) / 600**0.5
    assert np.mean(covered) < 0.96


def test_what_groups_have_in_common_is_stored():
    groups = np.repeat(np.arange(40), 6)
    found = Calibration.from_scores(np.random.default_rng(0).standard_normal(240), units=groups)
    assert found.n_effective == 40 < 150 < found.n_independent <= 240
    again = Calibration.from_arrays(found.to_arrays())
    assert again.n_independent == found.n_independent
    assert again.score_of_level(0.025) == found.score_of_level(0.025)
    strict = Calibration.from_scores(np.arange(240.0), strict=True, units=groups)
    assert strict.n_independent is None
    with pytest.raises(SchemaError, match="n_independent"):
        Calibration.from_arrays(found.to_arrays() | {"n_independent": np.asarray(1e9)})
