"""Trees whose predictions are an extra input of the networks.

Trees find steps and interactions that networks learn late or not at all, and networks learn where
to trust the prediction of trees. A prediction by trees that have seen a row's target would teach
them to copy it. So trees grow in bags, each of which leaves out some of the training rows. A
training row gets the mean of the bags that leave it out; any other row gets the mean of all.

A bag has three parts, each of which is best on some tables:

- a forest, half of whose trees choose the best split and half a random one;
- a second forest that predicts what the first leaves unexplained of rows that its trees have not
  seen, which corrects much of its bias (Breiman, 2001, "Using iterated bagging to debias
  regressions");
- boosted trees, small ones that each correct the sum of those before (Friedman, 2002, "Stochastic
  gradient boosting").

The prediction is a weighted sum of the three. Its weights are found by least squares on the rows
left out, none of them negative: a correction has little weight if the target is mostly noise.
"""

from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from calipers._checks import BoolArray, FloatArray, IntArray
from calipers.preprocessing._forest import DEEPEST, Forest, center_and_scale, standardised

BAGS, _LEFT_OUT = 10, 2  # number of bags, and how many of them leave out a training row
_SAMPLED = 0.75  # fraction of the rows of a bag that a tree grows on
_FEATURES = (0.5, 8, 8)  # a split looks at half of the inputs, at most 8 plus an eighth of them
_BOOSTED = 5  # boosted trees for each tree of a forest
_RATE, _DEPTH = 0.2, 6  # learning rate and levels of boosted trees
TREES_AT_ONCE = BAGS * (2 + _BOOSTED)  # the number of trees is a multiple of this
_LEAVES = 2**20  # of all forests together, roughly, to bound what is stored
_FEW_EQUAL = 4  # rows with equal inputs, up to which each is drawn by itself


def inputs_per_split(inputs: int) -> int:
    """How many inputs a split looks at, on which the time to grow a tree depends.

    >>> inputs_per_split(10), inputs_per_split(1000)
    (5, 133)
    """
    fraction, base, divisor = _FEATURES
    return int(np.ceil(min(fraction * inputs, base + inputs / divisor)))


def _units(rows: NDArray[np.float32]) -> IntArray:
    """Labels of rows that a tree sees together: those of many equal inputs, any other row alone.

    The mean of all others among equal rows would tell the networks, which know the mean of all of
    them, the target of the row that is left out.

    >>> _units(np.array([[1, 2]] + 9 * [[3, 4]] + [[1, 2]], np.float32))
    array([ 0,  1,  1,  1,  1,  1,  1,  1,  1,  1, 10])
    """
    keys = np.ascontiguousarray(rows + np.float32(0)).view(f"V{4 * rows.shape[1]}").ravel()
    _, first, inverse, count = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    return np.where(count[inverse] > _FEW_EQUAL, first[inverse], np.arange(len(rows)))


