"""Points of a forest as one more input of the networks, never by trees that know the row.

Trees find steps and interactions that networks learn late or not at all. Networks that have a
forest's point among their inputs learn where to trust it. A point of trees that have seen a row's
own target would teach them to copy it: each tree grows on a random part of the training rows, and a
training row has the mean of those trees that have not seen it, every other row that of all. Half of
the trees split inputs where it is best for the target, half at random, which other tables favour.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import joblib
import numpy as np
from numpy.typing import NDArray

from calipers._blocks import Index, run_blocks, sum_members
from calipers._checks import BoolArray, FloatArray, IntArray
from calipers._schema import array_of, refuse, within

_SHARE = 0.7  # of the training rows that a tree grows on
_FEATURES = (0.5, 8, 8)  # a split looks at half of the inputs, at most 8 and an eighth of them
_LEAVES = 2**19  # of all trees together, about, which bounds what is stored
FAR = 1e9  # inputs are cut off so many spreads from their centre
_TOGETHER = 2**14  # rows times trees followed at a time, which stay within a core's cache
_STEPS = 4  # down the trees before those rows are left out that have reached a leaf
_DEEPEST = 60  # level of a tree
MOST_TREES = 10_000


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as flat arrays, level by level, one tree after another.

    So numbered, the children of the k-th node of a tree that has any are its nodes 2k + 1 and
    2k + 2: where they are need not be stored.
    """

    center: FloatArray  #: (inputs,): what is subtracted from inputs first,
    scale: FloatArray  #: (inputs,): and what they are then divided by.
    sizes: NDArray[np.int32]  #: (trees,): Nodes of each tree.
    feature: NDArray[np.int32]  #: (nodes,): The input that a node looks at; -1 for a leaf.
    #: (nodes,): Up to what a row goes to the first child; the point of a leaf.
    number: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.sizes)

    def points(self, X: FloatArray, n_jobs: int | None = 1) -> FloatArray:
        """The mean point of the trees for each row, whose bits do not depend on its company."""
        found = np.empty(len(X))

        def work(part: Index) -> None:
            rows = standardised(X[part], self.center, self.scale)
            points = self.number[self._leaves(rows)].astype(np.float64)
            found[part] = sum_members(points) / len(self)

        step = max(1, _TOGETHER // len(self))
        if len(X) <= step:  # for which a look at how many threads there are would take as long
            work((slice(None),))
            return found
        with joblib.parallel_config("threading", n_jobs=n_jobs):
            run_blocks(work, (len(X),), step)
        return found

    @cached_property
    def roots(self) -> IntArray:
        """(trees,): The first node of each tree."""
        return np.cumsum(self.sizes, dtype=np.intp) - self.sizes

    @cached_property
    def first_child(self) -> IntArray:
        """(nodes,): The first of the two children of a node; a leaf itself."""
        inner = self.feature >= 0
        before: IntArray = np.cumsum(inner) - inner
        own = np.repeat(self.roots, self.sizes)
        first = own + 1 + 2 * (before - before[own])
        return np.where(inner, first, np.arange(len(inner)))

    @cached_property
    def _steps(self) -> tuple[IntArray, NDArray[np.float32]]:
        """The input that each node looks at, any for a leaf, and up to what it goes left."""
        leaf = self.feature < 0
        feature = np.where(leaf, 0, self.feature).astype(np.intp)
        return feature, np.where(leaf, np.float32(np.inf), self.number)

    def _leaves(self, rows: NDArray[np.float32]) -> IntArray:
        """Leaf of each row in each tree, (trees, rows)."""
        feature, threshold = self._steps
        found = np.repeat(self.roots, len(rows))
        node, place = found, np.tile(np.arange(len(rows)) * rows.shape[1], len(self))
        flat, there = rows.ravel(), None
        while node.size:
            for _ in range(_STEPS):
                right = flat.take(feature.take(node) + place) > threshold.take(node)
                node = self.first_child.take(node)
                node += right
            if there is None:
                found[:] = node
            else:
                found[there] = node
            moving = np.flatnonzero(self.feature.take(node) >= 0)
            node, place = node[moving], place[moving]
            there = moving if there is None else there[moving]
        return found.reshape(len(self), -1)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All there is to store."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The forest that ``to_arrays`` gave; a ``SchemaError`` says what no forest has."""
        sizes, feature = array_of(arrays, "sizes", "i"), array_of(arrays, "feature", "i")
        inputs = array_of(arrays, "center", "f").size
        array_of(arrays, "feature", "i", (feature.size,))
        for name in ("center", "scale"):
            array_of(arrays, name, "f", (inputs,))
        within("scale", arrays["scale"], 5e-324, np.inf)
        within("number", array_of(arrays, "number", "f", (feature.size,)), -FAR, FAR)
        within("feature", feature, -1, inputs - 1)
        within("sizes", sizes, 1, feature.size)
        if sizes.ndim != 1 or not 1 <= len(sizes) <= MOST_TREES or sizes.sum() != feature.size:
            refuse("array 'sizes'", f"of 1 to {MOST_TREES} trees of {feature.size} nodes", sizes)
        found = cls(**{name: arrays[name] for name in cls.__dataclass_fields__})
        inner = np.add.reduceat(feature >= 0, found.roots, dtype=np.int64)
        if (2 * inner + 1 != sizes).any() or (found.first_child < np.arange(feature.size)).any():
            refuse("array 'feature'", "of trees, level by level", feature)
        level = found.roots
        for _ in range(_DEEPEST + 1):
            level = found.first_child[level[feature[level] >= 0]]
            level = np.concatenate([level, level + 1])
        if level.size:
            refuse("array 'feature'", f"of trees of at most {_DEEPEST} levels", feature)
        return found

    @classmethod
    def of(cls, trees: list[Any], center: FloatArray, scale: FloatArray) -> Self:
        """Trees of scikit-learn, which numbers their nodes otherwise."""
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
        # Rounded down, so that rows in single precision go as before.
        number = cut.astype(np.float32)
        number = np.where(number > cut, np.nextafter(number, np.float32(-np.inf)), number)
        number = np.where(leaf, np.concatenate([tree.value[:, 0, 0] for tree in trees]), number)
        feature[leaf] = -1
        return cls(center, scale, sizes, feature[nodes], number[nodes].astype(np.float32))


def center_and_scale(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Median and spread of each input: that of the values beside the median.

    Single precision tells values apart best near zero, and scikit-learn splits none that are within
    1e-7 of each other: a few far values must not set the scale.
    """
    center = np.median(X, axis=0)
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an input of one value has no others
        beside = np.abs(X - center)
        scale = np.nanmedian(np.where(beside > 0, beside, np.nan), axis=0)
    return center, np.where(np.isfinite(scale), np.minimum(scale, 1e300), 1.0)


def standardised(X: FloatArray, center: FloatArray, scale: FloatArray) -> NDArray[np.float32]:
    """Inputs as trees see them: in single precision, whatever their unit."""
    with np.errstate(over="ignore"):
        return np.clip((X - center) / scale, -FAR, FAR).astype(np.float32)


def grow(
    X: FloatArray,
    y: FloatArray,
    weights: FloatArray | None,
    labels: IntArray | None,
    trees: int,
    seed: tuple[int, ...],
    n_jobs: int | None = 1,
    more: int = 0,
) -> tuple[Forest, FloatArray]:
    """A forest of some rows, and for each row the mean point of the trees that do not know it.

    Parameters
    ----------
    X : array of shape (n_samples, n_inputs)
        Inputs.
    y : array of shape (n_samples,)
        Targets, standardised.
    weights, labels : arrays of shape (n_samples,), optional
        Weights of rows, and labels of rows that belong together: a tree knows all of them or none.
    trees : int
        How many trees.
    seed : tuple of int
        The same forest for the same seed, whatever ``n_jobs``.
    n_jobs : int, optional
        Threads.
    more : int
        Trees beside these that only help to predict the rows themselves, which but a third of the
        trees have not seen.
    """
    from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

    center, scale = center_and_scale(X)
    rows, y = standardised(X, center, scale), np.ascontiguousarray(y, np.float64)
    labels = np.arange(len(y)) if labels is None else np.unique(labels, return_inverse=True)[1]
    leaf = -(-int(_SHARE * len(y) * trees) // _LEAVES)
    share, some, part = _FEATURES
    features = int(np.ceil(min(share * X.shape[1], some + X.shape[1] / part)))

    def one(number: int) -> tuple[Any, BoolArray]:
        rng = np.random.default_rng((*seed, number))
        seen = (rng.random(labels.max() + 1) < _SHARE)[labels]
        seen[:] |= not seen.any()
        kind = (ExtraTreeRegressor, DecisionTreeRegressor)[number % 2]
        tree = kind(
            max_features=features,
            min_samples_leaf=max(1, leaf),
            max_depth=_DEEPEST,
            random_state=int(rng.integers(2**31)),
        )
        own = None if weights is None else weights[seen]
        return tree.fit(rows[seen], y[seen], own, check_input=False).tree_, seen

    parallel = joblib.Parallel(n_jobs, require="sharedmem")
    grown = parallel(joblib.delayed(one)(number) for number in range(trees + more))
    total, count = np.zeros((2, len(y)))
    for tree, seen in grown:
        total[~seen] += tree.predict(rows[~seen])[:, 0]
        count[~seen] += 1
    mean = np.average(y, weights=weights)
    points = np.where(count > 0, total / np.maximum(count, 1), mean)
    return Forest.of([tree for tree, _ in grown[:trees]], center, scale), points
