"""Distributions of a target that was predicted on a transformed scale.

A network that predicts the logarithm of a wage predicts a distribution of logarithms. Since the map
is monotone, quantiles, intervals and the distribution function transform back exactly, and normal
scores, hence calibration, do not change at all. The density has an additional factor. Means and
variances of mixtures are sums over the nodes of a quadrature rule; those of calibrated mixtures,
and the CRPS, are sums over quantiles.

A normal tail on the logarithmic scale grows exponentially on the target's own: one row in
thousands, predicted with a wide scale, would have a mean far beyond all training targets. So for
means, variances and the CRPS, values are clipped to the range of the training targets, extended by
a standard deviation. Quantiles and intervals are not clipped.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from calipers import _checks as checks
from calipers._arrays import FloatArray, IndexLike
from calipers._blocks import sum_members
from calipers._checks import MAX_TARGET
from calipers.distributions._distribution import MappedDistribution
from calipers.distributions._mixture import SplitNormalMixture
from calipers.distributions._quantile_sums import SUM_LEVELS, summed_crps, summed_moments
from calipers.distributions._split_normal import SplitNormal

if TYPE_CHECKING:
    from calipers.calibration import CalibratedMixture

_MAX_UNIT = 1e100  # units lie between its inverse and this
_MIN_FLOAT = np.finfo(float).tiny
_END, _COUNT = 8.0, 24  # largest normal score and number of nodes in moments of one side
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_COUNT)

_NODES = 0.5 * _END * (1 + _NODES)
_WEIGHTS = _WEIGHTS * np.exp(-0.5 * _NODES**2)


@dataclass(frozen=True)
class MapFormulas:
    """The formulas of a monotone map of the target in units, logarithmic for large targets."""

    forward: Callable[[FloatArray], FloatArray]
    back: Callable[[FloatArray], FloatArray]  #: The inverse of ``forward``.
    log_slope: Callable[[FloatArray], FloatArray]  #: Logarithm of the derivative of ``forward``.
    #: ``onnx(graph, value, unit)``: ``back`` of a value of a ``calipers.onnx`` graph, times a unit.
    onnx: Callable[[Any, Any, float], Any]
    positive: bool = False  #: Whether the target must be positive; others can be of any sign.


def _log_slope(ratio: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(ratio > 0, -np.log(ratio), -np.inf)


TARGET_MAPS = {
    "log": MapFormulas(
        forward=lambda ratio: np.log(np.maximum(ratio, _MIN_FLOAT)),
        back=np.exp,
        log_slope=_log_slope,
        onnx=lambda graph, value, unit: graph("Exp", value) * unit,
        positive=True,
    ),
    "asinh": MapFormulas(
        forward=np.arcsinh,
        back=np.sinh,
        log_slope=lambda ratio: -0.5 * np.log1p(ratio**2),
        onnx=lambda graph, value, unit: (graph("Exp", value) - graph("Exp", -value)) * (0.5 * unit),
    ),
}
"""Transformations of the target."""

HALF_NORMAL = np.stack([_NODES, _WEIGHTS / _WEIGHTS.sum()])
"""Nodes and weights of the quadrature rule for means over a half normal distribution."""


@dataclass(frozen=True)
class TargetMap:
    """A monotone map of the target: its logarithm, or the inverse of the hyperbolic sine.

    Examples
    --------
    >>> by_size = TargetMap.learn("log", [1.0, 10.0, 100.0])
    >>> by_size.forward([10.0]), by_size.back(np.log([10.0])).round(6)
    (array([0.]), array([100.]))
    """

    #: "log" for positive targets; "asinh" is linear near 0 and logarithmic far from it, on either
    #: side.
    kind: str
    unit: float  #: Targets are divided by this.
    #: Range on the transformed scale to which values are clipped in moments and scores.
    low: float = -np.inf
    high: float = np.inf

    def __post_init__(self) -> None:
        if self.kind not in TARGET_MAPS:
            raise ValueError(f"scale must be one of {list(TARGET_MAPS)}, got {self.kind!r}")

    @property
    def formulas(self) -> MapFormulas:
        """The formulas of its kind."""
        return TARGET_MAPS[self.kind]

    @classmethod
    def learn(cls, kind: str, y: ArrayLike) -> "TargetMap":
        """Learn the map from training targets; the unit is their median absolute value.

        Raises
        ------
        ValueError
            If a target cannot be transformed.
        """
        target = checks.finite("y", y)
        sizes = np.abs(target[target != 0])
        target_map = cls(kind, float(np.median(sizes)) if sizes.size else 1.0)
        if not 1 / _MAX_UNIT <= target_map.unit <= _MAX_UNIT:
            raise ValueError(
                f"scale={kind!r} takes targets of a median size from {1 / _MAX_UNIT:g} to "
                f"{_MAX_UNIT:g}, got {target_map.unit:g}: give them in another unit"
            )
        target_map.check(target)
        z = target_map.forward(target)
        std = float(z.std())
        return replace(target_map, low=float(z.min()) - std, high=float(z.max()) + std)

    def check(self, y: FloatArray) -> None:
        """Raise ValueError for targets that cannot be transformed."""
        if self.formulas.positive and not y.min() > 0:
            row = int(np.argmin(y))
            raise ValueError(
                f"scale={self.kind!r} needs positive targets, got {y[row]:g} in row {row}: "
                "scale='asinh' takes any"
            )

    def to_dict(self) -> dict[str, Any]:
        """The map as plain JSON."""
        return {key: value for key, value in vars(self).items() if value not in (-np.inf, np.inf)}

    def forward(self, y: ArrayLike) -> FloatArray:
        """Transformed targets; values without a logarithm count as the smallest positive number."""
        return self.formulas.forward(np.asarray(y, dtype=np.float64) / self.unit)

    def back(self, z: ArrayLike) -> FloatArray:
        """Inverse of `forward`; finite values are clipped to 1e150."""
        z = np.asarray(z, dtype=np.float64)
        end = np.log(MAX_TARGET) - np.log(self.unit)
        low = -np.inf if self.formulas.positive else -end
        clipped = np.where(np.isinf(z), z, np.clip(z, low, end))
        return self.unit * self.formulas.back(clipped)

    def log_slope(self, y: ArrayLike) -> FloatArray:
        """Logarithm of the derivative of `forward`; minus infinity outside its domain."""
        ratio = np.asarray(y, dtype=np.float64) / self.unit
        return self.formulas.log_slope(ratio) - np.log(self.unit)

    def limited(self, z: ArrayLike) -> FloatArray:
        """`back` of values clipped to `low` and `high`, with finite squares."""
        return np.clip(self.back(np.clip(z, self.low, self.high)), -MAX_TARGET, MAX_TARGET)

    def moments(self, latent: SplitNormal | SplitNormalMixture) -> tuple[FloatArray, FloatArray]:
        """First two moments, in the target's unit, of split normals or their mixture."""
        if isinstance(latent, SplitNormalMixture):
            weights = latent.weights
            if weights.ndim == 1:
                weights = weights.reshape(-1, *(1,) * len(latent.shape))
            first, second = self.moments(latent.components)
            return sum_members(weights * first), sum_members(weights * second)
        left, right = latent.left_scale, latent.right_scale
        total = np.maximum(left + right, _MIN_FLOAT)
        first, second = np.zeros((2, *latent.shape))
        for score, weight in HALF_NORMAL.T:
            for side, scale in ((-score, left), (score, right)):
                value = self.limited(latent.loc + side * scale)
                mass = weight * (scale / total)
                first += mass * value
                second += mass * value**2
        return first, second

    def mean(self, latent: SplitNormal | SplitNormalMixture) -> FloatArray:
        """Expectation, in the target's unit, of split normals or their mixture."""
        return self.moments(latent)[0]


