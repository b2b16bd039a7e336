"""What every predictive distribution has, one for each row, whatever it is made of."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from calipers._checks import FloatArray
from calipers.distributions._split_normal import SplitNormal


class Distribution(ABC):
    """An array of distributions: of mixtures, of calibrated ones, of what is observed of them.

    Arguments broadcast against `shape`; `n_jobs` is a number of threads, -1 for all cores. Mean,
    variance, standard deviation and median follow from `moments` and `ppf`.
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
    def __getitem__(self, key: Any) -> Self:
        """Take some of the distributions, by any index that NumPy takes."""

    if TYPE_CHECKING:  # fields of some, which an abstract property would stand in the way of

        @property
        def components(self) -> SplitNormal:
            """The members' split normals, before any correction."""

        @property
        def weights(self) -> FloatArray:
            """The members' weights."""

    @property
    @abstractmethod
    def aleatoric_var(self) -> FloatArray:
        """Mean of the networks' variances, before any correction."""

    @property
    @abstractmethod
    def epistemic_var(self) -> FloatArray:
        """Variance of the networks' means, before any correction."""

    @abstractmethod
    def pdf(self, x: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Density at `x`."""

    @abstractmethod
    def logpdf(self, x: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Logarithm of the density at `x`."""

    @abstractmethod
    def cdf(self, x: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """P(X <= x)."""

    @abstractmethod
    def sf(self, x: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """P(X > x)."""

    @abstractmethod
    def ppf(self, p: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Quantile: the inverse of `cdf`."""

    @abstractmethod
    def isf(self, q: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Upper quantile: the inverse of `sf`."""

    @abstractmethod
    def interval(self, coverage: ArrayLike, *, n_jobs: int = 1) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the central interval, with equal tails outside."""

    @abstractmethod
    def sample(
        self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator, n_jobs: int = 1
    ) -> FloatArray:
        """Independent draws of shape ``(*size, *shape)``."""

    @abstractmethod
    def crps(self, y: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Continuous ranked probability score of `y`, the smaller the better."""

    @abstractmethod
    def moments(self, *, n_jobs: int = 1) -> tuple[FloatArray, FloatArray]:
        """Mean and variance."""

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


class DerivedDistribution(Distribution):
    """Distributions that are made of others, with the same members."""

    _inner_field: ClassVar[str] = "latent"

    @property
    def _inner(self) -> Any:
        return getattr(self, self._inner_field)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of distributions."""
        return self._inner.shape

    @property
    def components(self) -> SplitNormal:
        """The members' split normals, before any correction and on their own scale."""
        return self._inner.components

    @property
    def weights(self) -> FloatArray:
        """The members' weights."""
        return self._inner.weights

    @property
    def aleatoric_var(self) -> FloatArray:
        """Mean of the networks' variances, before any correction and on their own scale."""
        return self._inner.aleatoric_var

    @property
    def epistemic_var(self) -> FloatArray:
        """Variance of the networks' means, before any correction and on their own scale."""
        return self._inner.epistemic_var
