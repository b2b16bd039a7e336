"""One wrong number does not spoil a model, and a heavy tail is not taken for wrong numbers."""

import warnings

import numpy as np
import pytest

from calipers import IntervalRegressor, load
from calipers._outliers import outlying_targets, outlying_values
from calipers.bank import Table
from calipers.networks import MLP, DenseFactory

RNG = np.random.default_rng(0)
SMALL = {
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "n_networks": 4,
    "cv": 2,
    "epochs": 40,
    "random_state": 0,
    "verbose": 0,
}

TAILS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(0, 2, n),
    "Student, 3": lambda rng, n: rng.standard_t(3, n),
    "Student, 2": lambda rng, n: rng.standard_t(2, n),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, rng.lognormal(0, 1, n)),
    "counts": lambda rng, n: rng.poisson(0.3, n).astype(float),
    "two modes": lambda rng, n: 1000.0 * (rng.random(n) < 0.5) + rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, 3.0),
    "rare flag": lambda rng, n: (rng.random(n) < 0.01).astype(float),
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_tails_are_no_errors(tail):
    """Student's t with two degrees is the worst: one sample in a hundred may have a far value."""
    rng = np.random.default_rng(1)
    found = [outlying_values(tail(rng, n)).any() for n in (30, 300, 3000) for _ in range(40)]
    assert np.mean(found) <= 0.05


@pytest.mark.parametrize("rows", [25, 300, 5000])
@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_gross_errors_are_found_in_any_unit(rows, unit):
    y = RNG.normal(size=rows)
    wrong = RNG.choice(rows, max(1, rows // 100), replace=False)
    y[wrong] = 1e6 * np.sign(y[wrong])
    assert set(np.flatnonzero(outlying_values(y * unit))) == set(wrong)


def test_outlying_targets_that_inputs_explain_are_no_errors():
    X, y = RNG.normal(size=(1000, 3)), RNG.normal(size=1000)
    assert outlying_values(y + 1e4 * (X[:, 0] > 2.2)).sum() > 5
    assert not outlying_targets(X, y + 1e4 * (X[:, 0] > 2.2)).any()
    assert outlying_targets(X, y + 1e4 * (RNG.random(1000) < 0.01)).any()


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, (200, 2))
    return X, X[:, 0] - X[:, 1] + rng.normal(0, 0.2, 200)


@pytest.fixture(scope="module")
def clean(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return IntervalRegressor(**SMALL).fit(*rows)


def test_a_wrong_target_is_named_and_changes_little(rows, clean, tmp_path):
    X, y = rows
    spoilt = y.copy()
    spoilt[17] = 1e6
    with pytest.warns(UserWarning, match=r"in row 17 \(1e\+06\) \(from 0\), while the others lie"):
        model = IntervalRegressor(**SMALL).fit(X, spoilt)
    assert model.about_["far_targets"] == {"count": 1, "rows": [17]}
    error = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    assert error < 1.5 * np.sqrt(np.mean((clean.predict(X) - y) ** 2))
    lower, upper = model.predict_interval(X).T
    assert np.mean((lower < y) & (y < upper)) > 0.9
    assert np.median(upper - lower) < 2 * np.median(np.diff(clean.predict_interval(X)))
    model.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    assert np.array_equal(again.predict_interval(X), model.predict_interval(X))


def test_calibration_counts_wrong_targets_as_they_are(rows):
    X, y = rows
    spoilt = y.copy()
    spoilt[:8] = 1e6  # 4 %: a 99 % interval that held its share of them would be enormous
    with pytest.warns(UserWarning, match=r"in rows 0 \(1e\+06\), 1 "):
        model = IntervalRegressor(**SMALL).fit(X, spoilt)
    assert np.median(np.diff(model.predict_interval(X, 0.8))) < 5
    assert np.median(np.diff(model.predict_interval(X, 0.98))) > 1e4


def test_rows_without_weight_are_not_looked_at(rows):
    X, y = rows
    spoilt, weights = y.copy(), np.ones(200)
    spoilt[17], weights[17] = 1e6, 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        IntervalRegressor(**SMALL | {"epochs": 1}).fit(X, spoilt, sample_weight=weights)


def test_a_wrong_input_sets_no_scale():
    X, y = RNG.normal(size=(300, 2)), np.zeros(300)
    spoilt = X.copy()
    spoilt[3, 0] = 1e6
    clean, robust = Table.from_arrays(X, y, robust=True), Table.from_arrays(spoilt, y, robust=True)
    assert clean.limits is None
    np.testing.assert_allclose(robust.units.input_scale, clean.units.input_scale, rtol=0.1)
    rows = np.arange(200)
    own = robust.scaling(rows).input_scale * robust.units.input_scale
    np.testing.assert_allclose(own, X[:200].std(axis=0), rtol=0.1)
    assert Table.from_arrays(spoilt, y).units.input_scale[0] > 1e4  # for networks that do not clip
    assert DenseFactory((8,), frequencies=0).clips_inputs
    assert not DenseFactory((8,)).clips_inputs


def test_a_model_of_inputs_that_are_nearly_constant_but_for_some_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    first = rng.normal(size=400)
    odd = rng.permutation(np.r_[np.arange(4.0) * 1e9, rng.normal(size=396) * 1e-6])
    X = np.column_stack([first, np.arange(400) < 3, odd])
    network = MLP(hidden_layers=(8,), frequencies=2, bins=4)
    small = {"n_networks": 2, "cv": 2, "epochs": 1, "patience": None, "network": network}
    model = IntervalRegressor(random_state=0, **small).fit(X, X[:, 0])
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))
