"""Maps between nominal levels and scores, and blocks of rows to which a chain of them applies.

Levels are on the normal scale. A value has a score in its row's mixture, and each map turns a score
into a level, which is the score for the next map.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers import _checks as checks
from calipers._arrays import FloatArray, IntArray
from calipers.calibration._effective import ROUNDING
from calipers.distributions import Members, mixture_logpdf, mixture_scores, mixture_values

_MIN_SLOPE = 1e-6  # relative to the slope in the middle, so that the map has an inverse


class Pieces(NamedTuple):
    """Linear pieces of a map, score = z + rate (level - v)."""

    z: FloatArray
    v: FloatArray
    rate: FloatArray

    def score(self, level: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return self.z + self.rate * (level - self.v)

    def level(self, score: FloatArray) -> FloatArray:
        """Levels of scores on these pieces: the inverse of `score`."""
        with np.errstate(over="ignore"):
            return self.v + (score - self.z) / self.rate


class LevelMap(Protocol):
    """A piecewise linear map between nominal levels and scores.

    It may differ between rows. ``local`` is what the map of a row depends on, one number per row:
    its weight, the step of its width, the number of its subgroup's map. Each class says what it is;
    others only pass it on. None is for rows of which nothing is known. Integers are for a few maps
    that many rows share, whose integrals are exact; with other numbers, integrals are sums over
    quantiles, unless the map is the first of all and linear through the origin.
    """

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""

    @property
    def scores(self) -> FloatArray:
        """Scores of the knots between which the map is linear, in ascending order."""

    @property
    def tail_slope(self) -> float:
        """Slope beyond the outermost knots, the largest of any row."""

    def to_score(self, v: ArrayLike, local: Any, /) -> FloatArray:
        """Scores of levels."""

    def from_score(self, z: ArrayLike, local: Any, /) -> FloatArray:
        """Levels of scores: the inverse of ``to_score``."""

    def pieces_of_score(self, z: FloatArray, local: Any, /) -> Pieces:
        """Linear pieces of the map on which the scores ``z`` lie."""

    def supports(self, p: ArrayLike, local: Any, /) -> NDArray[np.bool_]:
        """Whether there are enough calibration rows for the level ``p``, a probability."""


@dataclass(frozen=True, eq=False)
class KnotMap:
    """Linear map between knots, continued beyond the outermost with the slope of the middle.

    It is the same for all rows.
    """

    levels: FloatArray  # (knots,): ascending
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

    def to_score(self, v: ArrayLike, _: object = None) -> FloatArray:
        level = checks.not_nan("v", v)
        return self._pieces(np.searchsorted(self.levels, level)).score(level)

    def from_score(self, z: ArrayLike, _: object = None) -> FloatArray:
        score = checks.not_nan("z", z)
        return self.pieces_of_score(score).level(score)

    def pieces_of_score(self, z: FloatArray, _: object = None) -> Pieces:
        return self._pieces(np.searchsorted(self.scores, z))

    def _pieces(self, place: IntArray) -> Pieces:
        last = len(self.scores) - 1
        left = np.clip(place - 1, 0, last)
        right = np.clip(left + 1, 0, last)
        inner = (place > 0) & (place <= last)
        run = np.where(inner, self.levels[right] - self.levels[left], 1.0)
        rise = np.where(inner, self.scores[right] - self.scores[left], self.tail_slope)
        return Pieces(self.scores[left], self.levels[left], rise / run)

    def supports(self, p: ArrayLike, _: object = None) -> NDArray[np.bool_]:
        """Whether there are enough rows for the level ``p``: a tail of at least 1 / (n + 1)."""
        level = checks.probability("p", p)
        tail = np.minimum(level, 1.0 - level)
        return np.asarray(tail * (self.n_rows + 1) >= 1.0 - ROUNDING)


@dataclass(frozen=True, eq=False)
class StraightMap:
    """Straight lines, score = start + slope level; ``local`` is the number of a row's line."""

    start: FloatArray  # (lines,)
    slope: FloatArray  # (lines,): positive
    n_rows: int = 0

    @classmethod
    def through(cls, low: FloatArray, high: FloatArray) -> "StraightMap":
        """Return the lines through the scores of the levels -1 and 1."""
        return cls(0.5 * (low + high), np.maximum(0.5 * (high - low), _MIN_SLOPE**2))

    @property
    def scores(self) -> FloatArray:
        return np.zeros(1)

    @property
    def tail_slope(self) -> float:
        return float(self.slope.max())

    def to_score(self, v: ArrayLike, number: IntArray) -> FloatArray:
        return self.start[number] + self.slope[number] * np.asarray(v)

    def from_score(self, z: ArrayLike, number: IntArray) -> FloatArray:
        return (np.asarray(z) - self.start[number]) / self.slope[number]

    def pieces_of_score(self, z: FloatArray, number: IntArray) -> Pieces:
        return Pieces(self.start[number], np.zeros_like(z), self.slope[number])

    def supports(self, p: ArrayLike, number: IntArray) -> NDArray[np.bool_]:
        return np.zeros(np.broadcast_shapes(np.shape(p), np.shape(number)), bool)


class MixtureRows(NamedTuple):
    """Mixtures of a block of rows and the maps applied to them."""

    members: Members  # the uncalibrated mixtures
    maps: tuple[LevelMap, ...]  # the innermost first
    local: tuple[Any, ...]  # for each map, what it depends on: an array of shape (n,), or None

    def take(self, rows: IntArray) -> "MixtureRows":
        local = tuple(None if each is None else each[rows] for each in self.local)
        return self._replace(members=self.members.take(rows), local=local)

    def levels(self, x: FloatArray) -> FloatArray:
        """Levels of `x`; Phi of them is the calibrated cdf."""
        return levels_of(mixture_scores(x, self.members), self.maps, self.local)

    def values(self, v: FloatArray) -> FloatArray:
        """Quantiles at levels: the inverse of `levels`."""
        return mixture_values(scores_of(v, self.maps, self.local), self.members)

    def logpdf(self, x: FloatArray) -> FloatArray:
        """Log density: that of the mixture plus the logarithm of each map's derivative."""
        density, z = mixture_logpdf(x, self.members), mixture_scores(x, self.members)
        for level_map, local in zip(self.maps, self.local, strict=True):
            pieces = level_map.pieces_of_score(z, local)
            v = pieces.v + (z - pieces.z) / pieces.rate
            density = density + 0.5 * (z - v) * (z + v) - np.log(pieces.rate)
            z = v
        return density


def scores_of(v: FloatArray, maps: tuple[LevelMap, ...], local: tuple[Any, ...]) -> FloatArray:
    """Scores, in the mixture, of levels after all maps."""
    for level_map, each in zip(reversed(maps), reversed(local), strict=True):
        v = level_map.to_score(v, each)
    return v


def levels_of(z: FloatArray, maps: tuple[LevelMap, ...], local: tuple[Any, ...]) -> FloatArray:
    """Levels, after all maps, of scores in the mixture: the inverse of `scores_of`."""
    for level_map, each in zip(maps, local, strict=True):
        z = level_map.from_score(z, each)
    return z
