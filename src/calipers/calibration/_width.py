"""A first correction by how wide predictions are, so that coverage is even from narrow to wide.

A map of levels is the same for all rows, so that narrow predictions may cover too much and wide
ones too little. Here scores are divided by a factor that depends on the width of the prediction.
Its logarithm is taken for a random walk along the rank of the width, seen through the mean size of
scores in bins, which chance makes uncertain by a known amount. How fast it walks is what makes the
bins most likely, and where that is not at all, nothing is done (empirical Bayes). Whatever the
factor is, the map learnt after it restores the coverage over all rows: it is learnt from scores
that were divided by factors of other rows, since a factor makes those that it is learnt from
smaller than it makes new ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers import _checks as checks
from calipers._checks import FloatArray
from calipers._schema import array_of, refuse, within
from calipers.calibration._calibrated import CalibratedMixture, Unsupported
from calipers.calibration._row_kinds import log_width
from calipers.calibration._score_map import BoolArray, Pieces
from calipers.distributions import SplitNormalMixture

# Rows of a bin at least, bins at most, and bins at least: with fewer than 500 rows the correction
# measured no better than none.
BIN_ROWS, MOST_BINS, FEWEST_BINS = 25, 40, 20
# Scores count up to so many times their mean size.
FURTHEST = 5.0
# Variances of the walk, from the narrowest to the widest prediction.
PACES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
# No factor is further from 1, on the logarithmic scale.
LARGEST = 1.0
# Parts of the rows that are corrected by the others.
PARTS = 10
# Digits of the logarithm of a width; those that differ in others only are the same.
DECIMALS = 6


@dataclass(frozen=True, eq=False)
class WidthCalibration:
    """Scores of levels as multiples that depend on the width of the prediction."""

    #: (steps - 1,): Between steps of the logarithm of the members' standard deviation.
    edges: FloatArray
    factor: FloatArray  #: (steps,): What scores are multiplied by.
    n_rows: int  #: Number of calibration rows.

    kind: ClassVar[str] = "width"
    """Key in ``CALIBRATIONS``."""
    strict: ClassVar[bool] = False
    row_weight: ClassVar[None] = None

    @classmethod
    def from_widths(
        cls, width: FloatArray, scores: FloatArray, n_rows: int, bins: int | None = None
    ) -> Self | None:
        """Learn from the ``log_width`` of predictions, as new rows have it, and normal scores.

        There are several predictions for each row if they are more than ``n_rows``. None where
        chance explains that spreads differ, and, unless ``bins`` are given, with few rows.
        """
        if bins is None:
            bins = min(n_rows // BIN_ROWS, MOST_BINS)
            if bins < FEWEST_BINS:
                return None
        width = np.round(width, DECIMALS)
        edges = _edges(width, bins)
        step = np.searchsorted(edges, width, side="right")
        rows = np.maximum(np.bincount(step, minlength=len(edges) + 1), 1)
        place = np.argsort(np.argsort(width, kind="stable")) * bins // width.size
        size = np.abs(scores - np.median(scores))
        size = np.minimum(size, FURTHEST * size.mean())
        alike = np.bincount(step, size, len(edges) + 1) / rows  # the order of ties says nothing
        mean = np.bincount(place, alike[step]) / np.bincount(place)
        if not mean.min() > 0:
            return None
        chance = size.var() / size.mean() ** 2 / (n_rows / bins)
        walk = _walk(np.log(mean), chance)
        factor = np.bincount(step, walk[place], len(edges) + 1) / rows
        factor = np.exp(np.clip(factor, -LARGEST, LARGEST))
        return cls(edges, factor, n_rows) if walk.any() else None

    @property
    def n_effective(self) -> float:
        """Number of independent rows; the map after this one decides what is supported."""
        return float(self.n_rows)

    @property
    def scores(self) -> FloatArray:
        """Scores at which the map bends: none but zero, where it does not."""
        return np.zeros(1)

    @property
    def total_weight(self) -> float:
        """Sum of the weights of rows."""
        return float(self.n_rows)

    @property
    def mean_weight(self) -> float:
        """The middle step; a row's weight says here which step it is on."""
        return float(len(self.factor) // 2)

    def steps(self, width: FloatArray) -> FloatArray:
        """Step of each prediction of such a ``log_width``, as a number."""
        return np.searchsorted(self.edges, width, side="right").astype(np.float64)

    def calibrated(
        self,
        dist: SplitNormalMixture | CalibratedMixture,
        X: FloatArray,
        unsupported: Unsupported = "inf",
    ) -> CalibratedMixture:
        """Correct the distributions that were predicted for some rows."""
        return CalibratedMixture(dist, self, self.steps(log_width(dist)), unsupported)

    def to_score(self, v: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Score of a level on the normal scale, on the step that ``weight`` numbers."""
        return np.asarray(checks.not_nan("v", v) * self.stretch(weight))

    def from_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of a score: the inverse of ``to_score``."""
        return np.asarray(checks.not_nan("z", z) / self.stretch(weight))

    def pieces_of_score(self, z: FloatArray, weight: FloatArray) -> Pieces:
        """The straight line on which all scores of a step lie."""
        nothing = np.zeros(np.broadcast_shapes(np.shape(z), np.shape(weight)))
        return Pieces(nothing, nothing, nothing + self.stretch(weight))

    def stretch(self, weight: ArrayLike | None = None) -> FloatArray:
        """Numbers by which levels are multiplied, on the steps that ``weight`` numbers."""
        step = np.asarray(self.mean_weight if weight is None else weight).astype(np.intp)
        return self.factor[step]

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> BoolArray:
        """Nothing by itself: the map after this one decides."""
        return np.zeros(np.shape(p), np.bool_)

    def fixed_scores(self, v: FloatArray) -> NoReturn:
        """Refuse: scores are not the same for every row."""
        raise ValueError("scores depend on the width of the prediction")

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All there is to store, as plain arrays."""
        rows = np.asarray(self.n_rows)
        return {"edges": self.edges, "factor": self.factor, "n_rows": rows}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Make one again of what ``to_arrays`` gave; a ``SchemaError`` says if it is another."""
        given = {name: np.asarray(array) for name, array in arrays.items()}
        edges = array_of(given, "edges", "f")
        if edges.ndim != 1 or len(edges) > 1000 or (np.diff(edges) <= 0).any():
            refuse("array 'edges'", "a short list in ascending order", edges)
        within("edges", edges, -1e6, 1e6)
        factor = array_of(given, "factor", "f", (len(edges) + 1,))
        within("factor", factor, 1e-3, 1e3)
        rows = array_of(given, "n_rows", "iu", ())
        within("n_rows", rows, 1, 2.0**53)
        return cls(edges, factor, int(rows))


def evened(
    width: FloatArray, scores: FloatArray, n_rows: int, units: NDArray[Any]
) -> tuple[WidthCalibration | None, FloatArray]:
    """A correction by width, if rows show that one is due, and scores as if it were of other rows.

    Scores of one unit, a row or a group, are corrected by those of other units.
    """
    found = WidthCalibration.from_widths(width, scores, n_rows)
    if found is None:
        return None, scores
    part_of = np.unique(units, return_inverse=True)[1] % PARTS
    bins, corrected = min(n_rows // BIN_ROWS, MOST_BINS), scores.copy()
    for part in range(PARTS):
        own = part_of == part
        rest = (width[~own], scores[~own], n_rows - n_rows // PARTS)
        others = WidthCalibration.from_widths(*rest, bins)
        if others is not None:
            corrected[own] = others.from_score(scores[own], others.steps(width[own]))
    return found, corrected


def _edges(width: FloatArray, bins: int) -> FloatArray:
    """Edges of bins of equal numbers, half-way between widths, so that equal ones stay together.

    >>> _edges(np.array([1.0, 1.0, 2.0, 2.0, 4.0, 4.0]), bins=3)
    array([1.5, 3. ])
    """
    known = np.unique(width)
    above = np.unique(np.searchsorted(known, np.quantile(width, np.arange(1, bins) / bins)))
    above = above[above > 0]
    return np.asarray((known[above - 1] + known[above]) / 2)


def _walk(seen: FloatArray, variance: float) -> FloatArray:
    """Random walk of mean zero behind what is seen of its steps, of the most likely pace.

    >>> seen = np.array([0.1, -0.1, 0.0, 0.0, -0.1, 0.1])
    >>> _walk(seen, variance=0.1).any(), _walk(3 * np.sort(seen), variance=1e-4).round(1) + 0
    (np.False_, array([-0.3, -0.3,  0. ,  0. ,  0.3,  0.3]))
    """
    values, vectors = _steps_of_walk(len(seen))
    part = vectors.T @ seen
    total = np.multiply.outer(PACES, values) + variance
    likelihood = -0.5 * (part**2 / total + np.log(total)).sum(axis=1)
    best = int(np.argmax(likelihood))
    return vectors @ (PACES[best] * values / total[best] * part)


@cache
def _steps_of_walk(bins: int) -> tuple[FloatArray, FloatArray]:
    """Variances and directions of a walk of mean zero, at the middle of each bin."""
    at = (np.arange(bins) + 0.5) / bins
    kernel = np.minimum.outer(at, at)
    kernel -= kernel.mean(axis=0)
    kernel -= kernel.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(kernel)
    return values[1:], vectors[:, 1:]  # without the constant
