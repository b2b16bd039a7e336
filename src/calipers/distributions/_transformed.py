"""Distributions of a target that was predicted on another scale.

A network that predicts the logarithm of a wage predicts a distribution of logarithms. Since the map
is monotone, quantiles, intervals and the distribution function go back to the target's own scale
exactly, and normal scores, hence calibration, do not change at all. The density has one factor
more. Means and variances of mixtures are sums over the nodes of a rule of integration; those of
calibrated ones, and the CRPS, are sums over quantiles.

A tail that is straight on the scale of a logarithm grows without end on the target's own: one row
in thousands, predicted with a wide scale, would have a mean beyond everything that was ever seen.
So means and variances take values beyond the targets of training, and a standard deviation more,
to be at that limit. Quantiles and intervals have none.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from calipers import _checks as checks
from calipers._blocks import sum_members
from calipers._checks import FloatArray
from calipers.distributions._distribution import MappedDistribution
from calipers.distributions._mixture import SplitNormalMixture

KINDS = ("log", "asinh")
"""Scales beside the target's own."""

FURTHEST_UNIT = 1e100
"""No unit is larger, nor one over it smaller."""

_SMALLEST = np.finfo(float).tiny
_LARGEST = 1e150  # its square is a number still
_GRID = np.linspace(-6.0, 6.0, 193)  # normal scores at which quantiles are added up
_STEPS = np.exp(-0.5 * _GRID**2) / np.exp(-0.5 * _GRID**2).sum()
_END, _COUNT = 8.0, 24  # normal scores up to which moments of one side are added up, at so many
_NODES, _PARTS = np.polynomial.legendre.leggauss(_COUNT)

_NODES = 0.5 * _END * (1 + _NODES)
_PARTS = _PARTS * np.exp(-0.5 * _NODES**2)

HALF_NORMAL = np.stack([_NODES, _PARTS / _PARTS.sum()])
"""Scores of a half normal at which means are added up, and the share of each."""


@dataclass(frozen=True)
class TargetMap:
    """A monotone map of the target: its logarithm, or the inverse of the hyperbolic sine.

    Examples
    --------
    >>> by_size = TargetMap.learn("log", [1.0, 10.0, 100.0])
    >>> by_size.forward([10.0]), by_size.back(np.log([10.0])).round(6)
    (array([0.]), array([100.]))
    """

    #: "log", "asinh": "log" for positive targets; "asinh" is linear near 0 and logarithmic far from
    #: it, on either side.
    kind: str
    unit: float  #: What targets are divided by.
    #: Ends of the scale beyond which values count as these where means are taken.
    low: float = -np.inf
    high: float = np.inf

    @classmethod
    def learn(cls, kind: str, y: ArrayLike) -> "TargetMap":
        """The map of a kind for training targets, whose median size is the unit.

        Raises
        ------
        ValueError
            If a target cannot be on that scale.
        """
        target = checks.finite("y", y)
        sizes = np.abs(target[target != 0])
        made = cls(kind, float(np.median(sizes)) if sizes.size else 1.0)
        if not 1 / FURTHEST_UNIT <= made.unit <= FURTHEST_UNIT:
            raise ValueError(
                f"scale={kind!r} takes targets of a median size from {1 / FURTHEST_UNIT:g} to "
                f"{FURTHEST_UNIT:g}, got {made.unit:g}: give them in another unit"
            )
        made.check(target)
        mapped = made.forward(target)
        more = float(mapped.std())
        return replace(made, low=float(mapped.min()) - more, high=float(mapped.max()) + more)

    def check(self, y: FloatArray) -> None:
        """Refuse targets that cannot be on that scale."""
        if self.kind == "log" and not y.min() > 0:
            row = int(np.argmin(y))
            raise ValueError(
                f"scale='log' needs positive targets, got {y[row]:g} in row {row}: "
                "scale='asinh' takes any"
            )

    def to_dict(self) -> dict[str, Any]:
        """All there is to store, as plain JSON."""
        return {key: value for key, value in vars(self).items() if value not in (-np.inf, np.inf)}

    def forward(self, y: ArrayLike) -> FloatArray:
        """Targets on the scale; what a logarithm cannot be of counts as the least it can."""
        share = np.asarray(y, dtype=np.float64) / self.unit
        if self.kind == "log":
            return np.log(np.maximum(share, _SMALLEST))
        return np.arcsinh(share)

    def back(self, z: ArrayLike) -> FloatArray:
        """Targets in their own unit, the inverse of `forward`: infinite ones, and up to 1e150."""
        z = np.asarray(z, dtype=np.float64)
        end = np.log(_LARGEST) - np.log(self.unit)
        near = np.where(np.isinf(z), z, np.clip(z, -np.inf if self.kind == "log" else -end, end))
        return self.unit * (np.exp(near) if self.kind == "log" else np.sinh(near))

    def log_slope(self, y: ArrayLike) -> FloatArray:
        """Logarithm of the derivative of `forward`; minus infinity where the scale ends."""
        share = np.asarray(y, dtype=np.float64) / self.unit
        if self.kind == "asinh":
            return -0.5 * np.log1p(share**2) - np.log(self.unit)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = -np.log(share) - np.log(self.unit)
        return np.where(share > 0, slope, -np.inf)

    def limited(self, z: ArrayLike) -> FloatArray:
        """The same as `back`, of values within the limits of means, whose squares are finite."""
        return np.clip(self.back(np.clip(z, self.low, self.high)), -_LARGEST, _LARGEST)

    def moments(self, latent: Any) -> tuple[FloatArray, FloatArray]:
        """First two moments, in the target's unit, of split normals or their mixture."""
        if isinstance(latent, SplitNormalMixture):
            weights = latent.weights
            if weights.ndim == 1:
                weights = weights.reshape(-1, *(1,) * len(latent.shape))
            first, second = self.moments(latent.components)
            return sum_members(weights * first), sum_members(weights * second)
        left, right = latent.left_scale, latent.right_scale
        total = np.maximum(left + right, _SMALLEST)
        first, second = np.zeros((2, *latent.shape))
        for score, part in HALF_NORMAL.T:
            for side, scale in ((-score, left), (score, right)):
                value = self.limited(latent.loc + side * scale)
                share = part * (scale / total)
                first += share * value
                second += share * value**2
        return first, second

    def mean(self, latent: Any) -> FloatArray:
        """Expectation, in the target's unit, of split normals or their mixture."""
        return self.moments(latent)[0]


