"""Bags of trees: which rows each leaves out, and what its trees predict for them.

Training rows are split into parts, and a bag grows on all of them but one part. If the folds split
all rows, the rows that they hold out are the parts, and a bag that leaves out two serves two folds;
with very many folds, a part is the rows that several of them hold out.
"""

from collections.abc import Sequence
from concurrent.futures import CancelledError
from itertools import chain
from threading import Event
from typing import NamedTuple

import joblib
import numpy as np

from calipers._arrays import FloatArray, IntArray
from calipers._estimator.model import Model
from calipers._estimator.training_rows import TrainingRows, rows_without
from calipers.crossfit import Fold
from calipers.preprocessing import (
    FEW,
    Bag,
    Forest,
    TreeRows,
    boosted_per_tree,
    smallest_leaf,
    weights_of_kinds,
)

_PARTS, _MAX_PARTS = 5, 10  # usual and largest number of parts
_MAX_SEPARATED = 0.1  # fraction of rows that folds may separate from others that belong with them
_MAX_SHARED = 11  # folds up to which bags of two parts are no more than five for each fold


class TreePredictions(NamedTuple):
    """Predictions of all rows by the bags that leave them out."""

    mean: FloatArray  #: (rows,): Mean over these bags.
    variance: FloatArray  #: (rows,): Variance of these bags; 0 if there is only one.
    kind_weights: FloatArray  #: Weights of the kinds of trees.
    bags: int  #: Number of all bags.


class _Growing(NamedTuple):
    """Rows that bags grow on, and their parts, each of which one bag leaves out."""

    known: TreeRows
    train: IntArray
    parts: list[IntArray]

    def bags(self) -> list[IntArray]:
        """Rows of each bag: all if there is only one part, which then has no predictions."""
        return [rows_without(self.train, part) for part in self.parts]

    def combined(self, bags: list[Bag]) -> TreePredictions:
        """Weigh the kinds of trees, so that their sum fits the rows that bags leave out."""
        y, train = self.known.target, self.train
        weights = None if self.known.weights is None else self.known.weights[train]
        predicted = np.stack([bag.predicted for bag in bags])
        count = np.isfinite(predicted[:, 0]).sum(axis=0)
        # A row that all bags have seen, of the only label, gets the mean of the targets.
        fallback = np.array([[np.average(y[train], weights=weights)], [0.0], [0.0]])
        kinds = np.where(count > 0, np.nansum(predicted, axis=0) / np.maximum(count, 1), fallback)
        kind_weights = weights_of_kinds(kinds[:, train], y[train], weights)
        by_bag = np.tensordot(kind_weights, predicted, axes=(0, 1))
        mean = kind_weights @ kinds
        variance = np.nansum((by_bag - mean) ** 2, axis=0) / np.maximum(count, 1)
        return TreePredictions(mean, variance, kind_weights, len(bags))


def predictions_by_fold(
    model: Model,
    data: TrainingRows,
    folds: Sequence[Fold],
    trees: int,
    cancelled: Event | None = None,
) -> list[TreePredictions]:
    """Tree predictions of all rows for each fold, by trees that know its training rows alone.

    ``data`` have standardised targets, and inputs for these folds. Once ``cancelled`` is set, no
    further bag grows, and ``CancelledError`` is raised.
    """
    versions = [_tree_rows(data, X) for X in data.inputs[: len(folds)]]
    known = versions if len(versions) > 1 else versions * len(folds)
    growing = []
    for number, (fold, rows) in enumerate(zip(folds, known, strict=True)):
        train = rows_without(fold.train, data.outliers)
        shared = _parts_of_folds(folds, rows.labels)
        if shared is None:
            parts = _random_parts(fold.train, rows.labels, (data.seed, number))
        else:
            step = len(folds) if len(folds) <= _MAX_SHARED else _PARTS
            others = [[f.held_out for f in folds[i::step] if f is not fold] for i in range(step)]
            parts = [np.concatenate(rows_of_part) for rows_of_part in others if rows_of_part]
            train = rows_without(train, shared[1])
        growing.append(_Growing(rows, train, parts))
    # A training row is predicted by a single bag: where trees cost little, it has larger forests.
    forest, boosted = _numbers(data, trees, _PARTS)
    if len(data.y) <= FEW:
        forest *= 2
    grown = _grow(model, data, growing, forest, boosted, cancelled)
    return [own.combined(bags) for own, bags in zip(growing, grown, strict=True)]


