r"""What the targets of each level of a large category were like, without a row's own.

A category of thousands of levels cannot have an input for each. Two numbers say what a level tells
of the target: the mean of its targets and their spread, both drawn towards those of all rows by as
much as the level is rare. With :math:`n` rows of a level, their mean :math:`m`, the mean
:math:`\mu` of all and the variances :math:`\sigma^2` within and :math:`\tau^2` between levels
(those of one-way analysis of variance), the mean becomes

.. math:: \mu + \frac{n}{n + \sigma^2 / \tau^2} (m - \mu)

so that a level seen once tells little, and one never seen tells :math:`\mu`. The spread is that of
a new row of the level and includes how little is known of the mean: :math:`\sigma^2 + \tau^2` for a
level never seen. A category whose levels do not differ beyond doubt, in means or spreads, has no
such numbers: they would be noise to learn from. That this is found out from all rows tells a row
one bit about all of them.

A row whose own target were in these numbers would teach a network to read the target from them, and
a row that calibrates would be predicted from its own target. So there are three kinds of rows in a
fold: those that are held out have the numbers of all training rows; training rows have those of
the training rows in other parts of five; and new rows, later, those of all rows. Some training rows
are shown as if their level had never been seen, since networks would otherwise first meet such rows
when they predict, and take the mean of all rows for a level's own.

Levels may be numbers, whose size tells of the target too. Then targets are first freed of what a
smooth function of the inputs says, fitted to the training rows of the fold, to each without its own
target: what is left is what the number tells as a name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from scipy import stats

from calipers._checks import FloatArray, IntArray
from calipers.preprocessing._repeats import smooth_residuals

WIDTH = 3  # inputs of a large category beside ones and zeros: frequency, mean and spread
_PARTS = 5  # of training rows, each of which gets its numbers from the others
_HIDDEN = 0.05  # share of training rows that are shown without their level
_PRIOR_ROWS = 10.0  # rows of a level from which on its own spread counts more than that of all
_BY_CHANCE = 1e-3  # probability of levels that differ so much by chance alone
_SMALLEST = 1e-6  # part of the spread of all targets that a level's is never below


class Differ(NamedTuple):
    """What the levels of a category differ in beyond doubt: the means of targets, their spreads."""

    means: bool
    spreads: bool


class LevelTargets(NamedTuple):
    """Mean and spread of the targets of each level; last, those of a level never seen."""

    counts: FloatArray  # (levels + 1,): rows of each level, weighted where rows are
    means: FloatArray  # (levels + 1,): in standard deviations of the targets from their mean
    spreads: FloatArray  # (levels + 1,): logarithms of standard deviations, in the same unit
    differ: Differ  # what the levels differ in; in the rest all are alike

    def inputs(self, codes: IntArray, share: float) -> FloatArray:
        """What a row of each code has as inputs, if a share of all rows is in the counts."""
        frequency = np.log1p(self.counts / share)
        return np.stack([part[codes] for part in (frequency, self.means, self.spreads)], axis=1)


class Variances(NamedTuple):
    """One-way analysis of variance of values by level."""

    # (levels,): rows of each level, their mean and their sum of squares about it
    counts: FloatArray
    means: FloatArray
    inside: FloatArray
    # variance within levels, and of the true means of levels; 0 where means differ no more than
    # by chance
    within: float
    between: float
    differ: bool  # whether that levels differ is beyond doubt

    @classmethod
    def of(cls, codes: IntArray, values: FloatArray, weights: FloatArray, levels: int) -> Self:
        """Analyse values around 0; codes below 0 are left out."""
        known = codes >= 0
        unit, tiny = float(weights.max(initial=0.0)) or 1.0, np.finfo(float).tiny
        own, w, z = codes[known], weights[known] / unit, values[known]
        counts = np.bincount(own, w, levels).astype(np.float64)
        means = np.bincount(own, w * z, levels) / np.maximum(counts, tiny)
        inside = np.bincount(own, w * (z - means[own]) ** 2, levels).astype(np.float64)
        there, total = int((counts > 0).sum()), float(counts.sum()) or 1.0
        # Weights are no numbers of rows: their squares say how much a mean varies.
        squares = np.bincount(own, w**2, levels)
        lost = float((squares / np.maximum(counts, tiny)).sum())  # what the levels' means take
        alike = lost - float(squares.sum()) / total
        within = float(inside.sum()) / rest if (rest := total - lost) > _SMALLEST * total else 0.0
        within = max(within, _SMALLEST**2)
        across = float(counts @ (means - (counts @ means) / total) ** 2)
        spare = total - float((counts**2).sum()) / total
        between = max(across - alike * within, 0.0) / spare if spare > 0 else 0.0
        free = max(total**2 / max(float(squares.sum()), tiny) - there, 1.0)
        differ = there > 1 and alike > 0
        differ = differ and bool(stats.f.sf(across / alike / within, there - 1, free) < _BY_CHANCE)
        return cls(unit * counts, means, unit * inside, within, between, differ)


def level_targets(
    codes: IntArray,
    targets: FloatArray,
    weights: FloatArray | None,
    levels: int,
    differ: Differ | None = None,
) -> LevelTargets:
    """What the targets of each level are like; a code of -1 is none of the levels.

    Targets are those that ``standardised`` gives. Without ``differ``, what levels differ in is
    found out; in the rest all are alike.

    >>> codes, targets = np.array([0] * 50 + [1] * 50 + [2]), np.array([1.0] * 50 + [-1.0] * 51)
    >>> level_targets(codes, targets, None, 3).means.round(2)
    array([ 1.  , -1.  , -1.  , -0.01])
    """
    weights = np.ones(len(codes)) if weights is None else weights
    center = float(weights @ targets) / (float(weights.sum()) or 1.0)
    found = Variances.of(codes, targets - center, weights, levels)
    trusted = found.differ if differ is None else differ.means
    between = found.between if trusted else 0.0
    prior = found.within / between if between > 0 else np.inf
    kept = np.append(found.counts / (found.counts + prior), 0.0)
    means = center + kept * np.append(found.means, 0.0)
    away = np.abs(targets - means[codes])
    away -= float(weights @ away) / (float(weights.sum()) or 1.0)
    if differ is None:
        differ = Differ(found.differ, Variances.of(codes, away, weights, levels).differ)
    variance = np.full(levels + 1, found.within)
    if differ.spreads:
        degrees = np.maximum(found.counts - 1, 0) + _PRIOR_ROWS
        variance[:-1] = (found.inside + _PRIOR_ROWS * found.within) / degrees
    variance += (1 - kept) * between
    spreads = 0.5 * np.log(np.maximum(variance, _SMALLEST**2))
    return LevelTargets(np.append(found.counts, 0.0), means, spreads, differ)


def standardised(targets: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Targets less their mean, in standard deviations; zeros where all are the same."""
    peak = float(np.abs(targets).max(initial=0.0)) or 1.0  # squares of large numbers are infinite
    share = targets / peak
    share = share - np.average(share, weights=weights)
    scale = float(np.sqrt(np.average(share**2, weights=weights)))
    return share / scale if scale > 0 else np.zeros_like(share)


