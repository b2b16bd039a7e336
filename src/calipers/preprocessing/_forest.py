"""Trees as arrays: how they are stored, and how rows find their leaves."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers._arrays import FloatArray, IntArray
from calipers._blocks import Index, run_blocks, sum_members
from calipers._schema import array_of, refuse, within

INPUT_LIMIT = 1e9  # standardised inputs are clipped here
MAX_TREES = 10_070  # the most that can be requested, in whole bags
_ROWS, _TOGETHER = 1024, 2**15  # rows, and rows times trees, at a time: for a core's cache
_TOP = 6  # levels that all rows traverse
_STEPS = 4  # levels traversed after those between checks for rows that have reached a leaf
DEEPEST = 60  # levels of a tree


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
        if sizes.ndim != 1 or not 1 <= len(sizes) <= MAX_TREES or sizes.sum() != feature.size:
            refuse("array 'sizes'", f"of 1 to {MAX_TREES} trees of {feature.size} nodes", sizes)
        forest = cls(**{name: arrays[name] for name in cls.__dataclass_fields__})
        inner = np.add.reduceat(feature >= 0, forest.roots, dtype=np.int64)
        if (2 * inner + 1 != sizes).any() or (forest.first_child < np.arange(feature.size)).any():
            refuse("array 'feature'", "of trees, level by level", feature)
        level = forest.roots
        for _ in range(DEEPEST + 1):
            level = forest.first_child[level[feature[level] >= 0]]
            level = np.concatenate([level, level + 1])
        if level.size:
            refuse("array 'feature'", f"of trees of at most {DEEPEST} levels", feature)
        return forest

    @classmethod
    def of(
        cls,
        trees: Sequence["Tree"],
        center: FloatArray,
        scale: FloatArray,
        factors: ArrayLike = 1.0,
    ) -> Self:
        """Store trees; the predictions of each are multiplied by its factor."""
        sizes = np.array([len(tree.feature) for tree in trees], np.int32)
        level = roots = np.cumsum(sizes) - sizes
        left, right = (
            np.concatenate([getattr(t, side) + r for t, r in zip(trees, roots, strict=True)])
            for side in ("left", "right")
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
        value = np.concatenate([tree.value for tree in trees])
        value *= np.repeat(np.broadcast_to(factors, len(trees)), sizes)
        number = np.where(leaf, value, number)
        feature[leaf] = -1
        return cls(center, scale, sizes, feature[nodes], number[nodes].astype(np.float32))


class Tree(NamedTuple):
    """A tree of scikit-learn, by node; negative features are those of leaves."""

    left: IntArray
    right: IntArray
    feature: IntArray
    threshold: FloatArray
    value: FloatArray

    @classmethod
    def of(cls, tree: Any, factor: float = 1.0) -> Self:
        """The tree of a regressor, with its predictions multiplied by ``factor``."""
        value = factor * tree.value[:, 0, 0]
        return cls(tree.children_left, tree.children_right, tree.feature, tree.threshold, value)

    @classmethod
    def of_boosting(cls, boosting: Any) -> list[Self]:
        """The trees of a ``HistGradientBoostingRegressor``, whose sum is its prediction."""
        trees: list[Self] = []
        for (predictor,) in boosting._predictors:
            nodes = predictor.nodes
            leaf, value = nodes["is_leaf"] > 0, nodes["value"].copy()
            if not trees:
                value += float(boosting._baseline_prediction.item())
            feature = np.where(leaf, -1, nodes["feature_idx"].astype(np.intp))
            left, right = (nodes[side].astype(np.intp) for side in ("left", "right"))
            trees.append(cls(left, right, feature, nodes["num_threshold"], value))
        return trees


def center_and_scale(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Median of each input, and median distance of the values that differ from it.

    Single precision is finest near zero, and scikit-learn does not split values within 1e-7 of each
    other: the scale must not be set by a few outliers.
    """
    center = np.median(X, axis=0)
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a constant input has no other values
        distance = np.abs(X - center)
        scale = np.nanmedian(np.where(distance > 0, distance, np.nan), axis=0).astype(np.float64)
    return center, np.where(np.isfinite(scale), np.minimum(scale, 1e300), 1.0)


def standardised(X: FloatArray, center: FloatArray, scale: FloatArray) -> NDArray[np.float32]:
    """Inputs as trees see them: standardised, in single precision."""
    with np.errstate(over="ignore"):
        return np.clip((X - center) / scale, -INPUT_LIMIT, INPUT_LIMIT).astype(np.float32)
