"""Mixtures of split normals after calibration, which are full distributions themselves."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from calipers import _checks as checks
from calipers._arrays import FloatArray, IndexLike
from calipers.calibration._effective import effective_note, rows_needed
from calipers.calibration._integrals import ROWS, crps, mean_and_variance
from calipers.calibration._level_map import LevelMap, MixtureRows, StraightMap, scores_of
from calipers.distributions import (
    DerivedDistribution,
    SplitNormalMixture,
    TransformedMixture,
    mixture_scores,
    mixture_values,
)

Unsupported: TypeAlias = Literal["inf", "raise"]


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedMixture(DerivedDistribution):
    r"""Distributions whose levels have been corrected by a calibration.

    With the mixture's distribution function F and the calibration's map h from levels to scores,
    the quantile at p is :math:`F^{-1}(\Phi(h(p)))`. Every other method follows from that one
    definition: `cdf` is the inverse, `pdf` the derivative, `sample` the quantile at a random
    level, `crps`, `mean` and `var` are integrals over `cdf`. So they agree with each other, and
    quantiles never cross.

    Parameters
    ----------
    mixture : SplitNormalMixture or CalibratedMixture
        The model's prediction; one that has been corrected may be corrected again.
    calibration : LevelMap
        A `Calibration`, learned from `normal_scores` of the same model.
    local : array-like, optional
        What the map of each row depends on, such as its weight under covariate shift (see
        ``LevelMap``); broadcasts against `shape`.
    unsupported : {"inf", "raise"}
        What `interval` does where the calibration rows are too few for the requested coverage:
        return infinite bounds, or raise a ValueError that says how many rows are needed.

    Raises
    ------
    ValueError
        If a parameter is out of range or the shape of ``local`` does not fit the rows.

    Notes
    -----
    `ppf`, `cdf`, `pdf` and `sample` are defined at every level: beyond the outermost calibration
    rows they have the model's tails, moved and stretched like the nearest rows. Only `interval`
    claims a coverage, so only `interval` depends on ``unsupported``.

    `mean`, `var` and `std` are those of the corrected distribution. `aleatoric_var` and
    `epistemic_var` are those of the members before the correction, and add up to the variance of
    the mixture, not to `var`: the calibration rows show how wide a distribution should be, but not
    how much of its variance is aleatoric.

    Arguments broadcast against `shape` as those of the mixture do.

    Examples
    --------
    >>> from calipers.calibration import Calibration
    >>> from calipers.distributions import SplitNormal
    >>> mixture = SplitNormalMixture(SplitNormal([[0.0, 5.0]], 1.0, 1.0))
    >>> too_wide = Calibration.from_scores(0.5 * ndtri(np.arange(1, 400) / 400))
    >>> dist = CalibratedMixture(mixture, too_wide)
    >>> lower, upper = dist.interval(0.95)
    >>> lower.round(2), upper.round(2)
    (array([-0.98,  4.02]), array([0.98, 5.98]))
    >>> dist.std.round(3), dist.cdf([0.0, 5.98]).round(3)
    (array([0.5, 0.5]), array([0.5  , 0.975]))
    >>> dist.interval(0.999)
    (array([-inf, -inf]), array([inf, inf]))
    """

    mixture: "SplitNormalMixture | CalibratedMixture"
    calibration: LevelMap
    local: NDArray[Any] | None = None
    unsupported: Unsupported = "inf"
    _inner_field = "mixture"

    def __post_init__(self) -> None:
        if self.unsupported not in ("inf", "raise"):
            raise ValueError(f"unsupported must be 'inf' or 'raise', got {self.unsupported!r}")
        if self.local is None:
            return
        try:
            object.__setattr__(self, "local", np.broadcast_to(self.local, self.shape))
        except ValueError:
            raise ValueError(
                f"local must fit rows of shape {self.shape}, got shape {np.shape(self.local)}"
            ) from None

    def __getitem__(self, key: IndexLike) -> "CalibratedMixture":
        local = None if self.local is None else self.local[key]
        return replace(self, mixture=self.mixture[key], local=local)

    @property
    def _steps(self) -> tuple["CalibratedMixture", ...]:
        """The chain of nested corrections including this one, the innermost first."""
        inner = self.mixture._steps if isinstance(self.mixture, CalibratedMixture) else ()
        return (*inner, self)

    @property
    def _straightened(self) -> "CalibratedMixture":
        def scores(rows: MixtureRows, v: FloatArray) -> FloatArray:
            return scores_of(v, rows.maps, rows.local)

        low, high = (self.apply(scores, np.full(self.shape, v)).ravel() for v in (-1.0, 1.0))
        lines = StraightMap.through(low, high)
        numbers = np.arange(low.size).reshape(self.shape)
        return CalibratedMixture(self._steps[0].mixture, lines, local=numbers)

    def apply(
        self, function: Callable[..., Any], *arrays: FloatArray, **options: Any
    ) -> FloatArray:
        """Call a function of `MixtureRows` and of `arrays` with blocks of rows."""
        steps = self._steps
        innermost: Any = steps[0].mixture
        maps = tuple(step.calibration for step in steps)
        given = [step.local for step in steps if step.local is not None]

        def of_block(*blocks: Any) -> FloatArray:
            parts, args, members = iter(blocks), blocks[len(given) : -1], blocks[-1]
            of_rows = tuple(None if step.local is None else next(parts) for step in steps)
            return function(MixtureRows(members, maps, of_rows), *args)

        return innermost.apply(of_block, *given, *arrays, **options)

    def normal_scores(self, x: ArrayLike) -> FloatArray:
        """`cdf` on the normal scale, accurate arbitrarily far into the tails."""
        return self.apply(MixtureRows.levels, checks.not_nan("x", x))

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at `x`; infinite at a point mass."""
        with np.errstate(over="ignore"):
            return np.exp(self.logpdf(x))

    def logpdf(self, x: ArrayLike) -> FloatArray:
        return self.apply(MixtureRows.logpdf, checks.not_nan("x", x))

    def cdf(self, x: ArrayLike) -> FloatArray:
        return ndtr(self.normal_scores(x))

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(X > x), accurate in the upper tail."""
        return ndtr(-self.normal_scores(x))

    def ppf(self, p: ArrayLike) -> FloatArray:
        return self._values(ndtri(checks.probability("p", p)))

    def isf(self, q: ArrayLike) -> FloatArray:
        return self._values(-ndtri(checks.probability("q", q)))

    def _values(self, v: FloatArray) -> FloatArray:
        """Quantiles at levels on the normal scale."""
        local = self.local
        if local is not None and (any(local.strides) or not local.size):
            return self.apply(MixtureRows.values, v)
        # All rows have the same map, so a level has the same score in all of them.
        z = self.calibration.to_score(v, None if local is None else local.flat[0])
        if isinstance(self.mixture, CalibratedMixture):
            return self.mixture._values(z)
        return self.mixture.apply(mixture_values, z)

    def interval(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the central interval.

        Where the calibration rows do not support the coverage, the bounds are infinite, or, if
        `unsupported` is "raise", a ``ValueError`` is raised.
        """
        level = checks.coverage(coverage)
        tail = 0.5 * (1.0 - level)
        supported = self.calibration.supports(tail, self.local)
        if self.unsupported == "raise" and not supported.all():
            self._refuse(np.broadcast_to(level, supported.shape)[~supported].max())
        v = ndtri(tail.reshape((1,) * (len(self.shape) - tail.ndim) + tail.shape))
        lower, upper = self._values(np.stack([v, -v]))
        return np.where(supported, lower, -np.inf), np.where(supported, upper, np.inf)

    def _refuse(self, coverage: float) -> None:
        rows = self.calibration.n_rows
        weight = getattr(self.calibration, "total_weight", rows)
        raise ValueError(
            f"coverage {coverage:g} needs at least {rows_needed(coverage)} calibration rows, each "
            f"of the same weight as the predicted row, got {rows} of total weight "
            f"{weight:g}{effective_note(self.calibration)}; unsupported='inf' gives "
            "infinite bounds instead"
        )

    def sample(self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator) -> FloatArray:
        """Independent draws of shape ``(*size, *shape)``: quantiles at random levels."""
        shape = (*((size,) if isinstance(size, int) else size), *self.shape)
        return self.apply(MixtureRows.values, rng.standard_normal(shape))

    def crps(self, y: ArrayLike) -> FloatArray:
        r"""Continuous ranked probability score of `y`, as accurate as `moments`.

        .. math:: \int (F(x) - 1[x \ge y])^2 dx
        """
        return self.apply(crps, checks.finite("y", y), block_rows=ROWS)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance by quadrature; like all moments they are sensitive to outlying scores.

        The mean is accurate to a few millionths of a standard deviation and the variance to a
        relative 1e-5. Where modes are so far apart that almost no density lies between them, the
        mean is accurate to a hundredth, usually a thousandth, and the variance to a few hundredths.
        Where each row has a map of its own, by its weight, both are sums over quantiles, accurate
        to a few thousandths.
        """
        mean, variance = self.apply(mean_and_variance, outputs=2, block_rows=ROWS)
        return mean, variance


def normal_scores(
    dist: SplitNormalMixture | CalibratedMixture | TransformedMixture, y: ArrayLike
) -> FloatArray:
    r"""Normal scores of targets, :math:`z = \Phi^{-1}(F(y))`, accurate however far in the tails.

    Parameters
    ----------
    dist : SplitNormalMixture, CalibratedMixture or TransformedMixture
        Predictions for the rows, by networks that were not trained on them.
    y : array-like
        Targets; broadcasts against the distributions.

    Returns
    -------
    array
        Standard normal if the model is right.

    Examples
    --------
    >>> from calipers.distributions import SplitNormal
    >>> mixture = SplitNormalMixture(SplitNormal([[0.0]], 1.0, 1.0))
    >>> normal_scores(mixture, [-1e6, -40.0, 0.5, 9.0])
    array([-1.e+06, -4.e+01,  5.e-01,  9.e+00])
    """
    target = checks.finite("y", y)
    if isinstance(dist, TransformedMixture):  # monotone transformations do not change the scores
        return normal_scores(dist.latent, dist.target_map.forward(target))
    if isinstance(dist, CalibratedMixture):
        return dist.normal_scores(target)
    return dist.apply(mixture_scores, target)
