"""Predictions of trees as an input: without the row itself, stored as arrays, used if they help."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, TimeSeriesSplit
from sklearn.tree import DecisionTreeRegressor

from calipers import IntervalRegressor, RowBlocks
from calipers._estimator import tree_inputs
from calipers._estimator.joint_fits import run_fit
from calipers._estimator.training_rows import TrainingRows, read_rows
from calipers._estimator.tree_bags import (
    _MAX_PARTS,
    _PARTS,
    predictions_by_fold,
    predictions_for_new_rows,
)
from calipers._estimator.tree_inputs import _wanted, add_trees
from calipers._estimator.trials import Measures, _settled, unexplained_by_trees
from calipers._schema import SchemaError
from calipers.bank import TrainingFailedError, train
from calipers.crossfit import Fold
from calipers.multitarget import MultiTargetRegressor
from calipers.networks import MLP, DenseFactory
from calipers.objectives import Density
from calipers.optimizers import Adam
from calipers.preprocessing import FEW, MAX_TREES, Forest, TreeRows, boosted_per_tree
from calipers.preprocessing._forest import Tree
from calipers.storage import ModelFileError, read_model, write_model

# No frequencies, no average and no validation: programs that take half as long to compile.
QUICK = {"n_networks": 4, "cv": 2, "epochs": 3, "patience": None, "random_state": 0, "verbose": 0}
QUICK["optimizer"] = Adam(averaging=0.0)
NETWORK = {"hidden_layers": (16,), "frequencies": 0, "bins": 0}


def steps(rows=200, seed=0, noise=0.1):
    """Inputs and a target that trees predict better than a smooth function does."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 3))
    y = 3.0 * (X[:, 0] > 0) * (X[:, 1] > 0.2) - 2.0 * (X[:, 0] < -0.5) * (X[:, 2] > 0)
    return X, y + noise * rng.normal(size=rows)


def model(trees=12, **settings):
    return IntervalRegressor(network=MLP(trees=trees, **NETWORK), **(QUICK | settings))


@pytest.fixture(scope="module")
def forest():
    X, y = steps()
    return grown(X, y, trees=140)[0]


@pytest.fixture(scope="module")
def fitted():
    """A model of networks that start at the trees."""
    return model().set_params(network__frequencies=1).fit(*steps())


def rows_of(X, y, groups=None, folds=(), seed=3):
    return TrainingRows(
        X, y, None, groups, np.arange(len(y)), seed, target=y, folds=folds, inputs=X[None]
    )


def grown(X, y, labels=None, trees=70, n_jobs=1):
    """Trees for new rows, and their predictions of training rows."""
    own = SimpleNamespace(n_jobs=n_jobs)
    predicted, forest = predictions_for_new_rows(own, rows_of(X, y, labels), X, trees)
    return forest, predicted.mean


def only(forest, *kinds):
    """The forest with the trees of these kinds alone: the two forests, and the boosted trees."""
    each = len(forest) // 7
    kind = np.repeat([0, 1, 2], [each, each, 5 * each])
    other = np.repeat(~np.isin(kind, kinds), forest.sizes) & (forest.feature < 0)
    return replace(forest, number=np.where(other, 0, forest.number))


def test_leaves_of_scikit_learn():
    X, y = steps(500)
    trees = [DecisionTreeRegressor(random_state=i).fit(X[i:], y[i:]) for i in range(3)]
    found = Forest.of([Tree.of(tree.tree_) for tree in trees], np.zeros(3), np.ones(3))
    expected = np.mean([tree.predict(X) for tree in trees], axis=0)
    np.testing.assert_allclose(found.predict(X), expected, rtol=0, atol=1e-6)


def test_a_threshold_between_two_single_precision_numbers():
    step = 2.0**-23  # between numbers in single precision from 1 on
    X = 1.0 + step * np.array([[0.0], [1.0], [2.0], [3.0]])
    tree = DecisionTreeRegressor().fit(X[[0, 3]], [0.0, 1.0])
    assert tree.tree_.threshold[0] == 1.0 + 1.5 * step
    found = Forest.of([Tree.of(tree.tree_)], np.zeros(1), np.ones(1))
    np.testing.assert_array_equal(found.predict(X), [0.0, 0.0, 1.0, 1.0])


def test_a_row_has_the_same_bits_in_any_batch(forest):
    X = steps(5000, seed=1)[0]
    points = forest.predict(X)
    np.testing.assert_array_equal(points[[17]], forest.predict(X[[17]]))
    np.testing.assert_array_equal(points[100:300], forest.predict(X[100:300]))


@pytest.fixture
def _fixed_weights(monkeypatch):
    """The weights of the kinds, which all rows have in common, depend on no target."""
    weights = np.array([0.6, 0.5, 0.4])
    monkeypatch.setattr("calipers._estimator.tree_bags.weights_of_kinds", lambda *_: weights)


@pytest.mark.usefixtures("_fixed_weights")
def test_points_do_not_depend_on_a_rows_own_target():
    X, y = steps()
    other = y.copy()
    other[10] += 100.0
    (_, before), (_, after) = grown(X, y), grown(X, other)
    assert before[10] == after[10]
    assert (before != after).any()


