"""Base classes of predictive distributions, one distribution for each row."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from calipers import _checks as checks
from calipers._arrays import BoolArray, FloatArray, IndexLike
from calipers.distributions._density import OFFSETS
from calipers.distributions._highest import Intervals, density_intervals, highest_density_region
from calipers.distributions._narrowest import narrowest_interval

if TYPE_CHECKING:
    from calipers.distributions._split_normal import SplitNormal


class Distribution(ABC):
    """An array of distributions: split normals, mixtures, or distributions derived from these.

    Arguments of methods (`x`, `p`, `coverage`, ...) broadcast against `shape` by NumPy's rules. For
    several levels per row put the levels on a separate leading axis, as in
    ``dist.ppf([[0.1], [0.5], [0.9]])``, which has shape (3, rows). Mean, variance, standard
    deviation and median follow from `moments` and `ppf`. Long arrays are processed in blocks, on
    the threads of an enclosing ``joblib.parallel_config("threading", n_jobs=...)``; results depend
    on neither.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of distributions."""

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of shape {self.shape}>"  # its arrays would fill the screen

    @abstractmethod
    def __getitem__(self, key: IndexLike) -> Self:
        """Subset of the distributions, by any index that NumPy accepts."""

    if TYPE_CHECKING:  # fields of some subclasses, which abstract properties would shadow

        @property
        def components(self) -> "SplitNormal":
            """The members' split normals, before any correction and on their own scale."""

        @property
        def weights(self) -> FloatArray:
            """The members' weights."""

    @property
    @abstractmethod
    def aleatoric_var(self) -> FloatArray:
        """Mean of the networks' variances, before any correction and on their own scale."""

    @property
    @abstractmethod
    def epistemic_var(self) -> FloatArray:
        """Variance of the networks' means, before any correction and on their own scale."""

    @abstractmethod
    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at `x`."""

    @abstractmethod
    def logpdf(self, x: ArrayLike) -> FloatArray:
        """Logarithm of the density at `x`."""

    @abstractmethod
    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X <= x)."""

    @abstractmethod
    def sf(self, x: ArrayLike) -> FloatArray:
        """P(X > x)."""

    @abstractmethod
    def ppf(self, p: ArrayLike) -> FloatArray:
        """Quantile: the inverse of `cdf`."""

    @abstractmethod
    def isf(self, q: ArrayLike) -> FloatArray:
        """Upper quantile: the inverse of `sf`."""

    @abstractmethod
    def interval(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the central interval, with equal tails outside.

        Parameters
        ----------
        coverage : array-like
            Mass between the bounds, above 0 and below 1; broadcasts against `shape`.

        Returns
        -------
        lower, upper : array
            Of the shape that `coverage` and `shape` broadcast to.
        """

    def hdi(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the shortest interval that holds this mass.

        Bounds are values that the target can take. They are infinite where those of `interval` are;
        the guarantee of calibration rows is that of `interval` only. Parameters and results are
        those of `interval`.
        """
        return narrowest_interval(self, checks.coverage(coverage))

    def hdr(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the highest density region, a union of intervals.

        It has one interval for each mode that it contains. Without calibration it is the smallest
        set that holds this mass. A calibrated density jumps at every calibration row: there, points
        are ordered by the density with a straight line in place of the calibration's map, through
        the levels 16% and 84%, while the mass is that of the calibrated distribution. Where the
        bounds of `interval` are infinite, the region is that interval.

        Single values with mass have no length and come first: frequent values from 1% of the mass
        on, and bounds from 5%, since less may be the tail beyond them. Those outside all other
        intervals are intervals of length 0. On a lattice, the region consists of the values with
        most mass, neighbours in one interval. In both cases it has at least this mass.

        Parameters
        ----------
        coverage : array-like
            Mass of the region, above 0 and below 1; broadcasts against `shape`.

        Returns
        -------
        lower, upper : array of shape (k, ...)
            One interval per entry of the first axis, in ascending order. Rows with fewer than k
            intervals are padded with NaN.

        Notes
        -----
        The mass is accurate to 1e-10. On a lattice, if a row has more than 1,024 likely values,
        intervals may have one value too many at each end. Modes that rise above an adjacent valley
        by less than a thousandth may be missed, and on another scale those much narrower than the
        components.

        Examples
        --------
        >>> from calipers.distributions import (
        ...     ObservedDistribution, SplitNormal, SplitNormalMixture, Support
        ... )
        >>> z = SplitNormalMixture(SplitNormal([[-2.0], [8.0]], 1.0, 1.0))
        >>> lower, upper = ObservedDistribution(z, Support(low=0.0)).hdr(0.9)
        >>> lower.round(2).tolist(), upper.round(2).tolist()
        ([[0.0], [6.65]], [[0.0], [9.35]])
        """
        return highest_density_region(self, checks.coverage(coverage))

    def _highest(self, coverage: FloatArray) -> Intervals:
        """Intervals of highest density of rows along one axis, all of them bounded."""
        return density_intervals(self, coverage)

    @property
    def _straightened(self) -> Self:
        """The distributions with straight lines in place of the maps of calibrations."""
        return self

    def _landmarks(self) -> FloatArray:
        """Points among which every mode stands out, (points, *shape)."""
        loc, left, right = self.components._parameters
        sides = [(loc - step * left, loc + step * right) for step in OFFSETS]
        return np.concatenate([loc, *sum(sides, ())])

    def _is_bounded(self, coverage: FloatArray) -> BoolArray:
        """Whether there are enough calibration rows for a finite interval."""
        return np.asarray(np.isfinite(self.interval(coverage)).all(axis=0))

    def _below(self, x: FloatArray) -> FloatArray:
        """P(X < x)."""
        return self.cdf(np.nextafter(x, -np.inf))

    def _takes(self, x: FloatArray) -> FloatArray:
        """The nearest values that the target can take."""
        return x

    @abstractmethod
    def sample(self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator) -> FloatArray:
        """Independent draws of shape ``(*size, *shape)``."""

    @abstractmethod
    def crps(self, y: ArrayLike) -> FloatArray:
        r"""Continuous ranked probability score of `y`, the smaller the better.

        .. math:: \int (F(x) - 1[x \ge y])^2 dx = E|X - y| - \tfrac12 E|X - X'|

        It is that of values clipped to `moment_range`.
        """

    @abstractmethod
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, of values clipped to `moment_range`."""

    @property
    def moment_range(self) -> tuple[float, float]:
        """Range to which moments and scores clip values, infinite for most distributions."""
        return -np.inf, np.inf

    @property
    def mean(self) -> FloatArray:
        """Expectation."""
        return self.moments()[0]

    @property
    def var(self) -> FloatArray:
        """Variance."""
        return self.moments()[1]

    @property
    def std(self) -> FloatArray:
        """Standard deviation."""
        return np.sqrt(self.var)

    @property
    def median(self) -> FloatArray:
        """Quantile at one half."""
        return self.ppf(0.5)


Formula = Callable[..., FloatArray | tuple[FloatArray, ...]]


class ClosedForm(Distribution):
    """Distributions whose methods are formulas, functions of a module, over blocks of rows."""

    _formulas: ClassVar[Any]

    @abstractmethod
    def apply(self, function: Formula, *rows: FloatArray, **options: Any) -> FloatArray:
        """Call `function` with blocks of `rows` and of the parameters, see `blockwise`."""

    def pdf(self, x: ArrayLike) -> FloatArray:
        return self.apply(self._formulas.pdf, checks.not_nan("x", x))

    def logpdf(self, x: ArrayLike) -> FloatArray:
        return self.apply(self._formulas.logpdf, checks.not_nan("x", x))

    def cdf(self, x: ArrayLike) -> FloatArray:
        return self.apply(self._formulas.cdf, checks.not_nan("x", x))

    def sf(self, x: ArrayLike) -> FloatArray:
        return self.apply(self._formulas.sf, checks.not_nan("x", x))

    def ppf(self, p: ArrayLike) -> FloatArray:
        return self.apply(self._formulas.ppf, checks.probability("p", p))

    def isf(self, q: ArrayLike) -> FloatArray:
        return self.apply(self._formulas.isf, checks.probability("q", q))

    def interval(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        tail = (1.0 - checks.coverage(coverage)) / 2.0
        lower, upper = self.apply(self._formulas.interval, tail, outputs=2)
        return lower, upper

    def crps(self, y: ArrayLike) -> FloatArray:
        return self.apply(self._formulas.crps, checks.finite("y", y))

    def sample(self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator) -> FloatArray:
        shape = (*(size if isinstance(size, tuple) else (size,)), *self.shape)
        uniform, normal = rng.random(shape), rng.standard_normal(shape)
        return self.apply(self._formulas.draw, uniform, normal)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self.mean, self.var

    @property
    def mean(self) -> FloatArray:
        return self.apply(self._formulas.mean)


class DerivedDistribution(Distribution):
    """Distributions that are derived from others, with the same members."""

    _inner_field: ClassVar[str] = "latent"

    @property
    def _inner(self) -> Distribution:
        return getattr(self, self._inner_field)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._inner.shape

    @property
    def components(self) -> "SplitNormal":
        return self._inner.components

    @property
    def weights(self) -> FloatArray:
        return self._inner.weights

    @property
    def aleatoric_var(self) -> FloatArray:
        return self._inner.aleatoric_var

    @property
    def epistemic_var(self) -> FloatArray:
        return self._inner.epistemic_var


class MappedDistribution(DerivedDistribution):
    """Distributions of increasing functions of values that have the distributions `latent`."""

    latent: Distribution

    @abstractmethod
    def _to_latent(self, value: FloatArray) -> FloatArray:
        """Latent values up to which the function is at most `value`."""

    @abstractmethod
    def _from_latent(self, latent: FloatArray) -> FloatArray:
        """Apply the function."""

    def _landmarks(self) -> FloatArray:
        return self._from_latent(self.latent._landmarks())

    def cdf(self, x: ArrayLike) -> FloatArray:
        return self.latent.cdf(self._to_latent(checks.not_nan("x", x)))

    def sf(self, x: ArrayLike) -> FloatArray:
        return self.latent.sf(self._to_latent(checks.not_nan("x", x)))

    def ppf(self, p: ArrayLike) -> FloatArray:
        return self._from_latent(self.latent.ppf(p))

    def isf(self, q: ArrayLike) -> FloatArray:
        return self._from_latent(self.latent.isf(q))

    def interval(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        lower, upper = self.latent.interval(coverage)
        return self._from_latent(lower), self._from_latent(upper)

    def _is_bounded(self, coverage: FloatArray) -> BoolArray:
        return self.latent._is_bounded(coverage)

    def sample(self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator) -> FloatArray:
        return self._from_latent(self.latent.sample(size, rng=rng))