def predictions_for_new_rows(
    model: Model, data: TrainingRows, X: FloatArray, trees: int
) -> tuple[TreePredictions, Forest]:
    """Tree predictions of all rows by trees that have not seen them, and all trees, for new rows.

    Their number is rounded up, so that all bags have equally many.
    """
    known = _tree_rows(data, X)
    shared = _parts_of_folds(data.folds, known.labels)
    if shared is None:
        parts = _random_parts(data.used, known.labels, (data.seed, len(data.folds)))
    else:
        number = range(min(len(shared[0]), _MAX_PARTS))
        parts = [np.concatenate(shared[0][i::_MAX_PARTS]) for i in number]
    growing = _Growing(known, rows_without(data.used, data.outliers), parts)
    (bags,) = _grow(model, data, [growing], *_numbers(data, trees, len(parts)))
    predicted = growing.combined(bags)
    return predicted, known.forest_of(bags, predicted.kind_weights)


def _numbers(data: TrainingRows, trees: int, bags: int) -> tuple[int, int]:
    """Trees of each of two forests and boosted trees of a bag, if all bags have this many trees."""
    each = boosted_per_tree(len(data.y))
    forest = -(-trees // (bags * (2 + each)))
    return forest, each * forest


def _tree_rows(data: TrainingRows, X: FloatArray) -> TreeRows:
    return TreeRows.of(X, data.y, data.weights, data.groups)


def _parts_of_folds(
    folds: Sequence[Fold], labels: IntArray
) -> tuple[list[IntArray], IntArray] | None:
    """Split the rows as folds do, with rows of a label together, if that is possible.

    Also returns the rows of labels that folds separate. Returns None if these are many, or if there
    are few folds or they do not split all rows.
    """
    if len(folds) < _PARTS:
        return None
    rows = np.concatenate([fold.held_out for fold in folds])
    every = np.sort(rows)
    if not all(np.array_equal(np.sort(np.concatenate(fold)), every) for fold in folds):
        return None
    number = np.repeat(np.arange(len(folds)), [len(fold.held_out) for fold in folds])
    _, first, label = np.unique(labels[rows], return_index=True, return_inverse=True)
    part = number[first[label]]
    separated = rows[np.isin(label, label[part != number])]
    if separated.size > _MAX_SEPARATED * rows.size:
        return None
    return [rows[part == i] for i in range(len(folds))], separated


def _random_parts(rows: IntArray, labels: IntArray, seed: tuple[int, ...]) -> list[IntArray]:
    """Split rows into parts; those of a label stay together, so there may be fewer parts."""
    found, label = np.unique(labels[rows], return_inverse=True)
    number = np.random.default_rng(seed).permutation(len(found))[label] % _PARTS
    return [rows[number == i] for i in range(min(len(found), _PARTS))]


def _grow(
    model: Model,
    data: TrainingRows,
    growing: list[_Growing],
    forest: int,
    boosted: int,
    cancelled: Event | None = None,
) -> list[list[Bag]]:
    """Grow the bags, once if they have the same rows.

    They have ``forest`` trees in each forest, and ``boosted`` boosted trees.
    """
    keys = [[(id(own.known), bag.tobytes()) for bag in own.bags()] for own in growing]
    known = {id(own.known): own.known for own in growing}
    distinct = list(dict.fromkeys(chain.from_iterable(keys)))
    leaf = smallest_leaf(len(data.used), 2 * forest * max(map(len, keys)))

    def grow(number: int) -> Bag:
        if cancelled is not None and cancelled.is_set():
            raise CancelledError
        name, rows = distinct[number]
        seed = (data.seed, number)
        return known[name].grow(np.frombuffer(rows, np.intp), forest, boosted, leaf, seed)

    parallel = joblib.Parallel(model.n_jobs, require="sharedmem")
    grown = parallel(joblib.delayed(grow)(number) for number in range(len(distinct)))
    found = dict(zip(distinct, grown, strict=True))
    return [[found[key] for key in own] for own in keys]