@pytest.mark.usefixtures("_fixed_weights")
def test_points_do_not_depend_on_targets_of_a_rows_own_group():
    X, y = steps()
    labels, other = np.arange(200) // 10, y.copy()
    other[50:60] += 100.0
    (_, before), (_, after) = grown(X, y, labels=labels), grown(X, other, labels=labels)
    np.testing.assert_array_equal(before[50:60], after[50:60])


def test_points_do_not_reveal_targets_of_rows_with_equal_inputs():
    """Among many equal rows, the mean of the others is lower where the row's target is high."""
    rng = np.random.default_rng(0)
    X, y = np.repeat(np.arange(4.0), 25)[:, None], rng.normal(size=100)
    cell = X[:, 0].astype(int)
    points = grown(X, y, trees=350)[1]
    for one in range(4):
        assert np.ptp(points[cell == one]) == 0.0
    few = grown(X[::10], y[::10], trees=350)[1]  # two or three of each: drawn by themselves
    assert np.ptp(few[cell[::10] == 0]) > 0.0


@pytest.mark.long
def test_the_weighted_sum_is_better_than_its_parts(monkeypatch):
    """A linear function, which one forest flattens and another corrects, and a step."""
    rng = np.random.default_rng(0)
    X, X_new = rng.uniform(-1, 1, (2, 400, 4))

    def target(rows):
        return rows @ [1.0, 0.7, -0.5, 0.3] + 2.0 * (rows[:, 0] > 0.3) * (rows[:, 1] > 0)

    def error():
        return np.mean((grown(X, target(X), trees=700)[0].predict(X_new) - target(X_new)) ** 2)

    found = [error()]
    for kinds in ([1, 0, 0], [1, 1, 0], [0, 0, 1]):
        weights = np.array(kinds, float)
        monkeypatch.setattr(
            "calipers._estimator.tree_bags.weights_of_kinds", lambda *_, w=weights: w
        )
        found.append(error())
    everything, first, both, boosted = found
    assert everything < min(both, boosted)
    assert max(both, boosted) < 1.5 * first  # all of them predict on the scale of the target
    assert both < 0.8 * first


def test_the_largest_number_of_trees_can_be_stored():
    most = MLP()._parameter_constraints["trees"][0].right
    for rows in (FEW, FEW + 1):
        for parts in range(_PARTS, _MAX_PARTS + 1):
            at_once = (2 + boosted_per_tree(rows)) * parts
            assert -(-most // at_once) * at_once <= MAX_TREES


def test_weights_fit_rows_that_the_trees_have_not_seen():
    X, y = steps()
    points = grown(X, y)[1]
    seen = {"rest": (points * (y - points)).mean(), "scale": (points**2).mean()}
    assert abs(seen["rest"]) < 1e-9 * seen["scale"]  # no multiple of the sum would fit better


def test_noise_is_not_corrected():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (400, 4)), rng.normal(size=400)
    forest, points = grown(X, y, trees=700)
    assert np.var(forest.predict(X)) < 0.2 * y.var()
    assert np.mean((points - y) ** 2) < 1.1 * y.var()


def test_networks_start_at_the_trees(fitted):
    assert fitted.ensemble_.bank.program.network.skip == (0,)
    network = replace(fitted.ensemble_.bank.program.network, columns=(), frequencies=0)
    module = network(3, 2, key=jax.random.key(0))
    rows = jnp.array([[0.1, 0.2, -2.0], [0.1, 0.2, 2.0]])
    plain = replace(network, skip=())(3, 2, key=jax.random.key(0))
    added = jax.vmap(module)(rows) - jax.vmap(plain)(rows)
    np.testing.assert_allclose(added, [[-1.6, 0.0], [1.6, 0.0]], atol=1e-6)


def test_values_of_columns_need_no_trees(fitted, monkeypatch):
    monkeypatch.setattr(Forest, "predict", None)
    X = steps()[0][:5]
    values = fitted.reader_.cells(fitted, X)
    np.testing.assert_array_equal(np.stack(list(values.values()), axis=1), X)


def test_networks_on_another_scale_do_not_start_at_the_trees():
    X, y = steps(noise=0.01)
    own = model(loss=Density(scale="log"), cv=2).fit(X, np.exp(y))
    assert own.reader_.forest is not None
    assert own.ensemble_.target_map is not None
    assert own.ensemble_.bank.program.network.skip == ()


def test_the_same_trees_on_any_number_of_threads():
    X, y = steps()
    (one, _), (many, _) = grown(X, y), grown(X, y, n_jobs=3)
    for name, array in one.to_arrays().items():
        np.testing.assert_array_equal(array, many.to_arrays()[name])


def test_inputs_of_any_size():
    X, y = steps()
    found, _ = grown(X * [1e300, 1e-300, 1.0] + [0, 0, 1e9], y)
    assert np.mean((found.predict(X * [1e300, 1e-300, 1.0] + [0, 0, 1e9]) - y) ** 2) < 0.2
    assert np.isfinite(found.predict(np.array([[1.7e308, -1e308, 0.0]]))).all()


