"""What distributions of observed targets ask of the continuous ones below them."""

from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from calipers._checks import FloatArray
from calipers.distributions._split_normal import SplitNormal


class Latent(Protocol):
    """What is asked of a continuous predictive distribution, one for each row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of distributions."""

    @property
    def components(self) -> SplitNormal:
        """The members' split normals."""

    @property
    def weights(self) -> FloatArray:
        """The members' weights."""

    @property
    def aleatoric_var(self) -> FloatArray:
        """Mean of the members' variances."""

    @property
    def epistemic_var(self) -> FloatArray:
        """Variance of the members' means."""

    def __getitem__(self, key: Any) -> Self:
        """Some of the distributions."""

    def cdf(self, x: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """P(X <= x)."""

    def sf(self, x: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """P(X > x)."""

    def pdf(self, x: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Density."""

    @property
    def mean(self) -> FloatArray:
        """Expectation."""

    @property
    def var(self) -> FloatArray:
        """Variance."""

    def crps(self, y: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Continuous ranked probability score."""

    def ppf(self, p: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Quantile."""

    def isf(self, q: ArrayLike, *, n_jobs: int = 1) -> FloatArray:
        """Upper quantile."""

    def interval(self, coverage: ArrayLike, *, n_jobs: int = 1) -> tuple[FloatArray, FloatArray]:
        """Central interval."""

    def sample(
        self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator, n_jobs: int = 1
    ) -> FloatArray:
        """Independent draws."""
