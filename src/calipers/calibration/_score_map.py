"""The map between nominal levels and normal scores, learned from calibration rows."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from calipers import _checks as checks
from calipers._arrays import BoolArray, FloatArray, IntArray
from calipers.calibration._calibrated import CalibratedMixture
from calipers.calibration._calibrator import CalibrationRows, Calibrator
from calipers.calibration._effective import ROUNDING, effective_number, independent_number
from calipers.calibration._knots import (
    check_arrays,
    merged,
    ordinary_knots,
    strict_knots,
    tail_slope,
)
from calipers.calibration._level_map import Pieces
from calipers.calibration._ratio import DensityRatio
from calipers.distributions import SplitNormalMixture

if TYPE_CHECKING:
    from calipers.onnx import Graph, Parts, Value

# Levels this close to one half belong to no strict knot but the median.
MIDDLE = 1e-3


@dataclass(frozen=True, eq=False)
class Calibration(Calibrator):
    r"""Map from a nominal level p to the normal score that has this level on calibration rows.

    Between the knots the map from :math:`\Phi^{-1}(p)` to scores is linear, and so the identity if
    the scores are those of a perfect model. Beyond the outermost knots it continues with the slope
    `tail_slope`, the scale of the scores: the model's own tails, moved and stretched. It is
    continuous and strictly increasing from minus to plus infinity, hence so is its inverse.

    See Also
    --------
    Calibration.from_scores : learn a calibration from scores.

    Examples
    --------
    Scores twice as large as they should be:

    >>> calibration = Calibration.from_scores(2.0 * ndtri(np.arange(1, 200) / 200))
    >>> calibration.score_of_level([0.025, 0.5]).round(2)
    array([-3.92,  0.  ])
    >>> calibration.level_of_score([-3.92, 0.0]).round(3)
    array([0.025, 0.5  ])
    """

    scores: FloatArray  #: (knots,): Scores at the knots, in ascending order.
    #: (knots,): The level of knot k for a row of weight w is ``(mass[k] + share[k] w) /
    #: (total_weight + w)``.
    mass: FloatArray
    share: FloatArray
    total_weight: float  #: Sum of the calibration weights.
    n_rows: int  #: Number of calibration rows.
    tail_slope: float  #: Slope of the map beyond the outermost knots.
    #: Effective sample size of the calibration rows, see `effective_number`.
    n_effective: float
    #: Whether every quantile is conservative, as split conformal prediction requires.
    strict: bool = False
    #: Function from inputs to the weights of new rows, under covariate shift; stored only if it is
    #: a `DensityRatio`.
    row_weight: Callable[[FloatArray], FloatArray] | None = None
    #: Effective sample size for the estimation of quantiles, see `independent_number`;
    #: `n_effective` if not given.
    n_independent: float | None = None

    kind: ClassVar[str] = "map"

    @classmethod
    def from_scores(
        cls,
        scores: ArrayLike,
        weights: ArrayLike | None = None,
        strict: bool = False,
        row_weight: Callable[[FloatArray], FloatArray] | None = None,
        units: ArrayLike | None = None,
    ) -> Self:
        """Learn from the normal scores of calibration rows.

        Parameters
        ----------
        scores : array-like of shape (n,) or (draws, n)
            Finite scores from `normal_scores`. Several scores of a row, one for each pool drawn,
            share its weight.
        weights : array-like of shape (n,), optional
            Nonnegative weights; under covariate shift the ratio of the density of the new inputs to
            that of the calibration inputs. Equal if not given.
        strict : bool
            False for unbiased quantiles, k / (n + 1) for the k-th score. True for conservative
            quantiles, with the guarantee of split conformal prediction.
        row_weight : callable, optional
            Function that returns the weights of new rows.
        units : array-like of shape (n,), optional
            Label of the group, or of the repeatedly scored row, to which each score belongs. The
            scores of a unit count as one in the supported coverage and, if strict, in every level.
            By default every score is its own unit.

        Raises
        ------
        ValueError
            If there are no scores, or scores or weights are out of range.
        """
        values = checks.finite("scores", scores)
        if values.ndim not in (1, 2) or values.size == 0:
            raise ValueError(f"scores must be a list of at least one score, got {values.shape}")
        *draws, rows = values.shape
        row_weights = np.ones(rows) if weights is None else checks.scale("weights", weights)
        if row_weights.shape != (rows,) or not row_weights.sum() > 0:
            raise ValueError(
                f"weights must be one number per score, shape {(rows,)}, not all zero, "
                f"got shape {row_weights.shape} and sum {row_weights.sum():g}"
            )
        score_weights = np.broadcast_to(row_weights, values.shape) / math.prod(draws)
        distinct, weight = merged(values.ravel(), score_weights.ravel())
        knots = (strict_knots if strict else ordinary_knots)(distinct, weight)
        return cls(
            *knots,
            total_weight=float(weight.sum()),
            n_rows=rows,
            tail_slope=tail_slope(distinct, weight),
            n_effective=effective_number(row_weights, units),
            strict=strict,
            row_weight=row_weight,
            n_independent=None
            if strict or units is None
            else independent_number(values, row_weights, units),
        )

    @classmethod
    def from_rows(cls, rows: CalibrationRows) -> tuple[Self]:
        alone = len(np.unique(rows.units)) == len(rows.units)
        units = None if alone else rows.units
        made = cls.from_scores(rows.scores, rows.weights, rows.strict, rows.row_weight, units)
        if rows.new_weight is None:
            return (made,)
        return (replace(made, n_effective=made.total_weight / rows.new_weight),)

    @classmethod
    def without_rows(cls) -> Self:
        """Calibration without rows: levels are unchanged, and no coverage is supported.

        Examples
        --------
        >>> calibration = Calibration.without_rows()
        >>> float(calibration.score_of_level(0.5)), bool(calibration.supports(0.025))
        (0.0, False)
        """
        middle, half = np.zeros(1), np.full(1, 0.5)
        return cls(
            middle, middle, half, total_weight=0.0, n_rows=0, tail_slope=1.0, n_effective=0.0
        )

    @property
    def mean_weight(self) -> float:
        """Expected weight of a new row, drawn with probability proportional to weight.

        It is the sum of the squared weights over their sum, and 1 without rows.
        """
        return self.total_weight / (self.n_independent or self.n_effective) if self.n_rows else 1.0

    def local(
        self, dist: SplitNormalMixture | CalibratedMixture, X: FloatArray
    ) -> FloatArray | None:
        """Weights of the rows ``X``; None if all have the expected weight."""
        return None if self.row_weight is None else checks.scale("row_weights", self.row_weight(X))

    def onnx(self, graph: "Graph", X: "Value", mixture: "Parts") -> None:
        """One map serves all rows, or there is no form (ValueError)."""
        if self.row_weight is not None:
            raise ValueError(
                "a model conformalized with row_weight or shifted_to cannot be exported to ONNX, "
                "because its levels depend on a function of the row"
            )

    def level_map(self) -> Self:
        return self

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "row_weight"}
        arrays = {name: np.asarray(value) for name, value in values.items() if value is not None}
        ratio = self.row_weight
        return arrays | (ratio.to_arrays() if isinstance(ratio, DensityRatio) else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        check_arrays(arrays)
        values = {name: np.asarray(array) for name, array in arrays.items()}
        scores, mass, share = (values[n].astype(np.float64) for n in ("scores", "mass", "share"))
        names = ("total_weight", "n_rows", "tail_slope", "strict", "n_effective", "n_independent")
        numbers = {name: values[name].item() for name in names if name in values}
        numbers.setdefault("n_effective", float(numbers["n_rows"]))  # absent from older folders
        ratio = DensityRatio.from_arrays(arrays) if "ratio.coef" in arrays else None
        return cls(scores, mass, share, row_weight=ratio, **numbers)

    def score_of_level(self, p: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Normal score that has the level `p`; infinite at 0 and 1.

        Parameters
        ----------
        p : array-like
            Levels between 0 and 1.
        weight : array-like, optional
            Weights of the predicted rows; the expected weight, `mean_weight`, if not given.
        """
        return self.to_score(ndtri(checks.probability("p", p)), weight)

    def level_of_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of the normal score `z`: the inverse of `score_of_level`."""
        return ndtr(self.from_score(z, weight))

    def to_score(self, v: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Score of a level given on the normal scale, which is accurate in both tails."""
        level = checks.not_nan("v", v)
        return self._pieces_of_level(level, self._weight(weight)).score(level)

    def from_score(self, z: ArrayLike, weight: ArrayLike | None = None) -> FloatArray:
        """Level of a score, on the normal scale: the inverse of `to_score`."""
        score = checks.not_nan("z", z)
        return self.pieces_of_score(score, weight).level(score)

    def smallest_alpha(self, weight: ArrayLike | None = None) -> FloatArray:
        """Smallest miscoverage of a central interval that the calibration rows support.

        That is 2 w / (W + w), and for a row of the expected weight 2 / (n_effective + 1).
        """
        w = self._weight(weight)
        if self.n_independent is not None:
            w = w * (self.n_independent / self.n_effective)
        return np.minimum(2.0 * w / (self.total_weight + w), 1.0)

    def supports(self, p: ArrayLike, weight: ArrayLike | None = None) -> BoolArray:
        level = checks.probability("p", p)
        tail = 2.0 * np.minimum(level, 1.0 - level)
        return np.asarray(tail >= self.smallest_alpha(weight) * (1.0 - ROUNDING))

    def _pieces_of_level(self, v: FloatArray, weight: FloatArray) -> Pieces:
        """Linear pieces of the map on which the levels ``v``, on the normal scale, lie."""
        lower, upper, level = self._lower, self._upper, ndtr(v)
        mass = level * (self.total_weight + weight)
        share_low, share_high = (1.0, 0.0) if self.strict else (0.5, 0.5)
        low = np.searchsorted(self.mass[:lower], mass - share_low * weight, side="right")
        high = np.searchsorted(self.mass[upper:], mass - share_high * weight, side="right")
        if self.strict:
            low = np.where(level < 0.5 - MIDDLE, low, lower)
            high = np.where(level > 0.5 + MIDDLE, high, 0)
        return self._pieces(np.where(v < 0, low, upper + high), v < 0, weight)

    def pieces_of_score(self, z: FloatArray, weight: ArrayLike | None = None) -> Pieces:
        """Linear pieces of the map on which the scores ``z`` lie."""
        place = np.searchsorted(self.scores, z, side="right")
        return self._pieces(place, place <= self._lower, self._weight(weight))

    def _pieces(self, place: IntArray, low: BoolArray, weight: FloatArray) -> Pieces:
        """Pieces between the knots on either side of ``place``, of those in use at this weight."""
        lower, upper, end = self._lower, self._upper, len(self.scores)
        low_end, high_start = self._in_use(weight)
        down, up = np.minimum(place, low_end), np.maximum(place, high_start)
        left = np.where(low, down - 1, np.where(up > high_start, up - 1, upper - 1))
        right = np.where(low, np.where(down < low_end, down, lower), up)
        inner = (left >= 0) & (right < end)
        left, right = np.where(left < 0, right, left), np.where(right == end, left, right)
        z, v = self.scores[left], self._normal_level(left, weight)
        run = np.where(inner, self._normal_level(right, weight) - v, 1.0)
        rise = np.where(inner, self.scores[right] - z, self.tail_slope)
        return Pieces(z, v, rise / run)

    def _normal_level(self, knot: IntArray, weight: FloatArray) -> FloatArray:
        total = self.total_weight + weight
        below = (self.mass[knot] + self.share[knot] * weight) / total
        above = (self.total_weight - self.mass[knot] + (1.0 - self.share[knot]) * weight) / total
        if self.strict:
            # A knot that would be valid on both sides of one half stays on its own side.
            limit = np.where(knot == self._lower, 0.5, 0.5 - MIDDLE)
            below = np.where(knot < self._upper, np.minimum(below, limit), 1.0)
            above = np.where(knot < self._upper, 1.0, np.minimum(above, limit))
        return np.where(below < above, ndtri(below), -ndtri(above))

    @cached_property
    def _lower(self) -> int:
        """Number of knots in the lower half; in a strict map, before the median."""
        if self.strict:
            return int(np.count_nonzero(self.share == 1.0))
        return int(np.searchsorted(self.mass, 0.5 * self.total_weight))

    @property
    def _upper(self) -> int:
        """Index of the first knot in the upper half; in a strict map, after the median."""
        return self._lower + int(self.strict)

    def _in_use(self, weight: FloatArray) -> tuple[IntArray, IntArray]:
        """End of the lower and start of the upper knots, as far as valid on their side of 1/2."""
        lower, upper, total = self._lower, self._upper, self.total_weight + weight
        if not self.strict:
            return np.asarray(lower), np.asarray(upper)
        valid_from = np.append(0.0, self.mass[:lower])[:lower]
        valid_to = np.append(self.mass[upper:], self.total_weight)[1:]
        low_end = np.searchsorted(valid_from, (0.5 - MIDDLE) * total - weight)
        high_start = upper + np.searchsorted(valid_to, (0.5 + MIDDLE) * total, side="right")
        return np.asarray(low_end), np.asarray(high_start)

    def _weight(self, weight: ArrayLike | None) -> FloatArray:
        if weight is None:
            return np.asarray(self.mean_weight)
        return checks.scale("weight", weight)