def test_inputs_of_single_precision():  # without a warning of an overflow
    X, y = steps()
    found, _ = grown(X.astype(np.float32), y)
    np.testing.assert_allclose(found.scale, grown(X, y)[0].scale, rtol=1e-5)


def test_many_rows_have_a_bounded_number_of_nodes(monkeypatch):
    monkeypatch.setattr("calipers.preprocessing._trees._LEAVES", 300)
    X, y = steps(1000)
    boosted = 50 * 2**6  # leaves at most
    assert grown(X, y)[0].feature.size <= 2 * (300 + boosted)
    assert only(grown(X, y)[0], 0, 1).number.astype(bool).sum() <= 2 * 300 + boosted


def forged(forest):
    """Malformed arrays of a forest, by what is wrong with them."""
    good = forest.to_arrays()
    sizes, feature = good["sizes"], good["feature"]
    leaf = int(np.flatnonzero(feature < 0)[0])
    chain = np.array([*[0, -1] * 100, -1], np.int32)
    yield "lack the array", {k: v for k, v in good.items() if k != "number"}
    yield "feature", good | {"feature": np.where(feature == 1, 3, feature)}
    yield "feature", good | {"feature": np.where(feature == 1, -2, feature)}
    yield "feature", good | {"feature": feature[None]}
    yield "level by level", good | {"feature": np.full_like(feature, 0)}
    yield "level by level", good | {"feature": np.concatenate([feature[1:], feature[:1]])}
    yield (
        "level by level",
        good | {"feature": np.where(np.arange(feature.size) == leaf, 0, feature)},
    )
    yield "sizes", good | {"sizes": np.append(sizes[:-1], sizes[-1] + 2)}
    yield "sizes", good | {"sizes": np.append(sizes, np.int32(0))}
    yield "sizes", good | {"sizes": sizes[None]}
    yield "number", good | {"number": np.where(feature < 0, np.float32(np.nan), good["number"])}
    yield "number", good | {"number": good["number"].astype(str)}
    yield "number", good | {"number": good["number"][1:]}
    yield "scale", good | {"center": good["center"][:2]}
    yield "scale", good | {"scale": np.zeros(3)}
    yield "scale", good | {"scale": np.full(3, np.inf)}
    yield (
        "levels",
        good
        | {"sizes": np.array([201], np.int32), "feature": chain}
        | {"number": np.zeros(201, np.float32)},
    )


def test_forged_trees_are_refused(forest):
    cases = list(forged(forest))
    for expected, arrays in cases:
        with pytest.raises(SchemaError, match=expected):
            Forest.from_arrays(arrays)
    assert len(cases) == 17


def test_trees_as_arrays(forest):
    again = Forest.from_arrays(forest.to_arrays())
    X = steps(seed=2)[0]
    np.testing.assert_array_equal(again.predict(X), forest.predict(X))


@pytest.mark.usefixtures("_fixed_weights")
def test_inputs_of_a_fold_do_not_depend_on_its_held_out_targets():
    X, y = steps()
    own = model()
    data = read_rows(own, X, y, None, None, reset=True)
    folds = data.split(2, 4)

    def inputs(targets):
        own.reader_ = replace(own.reader_, forest=None)
        given = data._replace(y=targets, target=targets).encoded_by_fold(folds, 0)
        return run_fit(own, add_trees(own, None, given))[0].inputs

    other = y.copy()
    train, held_out = folds[1]
    # Targets move, but not their mean and spread, which all rows share.
    other[held_out] = y[held_out[::-1]]
    before, after = inputs(y), inputs(other)
    assert before.shape == (2, len(y), 4)
    np.testing.assert_allclose(before[1, train], after[1, train], rtol=1e-9, atol=1e-9)
    assert np.abs(before[0] - after[0]).max() > 0.1
    # Other held-out rows have a part in the prediction of one.
    first, second = np.argmin(y[held_out]), np.argmax(y[held_out])
    other = y.copy()
    other[held_out[[first, second]]] = y[held_out[[second, first]]]
    moved = np.abs(inputs(other)[1, held_out, -1] - before[1, held_out, -1])
    assert moved.max() > 0.01
    assert (before[1, held_out, -1] != before[0, held_out, -1]).all()


@pytest.mark.usefixtures("_fixed_weights")
@pytest.mark.parametrize("cv", [2, 5])
def test_a_held_out_row_has_the_mean_of_two_predictions_that_do_not_depend_on_it(cv):
    X, y = steps()
    own = model()
    data = read_rows(own, X, y, None, None, reset=True)
    given = data.encoded_by_fold(data.split(cv, cv), 0)
    found = run_fit(own, add_trees(own, None, given))[0].inputs[0, :, -1]
    held_out = given.folds[0].held_out
    standard = given._replace(y=(y - y.mean()) / y.std())
    of_fold = predictions_by_fold(own, standard, given.folds, 12)[0]
    of_all, _ = predictions_for_new_rows(own, standard, X, 12)
    expected = (of_fold.mean[held_out] + of_all.mean[held_out]) / 2
    np.testing.assert_allclose(found[held_out], expected, rtol=1e-9, atol=1e-9)