def grow(
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray | None,
    labels: IntArray | None,
    trees: int,
    seed: tuple[int, ...],
    n_jobs: int | None = 1,
    extra: int = 0,
) -> tuple[Forest, FloatArray]:
    """Grow trees, and predict each training row by the bags that leave it out.

    Targets are standardised. Rows of a group, which have the same label, are in the same bags. The
    number of trees is rounded up to a multiple of ``TREES_AT_ONCE``. ``extra`` is a number of trees
    whose forests are grown for the predictions of training rows only, for which only some of the
    bags can be used.
    """
    center, scale = center_and_scale(X)
    rows, y = standardised(X, center, scale), np.ascontiguousarray(y, np.float64)
    labels = np.unique(_units(rows) if labels is None else labels, return_inverse=True)[1]
    order = np.random.default_rng(seed).random((BAGS, labels.max() + 1)).argsort(axis=0)
    bags = (order >= _LEFT_OUT)[:, labels]
    bags[~bags.any(axis=1)] = True  # of a few groups
    kept, more = (-(-count // TREES_AT_ONCE) for count in (trees, extra))
    features = inputs_per_split(X.shape[1])
    leaf = max(1, -(-int(_SAMPLED * len(y) * 2 * BAGS * kept) // _LEAVES))
    deep = {"max_features": features, "min_samples_leaf": leaf, "max_depth": DEEPEST}
    shallow = {"max_features": features, "max_depth": _DEPTH}

    def in_bag(number: int) -> tuple[list[list[Any]], FloatArray]:
        bag = _Bag(rows, bags[number], labels, weights, (*seed, number))
        first, predicted = bag.forest(y, 0, kept + more, deep)
        second, rest = bag.forest(y - predicted, 1, kept + more, deep)
        boosted, own = bag.boosted(y, 2, _BOOSTED * kept, shallow)
        return [first[:kept], second[:kept], boosted], np.stack([predicted, rest, own])

    parallel = joblib.Parallel(n_jobs, require="sharedmem")
    grown, predicted = zip(
        *parallel(joblib.delayed(in_bag)(number) for number in range(BAGS)), strict=True
    )
    # Each bag predicts the rows that it leaves out; rows that no bag leaves out get the
    # weighted mean of the targets.
    total = np.where(bags[:, None], 0.0, predicted).sum(axis=0)
    count = (~bags).sum(axis=0)
    mean = np.array([[np.average(y, weights=weights)], [0.0], [0.0]])
    parts = np.where(count > 0, total / np.maximum(count, 1), mean)
    shares = _shares(parts, y, weights)
    in_parts = [tree for part in zip(*grown, strict=True) for bag in part for tree in bag]
    # A bag's forest predicts the mean of its trees, boosting their sum, a Forest the mean of all.
    sizes = kept * np.array([1, 1, _BOOSTED])
    factors = np.repeat(sizes.sum() * shares * [1 / kept, 1 / kept, _RATE], BAGS * sizes)
    return Forest.of(in_parts, center, scale, factors), shares @ parts


def _shares(parts: FloatArray, y: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Weights of the parts, none of them negative, of which the sum fits ``y`` best.

    >>> _shares(np.array([[1.0, -1.0], [1.0, 2.0]]), np.array([0.5, -0.5]), None).round(6)
    array([0.5, 0. ])
    """
    from scipy.optimize import nnls

    root = np.ones(len(y)) if weights is None else np.sqrt(weights)
    return np.asarray(nnls((parts * root).T, y * root)[0])


@dataclass(frozen=True, eq=False)
class _Bag:
    """Grows trees on samples of the rows of a bag."""

    rows: NDArray[np.float32]
    bag: BoolArray
    labels: IntArray
    weights: FloatArray | None
    seed: tuple[int, ...]

    def forest(
        self, y: FloatArray, part: int, trees: int, options: dict[str, Any]
    ) -> tuple[list[Any], FloatArray]:
        """Return the trees of a forest, and the mean prediction of those that have not seen a row.

        The prediction of a row that all trees have seen is its target.
        """
        from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

        grown, (total, count) = [], np.zeros((2, len(y)))
        for number in range(trees):
            kind = (ExtraTreeRegressor, DecisionTreeRegressor)[number % 2]
            tree, seen = self._grow(kind, y, (part, number), options)
            grown.append(tree)
            total[~seen] += tree.predict(self.rows[~seen])[:, 0]
            count[~seen] += 1
        return grown, np.where(count > 0, total / np.maximum(count, 1), y)

    def boosted(
        self, y: FloatArray, part: int, trees: int, options: dict[str, Any]
    ) -> tuple[list[Any], FloatArray]:
        """Return boosted trees, and their prediction of every row."""
        from sklearn.tree import DecisionTreeRegressor

        grown, predicted = [], np.zeros(len(y))
        for number in range(trees):
            rest = y - predicted
            grown.append(self._grow(DecisionTreeRegressor, rest, (part, number), options)[0])
            predicted += _RATE * grown[-1].predict(self.rows)[:, 0]
        return grown, predicted

    def _grow(
        self, kind: Any, y: FloatArray, number: tuple[int, int], options: dict[str, Any]
    ) -> tuple[Any, BoolArray]:
        """Return a tree, and which rows it has seen."""
        from sklearn import config_context

        rng = np.random.default_rng((*self.seed, *number))
        seen = self.bag & (rng.random(self.labels.max() + 1) < _SAMPLED)[self.labels]
        seen = seen if seen.any() else self.bag
        own = None if self.weights is None else self.weights[seen]
        tree = kind(random_state=int(rng.integers(2**31)), **options)
        with config_context(skip_parameter_validation=True):  # a tenth of the time
            return tree.fit(self.rows[seen], y[seen], own, check_input=False).tree_, seen