def _expected(values: FloatArray) -> FloatArray:
    """Mean over the grid, along the first axis."""
    return sum_members(_STEPS.reshape(-1, *(1,) * (values.ndim - 1)) * values)


@dataclass(frozen=True, eq=False, repr=False)
class TransformedMixture(MappedDistribution):
    """Distributions of targets whose mapped values have the distributions `latent`.

    Notes
    -----
    `mean`, `var` and `std` of a calibrated mixture, and `crps`, add up quantiles, and are right to
    a thousandth of a standard deviation, or a hundredth where humps are far apart. Means and
    variances take the ends of `TargetMap` into account. `aleatoric_var` and `epistemic_var` are of
    the networks before calibration.

    Examples
    --------
    >>> from calipers.distributions import SplitNormal
    >>> latent = SplitNormalMixture(SplitNormal([[0.0]], 1.0, 1.0))
    >>> dist = TransformedMixture(latent, TargetMap("log", 2.0))
    >>> dist.median, [bound.round(2).tolist() for bound in dist.interval(0.95)]
    (array([2.]), [[0.28], [14.2]])
    """

    latent: Any  #: Distributions on the scale of the map.
    target_map: TargetMap  #: The map.

    def __getitem__(self, key: Any) -> "TransformedMixture":
        return TransformedMixture(self.latent[key], self.target_map)

    def pdf(self, x: ArrayLike) -> FloatArray:
        return np.exp(self.logpdf(x))

    def logpdf(self, x: ArrayLike) -> FloatArray:
        at = checks.not_nan("x", x)
        inner: FloatArray = self.latent.logpdf(self.target_map.forward(at))
        return inner + self.target_map.log_slope(at)

    def _to_latent(self, value: FloatArray) -> FloatArray:
        return self.target_map.forward(value)

    def _from_latent(self, latent: FloatArray) -> FloatArray:
        return self.target_map.back(latent)

    def _quantiles(self) -> FloatArray:
        """Quantiles at the scores of the grid, along a first axis."""
        return self.ppf(ndtr(_GRID).reshape(-1, *(1,) * len(self.shape)))

    def crps(self, y: ArrayLike) -> FloatArray:
        target, q = checks.finite("y", y), self._quantiles()
        rank = (2.0 * ndtr(_GRID) - 1.0).reshape(-1, *(1,) * len(self.shape))
        return _expected(np.abs(q - target) - rank * q)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        if isinstance(self.latent, SplitNormalMixture):
            first, second = self.target_map.moments(self.latent)
            return first, np.maximum(second - first**2, 0.0)
        score = ndtr(_GRID).reshape(-1, *(1,) * len(self.shape))
        q = self.target_map.limited(self.latent.ppf(score))
        mean = _expected(q)
        return mean, _expected((q - mean) ** 2)

    @property
    def _mixture(self) -> SplitNormalMixture:
        """The networks' own, before calibration."""
        inner = self.latent
        while not isinstance(inner, SplitNormalMixture):
            inner = inner.mixture
        return inner

    @property
    def aleatoric_var(self) -> FloatArray:
        """Mean of the networks' variances, before calibration."""
        first, second = self.target_map.moments(self._mixture.by_network)
        return sum_members(np.maximum(second - first**2, 0.0)) / len(first)

    @property
    def epistemic_var(self) -> FloatArray:
        """Variance of the networks' means, before calibration."""
        means = self.target_map.mean(self._mixture.by_network)
        return sum_members((means - sum_members(means) / len(means)) ** 2) / len(means)