def test_held_out_errors_less_the_surplus_are_nearly_those_of_new_rows():
    found = []
    for seed in range(6):
        X, y = steps(1200, seed=seed)
        known, rest = slice(300), slice(300, None)
        y = (y - y[known].mean()) / y[known].std()
        folds = [Fold(*p) for p in KFold(5, shuffle=True, random_state=0).split(X[known])]
        rows = rows_of(X[known], y[known], folds=folds)
        own, forest = tree_inputs._with_trees_by_fold(model(n_networks=5), rows, 70, [])
        held_out = np.array([fold.held_out for fold in folds])
        number = np.arange(5)[:, None]
        errors = y[held_out] - own.inputs[number, held_out, -1]
        surplus = own.surplus[number, held_out]
        assert surplus.min() >= 0
        new = y[rest] - forest.predict(X[rest])
        found.append([np.mean(errors**2), surplus.mean(), np.mean(new**2)])
    left, surplus, new = np.mean(found, axis=0)
    assert left > 1.2 * new
    assert new < left - surplus < new + 0.7 * (left - new)


def test_the_surplus_makes_intervals_narrower(monkeypatch):
    X, y = steps()
    plain, widths = tree_inputs._surplus, []
    for factor in (0, 1):
        monkeypatch.setattr(tree_inputs, "_surplus", lambda *given, f=factor: f * plain(*given))
        own = model(trees=70, cv=5, n_networks=10, epochs=40).fit(X, y)
        widths.append(np.diff(own.predict_interval(X, coverage=0.8)).mean())
    assert 0.6 * widths[0] < widths[1] < 0.98 * widths[0]


def bags_of(monkeypatch, *arguments):
    """Rows of the bags that are grown for folds, and the predictions."""
    bags, plain = [], TreeRows.grow

    def grow(self, rows, *options):
        bags.append(frozenset(rows.tolist()))
        return plain(self, rows, *options)

    monkeypatch.setattr(TreeRows, "grow", grow)
    found = predictions_by_fold(SimpleNamespace(n_jobs=1), *arguments)
    monkeypatch.undo()
    return bags, found


def test_a_bag_serves_two_folds(monkeypatch):
    X, y = steps(100)
    folds = [Fold(*pair) for pair in KFold(5, shuffle=True, random_state=0).split(X)]
    bags, _ = bags_of(monkeypatch, rows_of(X, y, folds=folds), folds, 35)
    assert len(set(bags)) == len(bags) == 10
    pairs = {frozenset(np.setdiff1d(a.train, b.held_out).tolist()) for a in folds for b in folds}
    assert set(bags) <= pairs


def test_many_folds_have_at_most_five_bags_each(monkeypatch):
    X, y = steps(60)
    folds = [Fold(*pair) for pair in KFold(20).split(X)]
    bags, found = bags_of(monkeypatch, rows_of(X, y, folds=folds), folds, 7)
    assert len(set(bags)) == len(bags) == 85  # one of five bags serves four folds
    pairs = [set(fold.held_out.tolist()) for fold in folds]
    assert sum(not bag & left_out for bag in bags for left_out in pairs) == 5 * 4 + 80 * 5
    assert all(np.isfinite(own.mean).all() for own in found)


def test_equal_rows_are_those_of_the_inputs_of_their_fold(monkeypatch):
    X, y = steps(200)
    folds = [Fold(*pair) for pair in KFold(5, shuffle=True, random_state=0).split(X)]
    versions = np.stack([X] * 5)
    versions[1, :8] = X[0]
    data = rows_of(X, y, folds=folds)._replace(inputs=versions)
    bags, _ = bags_of(monkeypatch, data, folds, 35)
    left_out = [set.union(*map(set, bags[4 * i : 4 * i + 4])) for i in range(5)]
    assert not left_out[1] & set(range(8))
    assert left_out[0] & set(range(8))


@pytest.mark.parametrize("kind", ["groups", "few folds", "time"])
def test_other_folds_have_bags_of_their_own(monkeypatch, kind):
    X, y = steps(100)
    cv = {"few folds": KFold(2), "time": TimeSeriesSplit(5)}.get(kind, KFold(5))
    folds = [Fold(*pair) for pair in cv.split(X)]
    groups = np.arange(100) % 10 if kind == "groups" else None  # each is in all folds
    bags, found = bags_of(monkeypatch, rows_of(X, y, groups, folds), folds, 35)
    assert len(bags) == 5 * len(folds)
    for number, fold in enumerate(folds):
        for bag in bags[5 * number : 5 * number + 5]:
            assert bag < set(fold.train.tolist())
            left_out = set(fold.train.tolist()) - bag
            if groups is not None:
                assert not {groups[i] for i in left_out} & {groups[i] for i in bag}
        assert np.isfinite(found[number].mean).all()


