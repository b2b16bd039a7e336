"""A first correction by how wide predictions are, so that coverage is even from narrow to wide.

A map of levels is the same for all rows, so that narrow predictions may cover too much and wide
ones too little. Here scores are divided by a factor that depends on the width of the prediction: a
parabola in the rank of the width, on the logarithmic scale, fitted to the spread of scores in bins.
What chance alone would fit is taken off (James and Stein), to nothing where there is no more than
that. Whatever the factor is, the map learnt after it restores the coverage over all rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from calipers import _checks as checks
from calipers._checks import FloatArray
from calipers._schema import array_of, refuse, within
from calipers.calibration._calibrated import CalibratedMixture, Unsupported
from calipers.calibration._row_kinds import log_width
from calipers.calibration._score_map import BoolArray, Pieces
from calipers.distributions import SplitNormalMixture

# Steps of the factor from the narrowest to the widest predictions.
STEPS = 16
# Rows of a bin at least, bins at most, and bins at least: with fewer than 500 rows the correction
# measured no better than none.
BIN_ROWS, MOST_BINS, FEWEST_BINS = 25, 40, 20
# Spread is that between these levels.
TAIL = 0.1
# What chance would fit is taken off this many times.
SHRINKAGE = 1.5
# No factor is further from 1, on the logarithmic scale.
LARGEST = 1.0


@dataclass(frozen=True, eq=False)
class WidthCalibration:
    """Scores of levels as multiples that depend on the width of the prediction.

    Parameters
    ----------
    edges : array of shape (steps - 1,)
        Between steps of the logarithm of the members' standard deviation.
    factor : array of shape (steps,)
        What scores are multiplied by.
    n_rows : int
        Number of calibration rows.
    """

    edges: FloatArray
    factor: FloatArray
    n_rows: int

    kind: ClassVar[str] = "width"
    """Key in ``CALIBRATIONS``."""
    strict: ClassVar[bool] = False
    row_weight: ClassVar[None] = None

    @classmethod
    def from_rows(cls, dist: SplitNormalMixture, scores: FloatArray, n_rows: int) -> Self | None:
        """Learn from predictions of rows, as new ones are made, and their normal scores.

        Parameters
        ----------
        dist : SplitNormalMixture of shape (n,)
            Predictions, several for each row if there are more than ``n_rows``.
        scores : array of shape (n,)
            Scores of the rows.
        n_rows : int
            Number of rows.

        Returns
        -------
        WidthCalibration or None
            None where chance explains that spreads differ.
        """
        bins = min(n_rows // BIN_ROWS, MOST_BINS)
        width = log_width(dist)
        if bins < FEWEST_BINS or not np.ptp(width) > 0:
            return None
        level = (np.argsort(np.argsort(width, kind="stable")) + 0.5) / width.size
        place = np.minimum((level * bins).astype(int), bins - 1)
        spread = np.array(
            [np.subtract(*np.quantile(scores[place == j], [1 - TAIL, TAIL])) for j in range(bins)]
        )
        if not spread.min() > 0:
            return None
        coef = _parabola(np.log(spread), n_rows / bins)
        if not coef.any():
            return None
        edges = np.unique(np.quantile(width, np.arange(1, STEPS) / STEPS))
        middle = (np.arange(len(edges) + 1) + 0.5) / (len(edges) + 1)
        factor = np.exp(np.clip(_basis(middle) @ coef, -LARGEST, LARGEST))
        return cls(edges, factor, n_rows)

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

    def steps(self, dist: SplitNormalMixture | CalibratedMixture) -> FloatArray:
        """Step of each prediction, as a number."""
        return np.searchsorted(self.edges, log_width(dist), side="right").astype(np.float64)

    def calibrated(
        self,
        dist: SplitNormalMixture | CalibratedMixture,
        X: FloatArray,
        unsupported: Unsupported = "inf",
    ) -> CalibratedMixture:
        """Correct the distributions that were predicted for some rows."""
        return CalibratedMixture(dist, self, self.steps(dist), unsupported)

    def to_score(self, v: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Score of a level on the normal scale, on the step that ``weight`` numbers."""
        return np.asarray(checks.not_nan("v", v) * self._factor(weight))

    def from_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of a score: the inverse of ``to_score``."""
        return np.asarray(checks.not_nan("z", z) / self._factor(weight))

    def pieces_of_score(self, z: FloatArray, weight: FloatArray) -> Pieces:
        """The straight line on which all scores of a step lie."""
        nothing = np.zeros(np.broadcast_shapes(np.shape(z), np.shape(weight)))
        return Pieces(nothing, nothing, nothing + self._factor(weight))

    def _factor(self, weight: ArrayLike | None) -> FloatArray:
        step = np.asarray(self.mean_weight if weight is None else weight).astype(np.intp)
        return self.factor[step]

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> BoolArray:
        """Nothing by itself: the map after this one decides."""
        return np.zeros(np.shape(p), np.bool_)

    def rows_needed(self, coverage: float) -> int:
        """Count the rows that a parabola takes."""
        return FEWEST_BINS * BIN_ROWS

    def fixed_scores(self, v: FloatArray) -> NoReturn:
        """Refuse: scores are not the same for every row."""
        raise ValueError("scores depend on the width of the prediction")

    def with_row_weight(self, row_weight: Any) -> NoReturn:
        """Refuse: there are no weights here."""
        raise ValueError("a correction by width has no row_weight")

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


def _basis(level: FloatArray) -> FloatArray:
    """Legendre polynomials of degree 1 and 2 in the rank."""
    x = 2.0 * level - 1.0
    return np.stack([x, 1.5 * x * x - 0.5], axis=1)


def _parabola(logarithm: FloatArray, rows: float) -> FloatArray:
    """Coefficients of logarithms of spreads of so many rows each, less what chance would fit."""
    bins = len(logarithm)
    basis = _basis((np.arange(bins) + 0.5) / bins)
    design = np.column_stack([np.ones(bins), basis])
    coef = np.linalg.lstsq(design, logarithm, rcond=None)[0][1:]
    tail = ndtri(1.0 - TAIL)
    density = np.exp(-0.5 * tail**2) / np.sqrt(2.0 * np.pi)
    variance = 2.0 * TAIL * (1.0 - 2.0 * TAIL) / (2.0 * tail * density) ** 2 / rows
    inverse = np.linalg.inv(design.T @ design)[1:, 1:]
    evidence = float(coef @ np.linalg.solve(inverse, coef)) / variance
    part: FloatArray = coef * max(0.0, 1.0 - SHRINKAGE * len(coef) / max(evidence, 1e-300))
    return part
