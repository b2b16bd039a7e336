"""Distributions of targets with bounds, atoms or a lattice, and data for plots of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from calipers import _checks as checks
from calipers._arrays import BoolArray, FloatArray, IndexLike
from calipers._blocks import sum_members
from calipers.distributions._distribution import Distribution, MappedDistribution
from calipers.distributions._highest import Intervals, observed_intervals
from calipers.distributions._support import Support

# Mass beyond either end of the range over which moments and scores are integrated.
_TAIL = 1e-10
# Largest number of lattice cells that are summed one by one; more are too fine to matter.
_MAX_CELLS = 4096
# Rows integrated at a time, with one target each.
_BLOCK = 2**11
# Integrals are split at quantiles evenly spaced on the normal scale, with 7 points in between.
_LEVELS = np.linspace(-6.3, 6.3, 43)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)
# Masses below this do not count as atoms.
_NO_MASS = 1e-12
# Mass beyond each end of a density that is drawn.
_DRAWN_TAIL = 1e-3
MAX_ATOMS = 64
"""Largest number of lattice values that are listed one by one; of more, the density is drawn."""


@dataclass(frozen=True, eq=False, repr=False)
class ObservedDistribution(MappedDistribution):
    r"""Distributions of y = T(z), where z has a continuous distribution and T is a support's map.

    The distribution may have a continuous part, with the density `pdf`, and point masses `pmf` on
    bounds, on frequent values or on those of a lattice. Quantiles and bounds of intervals are
    values of the support, the smallest whose `cdf` is at least `p`; the mass of an interval is at
    least its coverage, because its bounds may have mass.

    Notes
    -----
    `aleatoric_var`, `epistemic_var` and `components` are those of the members on the latent scale;
    `mean` and `var` are those of y. Arguments broadcast against `shape` as those of a mixture do.

    Examples
    --------
    >>> from calipers.distributions import SplitNormal, SplitNormalMixture
    >>> z = SplitNormalMixture(SplitNormal([[0.4, 3.0]], 1.0, 1.0))
    >>> dist = ObservedDistribution(z, Support(low=0.0, step=1.0))
    >>> dist.interval(0.9)
    (array([0., 1.]), array([2., 5.]))
    >>> dist.pmf(0.0).round(3), dist.cdf(1.0).round(3)
    (array([0.54 , 0.006]), array([0.864, 0.067]))
    """

    latent: Distribution  #: Distributions of z.
    support: Support  #: Values that y can take.

    def __getitem__(self, key: IndexLike) -> "ObservedDistribution":
        return ObservedDistribution(self.latent[key], self.support)

    def _to_latent(self, value: FloatArray) -> FloatArray:
        return self.support.upper_edge(value)

    def _from_latent(self, latent: FloatArray) -> FloatArray:
        return self.support.observe(latent)

    def _highest(self, coverage: FloatArray) -> Intervals:
        return observed_intervals(self, coverage)

    def _below(self, x: FloatArray) -> FloatArray:
        return self.cdf_below(x)

    def _takes(self, x: FloatArray) -> FloatArray:
        return self.support.nearest(x)

    def cdf_below(self, x: ArrayLike) -> FloatArray:
        """P(Y < x): `cdf` without the mass on `x` itself."""
        edge = self.support.lower_edge(checks.not_nan("x", x))
        return self.latent.cdf(edge)

    def pmf(self, x: ArrayLike) -> FloatArray:
        """P(Y = x), 0 where values are continuous."""
        return np.maximum(self.cdf(x) - self.cdf_below(x), 0.0)

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density of the continuous part at `x`, 0 on a lattice and beyond bounds."""
        value = checks.not_nan("x", x)
        slope = self.support.slope(value)
        edge = np.where(slope > 0, self.support.upper_edge(value), 0.0)
        return np.where(slope > 0, slope * self.latent.pdf(edge), 0.0)

    def logpdf(self, x: ArrayLike) -> FloatArray:
        """Logarithm of the likelihood: of `pmf` where `x` has mass, of `pdf` elsewhere."""
        mass = self.pmf(x)
        with np.errstate(divide="ignore"):
            return np.log(np.where(mass > _NO_MASS, mass, self.pdf(x)))

    def crps(self, y: ArrayLike) -> FloatArray:
        r"""Continuous ranked probability score of `y`, :math:`\int (F(x) - 1[x \ge y])^2 dx`.

        Exact on a lattice, where the integral is a sum; for continuous values accurate to about
        1e-5 of the distribution's scale.
        """
        target = checks.finite("y", y)
        target = np.broadcast_to(target, np.broadcast_shapes(target.shape, self.shape))
        same, score = self._unchanged(), np.empty(target.shape)
        if same.any():
            score[..., same] = self.latent[same].crps(target[..., same])
        if not same.all():
            score[..., ~same] = (
                self[~same]
                ._within_range()
                ._integral(lambda x, below, y: (below - (x >= y)) ** 2, target[..., ~same])
            )
        return score

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, as integrals of the distribution function."""
        same, moments = self._unchanged(), np.empty((2, *self.shape))
        if same.any():
            moments[:, same] = self.latent[same].moments()
        if not same.all():
            moments[:, ~same] = self[~same]._within_range()._moments()
        return moments[0], moments[1]

    def _within_range(self) -> "ObservedDistribution":
        """The distributions of the targets clipped to the range of the latent moments."""
        (low, high), ends = self.latent.moment_range, self.support.bounds
        low, high = max(low, ends[0]), min(high, ends[1])
        if (low, high) == ends:
            return self
        support = replace(
            self.support,
            low=low if np.isfinite(low) else None,
            high=high if np.isfinite(high) else None,
        )
        return ObservedDistribution(self.latent, support)

    def _moments(self) -> tuple[FloatArray, FloatArray]:
        median = self.median
        mean = median + self._integral(lambda x, below, y: (x >= y) - below, median)
        variance = self._integral(lambda x, below, y: 2 * (x - y) * ((x >= y) - below), mean)
        return mean, np.maximum(variance, 0.0)

    def _unchanged(self) -> NDArray[np.bool_]:
        """Whether each latent distribution lies within the bounds, so that T does not change it."""
        if self.support.step or self.support.latent:
            return np.zeros(self.shape, bool)
        low, high = self.support.ends
        return np.asarray(self.latent.cdf(low) + self.latent.sf(high) < _TAIL)

    def _integral(self, function: Callable[..., FloatArray], y: FloatArray) -> FloatArray:
        """Integral over x of a function of x, P(Y <= x) and `y` that vanishes in the tails.

        The function may jump at `y`, and must be linear in x where P(Y <= x) is constant.
        """
        shape = np.broadcast_shapes(y.shape, self.shape)
        if not self.shape:
            return self[None]._integral(function, y[..., None])[..., 0]
        target, lead = np.broadcast_to(y, shape), (slice(None),) * (len(shape) - len(self.shape))
        result = np.empty(shape)
        size = max(1, _BLOCK // max(1, result.size // max(1, len(self))))
        for start in range(0, len(self), size):
            rows = (*lead, slice(start, start + size))
            result[rows] = self[rows[-1]]._integral_of_block(function, target[rows])
        return result

    def _integral_of_block(self, function: Callable[..., FloatArray], y: FloatArray) -> FloatArray:
        breaks, varies = self._breaks()
        nodes, weights = (_NODES, _WEIGHTS) if varies else (np.zeros(1), np.full(1, 2.0))
        breaks = np.broadcast_to(
            breaks.reshape(len(breaks), *(1,) * (y.ndim - len(self.shape)), *self.shape),
            (len(breaks), *y.shape),
        )
        breaks = np.sort(np.concatenate([breaks, y[None]]), axis=0)
        centre, half = 0.5 * (breaks[1:] + breaks[:-1]), 0.5 * np.diff(breaks, axis=0)
        total = np.zeros(y.shape)
        for node, weight in zip(nodes, weights, strict=True):
            x = centre + node * half
            total += sum_members(weight * half * function(x, self.cdf(x), y))
        return total

    def _breaks(self) -> tuple[FloatArray, bool]:
        """Ends of pieces, (pieces + 1, *shape), and whether the cdf varies within them."""
        low, high, step = self.ppf(_TAIL), self.isf(_TAIL), self.support.step
        cells = np.rint((high - low) / step) if step else np.zeros(1)
        most = float(cells.max(initial=0.0))
        if step and most < _MAX_CELLS:
            shifts = np.arange(int(most) + 2).reshape(-1, *(1,) * len(self.shape))
            return np.where(shifts <= cells, low + step * shifts, high + step), False
        levels = ndtr(_LEVELS).reshape(-1, *(1,) * len(self.shape))
        knots = np.array([*self.support.observed, *self.support.ends])
        knots = knots[np.isfinite(knots)].reshape(-1, *levels.shape[1:])
        inside = np.clip(knots, low, high)
        return np.concatenate([self.ppf(levels), inside]), True


def mean_density(dist: Distribution, places: int) -> FloatArray:
    """Centres of cells and the mean density in each, (rows, 2, places), without the extreme tails.

    Densities are means over cells, from differences of the distribution function, so that the jumps
    that calibration causes in a density are neither missed nor magnified by the position of a
    centre. Values that ``atoms`` lists are excluded.
    """
    observed = dist if isinstance(dist, ObservedDistribution) else None
    if observed is not None and observed.support.step:
        smooth = ObservedDistribution(observed.latent, replace(observed.support, step=0.0))
        density = mean_density(smooth, places)
        density[:, 1] = np.where(_few_atoms(observed)[:, None], 0.0, density[:, 1])
        return density
    low, high = dist.ppf(np.array([[_DRAWN_TAIL], [1 - _DRAWN_TAIL]]))
    margin = 0.05 * (high - low)
    low, high = low - margin, high + margin
    if observed is not None:
        low, high = (np.clip(end, *observed.support.ends) for end in (low, high))
    edges = np.linspace(low, high, places + 1)
    width = np.diff(edges, axis=0)
    at = dist.cdf(edges)
    mass = at[1:] - at[:-1]
    if observed is not None:
        mass = observed.cdf_below(edges[1:]) - at[:-1]
        for atom in observed.support.atoms:
            mass -= np.where((edges[:-1] < atom) & (atom < edges[1:]), observed.pmf(atom), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a point mass has no width
        height = mass / width
    if observed is not None:
        height = np.where(width > 0, np.maximum(height, 0.0), 0.0)
    return np.stack([(edges[:-1] + 0.5 * width).T, height.T], axis=1)


def atoms(dist: ObservedDistribution) -> FloatArray:
    """Values with point masses, and their masses, (rows, 2, k), padded with NaN.

    These are bounds and frequent values, or the values of a lattice without the extreme tails; rows
    with too many values have none.
    """
    support, rows = dist.support, len(dist)
    if support.step:
        first = np.rint((dist.ppf(_DRAWN_TAIL) - support.origin) / support.step)
        values = support.at(first + np.arange(MAX_ATOMS)[:, None])
        shown = _few_atoms(dist) & (values <= dist.ppf(1 - _DRAWN_TAIL))
    else:
        values = np.repeat(np.array([*support.ends, *support.atoms])[:, None], rows, axis=1)
        shown = np.isfinite(values)
    mass = dist.pmf(np.where(shown, values, 0.0))
    return np.stack([np.where(shown, part, np.nan).T for part in (values, mass)], axis=1)


def _few_atoms(dist: ObservedDistribution) -> BoolArray:
    """Whether each row has few enough values to be listed."""
    low, high = dist.ppf(np.array([[_DRAWN_TAIL], [1 - _DRAWN_TAIL]]))
    return (high - low) / dist.support.step < MAX_ATOMS - 0.5