def test_a_few_equal_rows_that_folds_separate_are_in_no_bag(monkeypatch):
    X, y = steps(200)
    X[:8] = X[0]
    folds = [Fold(*pair) for pair in KFold(5, shuffle=True, random_state=0).split(X)]
    data = rows_of(X, y, folds=folds)
    bags, found = bags_of(monkeypatch, data, folds, 35)
    assert len(bags) == 10
    assert not set.union(*map(set, bags)) & set(range(8))
    assert np.ptp(found[0].mean[:8]) == 0.0
    of_all, _ = predictions_for_new_rows(SimpleNamespace(n_jobs=1), data, X, 35)
    assert np.ptp(of_all.mean[:8]) == 0.0  # they are one part's, and so are predicted alike


def test_boosting_by_histograms_is_stored_as_it_predicts(monkeypatch):
    monkeypatch.setattr("calipers.preprocessing._trees.FEW", 100)
    X, y = steps(300)
    rows = TreeRows.of(X, y)
    bag = rows.grow(np.arange(200), 1, 60, 1, (0,))
    assert (len(bag.trees[2]), bag.runs) == (60, 1)
    found = rows.forest_of([bag], np.array([0.0, 0.0, 1.0])).predict(X)
    np.testing.assert_allclose(found[200:], bag.predicted[2, 200:], rtol=0, atol=1e-6)
    assert np.mean((found[200:] - y[200:]) ** 2) < 0.2 * y.var()


def test_forests_of_many_rows_choose_fewer_best_splits(monkeypatch):
    X, y = steps(300)
    thresholds = []
    for few in (300, 299):
        monkeypatch.setattr("calipers.preprocessing._trees.FEW", few)
        bag = TreeRows.of(X, y).grow(np.arange(200), 8, 5, 1, (0,))
        thresholds.append([tree.threshold.tolist() for tree in bag.trees[0]])
        assert len(bag.trees[0]) == len(bag.trees[1]) == 8
    few, many = thresholds
    assert many[::2] == few[::2]  # half of the trees have random splits in both cases
    assert many[1::4] == few[1::4]  # and a quarter the best splits
    assert all(a != b for a, b in zip(many[3::4], few[3::4], strict=True))


@pytest.mark.parametrize("few", [100, 4000])  # with and without histograms
def test_rounded_inputs_have_the_same_predictions(monkeypatch, few):
    monkeypatch.setattr("calipers.preprocessing._trees.FEW", few)
    rng = np.random.default_rng(0)
    days = rng.integers(0, 700, 400)
    X = np.column_stack([rng.normal(size=400).round(1), 0.1 * days, np.cos(2 * np.pi * days / 7)])
    y = X[:, 0] + (X[:, 2] > 0) + 0.1 * rng.normal(size=400)
    rows = TreeRows.of(X, y)
    bags = [rows.grow(np.flatnonzero(days % 5 != left), 10, 50, 1, (left,)) for left in range(5)]
    forest = rows.forest_of(bags, np.array([0.5, 0.5, 0.5]))
    rounded = X.astype(np.float32).astype(np.float64)
    assert (rounded != X).any()
    np.testing.assert_array_equal(forest.predict(rounded), forest.predict(X))


def test_thresholds_halfway_between_values_leave_rows_in_their_leaves():
    X, y = steps(300)
    rows = TreeRows.of(X, y)
    bag = rows.grow(np.arange(200), 10, 50, 1, (0,))
    forest = rows.forest_of([bag], np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(forest.predict(X)[200:], bag.predicted[0, 200:], rtol=0, atol=1e-6)
    for feature, column in enumerate(rows.inputs.T):
        values = np.unique(column)
        middles = (values[1:].astype(np.float64) + values[:-1]) / 2
        found = forest.number[forest.feature == feature]
        assert found.size
        assert np.abs(middles - found[:, None]).min(axis=1).max() < 1e-6


def test_a_model_with_trees_is_stored(fitted, tmp_path):
    X = steps(seed=2)[0]
    fitted.save(tmp_path)
    loaded = IntervalRegressor.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_interval(X), fitted.predict_interval(X))
    assert len(loaded.reader_.forest) == 35  # seven for each of five parts
    assert loaded.network.trees == 12


def test_forged_folders_are_refused(fitted, forest, tmp_path):
    fitted.save(tmp_path)
    document, arrays = read_model(tmp_path)
    part = {f"trees.{name}": array for name, array in forest.to_arrays().items()}
    without = {k: v for k, v in arrays.items() if not k.startswith("trees.")}

    def inputs(**changes):
        return document | {"inputs": document["inputs"] | changes}

    small = forest.to_arrays() | {"center": np.zeros(4), "scale": np.ones(4)}
    wrong = [
        (document, without),
        (document, arrays | part),
        (inputs(trees=0), arrays),
        (inputs(trees=140), without | {f"trees.{name}": array for name, array in small.items()}),
        (
            {**document, "inputs": {k: v for k, v in document["inputs"].items() if k != "trees"}},
            arrays,
        ),
        (document, arrays | {"trees.more": np.zeros(3)}),
        *((inputs(trees=140), without | _under("trees.", bad)) for _, bad in forged(forest)),
    ]
    for number, (bad, own) in enumerate(wrong):
        write_model(
            tmp_path / str(number), bad, {k: v for k, v in own.items() if v.dtype.kind != "U"}
        )
        with pytest.raises(ModelFileError):
            IntervalRegressor.load(tmp_path / str(number))


