"""A piecewise-linear map between levels and scores through given knots."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers import _checks as checks
from calipers._checks import FloatArray
from calipers.calibration._effective import ROUNDING
from calipers.calibration._score_map import Pieces

_MIN_SLOPE = 1e-6  # relative to the slope in the middle, so that the map has an inverse


@dataclass(frozen=True, eq=False)
class KnotMap:
    """Linear map between knots, continued beyond the outermost with the slope of the middle."""

    levels: FloatArray  # (knots,): on the normal scale, ascending
    scores: FloatArray  # (knots,): their scores, ascending
    tail_slope: float  # slope beyond the outermost knots
    n_rows: int  # rows behind the map, which decide what coverage it supports

    @classmethod
    def through(cls, levels: FloatArray, scores: FloatArray, n_rows: int) -> "KnotMap":
        """Return the map through scores in ascending order, which may contain ties."""
        slope = float(np.diff(np.interp([-1.0, 1.0], levels, scores))[0]) / 2.0
        least = _MIN_SLOPE * max(slope, _MIN_SLOPE)
        increasing = np.maximum.accumulate(scores - least * levels) + least * levels
        return cls(levels, increasing, max(slope, least), n_rows)

    @property
    def total_weight(self) -> float:
        """Sum of the calibration weights, one for each row."""
        return float(self.n_rows)

    @property
    def mean_weight(self) -> float:
        """Weight of a row."""
        return 1.0

    def to_score(self, v: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Score of a level, both on the normal scale."""
        del weight
        level = checks.not_nan("v", v)
        return self._pieces(np.searchsorted(self.levels, level)).score(level)

    def from_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of a score: the inverse of `to_score`."""
        score = checks.not_nan("z", z)
        return self.pieces_of_score(score, weight).level(score)

    def pieces_of_score(self, z: FloatArray, weight: ArrayLike | None = None) -> Pieces:
        """Linear pieces of the map on which the scores ``z`` lie."""
        del weight
        return self._pieces(np.searchsorted(self.scores, z))

    def _pieces(self, place: NDArray[np.intp]) -> Pieces:
        last = len(self.scores) - 1
        left = np.clip(place - 1, 0, last)
        right = np.clip(left + 1, 0, last)
        inner = (place > 0) & (place <= last)
        run = np.where(inner, self.levels[right] - self.levels[left], 1.0)
        rise = np.where(inner, self.scores[right] - self.scores[left], self.tail_slope)
        return Pieces(self.scores[left], self.levels[left], rise / run)

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether there are enough rows for the level ``p``: a tail of at least 1 / (n + 1)."""
        level = checks.probability("p", p)
        enough = np.minimum(level, 1.0 - level) * (self.n_rows + 1) >= 1.0 - ROUNDING
        return np.broadcast_arrays(enough, 0.0 if weight is None else weight)[0]
