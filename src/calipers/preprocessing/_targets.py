r"""Target encoding of high-cardinality categories, without leaking a row's own target.

A category of thousands of levels cannot have an input for each. Instead, a level is encoded by the
mean and the standard deviation of its targets, both shrunk towards those of all rows, the more so
the rarer the level. With :math:`n` rows of a level, their mean :math:`m`, the mean :math:`\mu` of
all rows and the variances :math:`\sigma^2` within and :math:`\tau^2` between levels (from one-way
analysis of variance), the mean becomes

.. math:: \mu + \frac{n}{n + \sigma^2 / \tau^2} (m - \mu)

which is near :math:`\mu` for a level seen once, and :math:`\mu` for one never seen. The standard
deviation is that of a new row of the level, which includes the uncertainty of the mean: the
variance for a level never seen is :math:`\sigma^2 + \tau^2`. A category whose levels do not differ
significantly, in means or standard deviations, has no such inputs, since they would be noise. This
is tested on all rows, including held-out ones, which leaks two bits per category.

If a row's own target were part of its inputs, a network would learn to read the target from them,
and a calibration row would be predicted from its own target. In a fold, the encoding of held-out
rows is therefore that of all training rows; the encoding of a training row is that of the training
rows in the other four of five parts; and new rows are later encoded by all rows. A few training
rows are shown as if their level had never been seen: otherwise networks would first meet such rows
when they predict, and mistake the mean of all rows for the mean of a level.

The levels of numeric codes are numbers, whose size is informative too. So the residuals of a smooth
function of the inputs are encoded in place of the targets: they show the effect of a number as a
category. The function is fitted to the training rows of the fold, for each row without its own
target.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy import stats

from calipers._arrays import FloatArray, IntArray
from calipers.preprocessing._categories import CategoryEncoder
from calipers.preprocessing._numeric_codes import smooth_residuals

WIDTH = 3  # additional inputs of a target-encoded column: frequency, mean and spread
_PARTS = 5  # into which training rows are divided, each encoded by the others
_HIDDEN = 0.05  # fraction of training rows that are shown without their level
_PRIOR_ROWS = 10.0  # rows from which on a level's own variance counts more than that of all rows
_BY_CHANCE = 1e-3  # significance level of the test that levels differ
_MIN_DEVIATION = 1e-6  # smallest standard deviation of a level, relative to that of all targets


class Differ(NamedTuple):
    """Whether the levels of a category differ significantly in the mean and spread of targets."""

    means: bool
    spreads: bool


class LevelTargets(NamedTuple):
    """Mean and spread of the targets of each level; the last entry is for a level never seen."""

    counts: FloatArray  # (levels + 1,): total weight of the rows of each level
    means: FloatArray  # (levels + 1,): in standard deviations of the targets from their mean
    spreads: FloatArray  # (levels + 1,): logarithms of standard deviations, in the same unit
    differ: Differ  # in what the levels differ; otherwise all have the same value

    def inputs(self, codes: IntArray, frequency: FloatArray) -> FloatArray:
        """Inputs of rows with these codes; ``frequency`` of each level is that among all rows."""
        frequency = np.where(self.counts > 0, frequency, 0.0)
        return np.stack([part[codes] for part in (frequency, self.means, self.spreads)], axis=1)


class Variances(NamedTuple):
    """One-way analysis of variance of values by level."""

    # (levels,): total weight of each level, its mean and its sum of squares about the mean
    counts: FloatArray
    means: FloatArray
    inside: FloatArray
    # variance within levels, and of the true means of levels; 0 where means differ no more than
    # by chance
    within: float
    between: float
    differ: bool  # whether levels differ significantly

    @classmethod
    def of(cls, codes: IntArray, values: FloatArray, weights: FloatArray, levels: int) -> Self:
        """Analyse values with mean 0; rows with codes below 0 are left out."""
        seen = codes >= 0
        unit, tiny = float(weights.max(initial=0.0)) or 1.0, np.finfo(float).tiny
        codes, w, z = codes[seen], weights[seen] / unit, values[seen]
        counts = np.bincount(codes, w, levels).astype(np.float64)
        means = np.bincount(codes, w * z, levels) / np.maximum(counts, tiny)
        inside = np.bincount(codes, w * (z - means[codes]) ** 2, levels).astype(np.float64)
        nonempty, total = int((counts > 0).sum()), float(counts.sum()) or 1.0
        # Weights do not count rows: their squares determine how much a mean varies.
        squares = np.bincount(codes, w**2, levels)
        used = float((squares / np.maximum(counts, tiny)).sum())  # degrees of freedom of the means
        expected = used - float(squares.sum()) / total  # of ``across``, in units of ``within``
        remaining = total - used
        within = float(inside.sum()) / remaining if remaining > _MIN_DEVIATION * total else 0.0
        within = max(within, _MIN_DEVIATION**2)
        across = float(counts @ (means - (counts @ means) / total) ** 2)
        spare = total - float((counts**2).sum()) / total
        between = max(across - expected * within, 0.0) / spare if spare > 0 else 0.0
        freedom = max(total**2 / max(float(squares.sum()), tiny) - nonempty, 1.0)
        differ = nonempty > 1 and expected > 0
        if differ:
            ratio = across / expected / within
            differ = bool(stats.f.sf(ratio, nonempty - 1, freedom) < _BY_CHANCE)
        return cls(unit * counts, means, unit * inside, within, between, differ)


def level_targets(
    codes: IntArray,
    targets: FloatArray,
    weights: FloatArray | None,
    levels: int,
    differ: Differ | None = None,
) -> LevelTargets:
    """Mean and spread of the targets of each level; a code of -1 stands for none of them.

    Targets are as ``standard_targets`` returns them. ``differ`` states in what levels differ,
    which is tested where it is None.

    >>> codes, targets = np.array([0] * 50 + [1] * 50 + [2]), np.array([1.0] * 50 + [-1.0] * 51)
    >>> level_targets(codes, targets, None, 3).means.round(2)
    array([ 1.  , -1.  , -1.  , -0.01])
    """
    weights = np.ones(len(codes)) if weights is None else weights
    center = float(weights @ targets) / (float(weights.sum()) or 1.0)
    analysis = Variances.of(codes, targets - center, weights, levels)
    means_differ = analysis.differ if differ is None else differ.means
    between = analysis.between if means_differ else 0.0
    prior = analysis.within / between if between > 0 else np.inf
    kept = np.append(analysis.counts / (analysis.counts + prior), 0.0)
    means = center + kept * np.append(analysis.means, 0.0)
    deviations = np.abs(targets - means[codes])
    deviations -= float(weights @ deviations) / (float(weights.sum()) or 1.0)
    if differ is None:
        differ = Differ(analysis.differ, Variances.of(codes, deviations, weights, levels).differ)
    variance = np.full(levels + 1, analysis.within)
    if differ.spreads:
        degrees = np.maximum(analysis.counts - 1, 0) + _PRIOR_ROWS
        variance[:-1] = (analysis.inside + _PRIOR_ROWS * analysis.within) / degrees
    variance += (1 - kept) * between
    spreads = 0.5 * np.log(np.maximum(variance, _MIN_DEVIATION**2))
    return LevelTargets(np.append(analysis.counts, 0.0), means, spreads, differ)


def standard_targets(targets: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Targets less their mean, in standard deviations; zeros where all are the same."""
    peak = float(np.abs(targets).max(initial=0.0)) or 1.0  # squares of large numbers are infinite
    relative = targets / peak
    relative = relative - np.average(relative, weights=weights)
    scale = float(np.sqrt(np.average(relative**2, weights=weights)))
    return relative / scale if scale > 0 else np.zeros_like(relative)