def _under(prefix, arrays):
    return {prefix + name: array for name, array in arrays.items()}


def test_trees_as_onnx(fitted, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X, y = steps(seed=2)
    path = fitted.to_onnx(tmp_path / "model.onnx")
    point, low, high = runtime.InferenceSession(str(path)).run(
        ["point", "lower", "upper"], {"X": X}
    )
    for found, expected in zip(
        (point, low, high), (fitted.predict(X), *fitted.predict_interval(X).T), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * y.std())


@pytest.fixture
def tried(monkeypatch):
    """Trees are tried although epochs are few."""
    monkeypatch.setattr("calipers._estimator.tree_inputs._wanted", lambda *_: (100, False))


def mixed(X):
    """Inputs with columns of text and a number that is missing."""
    frame = pd.DataFrame(X.copy(), columns=list("abc"))
    frame["kind"] = np.where(X[:, 0] > 0, "left", "right")
    frame["many"] = [f"level {i % 60}" for i in range(len(X))]
    frame.loc[3, "b"] = np.nan
    return frame


def test_any_kind_of_rows(tmp_path):
    X, y = steps(240)
    frame = mixed(X)
    weights = np.where(np.arange(240) < 20, 0.0, 1.0 + X[:, 0] ** 2)
    groups = np.arange(240) // 3
    cases = [
        (X, {"sample_weight": weights}, {}),
        (X, {"groups": groups}, {"cv": GroupKFold(2)}),
        (X, {}, {"cv": TimeSeriesSplit(2)}),
        (X, {}, {"cv": None}),
        (frame, {}, {}),
        (X, {}, {"loss": "mse"}),
        (X, {}, {"time_budget": 60.0}),
    ]
    for rows, options, settings in cases:
        check_fit(model(**settings), rows, y, options, tmp_path)


def check_fit(own, rows, y, options, tmp_path):
    """Fit, predict, and do the same after loading."""
    own.fit(rows, y, **options)
    assert own.reader_.width == own.ensemble_.bank.program.in_size
    assert np.isfinite(own.predict(rows)).all()
    own.save(tmp_path / "model")
    again = IntervalRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(rows), own.predict(rows))


@pytest.mark.long
def test_trees_are_tried_on_any_kind_of_rows(tried, tmp_path):
    X, y = steps(240)
    frame = mixed(X)
    weights = np.where(np.arange(240) < 20, 0.0, 1.0 + X[:, 0] ** 2)
    check_fit(model(cv=None), X, y, {}, tmp_path)
    check_fit(model(), frame, y, {}, tmp_path)
    check_fit(model(loss="mse"), X, y, {}, tmp_path)
    check_fit(model(cv=TimeSeriesSplit(2)), X, y, {}, tmp_path)
    check_fit(model(), X, y, {"sample_weight": weights}, tmp_path)


def test_a_trial_that_fails_decides_against_trees(tried, monkeypatch):
    X, y = steps()
    ended = []

    def failing(*arguments, **options):
        ended.append(len(ended))
        if len(ended) == 1:
            raise TrainingFailedError
        return train(*arguments, **options)

    monkeypatch.setattr("calipers._estimator.joint_fits.train", failing)
    assert model().fit(X, y).reader_.forest is None
    assert len(ended) == 2


def test_columns_by_name_are_read_with_points(fitted):
    X = steps(seed=2)[0][:3]
    own = model().fit(pd.DataFrame(steps()[0], columns=list("abc")), steps()[1])
    numbers, outside = own.reader_.read_columns(dict(zip("abc", X.T, strict=True)))
    np.testing.assert_array_equal(numbers, own.read(pd.DataFrame(X, columns=list("abc")))[0])
    assert outside.shape == X.shape


def test_warm_start_takes_other_rows_to_be_new(monkeypatch):
    X, y = steps()
    own = model(warm_start=True).fit(X, y)
    known, seen = own.reader_.forest, []

    def counted(name, plain):
        def grown(*arguments):
            seen.append(name)
            return plain(*arguments)

        monkeypatch.setattr(f"calipers._estimator.tree_inputs.{plain.__name__}", grown)

    counted("new rows", predictions_for_new_rows)
    counted("folds", predictions_by_fold)
    for fits in (1, 2):
        own.fit(X, y)
        assert seen == fits * ["new rows", "folds"]
    own.fit(*steps(seed=5))
    assert len(seen) == 4
    np.testing.assert_array_equal(own.reader_.forest.number, known.number)


