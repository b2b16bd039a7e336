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

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._blocks import Index, run_blocks, sum_members
from calipers._checks import BoolArray, FloatArray, IntArray
from calipers._schema import array_of, refuse, within

BAGS, _LEFT_OUT = 10, 2  # number of bags, and how many of them leave out a training row
_SAMPLED = 0.75  # fraction of the rows of a bag that a tree grows on
_FEATURES = (0.5, 8, 8)  # a split looks at half of the inputs, at most 8 plus an eighth of them
_BOOSTED = 5  # boosted trees for each tree of a forest
_RATE, _DEPTH = 0.2, 6  # learning rate and levels of boosted trees
TREES_AT_ONCE = BAGS * (2 + _BOOSTED)  # the number of trees is a multiple of this
_LEAVES = 2**20  # of all forests together, roughly, to bound what is stored
INPUT_LIMIT = 1e9  # standardised inputs are clipped here
_ROWS, _TOGETHER = 1024, 2**15  # rows, and rows times trees, at a time: for a core's cache
_TOP = 6  # levels that all rows traverse
_STEPS = 4  # levels traversed after those between checks for rows that have reached a leaf
_DEEPEST = 60  # levels of a tree
_FEW_EQUAL = 4  # rows with equal inputs, up to which each is drawn by itself
MOST_TREES = -(-10_000 // TREES_AT_ONCE) * TREES_AT_ONCE


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as flat arrays, one tree after another, the nodes of each in breadth-first order.

    In this order the children of the k-th inner node of a tree are its nodes 2k + 1 and 2k + 2, so
    that no pointers need to be stored.
    """

    center: FloatArray  #: (inputs,): Subtracted from the inputs.
    scale: FloatArray  #: (inputs,): Divides the centred inputs.
    sizes: NDArray[np.int32]  #: (trees,): Number of nodes of each tree.
    feature: NDArray[np.int32]  #: (nodes,): Input that a node splits; -1 for a leaf.
    number: NDArray[np.float32]  #: (nodes,): Threshold of a split, or prediction of a leaf.

    def __len__(self) -> int:
        return len(self.sizes)

    def predict(self, X: FloatArray, n_jobs: int | None = 1) -> FloatArray:
        """Mean prediction of the trees for each row; its bits do not depend on the other rows."""
        result = np.empty(len(X))

        def work(part: Index) -> None:
            rows = standardised(X[part], self.center, self.scale)
            step = -(-_TOGETHER // max(1, len(rows)))
            leaves = [self._leaves(rows, first, step) for first in range(0, len(self), step)]
            by_tree = self.number[np.concatenate(leaves)].astype(np.float64)
            result[part] = sum_members(by_tree) / len(self)

        if len(X) <= _ROWS:  # looking up the number of threads would take as long
            work((slice(None),))
            return result
        with joblib.parallel_config("threading", n_jobs=n_jobs):
            run_blocks(work, (len(X),), _ROWS)
        return result

    @cached_property
    def roots(self) -> IntArray:
        """(trees,): Root of each tree."""
        return np.cumsum(self.sizes, dtype=np.intp) - self.sizes

    @cached_property
    def first_child(self) -> IntArray:
        """(nodes,): Left child of each node; a leaf is its own."""
        inner = self.feature >= 0
        before: IntArray = np.cumsum(inner) - inner
        root = np.repeat(self.roots, self.sizes)
        first = root + 1 + 2 * (before - before[root])
        return np.where(inner, first, np.arange(len(inner)))

    @cached_property
    def _steps(self) -> tuple[IntArray, NDArray[np.float32]]:
        """Input and threshold of each node; at a leaf every row stays."""
        leaf = self.feature < 0
        feature = np.where(leaf, 0, self.feature).astype(np.intp)
        return feature, np.where(leaf, np.float32(np.inf), self.number)

    @cached_property
    def _top(self) -> tuple[list[tuple[IntArray, NDArray[np.float32]]], IntArray]:
        """Input and threshold of the nodes of each of the first levels, and the nodes below them.

        Trees are filled up with copies of their leaves, so that the children of node k of a level
        are nodes 2k and 2k + 1 of the next, and arrays are small enough for a core's cache.
        """
        (feature, threshold), levels, nodes = self._steps, [], self.roots
        for _ in range(_TOP):
            levels.append((feature[nodes], threshold[nodes]))
            left = self.first_child[nodes]
            nodes = np.stack([left, left + (self.feature[nodes] >= 0)], axis=1).ravel()
        return levels, nodes

    def _leaves(self, rows: NDArray[np.float32], first: int, count: int) -> IntArray:
        """(trees, rows): Leaf that each row reaches in each of ``count`` trees from the first."""
        trees, flat, (levels, below) = np.arange(len(self))[first:][:count], rows.ravel(), self._top
        node = np.repeat(trees, len(rows))
        offset = np.tile(np.arange(len(rows)) * rows.shape[1], len(trees))
        for feature, threshold in levels:
            right = flat.take(feature.take(node) + offset) > threshold.take(node)
            node *= 2
            node += right
        leaves = below.take(node)
        feature, threshold = self._steps
        moving = np.flatnonzero(self.feature.take(leaves) >= 0)
        node, offset = leaves[moving], offset[moving]
        while node.size:
            for _ in range(_STEPS):
                right = flat.take(feature.take(node) + offset) > threshold.take(node)
                node = self.first_child.take(node)
                node += right
            leaves[moving] = node
            still = np.flatnonzero(self.feature.take(node) >= 0)
            node, offset, moving = node[still], offset[still], moving[still]
        return leaves.reshape(len(trees), -1)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that define the forest."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a forest from ``to_arrays``; raise ``SchemaError`` if they are malformed."""
        sizes, feature = array_of(arrays, "sizes", "i"), array_of(arrays, "feature", "i")
        inputs = array_of(arrays, "center", "f").size
        array_of(arrays, "feature", "i", (feature.size,))
        for name in ("center", "scale"):
            array_of(arrays, name, "f", (inputs,))
        within("scale", arrays["scale"], 5e-324, np.inf)
        number = array_of(arrays, "number", "f", (feature.size,))
        within("number", number, -INPUT_LIMIT, INPUT_LIMIT)
        within("feature", feature, -1, inputs - 1)
        within("sizes", sizes, 1, feature.size)
        if sizes.ndim != 1 or not 1 <= len(sizes) <= MOST_TREES or sizes.sum() != feature.size:
            refuse("array 'sizes'", f"of 1 to {MOST_TREES} trees of {feature.size} nodes", sizes)
        forest = cls(**{name: arrays[name] for name in cls.__dataclass_fields__})
        inner = np.add.reduceat(feature >= 0, forest.roots, dtype=np.int64)
        if (2 * inner + 1 != sizes).any() or (forest.first_child < np.arange(feature.size)).any():
            refuse("array 'feature'", "of trees, level by level", feature)
        level = forest.roots
        for _ in range(_DEEPEST + 1):
            level = forest.first_child[level[feature[level] >= 0]]
            level = np.concatenate([level, level + 1])
        if level.size:
            refuse("array 'feature'", f"of trees of at most {_DEEPEST} levels", feature)
        return forest

    @classmethod
    def of(
        cls, trees: list[Any], center: FloatArray, scale: FloatArray, factors: ArrayLike = 1.0
    ) -> Self:
        """Convert trees of scikit-learn, which has depth-first order.

        The predictions of each tree are multiplied by its factor.
        """
        sizes = np.array([tree.node_count for tree in trees], np.int32)
        level = roots = np.cumsum(sizes) - sizes
        left, right = (
            np.concatenate([getattr(t, side) + r for t, r in zip(trees, roots, strict=True)])
            for side in ("children_left", "children_right")
        )
        feature = np.concatenate([tree.feature for tree in trees]).astype(np.int32)
        leaf, order = feature < 0, [roots]
        while level.size:
            inner = level[~leaf[level]]
            level = np.stack([left[inner], right[inner]], axis=1).ravel()
            order.append(level)
        nodes = np.concatenate(order)
        nodes = nodes[np.argsort(np.repeat(np.arange(len(trees)), sizes)[nodes], kind="stable")]
        cut = np.concatenate([tree.threshold for tree in trees])
        # Rounded down, so that rows in single precision take the same path.
        number = cut.astype(np.float32)
        number = np.where(number > cut, np.nextafter(number, np.float32(-np.inf)), number)
        value = np.concatenate([tree.value[:, 0, 0] for tree in trees])
        value *= np.repeat(np.broadcast_to(factors, len(trees)), sizes)
        number = np.where(leaf, value, number)
        feature[leaf] = -1
        return cls(center, scale, sizes, feature[nodes], number[nodes].astype(np.float32))


def center_and_scale(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Median of each input, and median distance of the values that differ from it.

    Single precision is finest near zero, and scikit-learn does not split values within 1e-7 of each
    other: the scale must not be set by a few outliers.
    """
    center = np.median(X, axis=0)
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a constant input has no other values
        distance = np.abs(X - center)
        scale = np.nanmedian(np.where(distance > 0, distance, np.nan), axis=0)
    return center, np.where(np.isfinite(scale), np.minimum(scale, 1e300), 1.0)


def standardised(X: FloatArray, center: FloatArray, scale: FloatArray) -> NDArray[np.float32]:
    """Inputs as trees see them: standardised, in single precision."""
    with np.errstate(over="ignore"):
        return np.clip((X - center) / scale, -INPUT_LIMIT, INPUT_LIMIT).astype(np.float32)


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
    deep = {"max_features": features, "min_samples_leaf": leaf, "max_depth": _DEEPEST}
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
