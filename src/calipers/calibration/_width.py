"""A first correction by the predicted width, which evens out coverage from narrow to wide rows.

A map of levels is the same for all rows, so that narrow predictions may cover too much and wide
ones too little. Here scores are divided by a factor that depends on the width of the prediction.
The logarithm of the factor is modelled as a random walk along the rank of the width with at most
one jump, observed through the mean absolute score in bins, which has a known sampling variance. It
is averaged over variances of the walk and places of the jump, by their likelihood. Whatever the
factor, the map learned after it restores the coverage over all rows. That map is learned from
scores divided by factors of other rows, since a factor shrinks the scores that it is learned from
more than new ones.

A factor follows the bulk of the scores, while their tails decide the coverage of wide intervals. So
it is kept only where these cross-fitted scores have better intervals with it than without.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calipers import _checks as checks
from calipers._arrays import BoolArray, FloatArray, IntArray
from calipers._schema import array_of, refuse
from calipers.calibration._calibrated import CalibratedMixture
from calipers.calibration._calibrator import CalibrationRows, Calibrator
from calipers.calibration._effective import effective_number
from calipers.calibration._level_map import Pieces
from calipers.calibration._pool import UnseenPools, out_of_fold
from calipers.calibration._score_map import Calibration
from calipers.distributions import Distribution, SplitNormalMixture
from calipers.metrics import interval_score

if TYPE_CHECKING:
    from calipers.onnx import Graph, Parts, Value

# Minimum rows per bin, maximum and minimum number of bins: with fewer than 500 rows the correction
# measured no better than none.
BIN_ROWS, MAX_BINS, MIN_BINS = 25, 40, 20
# Absolute scores are clipped to this multiple of their mean.
MAX_SIZE = 5.0
# Candidate variances of the walk, from the narrowest to the widest prediction.
VARIANCES = np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
# Candidate variances of a jump, and their prior probabilities.
JUMPS, JUMP_PRIOR = np.array([0.0, 0.05, 0.3]), np.array([0.5, 0.25, 0.25])
# Coverages of the intervals that decide whether a correction is kept.
COVERAGES = (0.8, 0.9, 0.95)
# Logarithms of factors are clipped to this.
MAX_LOG_FACTOR = 1.0
# Folds of rows, each corrected by a factor learned from the others.
FOLDS = 10
# Decimals of the logarithm of a width; widths that agree to these count as equal.
DECIMALS = 6


def log_width(dist: Distribution) -> FloatArray:
    """Logarithm of the standard deviation of the members' mixture, of shape (n,)."""
    variance = dist.aleatoric_var + dist.epistemic_var
    return np.asarray(0.5 * np.log(np.maximum(variance, np.finfo(float).tiny)))