class EncodedColumn(NamedTuple):
    """A high-cardinality category, or a numeric code, that is target-encoded."""

    codes: IntArray  # level of each row, -1 for one that is not among the levels
    levels: int  # number of levels
    # of a category: number of levels with an input of their own; these inputs, and one for all
    # other levels, come before the encoding
    kept: int | None = None
    numbers: FloatArray | None = None  # of a numeric code: the levels; residuals are encoded
    differ: Differ | None = None  # in what the levels differ, which is tested where it is None
    number: int = 0  # of the column in its table
    named: CategoryEncoder | None = None  # of a category: the encoder of all its levels, by name


@dataclass(frozen=True, eq=False)
class TargetEncoding:
    """The columns of a table that are target-encoded, with the targets to encode them by."""

    # by the position of the first of the ``WIDTH`` inputs that encode a column
    columns: Mapping[int, EncodedColumn]
    targets: FloatArray  # targets of the rows
    # weights, and labels of rows that belong together
    weights: FloatArray | None = None
    groups: IntArray | None = None

    @property
    def rows(self) -> IntArray:
        """All rows of positive weight."""
        every = np.arange(len(self.targets))
        return every if self.weights is None else np.flatnonzero(self.weights)

    def learned(
        self, rows: IntArray, residuals: FloatArray | None = None
    ) -> dict[int, LevelTargets]:
        """The targets of each level of every column, from some of the rows.

        For numeric codes, ``residuals`` of all rows take the place of targets.
        """
        weights = None if self.weights is None else self.weights[rows]
        targets = standard_targets(self.targets[rows], weights)
        result = {}
        for place, column in self.columns.items():
            values = targets if residuals is None or column.numbers is None else residuals[rows]
            codes = column.codes[rows]
            result[place] = level_targets(codes, values, weights, column.levels, column.differ)
        return result

    def residuals(self, X: FloatArray, rows: IntArray) -> FloatArray | None:
        """Residuals of a smooth function of the inputs, without target encodings, for ``rows``.

        NaN for all other rows. None if there are no numeric codes, which alone need residuals.
        """
        if all(column.numbers is None for column in self.columns.values()):
            return None
        encodings = [i for place in self.columns for i in range(place, place + WIDTH)]
        residuals = np.full(len(self.targets), np.nan)
        X = np.delete(X[rows], encodings, axis=1)
        residuals[rows] = smooth_residuals(X, self.targets[rows])
        return residuals

    def encoded(self, X: FloatArray, train: IntArray, seed: int) -> FloatArray:
        """All inputs, with the target encoding for networks that are trained on ``train``."""
        result, shown = np.array(X, dtype=np.float64), {}
        for place, column in self.columns.items():
            hidden = train[np.random.default_rng((seed, place)).random(len(train)) < _HIDDEN]
            hidden = hidden[column.codes[hidden] >= 0]
            shown[place] = column.codes.copy()
            shown[place][hidden] = -1
            if column.kept is not None:
                result[hidden, place - 1 - column.kept : place - 1] = 0.0
                result[hidden, place - 1] = 1.0
        part, residuals = self._parts(train, seed), self.residuals(X, train)
        # Pairs of rows to encode and the rows they are encoded by; training rows are then encoded
        # again, each by the parts that it is not in.
        pairs = [(np.arange(len(X)), train)]
        pairs += [(train[part == i], train[part != i]) for i in range(_PARTS)]
        frequency = {place: self._frequency(column) for place, column in self.columns.items()}
        for rows, sources in pairs:
            if rows.size and sources.size:
                for place, learned in self.learned(sources, residuals).items():
                    inputs = learned.inputs(shown[place][rows], frequency[place])
                    result[rows, place : place + WIDTH] = inputs
        return result

    def _frequency(self, column: EncodedColumn) -> FloatArray:
        """(levels + 1,): Logarithms of the rows of each level, as new rows have them."""
        codes = column.codes[self.rows]
        return np.log1p(np.bincount(codes[codes >= 0], minlength=column.levels + 1))

    def inserted(self, X: FloatArray) -> FloatArray:
        """Inputs with columns of zeros for encodings that the encoders have yet to learn."""
        for place, column in sorted(self.columns.items()):
            present = int(column.kept is not None)  # categories have their frequency already
            X = np.insert(X, [place + present] * (WIDTH - present), 0.0, axis=1)
        return X

    def _parts(self, train: IntArray, seed: int) -> IntArray:
        """Number of the part that each training row is in; groups stay together."""
        labels = np.arange(len(train))
        if self.groups is not None:
            labels = np.unique(self.groups[train], return_inverse=True)[1]
        order = np.random.default_rng(seed).permutation(int(labels.max(initial=0)) + 1)
        return order[labels] % _PARTS