@dataclass(frozen=True, eq=False)
class LargeCategories:
    """The large categories of some rows: what their inputs are depends on who asks."""

    # for the first input of each large category, the level of each row, -1 for an unknown one
    codes: Mapping[int, IntArray]
    levels: Mapping[int, int]  # how many levels each has
    # how many levels of text have an input of their own; these and one for others come before
    kept: Mapping[int, int]
    targets: FloatArray  # targets of the rows
    # weights, and labels of rows that belong together
    weights: FloatArray | None = None
    groups: IntArray | None = None
    differ: Mapping[int, Differ] = field(default_factory=dict)  # what the levels of each differ in
    # levels that are numbers: what counts is what a smooth function of the inputs leaves of targets
    numbers: Mapping[int, FloatArray] = field(default_factory=dict)

    @property
    def rows(self) -> IntArray:
        """All rows that have a weight."""
        every = np.arange(len(self.targets))
        return every if self.weights is None else np.flatnonzero(self.weights)

    def learnt(
        self, place: int, rows: IntArray | None = None, left: FloatArray | None = None
    ) -> LevelTargets:
        """What some rows, or all that have a weight, tell of the levels of one category.

        ``left`` is what is left of the targets of all rows, for levels that are numbers.
        """
        rows = self.rows if rows is None else rows
        own = None if self.weights is None else self.weights[rows]
        targets = standardised(self.targets[rows], own)
        if left is not None and place in self.numbers:
            targets = left[rows]
        codes, levels = self.codes[place][rows], self.levels[place]
        return level_targets(codes, targets, own, levels, self.differ.get(place))

    def left(self, X: FloatArray, rows: IntArray) -> FloatArray | None:
        """What a smooth function of the other inputs leaves of the targets of some rows."""
        if not self.numbers:
            return None
        known = [column for place in self.codes for column in range(place, place + WIDTH)]
        found = np.full(len(self.targets), np.nan)
        found[rows] = smooth_residuals(np.delete(X[rows], known, axis=1), self.targets[rows])
        return found

    def encoded(self, X: FloatArray, train: IntArray, seed: int) -> FloatArray:
        """All inputs, those of large categories as networks see them that learn from ``train``."""
        found, shown = np.array(X, dtype=np.float64), {}
        for place, codes in self.codes.items():
            hidden = train[np.random.default_rng((seed, place)).random(len(train)) < _HIDDEN]
            hidden = hidden[codes[hidden] >= 0]
            shown[place] = codes.copy()
            shown[place][hidden] = -1
            if place in self.kept:
                found[hidden, place - 1 - self.kept[place] : place - 1] = 0.0
                found[hidden, place - 1] = 1.0
        part, every, left = self._parts(train, seed), np.arange(len(X)), self.left(X, train)
        told = [(every, train)] + [(train[part == i], train[part != i]) for i in range(_PARTS)]
        for rows, others in told:
            if rows.size and others.size:
                share = len(others) / len(self.rows)
                for place, codes in shown.items():
                    learnt = self.learnt(place, others, left)
                    found[rows, place : place + WIDTH] = learnt.inputs(codes[rows], share)
        return found

    def inserted(self, X: FloatArray) -> FloatArray:
        """Inputs with room for what targets were like, which encoders learnt later."""
        for place in sorted(self.codes):
            known = int(place in self.kept)  # the frequency
            X = np.insert(X, [place + known] * (WIDTH - known), 0.0, axis=1)
        return X

    def _parts(self, train: IntArray, seed: int) -> IntArray:
        """Part of each row; groups are not parted."""
        labels = np.arange(len(train))
        if self.groups is not None:
            labels = np.unique(self.groups[train], return_inverse=True)[1]
        order = np.random.default_rng(seed).permutation(int(labels.max(initial=0)) + 1)
        return order[labels] % _PARTS
