"""Awkward data and parameters: valid intervals from few rows, and errors that say what is wrong."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import PredefinedSplit, ShuffleSplit

from calipers import IntervalRegressor, metrics
from calipers.networks import MLP
from calipers.preprocessing import TableEncoder
from calipers.training import batch_size_of

TINY = {
    "network": MLP(hidden_layers=(8,), frequencies=0),
    "epochs": 2,
    "random_state": 0,
    "verbose": 0,
    "n_networks": 4,
    "cv": 2,
}
RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (60, 2))
Y = X[:, 0] + RNG.normal(0, 0.1, 60)
ONE_WEIGHT = {"sample_weight": [1.0, 0.0, 0.0]}
FEW = {
    "one row": (1, {}, {}),
    "two rows": (2, {"cv": 5, "n_networks": 5}, {}),
    "one row of positive weight": (3, {}, ONE_WEIGHT),
}


@pytest.fixture(scope="module", params=FEW.values(), ids=FEW.keys())
def few(request):
    rows, parameters, options = request.param
    with pytest.warns(UserWarning, match="39 rows to calibrate them, and there are 0$"):
        return IntervalRegressor(**TINY | parameters).fit(X[:rows], Y[:rows], **options)


def test_there_is_no_calibrated_interval(few):
    assert (few.predict_interval(X) == [-np.inf, np.inf]).all()
    assert np.isinf(few.predict_interval(X, 0.1)).all()


def test_points_and_quantiles_stay(few):
    assert np.isfinite(few.predict(X)).all()
    assert np.isfinite(few.predict_quantiles(X, [0.1, 0.5, 0.9])).all()


def test_an_error_says_so_where_asked(few):
    few.set_params(unsupported="raise")
    try:
        with pytest.raises(ValueError, match=r"needs at least 39 calibration rows, .* got 0"):
            few.predict_interval(X)
    finally:
        few.set_params(unsupported="inf")


def test_it_stays_so_in_a_folder(few, tmp_path):
    few.save(tmp_path)
    again = IntervalRegressor.load(tmp_path)
    assert np.isinf(again.predict_interval(X)).all()
    assert np.array_equal(again.predict_quantiles(X, [0.1]), few.predict_quantiles(X, [0.1]))


def test_held_out_rows_mend_it(few):
    keep = IntervalRegressor(**few.get_params(deep=False))
    keep.__dict__ |= vars(few)
    assert np.isfinite(keep.conformalize(X, Y).predict_interval(X)).all()


def test_without_folds_intervals_are_those_of_the_networks():
    model = IntervalRegressor(**TINY | {"cv": None}).fit(X[:1], Y[:1])
    assert np.isfinite(model.predict_interval(X)).all()


@pytest.mark.parametrize("networks", [1, 4])
def test_a_single_fold_calibrates_on_what_it_holds_out(networks):
    split = ShuffleSplit(n_splits=1, test_size=0.7, random_state=0)
    model = IntervalRegressor(**TINY | {"cv": split, "n_networks": networks}).fit(X, Y)
    assert model.ensemble_.calibrations[0].n_rows == 42
    assert np.isfinite(model.predict_interval(X)).all()


def test_batches_are_no_larger_than_the_rows():
    model = IntervalRegressor(**TINY | {"batch_size": 10**6})
    assert batch_size_of(model, 60) == 256  # what tables are padded to
    assert batch_size_of(model.set_params(batch_size=100), 60) == 100
    assert model.set_params(batch_size=10**6).fit(X, Y).ensemble_.bank.program.batch_size == 256


MASKED = np.ma.masked_greater(X, 1.9)
MIXED = np.array([*range(30), *"abcdefghijklmnopqrstuvwxyzabcd"], dtype=object)


class NoTraining:
    def split(self, X, y=None, groups=None):
        yield np.arange(0), np.arange(len(X))


class NoFolds:
    def split(self, X, y=None, groups=None):
        return iter(())


# Parameters, data and options, and what the error says.
REFUSALS = {
    "cv is text": ({"cv": "a"}, X, Y, {}, r"cv must be an integer .* or None, got 'a'"),
    "nothing to train on": ({"cv": NoTraining()}, X, Y, {}, r"no rows to train on in fold 0"),
    "no folds": ({"cv": NoFolds()}, X, Y, {}, r"leaves no folds of 60 rows"),
    "text": ({}, X, [*Y[:59], "many"], {}, r"y must hold numbers, got 'many' in row 59 "),
    "objects": ({}, X, np.array([*Y[:59], "many"], object), {}, r"y must .* 'many' in row 59"),
    "times": ({}, X, np.full(60, "2024-01-01", "M8[D]"), {}, r"y must hold numbers, got datetime"),
    "mixed groups": ({}, X, Y, {"groups": MIXED}, r"groups must hold labels of one type, got int"),
    "masked X": ({}, MASKED, Y, {}, r"X has masked values, \d+ of 120: leave those rows out"),
    "masked y": ({}, X, MASKED[:, 0], {}, r"y has masked values, \d+ of 60"),
    "masked weights": ({}, X, Y, {"sample_weight": MASKED[:, 0] + 2}, r"sample_weight has masked"),
    "masked groups": ({}, X, Y, {"groups": MASKED[:, 0]}, r"groups has masked values"),
    "masked table": ({"preprocessor": TableEncoder()}, MASKED, Y, {}, r"X has masked values"),
}


@pytest.mark.parametrize(
    ("parameters", "inputs", "target", "options", "message"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_refusals_say_what_is_wrong(parameters, inputs, target, options, message):
    with pytest.raises(ValueError, match=message):
        IntervalRegressor(**TINY | parameters).fit(inputs, target, **options)


def test_masks_are_refused_wherever_data_comes_in():
    model = IntervalRegressor(**TINY).fit(X, Y)
    for method in (model.predict, model.predict_interval, model.outside, model.predict_members):
        with pytest.raises(ValueError, match="X has masked values"):
            method(MASKED)
    with pytest.raises(ValueError, match="y has masked values"):
        model.conformalize(X, MASKED[:, 0])
    with pytest.raises(ValueError, match="masked values"):
        metrics.coverage_rate(MASKED[:, 0], Y, Y)
    with pytest.raises(ValueError, match="X has masked values"):
        TableEncoder().fit(pd.DataFrame(X)).transform(MASKED)


def test_arrays_without_a_masked_value_are_taken():
    model = IntervalRegressor(**TINY).fit(np.ma.masked_array(X), np.ma.masked_array(Y))
    assert np.array_equal(model.predict(X), IntervalRegressor(**TINY).fit(X, Y).predict(X))


def test_the_largest_weights_count_as_others_do():
    weights = np.where(np.arange(60) % 2, 1.0, 2.0)
    found = [
        IntervalRegressor(**TINY).fit(X, Y, sample_weight=weights * unit).predict_interval(X, 0.5)
        for unit in (1.0, 2.0**1020)
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_folds_of_ones_own_may_be_one():
    held_out = np.where(np.arange(60) < 20, 0, -1)
    model = IntervalRegressor(**TINY | {"cv": PredefinedSplit(held_out), "coverage": 0.9})
    assert model.fit(X, Y).ensemble_.calibrations[0].n_rows == 20


class TestAbsurdParameters:
    """Refused before anything is trained, since such a model could not be saved, or never ends."""

    @pytest.mark.parametrize(
        "parameters",
        [
            {"n_networks": 10**9},
            {"batch_size": 10**26},
            {"epochs": 10**30},
            {"coverage": 1e-320},
            {"coverage": 1 - 1e-12},
            {"n_jobs": 0},
            {"n_jobs": 10**9},
            {"n_jobs": -(10**6)},
            {"verbose": 10**20},
            {"network": MLP(hidden_layers=(0,))},
            {"network": MLP(hidden_layers=(10**9,))},
            {"network": MLP(hidden_layers=(4,) * 1000)},
            {"bounds": (10**400, None)},
            {"bounds": {-10: 1, 10: 2}},
        ],
        ids=str,
    )
    def test_before_the_training(self, parameters):
        X = np.arange(60.0)[:, None]
        [(name, _)] = parameters.items()
        words = "hidden_layers" if name == "network" else name
        with pytest.raises(ValueError, match=words):
            IntervalRegressor(cv=2, n_networks=2, verbose=0).set_params(**parameters).fit(
                X, X[:, 0]
            )

    @pytest.mark.parametrize(
        ("y", "words"),
        [
            (
                np.where(np.arange(60) % 2, 1e308, -1e308),
                r"row 0 .*150, got -1e\+308",
            ),
            (np.where(np.arange(60) % 2, 5e-324, 0.0), "in another unit"),
            (np.array([10**400] * 60, object), r"within \+-1e\+150"),
        ],
        ids=["large", "small", "whole numbers"],
    )
    def test_targets_whose_squares_are_no_numbers(self, y, words):
        with pytest.raises(ValueError, match=words):
            IntervalRegressor(verbose=0).fit(np.arange(60.0)[:, None], y)