def test_windows_of_time_leave_rows_out_with_trees_too():
    X, y = steps(240)
    cv = TimeSeriesSplit(5, max_train_size=40, test_size=40)
    numbers = [
        model(trees, cv=cv, n_networks=5).fit(X, y).ensemble_.bank.numbers.tolist()
        for trees in (0, 12)
    ]
    assert numbers == [[5, 6, 7, 8, 9]] * 2  # networks that know all rows


def test_a_row_that_is_held_out_twice_counts_once_with_trees_too():
    X, y = steps(200)
    cv = RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)
    for trees in (0, 12):
        own = model(trees, cv=cv).fit(X, y)
        assert own.ensemble_.calibrations[-1].n_effective <= 200


@pytest.mark.parametrize("far", [1e6, -99999.0])
def test_a_far_value_does_not_hide_the_others(far):
    X, y = steps(1500, noise=0.0)
    plain = grown(X, y)[0]
    X[0, 0] = far
    new, expected = steps(500, seed=1, noise=0.0)
    errors = [np.mean((forest.predict(new) - expected) ** 2) for forest in (plain, grown(X, y)[0])]
    assert errors[1] < 1.5 * errors[0] < 0.2


def test_trees_distinguish_inputs_of_any_unit():
    X, y = steps(500)
    fold = Fold(np.arange(400), np.arange(400, 500))
    units = (X, 1.7e9 + 50 * X, 1e39 * X)
    left = [unexplained_by_trees(own, y, None, fold, 0) for own in units]
    np.testing.assert_allclose(left, left[0], rtol=0.05)


def test_functions_of_rows_do_not_get_points(fitted):
    columns = []

    def weight(rows):
        columns.append(rows.shape[1])
        return np.ones(len(rows))

    def kind(rows):
        columns.append(rows.shape[1])
        return (rows[:, 0] > 0).astype(int)

    new = steps(300, seed=6)
    for option in ({"row_weight": weight}, {"by": kind}):
        fitted.conformalize(*new, **option).predict_interval(new[0][:3])
    assert set(columns) == {3}


def test_a_constant_target_can_be_saved(tmp_path):
    X = steps(120)[0]
    own = model("auto", loss="mse", n_networks=2, epochs=None, patience=1)
    own.fit(X, np.ones(120)).save(tmp_path / "constant")
    assert own.reader_.forest is None


def test_networks_that_learn_late_have_no_trees(tried, monkeypatch):
    left = iter([0.03, 0.005])

    def first_trial(*_):
        yield from ()
        return Measures(1.0, 1.0, 1.0, next(left))

    monkeypatch.setattr("calipers._estimator.tree_inputs.first_trial", first_trial)
    monkeypatch.setattr("calipers._estimator.tree_inputs._held_out_error", lambda *_: 0.02)
    own = model("auto").fit(*steps(240))
    assert own.reader_.forest is None
    assert own.about_["trees"]["unexplained"] == {"trees": 0.02, "networks": 0.005}


# Networks that have stopped learning, and trees that win clearly on a noisy target.
@pytest.mark.parametrize(("settled", "networks"), [(True, 0.2), (False, 0.3)])
def test_networks_that_would_not_catch_up_are_tried_once(tried, monkeypatch, settled, networks):
    left = iter([Measures(1.0, 1.0, 1.0, networks, settled=settled)])

    def first_trial(*_):
        yield from ()
        return next(left)

    monkeypatch.setattr("calipers._estimator.tree_inputs.first_trial", first_trial)
    monkeypatch.setattr("calipers._estimator.tree_inputs._held_out_error", lambda *_: 0.2)
    own = model("auto").fit(*steps(240))
    assert own.about_["trees"]["unexplained"] == {"trees": 0.2, "networks": networks}


def test_networks_have_settled_if_all_were_best_in_the_first_half_of_their_epochs():
    def settled(*losses):
        histories = [np.array(part, [("valid_loss", float)]) for part in losses]
        return _settled(SimpleNamespace(histories=histories))

    nan = np.nan
    assert settled([2, 1, 1.5, 3], [1, 2, nan, nan])
    assert not settled([2, 1, 1.5, 3], [4, 2, 1])
    assert not settled([nan, nan, nan, nan])
    assert not settled([1])


def test_intervals_around_points_of_networks_with_trees():
    X, y = steps()
    points = model(loss="mse").fit(X, y)
    upgraded = model(trees=0).upgrade(points, X, y)
    new = steps(seed=2)[0]
    np.testing.assert_allclose(upgraded.predict(new), points.predict(new), atol=1e-5)
    fresh = model(trees=0).upgrade(points, *steps(seed=3), fresh=True)
    np.testing.assert_allclose(fresh.predict(new), points.predict(new), atol=1e-5)


def test_points_of_networks_without_folds_use_trees_that_leave_the_row_out(monkeypatch):
    X, y = steps()
    points, rows = model(loss="mse", cv=None).fit(X, y), []

    def grown(model, data, X, trees):
        rows.append(len(X))
        return predictions_for_new_rows(model, data, X, trees)

    monkeypatch.setattr("calipers._estimator.tree_inputs.predictions_for_new_rows", grown)
    model(trees=0, cv=None).upgrade(points, X, y)
    assert set(rows) == {len(y)}


