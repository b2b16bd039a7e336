"""Mixtures of split normals after calibration, which are full distributions themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from calipers import _checks as checks
from calipers._blocks import blockwise
from calipers._checks import FloatArray
from calipers.calibration._corrected_rows import MixtureRows
from calipers.calibration._effective import effective_note, rows_needed
from calipers.calibration._integrals import ROWS, crps, mean_and_variance
from calipers.calibration._protocol import LevelMap
from calipers.distributions import DerivedDistribution, SplitNormalMixture, mixture_values

Unsupported: TypeAlias = Literal["inf", "raise"]


@dataclass(frozen=True, eq=False, init=False, repr=False)
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
    row_weights : array-like, optional
        Weight of each row, where the calibration has weights for covariate shift; broadcasts
        against `shape`. The calibration's expected weight if not given.
    unsupported : {"inf", "raise"}
        What `interval` does where the calibration rows are too few for the requested coverage:
        return infinite bounds, or raise a ValueError that says how many rows are needed.

    Raises
    ------
    ValueError
        If a parameter is out of range or the shape of ``row_weights`` does not fit the rows.

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
    row_weights: FloatArray
    unsupported: Unsupported
    _inner_field = "mixture"

    def __init__(
        self,
        mixture: "SplitNormalMixture | CalibratedMixture",
        calibration: LevelMap,
        row_weights: ArrayLike | None = None,
        unsupported: Unsupported = "inf",
    ) -> None:
        if unsupported not in ("inf", "raise"):
            raise ValueError(f"unsupported must be 'inf' or 'raise', got {unsupported!r}")
        weights = checks.scale(
            "row_weights", calibration.mean_weight if row_weights is None else row_weights
        )
        try:
            weights = np.broadcast_to(weights, mixture.shape)
        except ValueError:
            raise ValueError(
                f"row_weights must fit rows of shape {mixture.shape}, got shape {weights.shape}"
            ) from None
        object.__setattr__(self, "mixture", mixture)
        object.__setattr__(self, "calibration", calibration)
        object.__setattr__(self, "row_weights", weights)
        object.__setattr__(self, "unsupported", unsupported)

    def __getitem__(self, key: Any) -> "CalibratedMixture":
        weights = self.row_weights[key]
        return CalibratedMixture(self.mixture[key], self.calibration, weights, self.unsupported)

    @property
    def _steps(self) -> tuple["CalibratedMixture", ...]:
        """The chain of nested corrections including this one, the innermost first."""
        inner = self.mixture._steps if isinstance(self.mixture, CalibratedMixture) else ()
        return (*inner, self)

    def _apply(
        self,
        function: Callable[..., FloatArray | tuple[FloatArray, ...]],
        *arrays: FloatArray,
        outputs: int | None = None,
        block_rows: int | None = None,
    ) -> FloatArray:
        """Call `function` with blocks of rows and of `arrays`."""
        steps, depth = self._steps, len(self._steps)
        innermost = steps[0].mixture
        assert isinstance(innermost, SplitNormalMixture)  # noqa: S101 - for the type checker
        calibrations = tuple(step.calibration for step in steps)

        def of_block(*blocks: Any) -> FloatArray | tuple[FloatArray, ...]:
            weights, args, members = blocks[:depth], blocks[depth:-1], blocks[-1]
            return function(MixtureRows(members, calibrations, weights), *args)

        rows = [*(step.row_weights for step in steps), *arrays]
        called, members = innermost.in_blocks(of_block)
        return blockwise(called, rows, members, outputs=outputs, block_rows=block_rows)

    def normal_scores(self, x: ArrayLike) -> FloatArray:
        """`cdf` on the normal scale, accurate arbitrarily far into the tails."""
        return self._apply(MixtureRows.levels, checks.not_nan("x", x))

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at `x`; infinite at a point mass."""
        with np.errstate(over="ignore"):
            return np.exp(self.logpdf(x))

    def logpdf(self, x: ArrayLike) -> FloatArray:
        return self._apply(MixtureRows.logpdf, checks.not_nan("x", x))

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
        weights = self.row_weights
        if any(weights.strides) or not weights.size:
            return self._apply(MixtureRows.values, v)
        # All rows have the same weight, so a level has the same score in all of them.
        z = self.calibration.to_score(v, weights.flat[0])
        if isinstance(self.mixture, CalibratedMixture):
            return self.mixture._values(z)
        of_block, members = self.mixture.in_blocks(mixture_values)
        return blockwise(of_block, [z], members)

    def interval(self, coverage: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound of the central interval.

        Where the calibration rows do not support the coverage, the bounds are infinite, or, if
        `unsupported` is "raise", a ``ValueError`` is raised.
        """
        level = checks.coverage(coverage)
        tail = 0.5 * (1.0 - level)
        supported = self.calibration.supports(tail, self.row_weights)
        if self.unsupported == "raise" and not supported.all():
            self._refuse(np.broadcast_to(level, supported.shape)[~supported].max())
        v = ndtri(tail.reshape((1,) * (len(self.shape) - tail.ndim) + tail.shape))
        lower, upper = self._values(np.stack([v, -v]))
        return np.where(supported, lower, -np.inf), np.where(supported, upper, np.inf)

    def _refuse(self, coverage: float) -> None:
        calibration = self.calibration
        raise ValueError(
            f"coverage {coverage:g} needs at least {rows_needed(coverage)} calibration rows, each "
            f"of the same weight as the predicted row, got {calibration.n_rows} of total weight "
            f"{calibration.total_weight:g}{effective_note(calibration)}; unsupported='inf' gives "
            "infinite bounds instead"
        )

    def sample(self, size: int | tuple[int, ...] = (), *, rng: np.random.Generator) -> FloatArray:
        """Independent draws of shape ``(*size, *shape)``: quantiles at random levels."""
        shape = (*((size,) if isinstance(size, int) else size), *self.shape)
        return self._apply(MixtureRows.values, rng.standard_normal(shape))

    def crps(self, y: ArrayLike) -> FloatArray:
        r"""Continuous ranked probability score of `y`, to about 1e-6 standard deviations.

        .. math:: \int (F(x) - 1[x \ge y])^2 dx
        """
        return self._apply(crps, checks.finite("y", y), block_rows=ROWS)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance by quadrature; like all moments they are sensitive to outlying scores.

        The mean is accurate to about 1e-6 standard deviations, the variance to a relative 1e-6.
        """
        mean, variance = self._apply(mean_and_variance, outputs=2, block_rows=ROWS)
        return mean, variance

    @property
    def per_network(self) -> int:
        """Number of consecutive members that are the components of one network."""
        return self.mixture.per_network