@dataclass(frozen=True, eq=False, repr=False)
class TransformedMixture(MappedDistribution):
    """Distributions of targets whose transformed values have the distributions `latent`.

    Notes
    -----
    `mean`, `var` and `std` of a calibrated mixture, and `crps`, are sums over quantiles, accurate
    to a thousandth of a standard deviation, or a hundredth where modes are far apart. All are those
    of values clipped to the range of `TargetMap`. `aleatoric_var` and `epistemic_var` are those of
    the networks before calibration.

    Examples
    --------
    >>> from calipers.distributions import SplitNormal
    >>> latent = SplitNormalMixture(SplitNormal([[0.0]], 1.0, 1.0))
    >>> dist = TransformedMixture(latent, TargetMap("log", 2.0))
    >>> dist.median, [bound.round(2).tolist() for bound in dist.interval(0.95)]
    (array([2.]), [[0.28], [14.2]])
    """

    latent: "SplitNormalMixture | CalibratedMixture"  #: Distributions on the transformed scale.
    target_map: TargetMap  #: The transformation.

    def __getitem__(self, key: IndexLike) -> "TransformedMixture":
        return TransformedMixture(self.latent[key], self.target_map)

    @property
    def _straightened(self) -> "TransformedMixture":
        return replace(self, latent=self.latent._straightened)

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

    def crps(self, y: ArrayLike) -> FloatArray:
        return summed_crps(self._summed, checks.finite("y", y))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        if isinstance(self.latent, SplitNormalMixture):
            first, second = self.target_map.moments(self.latent)
            return first, np.maximum(second - first**2, 0.0)
        return summed_moments(self._summed)

    @property
    def _summed(self) -> FloatArray:
        """Quantiles that are summed, along a new first axis, within the range of the targets."""
        levels = SUM_LEVELS.reshape(-1, *(1,) * len(self.shape))
        return self.target_map.limited(self.latent.ppf(levels))

    @property
    def moment_range(self) -> tuple[float, float]:
        low, high = self.target_map.limited([-np.inf, np.inf])
        return float(low), float(high)

    @property
    def _mixture(self) -> SplitNormalMixture:
        """The networks' mixture, before calibration."""
        inner = self.latent
        while not isinstance(inner, SplitNormalMixture):
            inner = inner.mixture
        return inner

    @property
    def aleatoric_var(self) -> FloatArray:
        first, second = self.target_map.moments(self._mixture.by_network)
        return sum_members(np.maximum(second - first**2, 0.0)) / len(first)

    @property
    def epistemic_var(self) -> FloatArray:
        means = self.target_map.mean(self._mixture.by_network)
        return sum_members((means - sum_members(means) / len(means)) ** 2) / len(means)