def test_networks_with_trees_need_no_pieces(tried):
    settings = {"bins": "auto", "frequencies": 1}
    own = model("auto").set_params(**{f"network__{k}": v for k, v in settings.items()})
    own.fit(*steps(1000, noise=0.5))
    assert own.reader_.forest is not None
    assert own.ensemble_.bank.program.network.bins == 0


def test_rows_decide_for_trees(tried):
    own = model("auto").fit(*steps(240))
    assert len(own.reader_.forest) == 105
    errors = own.about_["trees"]["unexplained"]
    assert errors["trees"] < errors["networks"]


def test_trees_grown_beside_a_trial_are_those_grown_after_it(tried):
    X, y = steps(240)
    one, two = (model("auto", n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    assert len(two.reader_.forest) == 105
    np.testing.assert_array_equal(one.predict_interval(X), two.predict_interval(X))


def test_an_interrupted_trial_stops_the_trees_that_grow_beside_it(tried, monkeypatch):
    begun, interrupted, bags = Event(), Event(), []

    def grow(self, rows, *options):
        bags.append(rows)
        begun.set()
        assert interrupted.wait(60)
        return plain(self, rows, *options)

    def shutdown(self, wait):
        stop(self, wait=wait)
        interrupted.set()

    def first_trial(*_):
        assert begun.wait(60)
        raise KeyboardInterrupt

    plain, stop = TreeRows.grow, ThreadPoolExecutor.shutdown
    monkeypatch.setattr(TreeRows, "grow", grow)
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown)
    monkeypatch.setattr(tree_inputs, "first_trial", first_trial)
    threads = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        model("auto", n_jobs=2).fit(*steps(240))
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)
    assert 1 <= len(bags) <= 2  # of ten: those that two threads had begun


@pytest.mark.parametrize(
    ("trees", "networks"), [(0.5, 0.4), (0.032, 0.03), (0.95, 1.0), (0.009, 0.0095)]
)
def test_where_rows_decide_against_trees_nothing_changes(tried, monkeypatch, trees, networks):
    X, y = steps(240)
    left = Measures(1.0, 1.0, 1.0, networks)

    def first_trial(*_):
        yield from ()
        return left

    monkeypatch.setattr("calipers._estimator.tree_inputs.first_trial", first_trial)
    monkeypatch.setattr("calipers._estimator.tree_inputs._held_out_error", lambda *_: trees)
    auto = model("auto").fit(X, y)
    monkeypatch.undo()
    without = model(0).fit(X, y)
    assert auto.reader_.forest is None
    assert "trees" in auto.about_
    np.testing.assert_array_equal(auto.predict_interval(X), without.predict_interval(X))


def test_when_trees_are_tried(monkeypatch):
    X, y = steps(120)
    own = IntervalRegressor()
    data = read_rows(own, X, y, None, None, reset=True)
    assert _wanted(own, data) == (700, False)
    wide = [
        _wanted(own, data._replace(X=np.zeros((120, inputs))))[0] for inputs in (256, 1000, 2000)
    ]
    assert wide == [700, 210, 140]  # so that time does not grow with the inputs of a split
    assert _wanted(model(7), data) == (7, True)
    for few in ({"epochs": 100}, {"time_budget": 9.0}, {"network__frequencies": 0}):
        assert _wanted(IntervalRegressor().set_params(**few), data) == (0, False)
    assert _wanted(IntervalRegressor(network=DenseFactory()), data) == (0, True)
    monkeypatch.setattr("calipers._estimator.tree_inputs._MAX_ROWS", 119)
    assert _wanted(own, data) == (0, False)


def test_points_of_a_trial_without_intervals():
    X, y = steps(1000)
    own = model(0, loss="mse").set_params(network__bins="auto", network__frequencies=2)
    own.fit(X, y)
    assert own.ensemble_.bank.program.network.bins


@pytest.mark.long
def test_several_targets_go_together(tried):
    X, y = steps(150)
    both = np.column_stack([y, np.sin(X[:, 0]) + 0.1 * y])
    several = MultiTargetRegressor(model("auto")).fit(X, both)
    for number, own in enumerate(several.models_):
        single = model("auto", random_state=own.random_state).fit(X, both[:, number])
        np.testing.assert_array_equal(own.predict(X), single.predict(X))
        assert (own.reader_.forest is None) == (single.reader_.forest is None)


def test_far_targets_are_not_learned():
    X, y = steps()
    y[3] = 1e7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        own = model().fit(X, y)
    assert np.abs(own.reader_.forest.number[own.reader_.forest.feature < 0]).max() < 10


def test_wrong_numbers_of_trees_are_refused():
    for wrong in (-1, 1.5, "many", 10**6):
        with pytest.raises(ValueError, match="trees"):
            model(wrong).fit(*steps(50))


def test_rows_in_blocks_have_no_trees():
    X, y = steps(100)
    blocks = RowBlocks(X, y)
    with pytest.raises(ValueError, match="set trees of MLP to 0, got 12"):
        model().fit(blocks)
