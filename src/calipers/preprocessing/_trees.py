"""Trees whose predictions are an extra input of the networks.

Trees find steps and interactions that networks learn late or not at all, and networks learn where
to trust the prediction of trees. A prediction by trees that have seen a row's target would teach
them to copy it. So trees grow in bags, each of which leaves out some of the rows: a training row
gets the prediction of bags that leave it out.

A bag has three kinds of trees, each of which is best on some tables:

- a forest, half of whose trees choose the best split and half a random one;
- a second forest, fitted to the out-of-bag residuals of the first, which corrects much of its bias
  (Breiman, 2001, "Using iterated bagging to debias regressions");
- boosted trees: small trees, each fitted to the residuals of its predecessors, in several runs that
  are averaged (Friedman, 2002, "Stochastic gradient boosting").

For many rows there are two changes, which together are as accurate and take less time. Only every
fourth tree of a forest chooses the best split. Boosted trees are fewer, larger, in a single run and
scikit-learn's, which finds splits by histograms; for few rows, a sample for each tree is better.

The prediction is a weighted sum of the three. Its weights are found by least squares on the rows
left out, none of them negative: a correction has little weight if the target is mostly noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from calipers._arrays import BoolArray, FloatArray, IntArray
from calipers.preprocessing._forest import (
    DEEPEST,
    Forest,
    Tree,
    center_and_scale,
    standardised,
)

_SAMPLED = 0.75  # fraction of the rows of a bag that a tree grows on
_FEATURES = (0.5, 8, 8)  # a split looks at half of the inputs, at most 8 plus an eighth of them
_RATE, _DEPTH, _RUN = 0.2, 6, 50  # learning rate, levels and number of boosted trees in a run
FEW = 4000  # rows of a table up to which trees cost little
_BOOSTED, _BOOSTED_OF_MANY = 5, 3  # boosted trees for each tree of a forest, with few and many rows
_BEST, _BEST_OF_MANY = 2, 4  # one of so many trees of a forest chooses the best split, likewise
_HISTOGRAMS = {"learning_rate": 0.15, "min_samples_leaf": 5, "early_stopping": False}
_LEAVES_OF_BOOSTED, _ROWS_OF_LEAF = 31, 100  # fewest leaves, and rows for a leaf if there are more
_LEAVES = 2**20  # of all forests together, roughly, to bound what is stored
_FEW_EQUAL = 4  # rows with equal inputs, up to which each is drawn separately
_ROUNDING = 1e-6  # difference of values, relative to those above 1, that may come from rounding


def inputs_per_split(inputs: int) -> int:
    """How many inputs a split looks at, on which the time to grow a tree depends.

    >>> inputs_per_split(10), inputs_per_split(1000)
    (5, 133)
    """
    fraction, base, divisor = _FEATURES
    return int(np.ceil(min(fraction * inputs, base + inputs / divisor)))


def boosted_per_tree(rows: int) -> int:
    """How many boosted trees grow for each tree of a forest, on a table of this many rows.

    >>> boosted_per_tree(1000), boosted_per_tree(10_000)
    (5, 3)
    """
    return _BOOSTED if rows <= FEW else _BOOSTED_OF_MANY


def _rounded(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows in which values that differ only by rounding are equal.

    A split between such values would send a row by another path in single precision.

    >>> _rounded(np.array([[1.0], [3.0], [1.0000001], [1.01]], np.float32)).ravel().tolist()
    [1.0, 3.0, 1.0, 1.0099999904632568]
    """
    rounded = np.empty_like(rows)
    for column, to in zip(rows.T, rounded.T, strict=True):
        values, inverse = np.unique(column, return_inverse=True)
        apart = np.diff(values, prepend=-np.inf) > _ROUNDING * np.maximum(1, np.abs(values))
        to[:] = values[apart][np.cumsum(apart)[inverse] - 1]
    return rounded