@dataclass(frozen=True, eq=False)
class WidthCalibration(Calibrator):
    """A calibration that multiplies levels by a factor depending on the predicted width.

    Widths are cut into steps, and the map of a row depends on the number of its step.
    """

    #: (steps - 1,): Edges between steps of the logarithm of the members' standard deviation.
    edges: FloatArray
    factor: FloatArray  #: (steps,): Factor by which levels are multiplied.
    n_rows: int  #: Number of calibration rows.

    kind: ClassVar[str] = "width"
    corrects_by: ClassVar[str] = "predicted width"

    @classmethod
    def from_widths(
        cls, width: FloatArray, scores: FloatArray, n_rows: int, bins: int | None = None
    ) -> Self | None:
        """Learn from the ``log_width`` and the normal scores of predictions like those of new rows.

        If there are more predictions than ``n_rows``, each row has several. Returns None if bins
        have no scale, and, unless ``bins`` is given, if there are too few rows.
        """
        if bins is None:
            bins = min(n_rows // BIN_ROWS, MAX_BINS)
            if bins < MIN_BINS:
                return None
        width = np.round(width, DECIMALS)
        edges = _edges(width, bins)
        step = np.searchsorted(edges, width, side="right")
        rows = np.maximum(np.bincount(step, minlength=len(edges) + 1), 1)
        rank_bin = np.argsort(np.argsort(width, kind="stable")) * bins // width.size
        size = np.abs(scores - np.median(scores))
        size = np.minimum(size, MAX_SIZE * size.mean())
        step_mean = np.bincount(step, size, len(edges) + 1) / rows  # independent of order in ties
        mean = np.bincount(rank_bin, step_mean[step]) / np.bincount(rank_bin)
        if not min(mean.min(), size.var()) > 0:
            return None
        sampling_variance = size.var() / size.mean() ** 2 / (n_rows / bins)
        walk = _walk(np.log(mean), sampling_variance)
        factor = np.bincount(step, walk[rank_bin], len(edges) + 1) / rows
        return cls(edges, np.exp(np.clip(factor, -MAX_LOG_FACTOR, MAX_LOG_FACTOR)), n_rows)

    @classmethod
    def from_rows(cls, rows: CalibrationRows) -> tuple[Calibrator, ...]:
        """A map of levels, after a correction by width where one helps."""
        if rows.log_widths is None:
            return Calibration.from_rows(rows)
        weights = np.ones(len(rows.units)) if rows.weights is None else rows.weights
        scores, n_rows = rows.scores, int(effective_number(weights, rows.units))
        units = np.broadcast_to(rows.units, scores.shape).ravel()
        by_width, corrected = correct_by_width(rows.log_widths(), scores.ravel(), n_rows, units)
        after = Calibration.from_rows(replace(rows, scores=corrected.reshape(scores.shape)))
        return after if by_width is None else (by_width, *after)

    @property
    def tail_slope(self) -> float:
        """The largest factor."""
        return float(self.factor.max())

    @property
    def scores(self) -> FloatArray:
        """Scores of the knots: a single one at zero, since the map is linear."""
        return np.zeros(1)

    def level_map(self) -> Self:
        return self

    def local(self, dist: SplitNormalMixture | CalibratedMixture, X: FloatArray) -> IntArray:
        """Number of each prediction's step."""
        return self.steps(log_width(dist))

    def steps(self, width: FloatArray) -> IntArray:
        """Number of the step of each prediction with this ``log_width``."""
        return np.searchsorted(self.edges, width, side="right")

    def stretch(self, step: ArrayLike) -> FloatArray:
        """Factors by which levels are multiplied."""
        return self.factor[np.asarray(step)]

    def to_score(self, v: ArrayLike, step: ArrayLike) -> FloatArray:
        """Score of a level on the normal scale."""
        return np.asarray(checks.not_nan("v", v) * self.stretch(step))

    def from_score(self, z: ArrayLike, step: ArrayLike) -> FloatArray:
        """Level of a score: the inverse of ``to_score``."""
        return np.asarray(checks.not_nan("z", z) / self.stretch(step))

    def pieces_of_score(self, z: FloatArray, step: ArrayLike) -> Pieces:
        """The line through the origin on which all scores of a step lie."""
        zeros = np.zeros(np.broadcast_shapes(np.shape(z), np.shape(step)))
        return Pieces(zeros, zeros, zeros + self.stretch(step))

    def supports(self, p: ArrayLike, step: ArrayLike | None = None) -> BoolArray:
        return np.zeros(np.shape(p), np.bool_)  # the map after this one decides what is supported

    def onnx(self, graph: "Graph", X: "Value", mixture: "Parts") -> tuple["Value", int]:
        """Number of each row's step in an ONNX graph, and the number of steps."""
        beyond = graph("GreaterOrEqual", mixture.log_width(), self.edges)
        return graph.count(beyond, 1), len(self.factor)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        rows = np.asarray(self.n_rows)
        return {"edges": self.edges, "factor": self.factor, "n_rows": rows}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        edges = array_of(arrays, "edges", "f", None, -1e6, 1e6)
        if edges.ndim != 1 or len(edges) > 1000 or (np.diff(edges) <= 0).any():
            refuse("array 'edges'", "at most 1000 numbers in ascending order", edges)
        factor = array_of(arrays, "factor", "f", (len(edges) + 1,), 1e-3, 1e3)
        return cls(edges, factor, int(array_of(arrays, "n_rows", "iu", (), 1, 2.0**53)))


def correct_by_width(
    width: FloatArray, scores: FloatArray, n_rows: int, units: NDArray[Any]
) -> tuple[WidthCalibration | None, FloatArray]:
    """A correction by width, or None if none helps, and the cross-fitted corrected scores.

    The scores of a unit, which is a row or a group, are corrected by factors learned from other
    units.
    """
    calibration = WidthCalibration.from_widths(width, scores, n_rows)
    if calibration is None:
        return None, scores
    fold_of = np.unique(units, return_inverse=True)[1] % FOLDS
    bins, factor = min(n_rows // BIN_ROWS, MAX_BINS), np.ones(len(scores))
    train_rows = n_rows - n_rows // FOLDS
    for fold in range(FOLDS):
        test = fold_of == fold
        fitted = WidthCalibration.from_widths(width[~test], scores[~test], train_rows, bins)
        if fitted is not None:
            factor[test] = fitted.stretch(fitted.steps(width[test]))
    if _interval_score(scores, factor) < _interval_score(scores, np.ones(len(scores))):
        return calibration, scores / factor
    return None, scores


def _interval_score(scores: FloatArray, factor: FloatArray) -> float:
    """Mean score of central intervals whose bounds are proportional to the factors of rows."""
    total = 0.0
    for coverage in COVERAGES:
        tail = 0.5 * (1.0 - coverage)
        lower, upper = np.quantile(scores / factor, [tail, 1.0 - tail])
        total += interval_score(scores, lower * factor, upper * factor, coverage=coverage)
    return total


def pool_widths(
    pools: UnseenPools,
    mixture: SplitNormalMixture,
    network_folds: ArrayLike,
    row_folds: IntArray,
) -> FloatArray:
    """`log_width` of pools, in the order of the widths of their rows' out-of-fold predictions.

    The reason is that the disagreement within a drawn pool says nothing about its row's error. The
    networks of a fold may predict larger widths than others, which would put its rows among the
    widest. So rows are ordered by their place among what the same networks predict for the rows of
    other folds.
    """
    place = np.empty(len(row_folds))
    for fold in np.unique(row_folds):
        own = row_folds == fold
        predicted = log_width(out_of_fold(mixture, network_folds, np.full_like(row_folds, fold)))
        place[own] = np.searchsorted(np.sort(predicted[~own]), predicted[own]) / (~own).sum()
    width = log_width(pools.dist)
    width[np.lexsort((width, place[pools.row]))] = np.sort(width)
    return width


def _edges(width: FloatArray, bins: int) -> FloatArray:
    """Edges of bins of equal counts, halfway between widths, so that ties stay together.

    >>> _edges(np.array([1.0, 1.0, 2.0, 2.0, 4.0, 4.0]), bins=3)
    array([1.5, 3. ])
    """
    distinct = np.unique(width)
    above = np.unique(np.searchsorted(distinct, np.quantile(width, np.arange(1, bins) / bins)))
    above = above[above > 0]
    return np.asarray((distinct[above - 1] + distinct[above]) / 2)


def _walk(seen: FloatArray, variance: float) -> FloatArray:
    """Posterior mean of a centred random walk with at most one jump, from noisy values.

    >>> seen = np.array([0.1, -0.1, 0.0, 0.0, -0.1, 0.1])
    >>> abs(_walk(seen, variance=0.1)).max() < 0.02
    np.True_
    >>> _walk(3 * np.sort(seen), variance=1e-4).round(1) + 0
    array([-0.3, -0.3,  0. ,  0. ,  0.3,  0.3])
    """
    values, vectors, jumps = _walk_basis(len(seen))
    component = vectors.T @ seen
    total = np.multiply.outer(VARIANCES, values) + variance
    likelihood = -0.5 * (component**2 / total + np.log(total)).sum(axis=1)
    # A jump adds a term of rank one to the covariance, for each of its variances and places.
    prior = JUMPS[:, None, None]
    along, precision = (component / total) @ jumps, (1.0 / total) @ jumps**2
    size = prior * along / (1.0 + prior * precision)  # (jump variances, walk variances, places)
    evidence = likelihood[:, None] + 0.5 * (size * along - np.log1p(prior * precision))
    weight = JUMP_PRIOR[:, None, None] * np.exp(evidence - evidence.max())
    weight /= weight.sum()
    shrinkage = VARIANCES[:, None] * values / total
    jump = (weight * size).sum(axis=0) @ jumps.T
    walk = weight.sum(axis=(0, 2))[:, None] * component - jump
    return vectors @ (jump + shrinkage * walk).sum(axis=0)


@cache
def _walk_basis(bins: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of the covariance of a centred walk, and jumps in their basis.

    The walk is taken at the middle of bins; jumps are between them.
    """
    at = (np.arange(bins) + 0.5) / bins
    kernel = np.minimum.outer(at, at)
    kernel -= kernel.mean(axis=0)
    kernel -= kernel.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(kernel)
    vectors = vectors[:, 1:]  # without the constant
    return values[1:], vectors, vectors.T @ np.tri(bins, bins - 1, -1)
