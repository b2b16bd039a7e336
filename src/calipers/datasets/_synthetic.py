"""Synthetic problems, whose true distribution intervals can be compared with.

Each has the form ``y = location(x) + scale(x) * noise``, where the distribution of the noise has
closed forms, so that quantiles, means and intervals are exact.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtr, ndtri
from scipy.stats import gamma, norm, rv_continuous

from calipers._arrays import FloatArray


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A regression problem whose true distribution is known.

    Examples
    --------
    >>> X, y = TOY.sample(1000, random_state=0)
    >>> X.shape, y.shape
    ((1000, 1), (1000,))
    >>> TOY.interval([[0.0], [3.0]], coverage=0.95).round(3)
    array([[ 0.   ,  0.   ],
           [-0.973,  1.255]])
    """

    #: Human-readable texts.
    name: str
    description: str
    #: ``(n, generator) -> x``, the distribution of the inputs: `n` numbers, or `n` rows if there
    #: are several inputs.
    draw_x: Callable[[int, np.random.Generator], FloatArray] = field(repr=False)
    #: Functions of such `x` that return one number per row; the scale is never negative.
    location: Callable[[FloatArray], FloatArray] = field(repr=False)
    scale: Callable[[FloatArray], FloatArray] = field(repr=False)
    #: Distribution of ``(y - location(x)) / scale(x)``, with the methods of ``scipy.stats``.
    noise: Any = field(repr=False)
    inputs: int = 1  #: Number of inputs.

    def sample(
        self, n: int, random_state: int | np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Draw `n` rows: X of shape (n, inputs) and y of shape (n,)."""
        generator = np.random.default_rng(random_state)
        x = self.draw_x(n, generator)
        y = self.location(x) + self.scale(x) * self.noise.rvs(size=n, random_state=generator)
        return x.reshape(n, self.inputs), y

    def quantile(self, X: ArrayLike, p: ArrayLike) -> FloatArray:
        """Quantiles of the target given `X` at level `p`, (n,); or (n, k) for k levels."""
        x = self._x(X)
        levels = np.asarray(p, dtype=np.float64)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"p must be a number between 0 and 1, or a list of them, got {p!r}.")
        location, scale = self.location(x), self.scale(x)
        if levels.ndim == 1:
            location, scale = location[:, np.newaxis], scale[:, np.newaxis]
        return np.asarray(location + scale * self.noise.ppf(levels))

    def cdf(self, X: ArrayLike, y: ArrayLike) -> FloatArray:
        """Probability that the target is at most `y`, given `X`; one value per row."""
        x, values = self._x(X), np.asarray(y, dtype=np.float64)
        if values.shape != x.shape[:1]:
            raise ValueError(f"y must hold {len(x)} values, one per row, got shape {values.shape}.")
        distance, scale = values - self.location(x), self.scale(x)
        noiseless = scale == 0
        noisy = self.noise.cdf(distance / np.where(noiseless, 1.0, scale))
        return np.where(noiseless, distance >= 0, noisy)

    def mean(self, X: ArrayLike) -> FloatArray:
        """Return the mean of the target given `X`, of shape (n,)."""
        x = self._x(X)
        return self.location(x) + self.scale(x) * self.noise.mean()

    def std(self, X: ArrayLike) -> FloatArray:
        """Return the standard deviation of the target given `X`, of shape (n,)."""
        return self.scale(self._x(X)) * self.noise.std()

    def interval(self, X: ArrayLike, coverage: float) -> FloatArray:
        """Lower and upper bounds of the central interval, of shape (n, 2)."""
        return self.quantile(X, [(1 - coverage) / 2, (1 + coverage) / 2])

    def _x(self, X: ArrayLike) -> FloatArray:
        values = np.asarray(X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != self.inputs:
            raise ValueError(f"X must have shape (n, {self.inputs}), got {values.shape}.")
        return values[:, 0] if self.inputs == 1 else values


def _truncated_normal(n: int, generator: np.random.Generator) -> FloatArray:
    """Draw from a normal distribution with standard deviation 6, truncated to [-6, 6].

    The paper leaves this open; its code and the points of its published figure have 6.
    """
    low, high = ndtr(-1.0), ndtr(1.0)
    return np.asarray(6.0 * ndtri(generator.uniform(low, high, n)))


class TwoBumps(rv_continuous):
    """Logistic noise around -4 or 4, equally likely."""

    place = 4.0

    def _rvs(
        self,
        *_: object,
        size: Any = None,
        random_state: Any = None,
    ) -> FloatArray:
        return random_state.choice([-self.place, self.place], size) + random_state.logistic(
            size=size
        )

    def _cdf(self, x: Any, *_: object) -> Any:
        return np.asarray((expit(x - self.place) + expit(x + self.place)) / 2)

    def _ppf(self, q: Any, *_: object) -> Any:
        """Solve cdf(z) = q: below 1/2 a quadratic equation in exp(-z), above by symmetry."""
        tail, c = np.minimum(q, 1 - q), np.cosh(self.place)
        b = c * (1 - 2 * tail)
        u = (b + np.sqrt(b**2 + 4 * tail * (1 - tail))) / (2 * tail)
        return np.asarray(np.copysign(np.log(u), q - 0.5))

    def _stats(self, *_: object, **__: object) -> tuple[float, float, None, None]:
        return 0.0, self.place**2 + np.pi**2 / 3, None, None


TOY = Problem(
    name="toy",
    description=(
        "The paper's first figure: y ~ N(sin x, s(x)) with standard deviation "
        "s(x) = exp(0.15 |x|) - 1, and x ~ N(0, 6) (standard deviation) truncated to [-6, 6]."
    ),
    draw_x=_truncated_normal,
    location=np.sin,
    scale=lambda x: np.expm1(0.15 * np.abs(x)),
    noise=norm(),
)

SKEWED = Problem(
    name="skewed",
    description=(
        "Noise with a long upper tail: y = sin x + s(x) g with g ~ Gamma(2, 1), "
        "s(x) = 0.1 + 0.05 |x|, and x uniform on [-4, 4]."
    ),
    draw_x=lambda n, generator: generator.uniform(-4.0, 4.0, n),
    location=np.sin,
    scale=lambda x: 0.1 + 0.05 * np.abs(x),
    noise=gamma(2.0),
)

TWO_MODES = Problem(
    name="two_modes",
    description=(
        "Two branches, equally likely, with nothing in between: y = x / 2 + s(x) z with "
        "s(x) = 0.1 + 0.02 (x + 4), z = -4 or 4 plus logistic noise, and x uniform on [-4, 4]."
    ),
    draw_x=lambda n, generator: generator.uniform(-4.0, 4.0, n),
    location=lambda x: x / 2,
    scale=lambda x: 0.1 + 0.02 * (x + 4),
    noise=TwoBumps()(),
)

GAP = Problem(
    name="gap",
    description=(
        "No rows in the middle: y ~ N(sin 2x, 0.2) (standard deviation), and x uniform on "
        "[-4, -1] and [1, 4]. The distribution is the same between -1 and 1, but without data."
    ),
    draw_x=lambda n, generator: generator.uniform(1.0, 4.0, n) * generator.choice([-1.0, 1.0], n),
    location=lambda x: np.sin(2 * x),
    scale=lambda x: np.full_like(x, 0.2),
    noise=norm(),
)

FRIEDMAN = Problem(
    name="friedman",
    description=(
        "Ten inputs uniform on [0, 1], of which six matter: the mean is Friedman's (1991) "
        "10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5, and the noise is normal with standard "
        "deviation 1/2 + 2 x6."
    ),
    draw_x=lambda n, generator: generator.uniform(size=(n, 10)),
    location=lambda x: (
        10 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20 * (x[:, 2] - 0.5) ** 2
        + 10 * x[:, 3]
        + 5 * x[:, 4]
    ),
    scale=lambda x: 0.5 + 2 * x[:, 5],
    noise=norm(),
    inputs=10,
)

PROBLEMS: dict[str, Problem] = {p.name: p for p in (TOY, SKEWED, TWO_MODES, GAP, FRIEDMAN)}
"""Every problem, by name."""
