r"""What the targets of each level of a large category were like, without a row's own.

A category of thousands of levels cannot have an input for each. Two numbers say what a level tells
of the target: the mean of its targets and their spread, both drawn towards those of all rows by as
much as the level is rare. With :math:`n` rows of a level, their mean :math:`m`, the mean
:math:`\mu` of all and the variances :math:`\sigma^2` within and :math:`\tau^2` between levels
(those of one-way analysis of variance), the mean becomes

.. math:: \mu + \frac{n}{n + \sigma^2 / \tau^2} (m - \mu)

so that a level seen once tells little, and one never seen tells :math:`\mu`; where levels do not
differ, :math:`\tau^2` is 0 and all are alike.

A row whose own target were in these numbers would teach a network to read the target from them, and
a row that calibrates would be predicted from its own target. So there are three kinds of rows in a
fold: those that are held out have the numbers of all training rows; training rows have those of
the training rows in other parts of five; and new rows, later, those of all rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

WIDTH = 3  # inputs of a large category beside ones and zeros: frequency, mean and spread
_PARTS = 5  # of training rows, each of which gets its numbers from the others
_PRIOR_ROWS = 10.0  # rows of a level from which on its own spread counts more than that of all
_SMALLEST = 1e-6  # part of the spread of all targets that a level's is never below


class LevelTargets(NamedTuple):
    """Mean and spread of the targets of each level; last, those of a level never seen.

    Attributes
    ----------
    counts : array of shape (levels + 1,)
        Rows of each level, weighted where rows are.
    means : array of shape (levels + 1,)
        In standard deviations of the targets from their mean.
    spreads : array of shape (levels + 1,)
        Logarithms of standard deviations, in the same unit.
    """

    counts: FloatArray
    means: FloatArray
    spreads: FloatArray

    def inputs(self, codes: IntArray, share: float) -> FloatArray:
        """What a row of each code has as inputs, if a share of all rows is in the counts."""
        frequency = np.log1p(self.counts / share)
        return np.stack([part[codes] for part in (frequency, self.means, self.spreads)], axis=1)


def level_targets(
    codes: IntArray, targets: FloatArray, weights: FloatArray | None, levels: int
) -> LevelTargets:
    """What the targets of each level are like.

    Parameters
    ----------
    codes : array of int of shape (rows,)
        Level of each row, -1 for none of them.
    targets : array of shape (rows,)
        Standardised by ``standardised``.
    weights : array of shape (rows,), optional
        Weights of the rows.
    levels : int
        How many there are.

    Examples
    --------
    >>> codes, targets = np.array([0] * 50 + [1] * 50 + [2]), np.array([1.0] * 50 + [-1.0] * 51)
    >>> level_targets(codes, targets, None, 3).means.round(2)
    array([ 0.99, -1.  , -1.  , -0.01])
    """
    weights = np.ones(len(codes)) if weights is None else weights
    everything = float(weights.sum()) or 1.0
    center = float(weights @ targets) / everything
    known = codes >= 0
    own, w, z = codes[known], weights[known], targets[known] - center
    counts = np.bincount(own, w, levels)
    at_least = np.maximum(counts, np.finfo(float).tiny)
    means = np.bincount(own, w * z, levels) / at_least
    inside = np.bincount(own, w * (z - means[own]) ** 2, levels)
    there = int((counts > 0).sum())
    total = float(counts.sum()) or 1.0
    within = max(float(inside.sum()) / max(total - there, 1.0), _SMALLEST**2)
    spare = total - float((counts**2).sum()) / total
    between = float(counts @ means**2) - max(there - 1, 0) * within
    prior = within * spare / between if between > 0 < spare else np.inf
    trust = counts / (counts + prior)
    degrees = np.maximum(counts - 1, 0)
    variance = (inside + _PRIOR_ROWS * within) / (degrees + _PRIOR_ROWS)
    spreads = 0.5 * np.log(np.maximum([*variance, within], _SMALLEST**2))
    shrunk = center + np.append(trust * means, 0.0)
    return LevelTargets(np.append(counts, 0.0), shrunk, spreads)


def standardised(targets: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Targets less their mean, in standard deviations; zeros where all are the same."""
    peak = float(np.abs(targets).max(initial=0.0)) or 1.0  # squares of large numbers are infinite
    share = targets / peak
    share = share - np.average(share, weights=weights)
    scale = float(np.sqrt(np.average(share**2, weights=weights)))
    return share / scale if scale > 0 else np.zeros_like(share)


@dataclass(frozen=True, eq=False)
class LargeCategories:
    """The large categories of some rows: what their inputs are depends on who asks.

    Attributes
    ----------
    codes : dict of int to array of int
        For the first input of each large category, the level of each row, -1 for an unknown one.
    levels : dict of int to int
        How many levels each has.
    targets : array
        Targets of the rows.
    weights, groups : array, optional
        Weights, and labels of rows that belong together.
    """

    codes: Mapping[int, IntArray]
    levels: Mapping[int, int]
    targets: FloatArray
    weights: FloatArray | None = None
    groups: IntArray | None = None

    def learnt(self, place: int, rows: IntArray) -> LevelTargets:
        """What some rows tell of the levels of one category."""
        own = None if self.weights is None else self.weights[rows]
        targets = standardised(self.targets[rows], own)
        return level_targets(self.codes[place][rows], targets, own, self.levels[place])

    def encoded(self, X: FloatArray, train: IntArray, seed: int) -> FloatArray:
        """Inputs for networks that train on some rows, of those and of all others.

        Parameters
        ----------
        X : array of shape (rows, inputs)
            All inputs, of which those of large categories are replaced.
        train : array of int
            Rows to learn from.
        seed : int
            Seeds the parts of them.
        """
        found = np.array(X, dtype=np.float64)
        part = self._parts(train, seed)
        every = len(self.targets) if self.weights is None else np.count_nonzero(self.weights)
        for place, codes in self.codes.items():
            columns = slice(place, place + WIDTH)
            learnt = self.learnt(place, train)
            found[:, columns] = learnt.inputs(codes, len(train) / every)
            for number in range(_PARTS):
                rows, others = train[part == number], train[part != number]
                if rows.size and others.size:
                    learnt = self.learnt(place, others)
                    found[rows, columns] = learnt.inputs(codes[rows], len(others) / every)
        return found

    def inserted(self, X: FloatArray) -> FloatArray:
        """Inputs with room for what targets were like, which encoders learnt later."""
        for place in sorted(self.codes):
            X = np.insert(X, [place + 1] * (WIDTH - 1), 0.0, axis=1)
        return X

    def _parts(self, train: IntArray, seed: int) -> IntArray:
        """Part of each row; groups are not parted."""
        labels = np.arange(len(train))
        if self.groups is not None:
            labels = np.unique(self.groups[train], return_inverse=True)[1]
        order = np.random.default_rng(seed).permutation(int(labels.max(initial=0)) + 1)
        return order[labels] % _PARTS