def _units(rows: NDArray[np.float32]) -> IntArray:
    """Labels of rows that a tree sees together: those of many equal inputs, any other row alone.

    Otherwise the networks, which know the mean of all equal rows, could infer the target of the row
    that is left out from the mean of the others.

    >>> _units(np.array([[1, 2]] + 9 * [[3, 4]] + [[1, 2]], np.float32))
    array([ 0,  1,  1,  1,  1,  1,  1,  1,  1,  1, 10])
    """
    keys = np.ascontiguousarray(rows + np.float32(0)).view(f"V{4 * rows.shape[1]}").ravel()
    _, first, inverse, count = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    return np.where(count[inverse] > _FEW_EQUAL, first[inverse], np.arange(len(rows)))


class Bag(NamedTuple):
    """Trees of each kind, and the prediction of each kind for the rows that they left out."""

    trees: list[list[Tree]]
    predicted: FloatArray  #: (kinds, rows): NaN for rows of the bag.
    runs: int  #: Runs of boosted trees.


@dataclass(frozen=True, eq=False)
class TreeRows:
    """Rows as trees see them."""

    inputs: NDArray[np.float32]  #: Standardised.
    target: FloatArray
    weights: FloatArray | None
    labels: IntArray  #: Rows with the same label are in the same bags, and in the same samples.
    center: FloatArray
    scale: FloatArray

    @classmethod
    def of(
        cls,
        X: FloatArray,
        y: FloatArray,
        weights: FloatArray | None = None,
        groups: IntArray | None = None,
    ) -> Self:
        """Rows of inputs and standardised targets; ``groups`` are labels, if there are any."""
        center, scale = center_and_scale(X)
        rows, y = _rounded(standardised(X, center, scale)), np.ascontiguousarray(y, np.float64)
        labels = np.unique(_units(rows) if groups is None else groups, return_inverse=True)[1]
        return cls(rows, y, weights, labels, center, scale)

    def grow(
        self, rows: IntArray, forest: int, boosted: int, leaf: int, seed: tuple[int, ...]
    ) -> Bag:
        """Grow a bag on ``rows``, of ``forest`` trees in each forest and ``boosted`` boosted trees.

        A leaf of a forest has at least ``leaf`` rows.
        """
        bag = _Grower(self, np.zeros(len(self.target), bool), seed)
        bag.rows[rows] = True
        features = inputs_per_split(self.inputs.shape[1])
        deep = {"max_features": features, "min_samples_leaf": leaf, "max_depth": DEEPEST}
        first, predicted = bag.forest(self.target, 0, forest, deep)
        second, rest = bag.forest(self.target - predicted, 1, forest, deep)
        grow = bag.boosted if bag.few else bag.by_histograms
        runs = max(1, round(boosted / _RUN)) if bag.few else 1
        trees: list[Tree] = []
        total = np.zeros(len(self.target))
        for run in range(runs):
            grown, own = grow(2 + run, (boosted + run) // runs, features)
            trees += grown
            total += own / runs
        parts = np.where(bag.rows, np.nan, np.stack([predicted, rest, total]))
        return Bag([first, second, trees], parts, runs)

    def forest_of(self, bags: Sequence[Bag], weights: FloatArray) -> Forest:
        """The trees of all bags, whose mean is the weighted sum of the kinds, a mean over bags.

        Thresholds are halfway between values of these rows. Many of those found on a bag are values
        of other rows, which would take another path if they were rounded.
        """
        trees: list[Tree] = []
        factors: list[float] = []
        for kind, weight in enumerate(weights):
            for bag in bags:
                grown = bag.trees[kind]
                trees += grown
                factors += [weight / (len(grown) if kind < 2 else bag.runs)] * len(grown)
        total = np.asarray(factors) * len(trees) / len(bags)
        forest = Forest.of(trees, self.center, self.scale, total)
        number = forest.number.copy()
        for feature, column in enumerate(self.inputs.T):
            nodes, values = forest.feature == feature, np.unique(column)
            above = np.searchsorted(values, number[nodes], side="right")
            number[nodes] = values[above - 1] + (values[above] - values[above - 1]) / 2
        return replace(forest, number=number)


def smallest_leaf(rows: int, trees: int) -> int:
    """Fewest rows of a leaf with which this many trees on a sample of the rows can be stored."""
    return max(1, -(-int(_SAMPLED * rows * trees) // _LEAVES))


def weights_of_kinds(parts: FloatArray, y: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Weights of the kinds, none of them negative, of which the sum fits ``y`` best.

    >>> weights_of_kinds(np.array([[1.0, -1.0], [1.0, 2.0]]), np.array([0.5, -0.5]), None).round(6)
    array([0.5, 0. ])
    """
    from scipy.optimize import nnls

    root = np.ones(len(y)) if weights is None else np.sqrt(weights)
    return np.asarray(nnls((parts * root).T, y * root)[0])


@dataclass(frozen=True, eq=False)
class _Grower:
    """Grows trees on samples of the rows of a bag."""

    known: TreeRows
    rows: BoolArray
    seed: tuple[int, ...]

    @property
    def few(self) -> bool:
        """Whether the table has few rows; all of its bags have the same kinds of trees."""
        return len(self.known.target) <= FEW

    def forest(
        self, y: FloatArray, part: int, trees: int, options: dict[str, Any]
    ) -> tuple[list[Tree], FloatArray]:
        """Return the trees of a forest, and the mean prediction of those that have not seen a row.

        The prediction of a row that all trees have seen is its target.
        """
        from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

        inputs = self.known.inputs
        grown, (total, count) = [], np.zeros((2, len(y)))
        step = _BEST if self.few else _BEST_OF_MANY
        for number in range(trees):
            kind = DecisionTreeRegressor if number % step == 1 else ExtraTreeRegressor
            tree, seen = self._tree(kind, y, (part, number), options)
            grown.append(Tree.of(tree))
            total[~seen] += tree.predict(inputs[~seen])[:, 0]
            count[~seen] += 1
        return grown, np.where(count > 0, total / np.maximum(count, 1), y)

    def boosted(self, part: int, trees: int, features: int) -> tuple[list[Tree], FloatArray]:
        """Return boosted trees, each of a sample, and their prediction of every row."""
        from sklearn.tree import DecisionTreeRegressor

        y, options = self.known.target, {"max_features": features, "max_depth": _DEPTH}
        grown, predicted = [], np.zeros(len(y))
        for number in range(trees):
            rest = y - predicted
            tree, _ = self._tree(DecisionTreeRegressor, rest, (part, number), options)
            grown.append(Tree.of(tree, _RATE))
            predicted += _RATE * tree.predict(self.known.inputs)[:, 0]
        return grown, predicted

    def by_histograms(self, part: int, trees: int, features: int) -> tuple[list[Tree], FloatArray]:
        """Return boosted trees of scikit-learn, and their prediction of every row.

        Its sums depend on the number of threads, so there is one.
        """
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits

        inputs, weights = self.known.inputs, self.known.weights
        leaves = max(_LEAVES_OF_BOOSTED, int(self.rows.sum()) // _ROWS_OF_LEAF)
        boosting = HistGradientBoostingRegressor(
            max_iter=trees,
            max_leaf_nodes=leaves,
            max_features=features / inputs.shape[1],
            random_state=int(np.random.default_rng((*self.seed, part)).integers(2**31)),
            **_HISTOGRAMS,
        )
        with threadpool_limits(1, "openmp"):
            own = None if weights is None else weights[self.rows]
            boosting.fit(inputs[self.rows], self.known.target[self.rows], own)
            return Tree.of_boosting(boosting), boosting.predict(inputs)

    def _tree(
        self, kind: Any, y: FloatArray, number: tuple[int, int], options: dict[str, Any]
    ) -> tuple[Any, BoolArray]:
        """Return a tree, and which rows it has seen."""
        from sklearn import config_context

        known, rng = self.known, np.random.default_rng((*self.seed, *number))
        seen = self.rows & (rng.random(known.labels.max() + 1) < _SAMPLED)[known.labels]
        seen = seen if seen.any() else self.rows
        own = None if known.weights is None else known.weights[seen]
        tree = kind(random_state=int(rng.integers(2**31)), **options)
        with config_context(skip_parameter_validation=True):  # a tenth of the time
            return tree.fit(known.inputs[seen], y[seen], own, check_input=False).tree_, seen
